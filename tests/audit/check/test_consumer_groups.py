"""A group of the consumer protocol is followed through its records: epochs, members, returns, and what is wrong."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from coordinator.audit.check.history import History, Story
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.parse import parse_record
from coordinator.audit.show.summary import summary
from coordinator.group.consumer.records import CURRENT
from coordinator.story.records.consumer import read_consumer_value
from protocol.records.batch import Record
from protocol.records.walk import decode_batches
from tests.audit.audited import audited
from tests.audit.histories import checks, story_of
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    ConsumerScene,
    Scene,
    consumer_member,
    group_key,
    group_value,
    newer_key,
    newer_value,
    static_members,
    two_consumers,
)
from tests.group.consumer.play import GROUP as PLAYED
from tests.group.consumer.play import Play
from tests.group.consumer.test_random import Client
from tests.oracle.consumer_log import GOLDEN, MARK
from tests.oracle.consumer_log import GROUP as GOLDEN_GROUP


@pytest.fixture
def kafkas(tmp_path: Path) -> Path:
    """The log folder of Apache Kafka 4.4.0 behind the play of `tests.oracle.consumer_log`."""
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(bytes.fromhex(golden["log_hex"]))
    return tmp_path


def steps_of(story: Story) -> list[tuple[str, int | None, int, str]]:
    """The steps without their times."""
    return [(step.kind, step.generation, step.members, step.cause) for step in story.steps]


def test_log_of_kafka_is_clean_and_tells_the_play(kafkas: Path) -> None:
    """Nothing is wrong with what Kafka wrote, and the story has its epochs, members and the static return."""
    result = audited(kafkas)
    assert result.findings == []
    story = next(each for each in result.stories if each.group == GOLDEN_GROUP)
    assert steps_of(story) == [
        ("converted", None, 0, "a group of the consumer protocol"),
        ("generation", 2, 1, "joined"),
        ("generation", 3, 2, "joined"),
        ("return", 3, 2, "return"),
        ("rewritten", 3, 3, "joined"),
        ("generation", 4, 3, "regular expression resolved"),
        ("generation", 5, 3, "topics changed"),
        ("generation", 6, 2, "left"),
        ("generation", 7, 3, "joined"),
        ("return", 7, 3, "return"),
        ("generation", 8, 2, "left"),
        ("generation", 9, 1, "left"),
        ("empty", 10, 0, "removed"),  # a static member of a client leaves for good only if its program asks for it
        ("deleted", None, 0, "deleted"),
    ]
    assert (story.group_type, story.deleted, story.returns) == ("consumer", True, {"seat": 2})
    assert set(story.lanes) == {"m1", "m2", "seat", "r1"}
    assert set(summary(result)["groups"]) == {GOLDEN_GROUP, MARK}


def test_compacted_log_of_kafka_is_clean() -> None:
    """Wherever a compaction ended, nothing is found in what it left: records of the past are missing, none is wrong."""
    golden: dict[str, Any] = json.loads(GOLDEN.read_text())
    batches = list(decode_batches(bytes.fromhex(golden["log_hex"])))
    for end in range(1, len(batches) + 1):
        compacted = [zip(batch.offsets, batch.records, strict=True) for batch in batches[:end]]
        last = {record.key: offset for pairs in compacted for offset, record in pairs}
        history = History(0, GOLDEN_GROUP, Limits())
        for number, batch in enumerate(batches):
            for offset, record in zip(batch.offsets, batch.records, strict=True):
                if number >= end or last[record.key] == offset:
                    for row in parse_record(0, offset, record)["records"]:
                        if row[4] == GOLDEN_GROUP:
                            history.add((*row[:8], 0, number))
            if number >= end - 1 and history.story is not None:
                assert history.finish(batch.header.max_timestamp_ms)[1] == []


def test_living_group_has_its_epoch_and_members() -> None:
    """The last epoch and the number of members are those of the records."""
    story, findings = story_of(two_consumers().scene)
    assert findings == []
    assert (story.group_type, story.generation, story.member_count) == ("consumer", 3, 2)
    assert (story.rebalances, story.causes) == (2, {"joined": 2})


def test_history_outlives_its_process() -> None:
    """`tenure audit --follow` keeps it as bytes from one look to the next."""
    kept = pickle.loads(pickle.dumps(History(0, "g", Limits())))
    assert kept.story == Story("g", 0, -1, -1)


def test_epoch_that_falls_is_found() -> None:
    """An epoch of the group, or of its target, that is lower than before is a finding, and says which."""
    made = two_consumers()
    first = made.play.log[1:4]
    scene = made.scene.append(*((record.key, record.value) for record in first if record.key[1] in (3, 6)))
    found = [each for each in story_of(scene)[1] if each.check == "generation_falls"]
    assert sorted(json.loads(each.detail)["what"] for each in found) == ["group", "target"]
    assert [json.loads(each.detail)["before"] for each in found] == [3, 3]


def test_partition_that_moves_is_never_held_twice() -> None:
    """A partition that a member must still give up is its own; the finding ends when the records are right again."""
    made = ConsumerScene().join("m").join("n").beat("m", 2, {"t": [0, 1, 2, 3]}).beat("n", 3, {})
    assert checks(made.scene) == []

    held = read_consumer_value(next(each.value or b"" for each in made.play.log if each.key[1] == CURRENT), CURRENT)[1]

    def also(value: Any) -> None:
        value.assigned_partitions = held.assigned_partitions  # type: ignore[attr-defined]
        value.assigned_partitions[0].partitions = [0]
        value.assigned_partitions[0].assignment_epochs = [2]

    made.append_changed("n", 8, also)
    assert checks(made.scene).count("partition_held_twice") == 1
    made.append_changed("n", 8, lambda _value: None)
    assert checks(made.scene).count("partition_held_twice") == 1


def test_member_that_is_away_is_not_late() -> None:
    """A static member that is away needn't reach a target."""
    made = two_consumers().beat("n", -2, instance_id="seat")
    scene = made.scene.tick(HOUR_MS).commit(5)
    assert checks(scene) == []


