"""Events as records of `__rebalance_events`: to the partition that this node leads, on the thread of the topics' logs.

House rule: an event that can't be written is reported, and nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from coordinator.timeline.schema import Gap, TimedNote, record_of
from protocol.records.batch import encode_batch

if TYPE_CHECKING:
    from coordinator.log.topic_log import TopicLog
    from coordinator.log.topic_logs import Place
    from coordinator.log.topics import Topic
    from coordinator.server.clock import Clock
    from coordinator.server.nodes.topic_data import TopicData
    from coordinator.server.telemetry.event_queue import Write, Written
    from protocol.records.batch import Record

BATCH_BYTES = 256 * 1024
"""A batch that is larger is closed; a single record may be larger."""


def into_topic(data: TopicData, topic: Topic, clock: Clock, node_id: int) -> Write:
    """What writes events to a partition of `topic` that this node leads."""

    def write(events: Sequence[TimedNote | Gap], written: Written) -> None:
        place = data.own_place(topic)

        def append(open_log: Callable[[Place], TopicLog]) -> tuple[int, Exception | None]:
            log = open_log(place)
            log.claim()
            limits = place.limits
            now_ms = clock.wall_ms()
            for done, batch in _batches([record_of(event, node_id, now_ms) for event in events]):
                (outcome,) = log.append_batches([batch], limits, now_ms)
                if isinstance(outcome, Exception):
                    return len(events) - done, outcome
            return 0, None

        def over(outcome: Any) -> None:
            written(*((len(events), outcome) if isinstance(outcome, Exception) else outcome))
            data.wake(place.key)

        data.write(append, over)

    return write


def _batches(records: Sequence[Record]) -> list[tuple[int, bytes]]:
    """Batches, each with the number of records in those before it."""
    batches: list[tuple[int, bytes]] = []
    first = size = 0
    for index, record in enumerate(records):
        size += len(record.value or b"")
        if size > BATCH_BYTES or index == len(records) - 1:
            batches.append((first, encode_batch(records[first : index + 1], 0, 0)))
            first, size = index + 1, 0
    return batches
