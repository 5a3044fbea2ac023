"""A log that grows, as a stream: whole batches that are new since the last look.

A `Mark` is the position of the stream in a partition: the segment, the byte, and the next offset. The byte is only a
hint, because compaction replaces files. If the last batch isn't there any more, the stream searches the segment for the
offset. So no batch comes twice, and none that still exists is left out. A task gets two marks, and opens the files
between them when it runs.

At the end of the newest segment, a batch that is incomplete or has a wrong CRC is still being written: the stream stops
in front of it and takes it later. Anywhere else the stream passes damage on.

House rule: a look reads the bytes that were appended since the last one, not the whole log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from coordinator.audit.read.logs import OLD_FORMAT_KIND, RANGE_SIZE, FilePart, Piece, Range, cut, file_id, look, pieces
from coordinator.audit.spark.split import Split, read_split
from coordinator.log.segments.outside import JournalsBeside, Log, OpenSegment, opened
from protocol.checksum import crc32c
from protocol.records.batch import CRC_START, HEADER_SIZE, CorruptBatch, Header, peek_header


class Mark(NamedTuple):
    """How far a partition was read: up to `position`, where the last batch began at `batch_at`; below `next_offset`."""

    segment: int
    batch_at: int
    position: int
    next_offset: int


START = Mark(0, 0, 0, 0)
Offset = dict[str, list[int]]
"""The marks by partition, as JSON."""


class TailReader(DataSourceStreamReader):
    """The stream in the form that Spark wants."""

    def __init__(self, path: Path, table: str) -> None:
        self._path = path
        self._table = table
        self._seen: Offset = {}

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """The marks of a stream that has read nothing."""
        return {}

    def latestOffset(self) -> Offset:  # noqa: N802  as above
        """The marks behind all whole batches of the log now."""
        journals = JournalsBeside()
        for log in look(self._path).logs:
            before = Mark(*self._seen.get(str(log.partition), START))
            self._seen[str(log.partition)] = list(end_of(log, before, journals))
        return dict(self._seen)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One task for each partition that has new bytes."""
        splits: list[InputPartition] = []
        for log in look(self._path).logs:
            before, now = (Mark(*marks.get(str(log.partition), START)) for marks in (start, end))
            if before != now:
                splits.append(TailSplit(log, before, now))
        return splits or [Split([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        if isinstance(partition, Split):
            yield from read_split(partition, self._table)
            return
        assert isinstance(partition, TailSplit)
        with opened(partition.log) as segments:
            ranges = ranges_between(partition.log, segments, partition.start, partition.end)
            yield from read_split(Split(ranges), self._table)

    def commit(self, end: Offset) -> None:
        """Do nothing: the stream keeps nothing that it could remove."""


class TailSplit(InputPartition):
    """The input of a task: two marks of a partition, with the new bytes between them."""

    def __init__(self, log: Log, start: Mark, end: Mark) -> None:
        self.log = log
        self.start = start
        self.end = end


class _File:
    """A segment that is open."""

    def __init__(self, segment: OpenSegment) -> None:
        self.segment = segment
        self.size = segment.size
        self.window = FilePart(segment.descriptor, segment.size)

    def header(self, position: int) -> Header:
        at = self.window.index(position, HEADER_SIZE)
        return peek_header(self.window.data, at)

    def is_whole(self, piece: Piece) -> bool:
        """Whether the piece is a batch with the right CRC."""
        if piece.kind is not None:
            return False
        size = piece.end - piece.position
        at = self.window.index(piece.position, size)
        with memoryview(self.window.data) as view:
            return crc32c(view[at + CRC_START : at + size]) == self.header(piece.position).crc

    def position_of(self, mark: Mark) -> int:
        """The position in this file where the bytes behind `mark` begin."""
        if self.segment.base_offset == mark.segment and self._holds(mark):
            return mark.position
        if self.segment.base_offset >= mark.next_offset:
            return 0
        for piece in pieces(self.window, 0, self.size):
            if piece.kind is None and self.header(piece.position).base_offset >= mark.next_offset:
                return piece.position
        return self.size

    def _holds(self, mark: Mark) -> bool:
        """Whether the batch in front of the mark is still there, unchanged."""
        if not mark.batch_at <= mark.position - HEADER_SIZE <= self.size - HEADER_SIZE:
            return False
        try:
            header = self.header(mark.batch_at)
        except CorruptBatch:
            return False
        return header.next_offset == mark.next_offset and mark.batch_at + header.size <= mark.position


def _from(segments: Sequence[OpenSegment], mark: Mark) -> Sequence[OpenSegment]:
    """The segments that may have batches behind `mark`."""
    before = [segment for segment in segments if segment.base_offset <= mark.next_offset]
    return segments[max(len(before) - 1, 0) :]


def end_of(log: Log, mark: Mark, journals: JournalsBeside | None = None) -> Mark:
    """The mark behind the last whole batch, searched from `mark` on."""
    with opened(log, journals) as opened_segments:
        segments = _from(opened_segments, mark)
        for segment in segments:
            file = _File(segment)
            position = file.position_of(mark)
            batch_at = mark.batch_at if position == mark.position else 0
            next_offset = max(mark.next_offset, segment.base_offset)
            for piece in pieces(file.window, position, file.size):
                at_end = segment is segments[-1] and piece.end == file.size
                if at_end and piece.kind != OLD_FORMAT_KIND and not file.is_whole(piece):
                    break  # a server is still writing it
                position = piece.end
                if piece.kind is None:
                    batch_at, next_offset = piece.position, file.header(piece.position).next_offset
            mark = Mark(segment.base_offset, batch_at, position, next_offset)
    return mark


def ranges_between(log: Log, opened_segments: Sequence[OpenSegment], start: Mark, end: Mark) -> list[Range]:
    """The bytes between two marks, in ranges."""
    assert log.partition is not None
    found: list[Range] = []
    segments = _from(opened_segments, start)
    bases = {segment.base_offset for segment in segments}
    for segment in segments:
        if segment.base_offset > end.segment and segment.base_offset >= end.next_offset:
            break
        file = _File(segment)
        first = file.position_of(start)
        is_before = segment.base_offset < end.segment and end.segment in bases
        last = file.size if is_before else file.position_of(end)
        of = Range(
            log.partition, segment.base_offset, str(segment.path), 0, 0, file_id(segment.descriptor),
            descriptor=segment.descriptor,
        )  # fmt: skip
        parts = cut(file.window, first, last, RANGE_SIZE)
        found += [of._replace(start=start, end=end, gaps=gaps) for start, end, gaps in parts]
    return found
