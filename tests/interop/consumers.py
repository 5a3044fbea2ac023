"""Consumers of confluent-kafka in the test's own process, for tests that swap their settings one by one.

House rule: who needs a client in a process of its own takes `fleet`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import Consumer, TopicPartition

from tests.support.patience import WITHIN_S

SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}
"""Members send a heartbeat ten times a second."""


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
