"""A topic's partition as its log knows it: names, number, and the settings of the topic that concern a log.

House rule: plain values.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class Limits(NamedTuple):
    """Settings of a topic, named after Kafka's; -1: no limit."""

    max_message_bytes: int
    segment_bytes: int
    segment_ms: int
    retention_bytes: int
    retention_ms: int
    is_compacted: bool
    is_deleted: bool
    has_append_time: bool
    min_cleanable_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int


class TopicPartition(NamedTuple):
    """A partition of a topic; `number` is its index, from 0."""

    topic: str
    topic_id: UUID
    number: int
    limits: Limits

    @property
    def key(self) -> tuple[UUID, int]:
        """The part of it that never changes."""
        return self.topic_id, self.number
