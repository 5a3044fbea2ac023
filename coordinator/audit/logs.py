"""The files of a log, cut into byte ranges that can be read apart.

`plan` looks at a folder (ours, or one of a broker's log.dirs) and at every batch header in it, and returns what a
reader of any one range can't know: where batches begin, which segment is the newest, how far a broker has cleaned, and
how each transaction ended. Nothing is decoded and no CRC is taken but where the bytes make no sense.

`pieces` finds the batches in a range. A batch is taken for one if its header makes sense and another follows it, or the
end, or if its CRC is right; where neither holds, bytes are passed over up to the next batch with the right CRC. So one
damaged batch hides nothing that is behind it, and a range that begins and ends where `plan` says is read as if the
whole file were.

House rule: files are opened for reading, never locked, and read up to the size that they had at first.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coordinator.log.disk import Disk
from coordinator.log.segment import TOPIC, list_segments
from coordinator.log.transactions import COMMIT, marker_type
from protocol.checksum import crc32c
from protocol.record_batch import (
    CRC_START,
    FRAME_SIZE,
    HEADER_SIZE,
    CorruptBatch,
    check_crc,
    decode_records,
    peek_header,
)

RANGE_SIZE = 16 * 1024 * 1024
"""Bytes that one process reads at a time: enough for columns to pay, little enough for a small machine."""

_CHUNK_SIZE = 1024 * 1024
_MAGIC = 2
_MAGIC_BYTE = b"\x02"
_MAGIC_AT = 16
_CONTROL = 0x20
_CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
_FOLDER_NAME = re.compile(rf"{TOPIC}-(\d+)")
_LOCK_NAME = re.compile(r"\.lock-(\d+)")
# Base offset, length, epoch, magic, CRC, attributes.
_HEAD = struct.Struct(">qiibIh")
# What follows: attributes, last offset delta, base and max timestamp, producer's id, epoch and sequence, record count.
_COVERED = struct.Struct(">hiqqqhii")
_ATTRIBUTES = 0x7F


class Range(NamedTuple):
    """Bytes of a segment that begin and end where batches do, or where the file does.

    segment: the offset in its name. is_tail: it ends where the file does.
    """

    partition: int
    segment: int
    path: str
    start: int
    end: int
    is_tail: bool


class Piece(NamedTuple):
    """A batch at `position`, its CRC not checked; or, with a `reason`, bytes that are none, up to `end`."""

    position: int
    end: int
    reason: str | None = None


@dataclass
class Plan:
    """What a log consists of.

    ranges: in the order of partitions and offsets. sizes: bytes by partition; a folder without segments has 0.
    partition_count: offsets.topic.num.partitions, None if nothing says. uncleaned_from: by partition, the base offset
    of the first segment that no compaction can have touched. markers: partition -> producer id -> (offset, committed)
    of the ends of its transactions, ascending. unreadable: what the system refused.
    """

    path: str
    ranges: list[Range] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    partition_count: int | None = None
    uncleaned_from: dict[int, int] = field(default_factory=dict)
    markers: dict[int, dict[int, list[tuple[int, bool]]]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes to be read."""
        return sum(self.sizes.values())

    def counts(self, partition: int, producer_id: int, offset: int) -> bool:
        """Whether a record of a transaction counts: only where the next marker of its producer says committed."""
        markers = self.markers.get(partition, {}).get(producer_id, [])
        at = bisect_right(markers, (offset, True))
        return at < len(markers) and markers[at][1]


class Window:
    """A part of a file in memory, that moves on as it is asked for.

    data: its bytes, from `at` of the file on.
    """

    def __init__(self, descriptor: int, end: int, chunk_size: int = _CHUNK_SIZE) -> None:
        self.data = b""
        self.at = 0
        self._descriptor = descriptor
        self._end = end
        self._chunk_size = chunk_size

    def index(self, position: int, size: int) -> int:
        """Where in `data` the byte at `position` is, with `size` from there on if the file has as many."""
        at = position - self.at
        if not 0 <= at <= len(self.data) - size:
            self.data = os.pread(self._descriptor, min(max(size, self._chunk_size), self._end - position), position)
            self.at = position
            at = 0
        return at


