"""`tenure observe` beside three brokers of Apache Kafka that are killed, restarted and frozen; two minutes.

    python -m tests.oracle.observe_cluster

Real consumers of four groups come and go meanwhile. The observer knows the address of one broker alone, and this is
the one that is killed first. In the end each generation in `__consumer_offsets` is in the file of events exactly once,
with its members, and no line has said that the cluster is away. It prints figures; `make nightly` runs it.

House rule: the truth is decoded here by hand, from records that an unmodified consumer reads.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coordinator.client.client import Client
from coordinator.client.topics import partition_owners
from coordinator.group.partition import partition_for
from tests.observe.test_observer import Observing, observing
from tests.support.apache import available
from tests.support.apache_cluster import PARTITIONS, ApacheCluster, ApacheNode
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

FROZEN_S = 10.0
SHOWN_WITHIN_S = 20.0
"""From a record to the page. A broker is away for a session of 3 s before Kafka's replicas go on without it, and before
that nobody can read the record; a request to a frozen broker takes 5 s.
"""


class Generation(NamedTuple):
    """A generation that the log has: its members, by their ids."""

    group: str
    number: int
    members: frozenset[str]


class Members:
    """Real consumers by name, which poll on threads of their own.

    assigned_s: by group, when a member last got its partitions (time.monotonic).
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ends: dict[str, tuple[threading.Event, threading.Thread]] = {}
        self.assigned_s: dict[str, float] = {}

    def start(self, group: str, name: str, *, static: bool = False) -> None:
        """A consumer joins; a static one has its name as instance id."""
        over = threading.Event()
        settings: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "group.id": group, "client.id": name}
        settings |= {"group.instance.id": name} if static else {}
        settings |= {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 500, "reconnect.backoff.max.ms": 500}

        def poll() -> None:
            consumer = Consumer(settings | {"log_level": 0})
            consumer.subscribe(["orders"], on_assign=lambda *_: self.assigned_s.update({group: time.monotonic()}))
            while not over.is_set():
                consumer.poll(0.1)
            consumer.close()

        thread = threading.Thread(target=poll, name=name)
        thread.start()
        self._ends[name] = over, thread

    def stop(self, name: str) -> None:
        """A consumer closes: a dynamic one leaves."""
        over, thread = self._ends.pop(name)
        over.set()
        thread.join(WITHIN_S)

    def stop_all(self) -> None:
        """All close."""
        for over, _ in self._ends.values():
            over.set()
        for name in list(self._ends):
            self.stop(name)


class Page:
    """Notes when the page first shows each generation of some groups."""

    def __init__(self, observer: Observing, groups: Mapping[str, object]) -> None:
        self._observer = observer
        self._groups = groups
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen_ms: dict[tuple[str, int], int] = {}

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for group in list(self._groups):
                if self._observer.status(f"/groups/{group}/events") == 200:
                    for entry in self._observer.get(f"/groups/{group}/events")["timeline"]:
                        if entry["type"] == "rebalance" and entry["outcome"] == "completed":
                            self.seen_ms.setdefault((group, entry["generation"]), time.time_ns() // 1_000_000)

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """Look until the block ends."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()


def groups_in_log(bootstrap: str, groups: list[str]) -> dict[Generation, int]:
    """The generations of these groups in the log, in its order, each with the time of its first record."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads", "enable.auto.commit": False})
    found: dict[tuple[str, int], tuple[Generation, int]] = {}
    for number in sorted({partition_for(group, PARTITIONS) for group in groups}):
        at = TopicPartition("__consumer_offsets", number, OFFSET_BEGINNING)
        _, end = reader.get_watermark_offsets(at, WITHIN_S)
        reader.assign([at])
        position = 0
        while position < end:
            message = reader.poll(WITHIN_S)
            assert message is not None
            assert not message.error()
            offset = message.offset()
            assert offset is not None
            position = offset + 1
            key, value = message.key(), message.value()
            if key is None or value is None or key[:2] != b"\0\2" or key[4:].decode() not in groups:
                continue
            generation = decoded(key[4:].decode(), value)
            found.setdefault(generation[:2], (generation, message.timestamp()[1]))
    reader.close()
    return dict(found.values())