def test_group_without_a_target_is_late() -> None:
    """An epoch that no heartbeat led to a target is found, once the members had time."""
    made = two_consumers().beat("m", -1)
    assert checks(made.scene) == []
    made.scene.tick(HOUR_MS).commit(5)
    found = [each for each in story_of(made.scene)[1] if each.check == "target_not_reached"]
    assert [json.loads(each.detail)["members"] for each in found] == [["n"]]


def test_late_members_are_named_in_the_order_in_which_they_came() -> None:
    """It doesn't matter which of them took the last step."""
    made = ConsumerScene().join("m").join("n").beat("m", 2, {"t": [0, 1, 2, 3]})
    made.scene.tick(HOUR_MS).commit(5)
    found = [each for each in story_of(made.scene)[1] if each.check == "target_not_reached"]
    assert [json.loads(each.detail)["members"] for each in found] == [["m", "n"]]


def test_way_back_to_the_classic_protocol_is_a_step() -> None:
    """A group that is downgraded isn't shown as deleted."""
    made = two_consumers()
    gone = dict.fromkeys(record.key for record in made.play.log)
    value = group_value(static_members(a=1), 4)
    made.scene.append(*((key, None) for key in sorted(gone, key=lambda key: -key[1])), (group_key(GROUP), value))
    story, _ = story_of(made.scene)
    assert (story.group_type, story.deleted, story.generation) == ("classic", False, 4)
    assert [step.kind for step in story.steps][-2:] == ["converted", "generation"]


def test_way_to_the_consumer_protocol_is_no_rebalance() -> None:
    """A group that is upgraded goes on from its generation; its first epoch above that is a rebalance."""
    made = Scene().group(static_members(a=1, b=1), 7)
    alone = story_of(made)[0].rebalances
    for epoch, rebalances in ((7, alone), (8, alone + 1)):
        scene = Scene().group(static_members(a=1, b=1), 7)
        scene.append((group_key(GROUP), None), consumer_member(GROUP), (newer_key(GROUP), newer_value(epoch)))
        assert story_of(scene)[0].rebalances == rebalances


class Batched(Play):
    """A play that knows which records a coordinator appends as one batch."""

    def __init__(self) -> None:
        self.batches: list[list[Record]] = []
        super().__init__({"t1": 3, "u1": 2})

    def handle(self, event: Any) -> Any:
        """Handle an event as a play does."""
        before = len(self.log)
        answer = super().handle(event)
        if len(self.log) > before:
            self.batches.append(self.log[before:])
        return answer


@pytest.mark.parametrize("seed", range(6))
def test_no_play_has_a_finding_whatever_was_compacted(seed: int) -> None:
    """Members come, change, restart and go in any order; the older batches of the log have the last record of a key."""
    chance = random.Random(seed)
    play = Batched()
    clients = [Client(play, chance, number) for number in range(5)]
    for _ in range(150):
        chance.choice(clients).act()
        if chance.random() < 0.2:
            play.wait(chance.choice([500, 20_000]))
        if play.asked:
            play.resolve(**{regex: [name for name in play.topics if name[0] == regex[0]] for regex in ("t.*", "u.*")})
    compacted = chance.randrange(len(play.batches))
    last = {record.key: record for batch in play.batches[:compacted] for record in batch}
    history = History(0, PLAYED, Limits())
    for number, batch in enumerate(play.batches):
        for record in batch:
            if number >= compacted or last[record.key] is record:
                for row in parse_record(0, number, record)["records"]:
                    history.add((*row[:8], 0, number))
    changes = {"assignment_changed", "membership_changed", "partition_held_twice", "generation_falls"}
    assert changes.isdisjoint(found.check for found in history.finish(0)[1])