def plan(path: Path, partition_count: int | None = None, range_size: int = RANGE_SIZE) -> Plan:
    """Find the log at `path`: a data folder, a broker's log folder, or the folder of one partition. Raises OSError."""
    folders = partition_folders(path)
    made = Plan(str(path), partition_count=partition_count)
    home = path.absolute().parent if _partition_of(path) is not None else path
    checkpoint = _cleaner_checkpoint(home)
    if partition_count is None and home == path:
        made.partition_count = _count_partitions(path, folders)
    for partition, folder in sorted(folders.items()):
        made.sizes[partition] = 0
        segments = list_segments(Disk(), folder)
        if not segments:
            continue
        newest = segments[-1].base_offset
        made.uncleaned_from[partition] = newest
        if checkpoint is not None:
            cleaned_to = checkpoint.get(partition, 0)
            made.uncleaned_from[partition] = min(
                (each.base_offset for each in segments if each.base_offset >= cleaned_to), default=newest
            )
        for segment in segments:
            try:
                made.sizes[partition] += _plan_segment(made, partition, segment.base_offset, segment.path, range_size)
            except OSError as error:
                made.unreadable.append(f"{segment.path}: {error.strerror or error}")
    return made


def _plan_segment(made: Plan, partition: int, base_offset: int, path: Path, range_size: int) -> int:
    """Cut a segment into ranges, and note the ends of transactions; returns its size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        window = Window(descriptor, size)

        def noted() -> Iterator[Piece]:
            for piece in pieces(window, 0, size):
                if piece.reason is None:
                    at = window.index(piece.position, HEADER_SIZE)
                    if _HEAD.unpack_from(window.data, at)[5] & _CONTROL:
                        _note_marker(made, partition, window, piece)
                yield piece

        for start, end in cut(noted(), range_size):
            made.ranges.append(Range(partition, base_offset, str(path), start, end, is_tail=end == size))
        return size
    finally:
        os.close(descriptor)


def cut(found: Iterable[Piece], range_size: int) -> Iterator[tuple[int, int]]:
    """Where to cut pieces that follow each other, so that no part is larger than `range_size` if it needn't be.

    Between two batches alone: what other pieces are depends on what is behind them.
    """
    start: int | None = None
    former: Piece | None = None
    for piece in found:
        if start is None or former is None:
            start = piece.position
        elif former.reason is None and piece.reason is None and piece.end - start > range_size:
            yield start, piece.position
            start = piece.position
        former = piece
    if start is not None and former is not None:
        yield start, former.end


def _note_marker(made: Plan, partition: int, window: Window, piece: Piece) -> None:
    at = window.index(piece.position, piece.end - piece.position)
    try:
        header = peek_header(window.data, at)
        check_crc(window.data, at, header)
        batch = decode_records(window.data, at, header)
        for offset, record in zip(batch.offsets, batch.records, strict=True):
            marker = marker_type(record.key)
            if marker is not None:
                of_producer = made.markers.setdefault(partition, {}).setdefault(header.producer_id, [])
                of_producer.append((offset, marker == COMMIT))
    except (CorruptBatch, ValueError):
        return  # whoever reads the range says so


def partition_folders(path: Path) -> dict[int, Path]:
    """The folder of each partition of the log at `path`. Raises FileNotFoundError if there is none."""
    own = _partition_of(path)
    if own is not None and path.is_dir():
        return {own: path}
    found = {}
    for folder in path.iterdir():
        partition = _partition_of(folder)
        if partition is not None and folder.is_dir():
            found[partition] = folder
    if not found:
        raise FileNotFoundError(errno.ENOENT, f"no folder {TOPIC}-* in it", str(path))
    return found


def _partition_of(folder: Path) -> int | None:
    name = _FOLDER_NAME.fullmatch(folder.absolute().name)
    return int(name[1]) if name else None


def _count_partitions(path: Path, folders: dict[int, Path]) -> int | None:
    """How many partitions the topic has: Tenure has a lock for each, a broker a folder for each replica of its own.

    None if some are missing: others have those, and how many there are isn't said here.
    """
    locks = (_LOCK_NAME.fullmatch(each.name) for each in path.iterdir())
    found = {*folders, *(int(name[1]) for name in locks if name)}
    return len(found) if len(found) == max(found) + 1 else None


def _cleaner_checkpoint(path: Path) -> dict[int, int] | None:
    """How far a broker has cleaned each partition, by its own word; None without one (Kafka: OffsetCheckpointFile)."""
    try:
        lines = (path / _CLEANER_CHECKPOINT).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = {}
    for line in lines:
        words = line.split()
        if len(words) == 3 and words[0] == TOPIC and words[1].isdecimal() and words[2].isdecimal():
            found[int(words[1])] = int(words[2])
    return found


def read_bytes(of: Range) -> bytes:
    """The bytes of a range; fewer if the file became shorter meanwhile. Raises OSError."""
    descriptor = os.open(of.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, of.end - of.start, of.start)
    finally:
        os.close(descriptor)


def read_range(of: Range) -> tuple[Window, list[Piece]]:
    """The bytes of a range, and its pieces. Raises OSError."""
    descriptor = os.open(of.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        window = Window(descriptor, of.end, max(of.end - of.start, 1))
        window.index(of.start, of.end - of.start)
        # A file that became shorter meanwhile ends where it ends.
        return window, list(pieces(window, of.start, of.start + len(window.data)))
    finally:
        os.close(descriptor)


def pieces(window: Window, start: int, end: int) -> Iterator[Piece]:
    """What the bytes from `start` up to `end` are, one piece behind the other."""
    position = start
    size = _size_at(window, position, end)
    while position < end:
        following = position + size
        if size:
            next_size = _size_at(window, following, end)
            if next_size or following == end or _is_right(window, position, size):
                yield Piece(position, following)
                position, size = following, next_size
                continue
        following = _next_batch(window, position + 1, end)
        yield Piece(position, following, _reason(window, position, following, end))
        position = following
        size = _size_at(window, position, end)


def _size_at(window: Window, position: int, end: int) -> int:
    """The size of the batch whose header is at `position`, 0 if it can't be one that ends before `end`."""
    if end - position < HEADER_SIZE:
        return 0
    at = window.index(position, HEADER_SIZE)
    if len(window.data) - at < HEADER_SIZE:
        return 0
    base_offset, length, _epoch, magic, _crc, _attributes = _HEAD.unpack_from(window.data, at)
    if magic != _MAGIC or length < HEADER_SIZE - FRAME_SIZE or base_offset < 0 or length + FRAME_SIZE > end - position:
        return 0
    size: int = length + FRAME_SIZE
    return size


