"""The ends of the transactions in closed segments, by the headers of their batches and by their markers.

A marker ends the transaction of its producer. A transaction without a marker is open, even if its marker lies behind
these segments: a compaction leaves all from the first batch of the oldest open one on as it is (Kafka: up to the last
stable offset). So below the offset up to which a log is clean, no record of an aborted transaction is left.

House rule: this only reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from coordinator.log.compaction.reading import ClosedSegment, SegmentReader, records_of
from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import Frame, Segment
from coordinator.log.segments.transactions import COMMIT, marker_type
from protocol.records.batch import Header
from protocol.records.plain_keys import peek_plain

OFFSET_END = 2**63


class Outcomes:
    """See the module. stable_offset: where the oldest open transaction begins. Raises Damaged, OSError."""

    def __init__(self, disk: Disk, sources: Iterable[ClosedSegment]) -> None:
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        self._reader = SegmentReader(disk)
        begun: dict[int, int] = {}
        for segment, _ in sources:
            for frame in self._reader.frames(segment, self._pass_over):
                header = frame.header
                if not header.is_transactional:
                    continue
                if not header.is_control:
                    begun.setdefault(header.producer_id, header.base_offset)
                elif (marker := marker_in(segment, frame)) is not None:
                    first = begun.pop(header.producer_id, None)
                    if first is not None and marker != COMMIT:
                        self._aborted.setdefault(header.producer_id, []).append((first, header.base_offset))
        self.stable_offset = min(begun.values(), default=OFFSET_END)

    def is_aborted(self, header: Header) -> bool:
        """Whether a batch is of an aborted transaction."""
        spans = self._aborted.get(header.producer_id) if header.is_transactional else None
        if not spans:
            return False
        at = bisect_right(spans, (header.base_offset, OFFSET_END)) - 1
        return at >= 0 and header.base_offset < spans[at][1]

    def _pass_over(self, data: bytes, at: int) -> int:
        """Pass over plain batches (ChunkHandler)."""
        while (plain := peek_plain(data, at)) is not None and plain[1] >= self._reader.next_offset:
            at, self._reader.next_offset = plain[0], plain[2] + 1
        return at


NO_OUTCOMES = Outcomes(Disk(), ())
"""Those of a log without transactions."""


def marker_in(segment: Segment, frame: Frame) -> int | None:
    """The way in which the marker in a control batch ends a transaction; None if the batch has none."""
    try:
        return next((marker_type(record.key or b"") for record in records_of(segment, frame)), None)
    except ValueError as error:
        raise Damaged(str(segment.path), frame.position, str(error)) from error
