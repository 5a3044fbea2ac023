"""Where the batches of a log are, and reading them: for who has the log in memory, and for who only looks at its files.

Every INDEX_INTERVAL bytes of a segment there is an offset, its position and the largest timestamp before it; from there
on headers are read. No index is kept on disk.

House rule: nothing here writes. Source: Kafka's LogSegment and UnifiedLog.read, release 3.9.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from coordinator.log.disk import Disk
from coordinator.log.segment import Segment
from protocol.raw_batch import find_records
from protocol.record_batch import HEADER_SIZE, Header, peek_header
from schemas.errors import ErrorCode

INDEX_INTERVAL = 64 * 1024
"""Bytes of a segment between two entries of its index, which are 24 bytes each: 384 KiB for a gigabyte."""

NO_OFFSET = -1
NO_TIME = -1


class Refused(Exception):
    """A batch, or a question, that Kafka has an error code for; the text is for people."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


class Ends(NamedTuple):
    """Where a log starts and ends: all of it is durable, so its end is its high watermark."""

    start: int
    end: int


class Part:
    """A segment, and its index: at positions[i] begins the batch of offsets[i], times[i] is the largest before it.

    size: its bytes, as far as they are batches. first_ms, max_ms: the timestamp of its first batch, and the largest.
    """

    __slots__ = ("first_ms", "max_ms", "offsets", "positions", "segment", "size", "times")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.size = 0
        self.first_ms = NO_TIME
        self.max_ms = NO_TIME
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")

    def add(self, position: int, base_offset: int, header: Header) -> None:
        """A batch is at `position`."""
        if not self.positions or position - self.positions[-1] >= INDEX_INTERVAL:
            self.offsets.append(base_offset)
            self.positions.append(position)
            self.times.append(self.max_ms)
        if not self.size:
            self.first_ms = header.max_timestamp_ms
        self.size = position + header.size
        self.max_ms = max(self.max_ms, header.max_timestamp_ms)


class View:
    """The log in some segments.

    start: the first offset that may be read. end: the one behind the last.
    """

    def __init__(self, disk: Disk) -> None:
        self.start = 0
        self.end = 0
        self.parts: list[Part] = []
        self._disk = disk

    def ends(self) -> Ends:
        """Start and end."""
        return Ends(self.start, self.end)

    def available(self, offset: int, size_max: int) -> int:
        """Bytes that a read from `offset` would find, up to `size_max`, or a little more. Raises Refused."""
        self._check_offset(offset)
        total = 0
        for part in reversed(self.parts):
            at = bisect_right(part.offsets, offset) - 1
            total += part.size - (part.positions[at] if at >= 0 else 0)
            if at >= 0 or total >= size_max:
                break
        return min(total, size_max) if offset < self.end else 0

    def read_from(self, offset: int, size_max: int, *, whole: bool) -> bytes:
        """Up to `size_max` bytes of one segment, from the batch with `offset` on; the last batch may be cut off.

        whole: the first batch is not, however large. Nothing at the end of the log. Raises Refused, OSError.
        """
        self._check_offset(offset)
        if offset == self.end:
            return b""
        number = bisect_right(self.parts, offset, key=lambda part: part.segment.base_offset) - 1
        for part in self.parts[max(number, 0) :]:
            descriptor = self._disk.open_to_read(part.segment.path)
            try:
                at = max(bisect_right(part.offsets, offset) - 1, 0)
                for position, header in self._headers(descriptor, part, at):
                    if header.next_offset > offset:
                        size = max(size_max, header.size) if whole else size_max
                        return self._disk.read(descriptor, min(size, part.size - position), position)
            finally:
                self._disk.close(descriptor)
        return b""

    def offset_of_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first record from a time on: its offset and timestamp. Raises OSError."""
        for part in self.parts:
            if part.max_ms < timestamp_ms:
                continue
            descriptor = self._disk.open_to_read(part.segment.path)
            try:
                at = max(bisect_right(part.times, timestamp_ms - 1) - 1, 0)
                for position, header in self._headers(descriptor, part, at):
                    if header.max_timestamp_ms < timestamp_ms or header.next_offset <= self.start:
                        continue
                    data = self._disk.read(descriptor, header.size, position)
                    for record in find_records(data, 0, header):
                        if record.timestamp_ms >= timestamp_ms and record.offset >= self.start:
                            return record.offset, record.timestamp_ms
            finally:
                self._disk.close(descriptor)
        return None

    def latest_time(self) -> tuple[int, int] | None:
        """The record with the largest timestamp: the first, if there are several. Raises OSError."""
        times = [part.max_ms for part in self.parts if part.size]
        return self.offset_of_time(max(times)) if times else None

    def _check_offset(self, offset: int) -> None:
        if not self.start <= offset <= self.end:
            text = f"Offset {offset}, the log has {self.start} to {self.end}."
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    def _headers(self, descriptor: int, part: Part, at: int) -> Iterator[tuple[int, Header]]:
        """The headers of a segment's batches, with their positions, from entry `at` of its index on."""
        position = part.positions[at] if part.positions else part.size
        start, data = position, b""
        while position < part.size:
            if position - start + HEADER_SIZE > len(data):
                size = min(INDEX_INTERVAL, part.size - position)
                start, data = position, self._disk.read(descriptor, size, position)
            header = peek_header(data, position - start)
            yield position, header
            position += header.size
