"""The offsets of a group, as their server tells them: the part that findings and lags look at.

House rule: plain values. `coordinator.client` asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coordinator.story.described import Member


class Expiry(NamedTuple):
    """The log keeps records before this offset for less than `within_ms`, by its retention.ms."""

    within_ms: int
    offset: int


class Ahead(NamedTuple):
    """Where the next record is for readers of committed records, as far as somebody looked from a committed offset on.

    is_record: whether a record is there, or was; else the look ended there. is_refused: whether the user may not look.
    made_ms: the newest timestamp of the record's batch, so the record is as old or older; None if nobody knows.
    """

    offset: int
    is_record: bool = False
    is_refused: bool = False
    made_ms: int | None = None


class BlockingTransaction(NamedTuple):
    """The open transaction at which readers of committed records wait. None stands for what the client may not know.

    start_offset: where they wait. transactional_id, until_ms: the id, and when its coordinator aborts it; None if no
    coordinator shows it as open. since_ms: when it began; without a coordinator when its producer last wrote.
    """

    start_offset: int
    transactional_id: str | None = None
    producer_id: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def producer_text(self) -> str:
        """The producer, by the best name that is known."""
        if self.transactional_id is not None:
            return f"transactional id {self.transactional_id}"
        return "a producer" if self.producer_id is None else f"producer id {self.producer_id}"


class OffsetLine(NamedTuple):
    """A topic partition of a group.

    member: None if the group only committed offsets for the topic partition. topic: None for a member that has no topic
    partition. current_offset: None if there is none, or if it is below 0. expiry: None if nobody knows. told_lag: where
    the server counts the records behind the end, because some before it are dealt with already (share groups).
    stable_offset: where readers of committed records stop, if a transaction keeps them from the end of the log. No
    request of a group tells its members' isolation.level, so both lags may be the one that counts. ahead: None if
    nobody looked for the next record. holder: the transaction at stable_offset; None if nobody asked for it.
    """

    topic: str | None
    partition: int | None
    current_offset: int | None
    log_end_offset: int | None
    member: Member | None
    log_start_offset: int | None = None
    expiry: Expiry | None = None
    told_lag: int | None = None
    stable_offset: int | None = None
    ahead: Ahead | None = None
    holder: BlockingTransaction | None = None

    @property
    def pair(self) -> tuple[str, int] | None:
        """The topic partition, if there is one."""
        return None if self.topic is None or self.partition is None else (self.topic, self.partition)

    @property
    def position(self) -> int:
        """The committed offset, or the offset up to which nothing behind it can be read."""
        return (self.current_offset or 0) if self.ahead is None else self.ahead.offset

    @property
    def is_held(self) -> bool:
        """Whether an open transaction keeps readers of committed records from reading on."""
        return self.stable_offset is not None and self.stable_offset <= self.position

    @property
    def has_all(self) -> bool:
        """Whether nothing between the committed offset and the end of the log can be read."""
        return self.log_end_offset is not None and self.log_end_offset <= self.position

    @property
    def stable_lag(self) -> int | None:
        """The lag of readers of committed records: records of open transactions don't count."""
        if self.stable_offset is None or self.current_offset is None or self.told_lag is not None:
            return self.lag
        return max(self.stable_offset - self.position, 0)

    @property
    def lag(self) -> int | None:
        """Records behind the end; negative if the committed offset is beyond the end, as in Kafka's tool."""
        if self.told_lag is not None:
            return self.told_lag
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.position

    @property
    def has_no_end(self) -> bool:
        """Whether nobody says where the log ends."""
        return self.log_end_offset is None

    @property
    def is_beyond_end(self) -> bool:
        """Whether the committed offset lies beyond the end of the log: its records are elsewhere, or were deleted."""
        return self.lag is not None and self.lag < 0


NO_OFFSET = -1
"""An offset that a column has no number for."""


class TopicOffsets(NamedTuple):
    """The topic partitions of a group that are of one topic, in columns: there may be 100,000 of them.

    indexes: in order. members, offsets, ends: of each, as those of a line; NO_OFFSET in place of None. lines: by index,
    of those that may have records to read. Of the others the columns say all.
    """

    indexes: Sequence[int]
    members: Sequence[Member | None]
    offsets: Sequence[int]
    ends: Sequence[int]
    lines: Mapping[int, OffsetLine]

    def all_lines(self, topic: str) -> Iterator[OffsetLine]:
        """A line for each topic partition."""
        for index, member, offset, end in zip(self.indexes, self.members, self.offsets, self.ends, strict=True):
            yield self.lines.get(index) or OffsetLine(topic, index, offset, end, member)


GroupOffsets = Mapping[str, TopicOffsets]
"""The offsets of a group, by topic."""


class HoldingTransaction(NamedTuple):
    """A transaction in whose partition of `__consumer_offsets` offsets of a group are pending.

    transactional_id, until_ms: the id, and when its coordinator aborts it; None if no coordinator shows it as open.
    start_offset: where it begins there, -1 if the client may not know. since_ms: when its producer last wrote there.
    offsets: the group's topic partitions with pending offsets, of all producers.
    """

    transactional_id: str | None
    producer_id: int
    partition: int
    start_offset: int
    since_ms: int
    until_ms: int | None
    offsets: Sequence[tuple[str, int]] = ()
