"""A log that grows, as a stream: what is new since the last look, in whole batches.

How far the stream is in a partition is a `Mark`: the segment, where in it, and which offset comes next. The bytes are
only a hint, as compaction puts other files in the place of old ones: where the last batch isn't found again as it was,
the segment is searched for the offset. So nothing comes twice, and nothing is left out that is still there.

A batch that isn't all there, or whose CRC isn't right yet, at the very end of the newest segment is being written: the
stream ends in front of it and takes it later. Anywhere else damage is passed on as what it is.

House rule: a look reads what was appended since the last one, not the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from coordinator.audit.logs import RANGE_SIZE, Range, Window, cut, partition_folders, pieces
from coordinator.audit.spark.split import Split, read_split
from coordinator.log.disk import Disk
from coordinator.log.segment import Segment, list_segments
from protocol.checksum import crc32c
from protocol.record_batch import CRC_START, HEADER_SIZE, CorruptBatch, Header, peek_header


class Mark(NamedTuple):
    """How far a partition was read: up to `position`, where the last batch began at `batch_at`; below `next_offset`."""

    segment: int
    batch_at: int
    position: int
    next_offset: int


START = Mark(0, 0, 0, 0)
Offset = dict[str, list[int]]
"""Partition -> Mark, as JSON knows it."""


class TailReader(DataSourceStreamReader):
    """Spark's side of it."""

    def __init__(self, path: Path, table: str) -> None:
        self._path = path
        self._table = table
        self._seen: Offset = {}

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Nothing was read."""
        return {}

    def latestOffset(self) -> Offset:  # noqa: N802  as above
        """All whole batches that there are now."""
        for partition, folder in partition_folders(self._path).items():
            before = Mark(*self._seen.get(str(partition), START))
            self._seen[str(partition)] = list(end_of(folder, before))
        return dict(self._seen)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """A task for what is new in each partition."""
        splits: list[InputPartition] = []
        for partition, folder in sorted(partition_folders(self._path).items()):
            key = str(partition)
            if key in end and end[key] != start.get(key):
                ranges = ranges_between(partition, folder, Mark(*start.get(key, START)), Mark(*end[key]))
                if ranges:
                    splits.append(Split(ranges))
        return splits or [Split([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, Split)
        return read_split(partition, self._table)

    def commit(self, end: Offset) -> None:
        """Nothing is kept that could be let go."""


class _File:
    """A segment, open; its size is that of the moment."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.descriptor).st_size
        self.window = Window(self.descriptor, self.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        os.close(self.descriptor)

    def header(self, position: int) -> Header:
        at = self.window.index(position, HEADER_SIZE)
        return peek_header(self.window.data, at)

    def is_whole(self, position: int, end: int) -> bool:
        at = self.window.index(position, end - position)
        with memoryview(self.window.data) as view:
            return crc32c(view[at + CRC_START : at + end - position]) == self.header(position).crc

    def position_of(self, mark: Mark) -> int:
        """Where what comes behind `mark` begins in this file."""
        if self.segment.base_offset == mark.segment and self._holds(mark):
            return mark.position
        if self.segment.base_offset >= mark.next_offset:
            return 0
        for piece in pieces(self.window, 0, self.size):
            if piece.reason is None and self.header(piece.position).base_offset >= mark.next_offset:
                return piece.position
        return self.size

    def _holds(self, mark: Mark) -> bool:
        """Whether the batch in front of the mark is still there, as it was."""
        if not mark.batch_at <= mark.position - HEADER_SIZE <= self.size - HEADER_SIZE:
            return False
        try:
            header = self.header(mark.batch_at)
        except CorruptBatch:
            return False
        return header.next_offset == mark.next_offset and mark.batch_at + header.size <= mark.position


def _from(folder: Path, mark: Mark) -> list[Segment]:
    """The segments in which something can be that comes behind `mark`."""
    segments = list_segments(Disk(), folder)
    before = [segment for segment in segments if segment.base_offset <= mark.next_offset]
    return segments[max(len(before) - 1, 0) :]


def end_of(folder: Path, mark: Mark) -> Mark:
    """Behind the last whole batch, looking from `mark` on."""
    segments = _from(folder, mark)
    for segment in segments:
        with _File(segment) as file:
            position = file.position_of(mark)
            batch_at = mark.batch_at if position == mark.position else 0
            next_offset = max(mark.next_offset, segment.base_offset)
            for piece in pieces(file.window, position, file.size):
                at_end = segment is segments[-1] and piece.end == file.size
                if at_end and (piece.reason is not None or not file.is_whole(piece.position, piece.end)):
                    break  # it is being written
                position = piece.end
                if piece.reason is None:
                    batch_at, next_offset = piece.position, file.header(piece.position).next_offset
            mark = Mark(segment.base_offset, batch_at, position, next_offset)
    return mark


def ranges_between(partition: int, folder: Path, start: Mark, end: Mark) -> list[Range]:
    """The bytes between two marks, in ranges."""
    found: list[Range] = []
    segments = _from(folder, start)
    bases = {segment.base_offset for segment in segments}
    for segment in segments:
        if segment.base_offset > end.segment and segment.base_offset >= end.next_offset:
            break
        with _File(segment) as file:
            first = file.position_of(start)
            is_before = segment.base_offset < end.segment and end.segment in bases
            last = file.size if is_before else file.position_of(end)
            found += [
                Range(partition, segment.base_offset, str(segment.path), *places, is_tail=False)
                for places in cut(pieces(file.window, first, last), RANGE_SIZE)
            ]
    return found
