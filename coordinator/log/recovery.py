"""Reading a partition's log back, and deciding what damage means.

The batches of all segments are read once, oldest first. Each has its CRC checked, and what the CRC doesn't cover must
make sense: offsets grow (gaps are legal, compaction leaves them), epochs never fall, the length stays inside the file.

Where that ends before the file does, either a crash interrupted a write or something happened to bytes that were
durable. The first may be repaired, since nobody was told that the write succeeded; the second must never be, for it
would drop acknowledged records. A tail is taken for torn and cut only if all of this holds:

- it is in the newest segment, behind everything that this process knows to be durable;
- its batch fails its CRC: a batch with the right CRC was written whole, so what is wrong about it happened later;
- nothing behind it is a batch with a right CRC and an offset that could follow: writes go from front to back;
- the rest of the file, taken as that batch whatever its length and magic say, fails the CRC as well.

Anything else raises Damaged, and nothing is touched.

House rule: records leave here only in the order of the log, and none twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from coordinator.log.disk import Disk
from coordinator.log.engine import Damaged
from coordinator.log.segment import CHUNK_SIZE, SEGMENT_OFFSETS_MAX, Frame, Segment, list_segments, read_frames
from protocol.checksum import crc32c
from protocol.record_batch import (
    CRC_START,
    HEADER_SIZE,
    CorruptBatch,
    Record,
    decode_records,
    peek_header,
)

_MAGIC = b"\x02"
_MAGIC_AT = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17


class Durable(NamedTuple):
    """What is known to be durable: the first `size` bytes of `segment`, and all segments before it."""

    segment: Segment
    size: int


Cut = Callable[[Path, int, int], None]
"""Told when a torn tail was cut: (file, position, how many bytes)."""


def last_epoch(disk: Disk, folder: Path) -> int:
    """Return the highest epoch in the newest segment that has a batch, -1 if none has, from the headers alone.

    Damage ends the search in a segment: whoever reads the log through finds it again, and says so.
    """
    for segment in reversed(list_segments(disk, folder)):
        epoch = -1
        descriptor = disk.open(segment.path)
        try:
            for frame in read_frames(disk, descriptor, disk.size(descriptor), crc=False):
                epoch = max(epoch, frame.header.partition_leader_epoch)
        except CorruptBatch:
            pass
        finally:
            disk.close(descriptor)
        if epoch >= 0:
            return epoch
    return -1


class LogReader:
    """Reads the log in `folder` through, once: `pages` does it, and then the attributes say where the log ends.

    next_offset: of the record to be appended next. epoch: of the last batch, -1 without one.
    segment: the newest, None without any. size: its bytes. size_read: the bytes of all segments.
    """

    def __init__(self, disk: Disk, folder: Path, durable: Durable | None, cut: Cut) -> None:
        self.next_offset = 0
        self.epoch = -1
        self.segment: Segment | None = None
        self.size = 0
        self.size_read = 0
        self._disk = disk
        self._folder = folder
        self._durable = durable
        self._cut = cut

    def pages(self) -> Iterator[list[Record]]:
        """Yield the records, oldest first, in lists of about CHUNK_SIZE bytes; cut a torn tail.

        Raises Damaged, or OSError. Markers of transactions are nobody's records and are left out. Nothing is synced:
        what was read, and the cut, are durable only after a sync of `segment`.
        """
        segments = list_segments(self._disk, self._folder)
        for segment in segments:
            if segment.base_offset < self.next_offset:
                reason = f"starts at offset {segment.base_offset}, the segment before it ends at {self.next_offset}"
                raise Damaged(str(segment.path), 0, reason)
            self.segment = segment
            self.next_offset = segment.base_offset
            descriptor = self._disk.open(segment.path)
            try:
                self.size = self._disk.size(descriptor)
                yield from self._read(segment, descriptor, newest=segment is segments[-1])
            finally:
                self._disk.close(descriptor)
            self.size_read += self.size

    def _read(self, segment: Segment, descriptor: int, *, newest: bool) -> Iterator[list[Record]]:
        page: list[Record] = []
        page_end = CHUNK_SIZE
        try:
            for frame in read_frames(self._disk, descriptor, self.size):
                page += self._take(segment, frame)
                if frame.position >= page_end:
                    yield page
                    page = []
                    page_end = frame.position + CHUNK_SIZE
        except CorruptBatch as error:
            position = error.position
            reason = self._not_torn(segment, descriptor, position, newest=newest)
            if reason is not None:
                raise Damaged(str(segment.path), position, f"{error.reason}; {reason}") from error
            self._disk.truncate(descriptor, position)
            self._cut(segment.path, position, self.size - position)
            self.size = position
        if page:
            yield page

    def _take(self, segment: Segment, frame: Frame) -> list[Record]:
        """Check that a batch with the right CRC may stand where it stands, and return its records."""
        header = frame.header
        reason = None
        if header.base_offset < self.next_offset:
            reason = f"offset {header.base_offset}, expected {self.next_offset} or later"
        elif header.next_offset > segment.base_offset + SEGMENT_OFFSETS_MAX:
            reason = f"offset {header.base_offset}, too far from the segment's {segment.base_offset}"
        elif header.partition_leader_epoch < self.epoch:
            reason = f"epoch {header.partition_leader_epoch}, the batch before it has {self.epoch}"
        elif header.is_transactional and not header.is_control:
            reason = f"part of a transaction of producer {header.producer_id}, which this version can't load"
        if reason is not None:
            raise Damaged(str(segment.path), frame.position, reason)
        try:
            records = [] if header.is_control else decode_records(frame.data, frame.at, header).records
        except CorruptBatch as error:
            raise Damaged(str(segment.path), frame.position, error.reason) from error
        self.next_offset = header.next_offset
        self.epoch = header.partition_leader_epoch
        return records

    def _not_torn(self, segment: Segment, descriptor: int, position: int, *, newest: bool) -> str | None:
        """Return why the damage at `position` can't come from a write that was interrupted, None if it can."""
        if not newest:
            return "newer segments exist"
        if self._durable is not None and (segment.base_offset, position) < (
            self._durable.segment.base_offset,
            self._durable.size,
        ):
            return "it was durable"
        if self._is_whole_but_for_its_frame(descriptor, position):
            return "the batch is whole, its length or magic is wrong"
        behind = self._batch_behind(descriptor, position)
        if behind is not None:
            return f"a batch follows at byte {behind}"
        return None

    def _is_whole_but_for_its_frame(self, descriptor: int, position: int) -> bool:
        """Whether the rest of the file is one batch with the right CRC, whatever its length and magic say."""
        if self.size - position < HEADER_SIZE:
            return False
        crc: int
        (crc,) = _CRC.unpack(self._disk.read(descriptor, _CRC.size, position + _CRC_AT))
        return self._crc(descriptor, position + CRC_START, self.size) == crc

    def _batch_behind(self, descriptor: int, position: int) -> int | None:
        """Return where behind `position` a batch begins that could follow in this log, None if there is none.

        Each byte that could be a magic is tried, as nothing says where a batch begins once the one before is damaged.
        """
        start = position + 1
        while self.size - start >= HEADER_SIZE:
            data = self._disk.read(descriptor, CHUNK_SIZE, start)
            at = data.find(_MAGIC, _MAGIC_AT)
            while 0 <= at - _MAGIC_AT <= len(data) - HEADER_SIZE:
                if self._could_follow(descriptor, start + at - _MAGIC_AT, data, at - _MAGIC_AT):
                    return start + at - _MAGIC_AT
                at = data.find(_MAGIC, at + 1)
            start += max(1, len(data) - HEADER_SIZE + 1)
        return None

    def _could_follow(self, descriptor: int, position: int, data: bytes, at: int) -> bool:
        try:
            header = peek_header(data, at)
        except CorruptBatch:
            return False
        return (
            header.size <= self.size - position
            and header.base_offset >= self.next_offset
            and header.partition_leader_epoch >= self.epoch
            and self._crc(descriptor, position + CRC_START, position + header.size) == header.crc
        )

    def _crc(self, descriptor: int, start: int, end: int) -> int:
        """CRC-32C of a part of the file, read in chunks."""
        crc = 0
        while start < end:
            data = self._disk.read(descriptor, min(CHUNK_SIZE, end - start), start)
            if not data:
                break
            crc = crc32c(data, crc)
            start += len(data)
        return crc
