"""A caller of topics' logs for tests: it queues calls and takes the results on the test's thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from uuid import UUID

from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk
from coordinator.log.topics.compactions import Compacted
from coordinator.log.topics.logs import TopicLogs
from coordinator.log.topics.partition import TopicPartition
from coordinator.log.topics.thread import Result
from tests.log.topics.test_log import LIMITS, NOW_MS, one, values
from tests.support.patience import WITHIN_S


class Caller:
    """Makes calls, and runs their callbacks on its own thread."""

    def __init__(self, data_dir: Path, disk: Disk | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self.hops: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.failed: list[tuple[str, str]] = []
        self.works: list[str] = []
        self.strayed: list[tuple[str, str]] = []
        self.died: SimpleQueue[str] = SimpleQueue()
        self.compacted: SimpleQueue[Compacted] = SimpleQueue()
        self.counts = Counts()
        self.logs = TopicLogs(
            data_dir,
            self.hand_over,
            failed=lambda *what: self.failed.append(what),
            works=self.works.append,
            strayed=lambda *what: self.strayed.append(what),
            died=self.died.put,
            compacted=self.compacted.put,
            counts=self.counts,
            disk=disk,
            now_s=now_s,
        )
        self.outcomes: list[Any] = []

    def hand_over(self, outcomes: list[Result]) -> None:
        """Queue the callbacks for the caller's thread."""
        self.hops.put(lambda: [done(outcome) for done, outcome in outcomes])

    def append(self, partition: TopicPartition, *numbers: int) -> None:
        """Append batches of one record each."""
        for number in numbers:
            self.logs.append(partition, one(number), NOW_MS, self.outcomes.append)

    def ask(self, function: Callable[[], Any]) -> Any:
        """Make a call, behind all earlier ones; return its result."""
        found: list[Any] = []
        self.logs.call(function, found.append)
        while not found:
            self.hops.get(timeout=WITHIN_S)()
        return found[0]

    def values(self, partition: TopicPartition) -> list[bytes]:
        """Return all values of a log."""
        found: list[bytes] = self.ask(lambda: values(self.logs.log(partition)))
        return found


def part(topic_id: int = 1, topic: str = "orders", number: int = 0) -> TopicPartition:
    """Return a partition of the topic with that number."""
    return TopicPartition(topic, UUID(int=topic_id), number, LIMITS)
