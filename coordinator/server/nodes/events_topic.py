"""Writes events to `__rebalance_events`: to the partition that this node leads, on the thread of the topics' logs.

House rule: an event that can't be written is reported, and no answer waits for an event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coordinator.log.topics.list import Topic
from coordinator.log.topics.log import TopicLog
from coordinator.log.topics.partition import TopicPartition
from coordinator.loop.clock import Clock
from coordinator.server.nodes.topic_data import TopicData
from coordinator.server.telemetry.event_queue import WriteDone, WriteEvents
from coordinator.story.schema import Gap, TimedNote
from protocol.records.batch import Record, encode_batch

BATCH_BYTES = 256 * 1024
"""A batch ends with the record that takes it past this size."""


def into_topic(data: TopicData, topic: Topic, clock: Clock, node_id: int) -> WriteEvents:
    """A function that writes events to the first partition of `topic` that this node leads."""

    def write(events: Sequence[TimedNote | Gap], written: WriteDone) -> None:
        topic_partition = data.own_topic_partition(topic)

        def append(open_log: Callable[[TopicPartition], TopicLog]) -> tuple[int, Exception | None]:
            from coordinator.story.making import record_of  # noqa: PLC0415 - a start has no time for it

            log = open_log(topic_partition)
            log.claim()
            limits = topic_partition.limits
            now_ms = clock.wall_ms()
            for done, batch in _batches([record_of(event, node_id, now_ms) for event in events]):
                (outcome,) = log.append_batches([batch], limits, now_ms)
                if isinstance(outcome, Exception):
                    return len(events) - done, outcome
            return 0, None

        def over(outcome: Any) -> None:
            written(*((len(events), outcome) if isinstance(outcome, Exception) else outcome))
            data.wake(topic_partition.key)

        data.write(append, over)

    return write


def _batches(records: Sequence[Record]) -> list[tuple[int, bytes]]:
    """Batches of records, each with the number of records before it."""
    batches: list[tuple[int, bytes]] = []
    first = size = 0
    for index, record in enumerate(records):
        size += len(record.value or b"")
        if size > BATCH_BYTES or index == len(records) - 1:
            batches.append((first, encode_batch(records[first : index + 1], 0, 0)))
            first, size = index + 1, 0
    return batches
