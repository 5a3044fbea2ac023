"""The files of a log as the commands read them: never written, never locked, and read on behind damage.

A path is a data folder of ours, a broker's log folder (only its `__consumer_offsets-*` count), the folder of one
partition, or one segment. A file is read up to the size that it had when it was opened, so a server may go on writing.

Where bytes are no batch, a `Gap` says so and reading goes on at the next place where a batch stands that has the right
CRC, so that one damaged batch doesn't hide what is behind it.

House rule: what is wrong with the bytes is a value; only the system's refusals are raised, as OSError.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from coordinator.log.disk import Disk
from coordinator.log.segment import CHUNK_SIZE, TOPIC, Frame, Segment, list_segments, read_frames
from protocol.record_batch import CRC_START, HEADER_SIZE, CorruptBatch, peek_header

_FOLDER_NAME = re.compile(rf"{TOPIC}-(\d+)")
_SEGMENT_NAME = re.compile(r"(\d{20})\.log")
_MAGIC = b"\x02"
_MAGIC_AT = 16
_CRC_AT = slice(17, 21)


class ReadOnlyDisk(Disk):
    """A disk whose files are opened for reading, with positions counted from `start`."""

    def __init__(self, start: int = 0) -> None:
        self.start = start

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open a file for reading."""
        assert not create
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`, counted from `start`."""
        return super().read(descriptor, size, position + self.start)


READ_ONLY = ReadOnlyDisk()


class Log(NamedTuple):
    """The segments of one partition, oldest first; `partition` is None for a segment that lies somewhere else."""

    partition: int | None
    folder: Path
    segments: list[Segment]


class Gap(NamedTuple):
    """Bytes from `position` up to `end` that are no batch, because of `reason`.

    at_end: nothing that could be a batch follows. whole: they are one batch but for its length or magic.
    """

    position: int
    end: int
    reason: str
    at_end: bool
    whole: bool


def find_logs(path: Path) -> list[Log]:
    """The logs at `path`, by partition. Raises OSError, FileNotFoundError too where there is no log."""
    if path.is_file():
        name = _SEGMENT_NAME.fullmatch(path.name)
        return [Log(_partition_of(path.absolute().parent), path.parent, [Segment(int(name[1]) if name else 0, path)])]
    inside = list(path.iterdir())  # first, as this says why a folder can't be read
    if _partition_of(path.absolute()) is not None:
        return [Log(_partition_of(path.absolute()), path, list_segments(READ_ONLY, path))]
    found = [(_partition_of(folder), folder) for folder in inside if folder.is_dir()]
    logs = [
        Log(partition, folder, list_segments(READ_ONLY, folder)) for partition, folder in found if partition is not None
    ]
    if not logs:
        raise FileNotFoundError(errno.ENOENT, f"no {TOPIC}-* in it", str(path))
    return sorted(logs)


def _partition_of(folder: Path) -> int | None:
    name = _FOLDER_NAME.fullmatch(folder.name)
    return int(name[1]) if name else None


def read_file(path: Path) -> Iterator[Frame | Gap]:
    """The batches of a file, each with the right CRC, and the gaps between them. Raises OSError."""
    descriptor = READ_ONLY.open(path)
    try:
        size = READ_ONLY.size(descriptor)
        start = 0
        while start < size:
            try:
                for frame in read_frames(ReadOnlyDisk(start), descriptor, size - start):
                    yield frame._replace(position=frame.position + start)
                start = size
            except CorruptBatch as error:
                position = start + error.position
                following = _next_batch(descriptor, position + 1, size)
                start = size if following is None else following
                is_whole = following is None and _is_whole(descriptor, position, size)
                yield Gap(position, start, error.reason, following is None, is_whole)
    finally:
        READ_ONLY.close(descriptor)


def _next_batch(descriptor: int, start: int, size: int) -> int | None:
    """Where from `start` on a batch with the right CRC begins, None if nowhere.

    Each byte that could be a magic is tried, as nothing says where a batch begins once the one before is damaged.
    """
    while size - start >= HEADER_SIZE:
        data = READ_ONLY.read(descriptor, min(CHUNK_SIZE, size - start), start)
        at = data.find(_MAGIC, _MAGIC_AT)
        while 0 <= at - _MAGIC_AT <= len(data) - HEADER_SIZE:
            if _is_batch(descriptor, start + at - _MAGIC_AT, size, data, at - _MAGIC_AT):
                return start + at - _MAGIC_AT
            at = data.find(_MAGIC, at + 1)
        start += max(1, len(data) - HEADER_SIZE + 1)
    return None


def _is_batch(descriptor: int, position: int, size: int, data: bytes, at: int) -> bool:
    try:
        header = peek_header(data, at)
    except CorruptBatch:
        return False
    if header.base_offset < 0 or header.size > size - position:
        return False
    return _crc(descriptor, position + CRC_START, position + header.size) == header.crc


def _is_whole(descriptor: int, position: int, size: int) -> bool:
    """Whether all from `position` on has the CRC that stands there, whatever length and magic say."""
    head = READ_ONLY.read(descriptor, HEADER_SIZE, position)
    if len(head) < HEADER_SIZE:
        return False
    return _crc(descriptor, position + CRC_START, size) == int.from_bytes(head[_CRC_AT], "big")


def _crc(descriptor: int, start: int, end: int) -> int:
    """CRC-32C of a part of the file, read in chunks."""
    crc = 0
    while start < end:
        data = READ_ONLY.read(descriptor, min(CHUNK_SIZE, end - start), start)
        if not data:
            break
        crc = crc32c(data, crc)
        start += len(data)
    return crc
