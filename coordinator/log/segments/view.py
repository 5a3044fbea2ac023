"""Where the batches of a log are, and reading them, for the owner of a log and for other readers of its files.

Every INDEX_INTERVAL bytes of a segment there is an offset, its position and the largest timestamp before it; from there
on headers are read. No index is kept on disk.

In a compacted log, offsets have gaps and batches may be empty. A read of an offset gets the first batch that ends
behind it, even if the offset itself is gone. A batch without records has no time.

House rule: nothing here writes. Source: Kafka's LogSegment and UnifiedLog.read, release 3.9.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.log.segments.disk import Disk, closing
from coordinator.log.segments.segment import Segment, list_segments, read_frames
from coordinator.log.segments.transactions import COMMIT, marker_of
from protocol.records.batch import HEADER_SIZE, CorruptBatch, Header, peek_header
from protocol.records.walk import find_records
from schemas.errors import ErrorCode

INDEX_INTERVAL = 64 * 1024
"""Bytes of a segment between two entries of its index, which are 24 bytes each: 384 KiB for a gigabyte."""

NO_OFFSET = -1
NO_TIME = -1


class Rejected(Exception):
    """A batch, or a question, that Kafka has an error code for; the text is for people.

    records: the records of the batch that are the reason, as far as they are named. For each text about some of them,
    a byte for each record: 1 if the text is about it, else 0.
    log_start_offset: where the log starts, if Kafka says so with this error; else -1.
    """

    def __init__(self, error: ErrorCode, message: str, records: Sequence[tuple[bytes, str]] = ()) -> None:
        super().__init__(message)
        self.error = error
        self.records = records
        self.log_start_offset = NO_OFFSET


class Ends(NamedTuple):
    """Where a log starts and ends: all of it is durable, so its end is its high watermark.

    stable: the last stable offset, where the oldest open transaction begins; the end without one.
    """

    start: int
    end: int
    stable: int


class Aborted(NamedTuple):
    """An aborted transaction: its first record, and its marker. stable: the last stable offset behind the marker."""

    producer_id: int
    first_offset: int
    marker_offset: int
    stable: int


class Part:
    """A segment, and its index: at positions[i] begins the batch of offsets[i], times[i] is the largest before it.

    size: its bytes, as far as they are batches. end: the offset behind its last. first_ms, max_ms: the timestamp of its
    first batch, and the largest.
    """

    __slots__ = ("end", "first_ms", "max_ms", "offsets", "positions", "segment", "size", "times")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.size = 0
        self.end = segment.base_offset
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
        self.end = base_offset + header.last_offset_delta + 1
        if header.record_count:
            self.max_ms = max(self.max_ms, header.max_timestamp_ms)

    def fields(self) -> list[Any]:
        """All of it except the segment, as JSON values, for `of_fields`."""
        index = [each.tolist() for each in (self.offsets, self.positions, self.times)]
        return [self.size, self.end, self.first_ms, self.max_ms, *index]

    @classmethod
    def of_fields(cls, segment: Segment, fields: Sequence[Any]) -> Part:
        """A segment with what another process has found."""
        part = cls(segment)
        part.size, part.end, part.first_ms, part.max_ms, *index = fields
        part.offsets, part.positions, part.times = (array("q", each) for each in index)
        return part


class View:
    """The log in some segments.

    start: the first offset that may be read. end: the one behind the last.
    open: producer id -> first offset of its open transaction, oldest first. aborted: in the order of their markers.
    """

    def __init__(self, disk: Disk) -> None:
        self.start = 0
        self.end = 0
        self.parts: list[Part] = []
        self.open: dict[int, int] = {}
        self.aborted: list[Aborted] = []
        self._disk = disk

    def ends(self) -> Ends:
        """Start, end, and the last stable offset."""
        stable = max(self.start, next(iter(self.open.values()), self.end)) if self.open else self.end
        return Ends(self.start, self.end, stable)

    def take_transaction(self, header: Header, base_offset: int, marker: int | None) -> None:
        """A batch of a transaction is in the log. marker: the type of a control batch's, None if it has none."""
        if not header.is_control:
            self.open.setdefault(header.producer_id, base_offset)
        elif marker is not None and (first_offset := self.open.get(header.producer_id)) is not None:
            if marker != COMMIT:
                others = (offset for producer_id, offset in self.open.items() if producer_id != header.producer_id)
                stable = next(others, base_offset + 1)
                self.aborted.append(Aborted(header.producer_id, first_offset, base_offset, stable))
            # Last, because it moves the last stable offset: a reader on another thread has to find it aborted then.
            del self.open[header.producer_id]

    def aborted_within(self, offset: int, size: int) -> Iterator[Aborted]:
        """The aborted transactions of the records that `read_from` found in `size` bytes, and some behind these.

        As in Kafka, the index says which could be among them.
        """
        if not size:
            return
        part = next(each for each in self.parts if each.end > offset)
        at = bisect_right(part.offsets, offset)
        last = len(part.offsets)
        if at < last:
            last = bisect_left(part.positions, part.positions[at] + size)
        before = part.offsets[last] if last < len(part.offsets) else part.end
        for index in range(bisect_left(self.aborted, offset, key=lambda each: each.marker_offset), len(self.aborted)):
            each = self.aborted[index]
            if each.first_offset < before:
                yield each
            if each.stable >= before:
                return

    def forget_aborted(self, offset: int) -> None:
        """No record of a transaction whose marker is before `offset` can be read."""
        self.aborted = self.aborted[bisect_left(self.aborted, offset, key=lambda each: each.marker_offset) :]

    def available(self, offset: int, size_max: int, before: int | None = None) -> int:
        """Bytes that reads from `offset` on would find, counted up to `size_max`. Raises Rejected, OSError.

        before: as in `read_from`; bytes behind it count, but only if there are some before it.
        """
        self._check_offset(offset)
        if offset >= (self.end if before is None else before) or size_max <= 0:
            return 0
        total = 0
        for part in reversed(self.parts):
            at = bisect_right(part.offsets, offset) - 1
            if at < 0:
                total += part.size
                if total >= size_max:
                    break
                continue
            # Only the batch that has the offset says where it begins; what is surely behind it may do.
            surely = part.positions[at + 1] if at + 1 < len(part.positions) else part.size - HEADER_SIZE
            if total + part.size - surely >= size_max:
                return size_max
            return min(total + part.size - self._position_of(offset, part, at), size_max)
        return min(total, size_max)

    def read_from(self, offset: int, size_max: int, *, whole: bool, before: int | None = None) -> bytes:
        """Up to `size_max` bytes of one segment, from the batch with `offset` on; the last batch may be cut off.

        before: an offset at which a batch begins; no batch from there on is read.

        The first is not: it comes whole however large, if it has to be `whole`, or else nothing comes. Nothing at the
        end of the log. Raises Rejected, OSError.
        """
        self._check_offset(offset)
        before = self.end if before is None else before
        if offset >= before:
            return b""
        number = bisect_right(self.parts, offset, key=lambda part: part.segment.base_offset) - 1
        for part in self.parts[max(number, 0) :]:
            descriptor = self._disk.open_to_read(part.segment.path)
            try:
                at = max(bisect_right(part.offsets, offset) - 1, 0)
                for position, header in self._headers(descriptor, part, at):
                    if header.next_offset > offset:
                        size = max(size_max, header.size) if whole else size_max
                        if size < header.size or header.base_offset >= before:
                            return b""
                        end = part.size if part.end <= before else self._position_of(before, part, at)
                        return self._disk.read(descriptor, min(size, end - position), position)
            finally:  # without `closing`, which takes six calls
                self._disk.close(descriptor)
        return b""

    def offset_of_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first record from a time on: its offset and timestamp. Raises OSError."""
        for part in self.parts:
            if part.max_ms < timestamp_ms:
                continue
            with closing(self._disk, self._disk.open_to_read(part.segment.path)) as descriptor:
                at = max(bisect_right(part.times, timestamp_ms - 1) - 1, 0)
                for position, header in self._headers(descriptor, part, at):
                    if header.max_timestamp_ms < timestamp_ms or header.next_offset <= self.start:
                        continue
                    data = self._disk.read(descriptor, header.size, position)
                    found = self._first_since(timestamp_ms, data, header)
                    if found is not None:
                        return found
        return None

    def _first_since(self, timestamp_ms: int, data: bytes, header: Header) -> tuple[int, int] | None:
        """The first such record of a batch; in one that can't be looked into, what its header has."""
        try:
            for record in find_records(data, 0, header):
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.start:
                    return record.offset, record.timestamp_ms
        except CorruptBatch:
            return max(header.base_offset, self.start), header.max_timestamp_ms
        return None

    def latest_time(self) -> tuple[int, int] | None:
        """The record with the largest timestamp: the first, if there are several. Raises OSError."""
        times = [part.max_ms for part in self.parts if part.size]
        return self.offset_of_time(max(times)) if times else None

    def _check_offset(self, offset: int) -> None:
        if not self.start <= offset <= self.end:
            text = f"Offset {offset}, the log has {self.start} to {self.end}."
            raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    def _position_of(self, offset: int, part: Part, at: int) -> int:
        """Where the batch with `offset` begins, or the first behind it: from entry `at` of the index on."""
        with closing(self._disk, self._disk.open_to_read(part.segment.path)) as descriptor:
            for position, header in self._headers(descriptor, part, at):
                if header.next_offset > offset:
                    return position
        return part.size

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