def decoded(group: str, value: bytes) -> Generation:
    """The value of a group's record (GroupMetadataValue, versions 2 and 3)."""
    position = 0

    def take(form: str) -> int:
        nonlocal position
        (number,) = struct.unpack_from(form, value, position)
        position += struct.calcsize(form)
        return int(number)

    def text(form: str = ">h") -> str:
        nonlocal position
        length = take(form)
        begin, position = position, position + max(length, 0)
        return value[begin:position].decode(errors="replace")

    version = take(">h")
    assert version in {2, 3}
    text()
    number = take(">i")
    text(), text(), take(">q")
    members = set()
    for _ in range(take(">i")):
        members.add(text())
        texts = 3 if version == 3 else 2
        for _ in range(texts):
            text()
        take(">i"), take(">i")
        text(">i"), text(">i")
    return Generation(group, number, frozenset(members))


def on_partition(wanted: set[int], prefix: str) -> str:
    """An id of a group on one of these partitions of the log."""
    return next(name for name in (f"{prefix}-{n}" for n in count()) if partition_for(name, PARTITIONS) in wanted)


def events_in(file: Path) -> list[dict[str, Any]]:
    """The events in a file."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def completed_in(file: Path) -> list[dict[str, Any]]:
    """The completed rebalances in a file."""
    return [event for event in events_in(file) if event.get("outcome") == "completed"]


def compare(events: list[dict[str, Any]], truth: list[Generation]) -> None:
    """Each generation of the log is in the events exactly once, with its members, and they have no other."""
    ended = [event for event in events if event["type"] == "rebalance_ended"]
    told = Counter((event["group"], event["generation"]) for event in ended)
    assert [each for each, times in told.items() if times > 1] == []
    completed = {
        Generation(event["group"], event["generation"], frozenset(each["member_id"] for each in event["after"]))
        for event in ended
        if event["outcome"] == "completed"
    }
    assert all(each.members for each in truth)
    assert completed == set(truth)
    for group in {each.group for each in truth}:
        numbers = [event["generation"] for event in ended if event["group"] == group]
        assert numbers == sorted(numbers)


class Play:
    """The cluster, its groups with the names of their members, and the observer."""

    def __init__(self, kafka: ApacheCluster, observer: Observing) -> None:
        self.kafka = kafka
        self.bootstrap = ",".join(kafka.bootstraps)
        self.observer = observer
        self.members = Members(self.bootstrap)
        self.groups: dict[str, set[str]] = {}

    def leads(self, group: str) -> ApacheNode:
        """The broker that has a group."""
        number = partition_for(group, PARTITIONS)
        return next(node for node in self.kafka.nodes if number in self.led_by(node))

    def led_by(self, node: ApacheNode) -> set[int]:
        """The partitions of the log that a broker leads."""
        with Client(self.bootstrap) as client:
            owners = partition_owners(client).nodes
        return {number for owner, led in owners.items() if owner.address.port == node.port for number in led}

    def join(self, group: str, *names: str, static: bool = False) -> None:
        """Members join."""
        for name in names:
            self.members.start(group, name, static=static)
            self.groups.setdefault(group, set()).add(name)

    def leave(self, group: str, name: str) -> None:
        """A member leaves."""
        self.members.stop(name)
        self.groups[group].remove(name)

    def settle(self, *groups: str) -> float:
        """Wait until the page shows the members of these groups as they are.

        The longest time, in seconds, from the newest assignment of a group to that.
        """
        began_s, took_s = time.monotonic(), 0.0
        pending = set(groups)
        while pending:
            for group in [each for each in pending if self._is_shown(each)]:
                pending.remove(group)
                took_s = max(took_s, time.monotonic() - max(began_s, self.members.assigned_s[group]))
            assert time.monotonic() < began_s + WITHIN_S, f"not on the page: {[self.groups[each] for each in pending]}"
        return took_s

    def _is_shown(self, group: str) -> bool:
        threading.Event().wait(0.2)
        if self.observer.status(f"/groups/{group}/events") != 200:
            return False
        timeline = self.observer.get(f"/groups/{group}/events")["timeline"]
        ended = [entry for entry in timeline if entry["type"] == "rebalance" and entry["outcome"] == "completed"]
        if not ended or {each["client_id"] for each in ended[-1]["after"]} != self.groups[group]:
            return False
        if self.observer.status(f"/groups/{group}") != 200:
            return False
        group_now = self.observer.get(f"/groups/{group}")
        return group_now["state"] == "Stable" and len(group_now["members"]) == len(self.groups[group])


def play(stage: Play, still: str, loose: str, beside: str) -> None:
    """All that happens."""
    victim = stage.leads(loose)
    stage.join(still, "s1", "s2", static=True)
    stage.join(loose, "d1", "d2")
    stage.join(beside, "b1")
    say("three groups", stage.settle(still, loose, beside))
    stage.members.stop("s2")
    stage.members.start(still, "s2", static=True)
    stage.join(loose, "d3")
    say("a static restart, a new member", stage.settle(still, loose))

    victim.kill()
    stage.join(beside, "b2")
    say("the leader is killed: a member joins beside", stage.settle(beside))
    stage.join(loose, "d4")
    stage.join(still, "s3", static=True)
    stage.leave(loose, "d1")
    say("the leader is away: its groups", stage.settle(loose, still, beside))
    victim.start()
    stage.join(loose, "d5")
    say("it is back", stage.settle(loose))

    for number, node in enumerate(stage.kafka.nodes):
        node.stop()
        stage.join(loose, f"r{number}")
        say(f"broker {number + 1} stopped", stage.settle(loose))
        node.start()
        stage.leave(loose, f"r{number}")
        say(f"broker {number + 1} started", stage.settle(loose, still, beside))

    frozen = stage.leads(loose)
    others = set(range(PARTITIONS)) - stage.led_by(frozen)
    other = on_partition(others, "other")
    frozen.freeze()
    thawing = threading.Timer(FROZEN_S, frozen.thaw)
    thawing.start()
    stage.join(other, "o1")
    say("a broker is frozen: a member joins beside", stage.settle(other))
    stage.join(loose, "d6")
    thawing.join()
    stage.leave(loose, "d2")
    say("it is thawed", stage.settle(loose, still, beside, other))


def say(what: str, seconds: float) -> None:
    """A line of the run's output."""
    print(f"{what}: on the page {seconds:.1f} s after the members had their partitions", flush=True)


