"""confluent-kafka with `group.protocol=consumer` (KIP-848): an unmodified client of the consumer protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.tenure import Tenure

WITHIN_S = 30

SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Tenure]:
    """A server whose members send a heartbeat ten times a second."""
    with Tenure(SETTINGS, directory=tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for created in admin.create_topics([NewTopic("orders", 6)]).values():
            created.result(WITHIN_S)
        yield running


class Served(Protocol):
    """A server."""

    @property
    def bootstrap(self) -> str:
        """Its address."""


class Member:
    """A consumer, and how often partitions came to it or went. settings: of the client."""

    def __init__(
        self, server: Served, instance_id: str | None, topics: list[str], protocol: str = "consumer", **settings: Any
    ) -> None:
        self.moves = 0
        config: dict[str, Any] = {"bootstrap.servers": server.bootstrap, "group.id": "g", "group.protocol": protocol}
        config |= {name.replace("_", "."): value for name, value in settings.items()}
        if instance_id is not None:
            config["group.instance.id"] = instance_id
        self.consumer = Consumer(config)
        self.consumer.subscribe(topics, on_assign=self._moved, on_revoke=self._moved)

    def _moved(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.moves += bool(partitions)

    def held(self) -> list[tuple[str, int]]:
        """The partitions that it has."""
        return sorted((each.topic, each.partition) for each in self.consumer.assignment())


def until(members: list[Member], holds: Callable[[], bool], what: str) -> None:
    """Poll until something holds."""
    end = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < end, f"not in time: {what}; {[member.held() for member in members]}"
        for member in members:
            member.consumer.poll(0.05)


def all_held(members: list[Member], count: int) -> bool:
    """Whether the members share this many partitions evenly."""
    held = [partition for member in members for partition in member.held()]
    sizes = [len(member.held()) for member in members]
    return len(held) == len(set(held)) == count and max(sizes) - min(sizes) <= 1


def test_static_restart_moves_nothing(server: Tenure) -> None:
    """Three static members share the topic; one restarts and has its partitions again, the others notice nothing."""
    members = [Member(server, f"worker-{number}", ["orders"]) for number in range(3)]
    until(members, lambda: all_held(members, 6), "three members share six partitions")
    before = [member.held() for member in members]
    moves = [member.moves for member in members]
    members[1].consumer.close()
    members[1] = Member(server, "worker-1", ["orders"])
    until(members, lambda: members[1].held() == before[1], "the restarted member has its partitions")
    assert [member.held() for member in members] == before
    assert [members[0].moves, members[2].moves] == [moves[0], moves[2]]
    for member in members:
        member.consumer.close()


def test_topic_that_grows_and_regular_expression(server: Tenure) -> None:
    """New partitions and a topic that comes later reach members, by name and by regular expression."""
    members = [Member(server, None, ["^ord.*"]), Member(server, None, ["orders"])]
    until(members, lambda: all_held(members, 6), "two members share six partitions")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for grown in admin.create_partitions([NewPartitions("orders", 8)]).values():
        grown.result(WITHIN_S)
    until(members, lambda: all_held(members, 8), "two members share eight partitions")
    for member in members:
        member.consumer.close()


def test_members_go_on_after_a_crash(server: Tenure) -> None:
    """The server is killed and starts again from its log: nothing moves."""
    members = [Member(server, f"worker-{number}", ["orders"]) for number in range(2)]
    until(members, lambda: all_held(members, 6), "two members share six partitions")
    before, moves = [member.held() for member in members], [member.moves for member in members]
    server.kill()
    server.start()
    offset = TopicPartition("orders", before[0][0][1], 5)

    def committed() -> bool:
        try:
            members[0].consumer.commit(offsets=[offset], asynchronous=False)
        except Exception:  # noqa: BLE001 - the client finds its coordinator again in its own time
            return False
        return True

    until(members, committed, "a commit after the crash")
    assert [member.held() for member in members] == before
    assert [member.moves for member in members] == moves
    for member in members:
        member.consumer.close()