class OutsideView(View):
    """A log that somebody else writes or compacts: a partition of `__consumer_offsets` as consumers read it.

    It contains the batches that existed at the last `look`. The newest batches are whole, but may not be durable yet.
    If a compacted file replaces a segment during a read, that read fails.

    A look reads what is behind the batches of the last one. If another file has taken a segment's place, it reads that
    one and all behind it anew, as their transactions may have begun in it.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        super().__init__(disk)
        self._folder = folder

    def look(self) -> None:
        """Find the segments and batches that exist at present. Raises OSError."""
        segments = list_segments(self._disk, self._folder)
        known = {part.segment: part for part in self.parts}
        self.parts = []
        self.start = segments[0].base_offset if segments else 0
        end = self.end
        for segment in segments:
            if segment not in known and segment.base_offset < end:
                self._rewind(segment, known)
            self.end = segment.base_offset
            try:
                self.parts.append(self._read_on(known.get(segment) or Part(segment), known))
            except OSError:
                self._rewind(segment, known)
                raise

    def _rewind(self, segment: Segment, known: dict[Segment, Part]) -> None:
        """Forget the batches from a segment on, to read them again.

        A transaction that began before it and was committed behind isn't open again: its marker will come in this look.
        """
        offset = segment.base_offset
        for each in [each for each in known if each.base_offset >= offset]:
            del known[each]
        held = [(first, producer_id) for producer_id, first in self.open.items() if first < offset]
        held += [
            (each.first_offset, each.producer_id)
            for each in self.aborted
            if each.first_offset < offset <= each.marker_offset
        ]
        self.open = {producer_id: first for first, producer_id in sorted(held)}
        self.aborted = [each for each in self.aborted if each.marker_offset < offset]

    def _read_on(self, part: Part, known: dict[Segment, Part]) -> Part:
        """Add the new batches of a segment; read it from its front if another file has taken its place."""
        with closing(self._disk, self._disk.open_to_read(part.segment.path)) as descriptor:
            size = self._disk.size(descriptor)
            # Only the newest segment grows: in place of another one, a file of another size is another file.
            newest = next(reversed(known), None)
            is_closed = newest is not None and newest.base_offset > part.segment.base_offset
            is_replaced = size != part.size if is_closed else size < part.size
            if is_replaced or not self._take(descriptor, part, size):
                self._rewind(part.segment, known)
                part = Part(part.segment)
                self._take(descriptor, part, size)
        self.end = max(self.end, part.end)
        return part

    def _take(self, descriptor: int, part: Part, size: int) -> bool:
        """Add whole batches; False if the bytes behind the known ones aren't a batch: the file was replaced."""
        start = part.size
        try:
            for frame in read_frames(self._disk, descriptor, size, start=start):
                header = frame.header
                if header.base_offset < part.end:
                    return False
                marker = None
                if header.is_control:
                    with suppress(CorruptBatch):  # a load of the log refuses it
                        marker, _ = marker_of(frame.data, frame.at, header)
                part.add(frame.position, header.base_offset, header)
                if header.is_transactional:
                    self.take_transaction(header, header.base_offset, marker)
        except CorruptBatch as error:
            # A batch that is being written ends like this too.
            return not start or error.position > start
        return True