def main(folder: Path) -> None:
    """Play, and compare. Raises AssertionError."""
    file = folder / "events.jsonl"
    with ApacheCluster(settings={"group.initial.rebalance.delay.ms": "0"}) as kafka:
        bootstrap = ",".join(kafka.bootstraps)
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 6, 3)])["orders"].result(WITHIN_S)
        still = "still"
        number = partition_for(still, PARTITIONS)
        loose = on_partition({number}, "loose")
        with Client(bootstrap) as client:
            owners = partition_owners(client).nodes
        beside = on_partition({one for led in owners.values() if number not in led for one in led}, "beside")
        known = next(node.address for node, led in owners.items() if number in led)
        with observing(str(known), folder, "--events", str(file)) as observer:
            stage = Play(kafka, observer)
            page = Page(observer, stage.groups)
            try:
                with page.looked_at():
                    play(stage, still, loose, beside)
                truth = groups_in_log(bootstrap, list(stage.groups))
                wait_until(lambda: len(completed_in(file)) >= len(truth), "all events", WITHIN_S)
                events = events_in(file)
            finally:
                print(*(line for line in observer.log.splitlines() if "http_broke" not in line), sep="\n")
                stage.members.stop_all()
        said = [line for line in observer.lines if line.startswith(("broker_", "cluster_", "log_"))]
    compare(events, list(truth))
    delays = {
        (each.group, each.number): (page.seen_ms[each.group, each.number] - at_ms) / 1000
        for each, at_ms in truth.items()
        if (each.group, each.number) in page.seen_ms
    }
    print(len(truth), "generations; from the record to the page:", sorted(delays.values()))
    print("lines:", *said)
    assert said, "no broker was away"
    assert said == ["broker_away", "broker_back"] * (len(said) // 2)
    assert max(delays.values()) < SHOWN_WITHIN_S


if __name__ == "__main__":
    why_not = available()
    if why_not is not None:
        print(why_not)
        sys.exit(0)
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