def _is_right(window: Window, position: int, size: int) -> bool:
    at = window.index(position, size)
    crc: int = _HEAD.unpack_from(window.data, at)[4]
    with memoryview(window.data) as view:
        return crc32c(view[at + CRC_START : at + size]) == crc


def _next_batch(window: Window, start: int, end: int) -> int:
    """Where from `start` on a batch with the right CRC begins; `end` if nowhere.

    Each byte that could be a magic is tried, as nothing says where a batch begins once the one before is damaged.
    """
    while end - start >= HEADER_SIZE:
        at = window.index(start, HEADER_SIZE)
        data, base = window.data, window.at
        found = data.find(_MAGIC_BYTE, at + _MAGIC_AT)
        while found >= 0 and found - _MAGIC_AT <= len(data) - HEADER_SIZE:
            position = base + found - _MAGIC_AT
            size = _size_at(window, position, end)
            if size and _makes_sense(window, position) and _is_right(window, position, size):
                return position
            found = data.find(_MAGIC_BYTE, found + 1)
        start = base + max(len(data) - HEADER_SIZE + 1, at + 1)
    return end


def _makes_sense(window: Window, position: int) -> bool:
    """Whether what the CRC covers of a header could be one.

    Random bytes look like the first half of a header often enough, and claim half of the file each time: to take all
    of these CRCs takes a time that grows with the square of the file's size.
    """
    at = window.index(position, HEADER_SIZE) + CRC_START
    fields: tuple[int, ...] = _COVERED.unpack_from(window.data, at)
    attributes, last_delta, *others, count = fields
    return attributes & ~_ATTRIBUTES == 0 and 0 <= count <= last_delta + 1 and min(others) >= -1


def _reason(window: Window, position: int, following: int, end: int) -> str:
    """Why the bytes from `position` up to `following` are no batch."""
    left = following - position
    if left < HEADER_SIZE:
        return f"{left} bytes left, a header takes {HEADER_SIZE}"
    at = window.index(position, HEADER_SIZE)
    try:
        header = peek_header(window.data, at)
    except CorruptBatch as error:
        return error.reason
    if following == end and header.size > left:
        return f"a batch of {header.size} bytes, {left} left"
    return f"its length, {header.size} bytes, or its CRC is wrong"
