"""Closed segments of a log, and how a pass of a compaction reads them: batch by batch, each checked.

House rule: bytes that are no batch, or a batch out of order, raise Damaged with file and position.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk, closing
from coordinator.log.segments.segment import ChunkHandler, Frame, Segment, list_segments, read_others
from protocol.records.batch import CorruptBatch
from protocol.records.rewrite import RecordSlice, slice_records


class ClosedSegment(NamedTuple):
    """A closed segment, and the offset where it ends."""

    segment: Segment
    end: int


def closed_segments(disk: Disk, folder: Path, end_offset: int) -> list[ClosedSegment]:
    """The segments that start below `end_offset`, oldest first."""
    segments = [segment for segment in list_segments(disk, folder) if segment.base_offset < end_offset]
    ends = [*(segment.base_offset for segment in segments), end_offset][1:]
    return list(map(ClosedSegment, segments, ends))


class SegmentReader:
    """Reads segments for one pass. next_offset: the lowest offset that the next batch of a segment may have."""

    def __init__(self, disk: Disk) -> None:
        self.next_offset = 0
        self._disk = disk

    def frames(self, segment: Segment, handle: ChunkHandler) -> Iterator[Frame]:
        """Yield the batches that `handle` leaves; `handle` sets `next_offset` behind the batches that it handles."""
        self.next_offset = segment.base_offset
        descriptor = self._disk.open(segment.path)
        try:
            for frame in read_others(self._disk, descriptor, self._disk.size(descriptor), handle):
                if not isinstance(frame, Frame):
                    continue
                if frame.header.base_offset < self.next_offset:
                    reason = f"offset {frame.header.base_offset}, expected {self.next_offset} or later"
                    raise Damaged(str(segment.path), frame.position, reason)
                yield frame
                self.next_offset = frame.header.next_offset
        except CorruptBatch as error:
            raise Damaged(str(segment.path), error.position, error.reason) from error
        finally:
            self._disk.close(descriptor)

    def size(self, segment: Segment) -> int:
        """Bytes of a segment."""
        with closing(self._disk, self._disk.open(segment.path)) as descriptor:
            return self._disk.size(descriptor)


def records_of(segment: Segment, frame: Frame) -> list[RecordSlice]:
    """The records of a batch of `segment`."""
    try:
        return slice_records(frame.data, frame.at, frame.header)
    except CorruptBatch as error:
        raise Damaged(str(segment.path), frame.position, error.reason) from error
