"""Records and answers that no Kafka writes cost the observer nothing but themselves."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest

from coordinator.client.client import Cluster
from coordinator.observe import follower, live
from coordinator.observe.asking import Asking, Budget
from coordinator.observe.follower import Follower
from coordinator.observe.live import Live
from coordinator.story.entries import Timeline
from coordinator.story.events import RebalanceEvent
from coordinator.story.inference.observed import Observed
from coordinator.story.words import timed_lines
from tests.client.scripted import HANG_UP, Scripted
from tests.observe.accuracy import recorded
from tests.observe.conftest import Written
from tests.support.length import rounds

ASKED = (
    *("ConsumerGroupDescribe", "DescribeConfigs", "DescribeGroups", "Fetch", "FindCoordinator", "ListGroups"),
    *("ListOffsets", "Metadata"),
)
"""What an observer asks for."""

TURNS = 60
SEEDS = rounds(2, 4, 400)
TIMES = (-(2**63), -1, 0, 2**63 - 1)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes that are flipped, cut off, put in, or repeated."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0 if at < len(changed):
                changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = chance.randbytes(chance.choice((1, 4, 40)))
            case _:
                changed[at:at] = changed[at : at + chance.randrange(200)]
    return bytes(changed)


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(SEEDS))
def test_damaged_records_stop_nothing(seed: int) -> None:
    """Keys, values, times and order of real records are changed: whatever comes of it has its words."""
    chance = random.Random(seed)
    histories = list(recorded())
    for history in chance.sample(histories, 25):
        observed = Observed({}, {history.group: 45_000})
        events: list[RebalanceEvent] = []
        records = list(history.records)
        if chance.random() < 0.3:
            chance.shuffle(records)
        for offset, record in enumerate(records):
            key, value, at_ms = record.key, record.value, record.at_ms
            if chance.random() < 0.05:
                key = damaged(key, chance)
            if value is not None and chance.random() < 0.2:
                value = damaged(value, chance)
            if chance.random() < 0.02:
                value = None
            if chance.random() < 0.05:
                at_ms = chance.choice(TIMES)
            events += observed.add(offset, at_ms, key, value)
            events += observed.end_batch()
        for group in {event.group for event in events if event.group is not None}:
            for entry in islice(Timeline(group).add_all([e for e in events if e.group == group]).entries, 50):
                assert timed_lines(entry)


class Turns:
    """An event that is set after so many turns, and waits for nothing."""

    def __init__(self, turns: int) -> None:
        self._left = turns

    def is_set(self) -> bool:
        """Whether the turns are over."""
        self._left -= 1
        return self._left < 0

    def wait(self, _seconds: float) -> bool:
        """Don't."""
        return False


class Nowhere:
    """A feed that keeps nothing."""

    def begin(self, *_: Any) -> None:
        """As News."""

    def put(self, *_: Any) -> None:
        """As News."""


def nonsense(server: Scripted, name: str, chance: random.Random) -> Any:
    """An answer to that API that no Kafka gives, or perhaps one that it gives."""
    is_there = chance.random() < 0.8
    port = server.port if is_there else chance.choice((-1, 0, 70_000))
    host = "127.0.0.1" if is_there else chance.choice(("", "\0", "x" * 300))
    offset = chance.choice((0, 5, -1, 2**62))
    match name:
        case "Metadata":
            led = [{"partition_index": at, "leader_id": 1} for at in range(2)]
            brokers = [{"node_id": 1, "host": host, "port": port}]
            return {"brokers": brokers, "topics": [{"name": "__consumer_offsets", "partitions": led}]}
        case "Fetch":
            part: dict[str, Any] = {
                "partition_index": chance.choice((0, 1, 7)),
                "error_code": chance.choice((0, 0, 1, 6, 75)),
                "high_watermark": offset,
                "records": chance.randbytes(chance.choice((0, 5, 200))),
            }
            if chance.random() < 0.3:
                part["diverging_epoch"] = {"epoch": chance.choice((-1, 9)), "end_offset": offset}
            return {"responses": [{"partitions": [part]}]}
        case "ListOffsets":
            return {"topics": [{"partitions": [{"offset": offset}]}]}
        case "FindCoordinator":
            key = chance.choice(("g", "no"))
            return {"coordinators": [{"key": key, "node_id": 1, "host": host, "port": port}]}
        case "ListGroups":
            state = chance.choice(("Stable", "PreparingRebalance", "odd"))
            return {"groups": [{"group_id": "g", "group_state": state}]}
        case "DescribeGroups":
            member = {"member_id": "m", "member_assignment": chance.randbytes(9)}
            known = {"group_state": "Stable", "protocol_type": "consumer", "members": [member]}
            return {"groups": [{"group_id": chance.choice(("g", "no")), **known}]}
    return {}


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(max(SEEDS // 4, 2)))
def test_a_broker_that_answers_nonsense_ends_no_thread(
    seed: int, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes back, both threads ask again."""
    monkeypatch.setattr(follower, "WAIT_MS", 0)
    monkeypatch.setattr(live, "LIST_S", 0.0)
    chance = random.Random(seed)
    with Scripted() as server:

        def answer(name: str) -> Any:
            if chance.random() < 0.05:
                return HANG_UP
            if chance.random() < 0.05:
                size = chance.choice((0, 4, 30, 3_000))
                return chance.choice((size, -1, 2**31 - 1)).to_bytes(4, "big", signed=True) + chance.randbytes(size)
            if chance.random() < 0.1:
                return {}
            return nonsense(server, name, chance)

        for name in ASKED:
            server.answers(name, lambda _request, name=name: answer(name))
        asking = Asking(Cluster(server.bootstrap), Budget(1e6, 1_000_000), 0.1)
        looking = Live(asking, written.lines, lambda _looks: None)
        Follower(asking.own, 0.1, written.lines).follow(Nowhere(), Turns(TURNS))  # type: ignore[arg-type]
        looking.run(Turns(TURNS))  # type: ignore[arg-type]
        asking.close()
    assert {api for api, _, _ in server.requests} >= {"Fetch", "FindCoordinator", "ListGroups", "Metadata"}
