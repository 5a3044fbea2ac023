"""What stands behind bytes that are no batch: the two questions that tell a torn tail from damage.

Nothing says where a batch begins once the one before is damaged, so each byte that could be a magic is tried.

House rule: what an answer means is for the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from coordinator.log.disk import Disk
from coordinator.log.segment import CHUNK_SIZE
from protocol.checksum import crc32c
from protocol.record_batch import CRC_START, HEADER_SIZE, CorruptBatch, Header, peek_header

_MAGIC = b"\x02"
_MAGIC_AT = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17


def batch_behind(disk: Disk, descriptor: int, start: int, size: int, could_be: Callable[[Header], bool]) -> int | None:
    """Return where from `start` on, in the first `size` bytes, a batch with the right CRC begins, None if nowhere.

    could_be: whether what its header says makes sense to the caller.
    """
    while size - start >= HEADER_SIZE:
        data = disk.read(descriptor, min(CHUNK_SIZE, size - start), start)
        at = data.find(_MAGIC, _MAGIC_AT)
        while 0 <= at - _MAGIC_AT <= len(data) - HEADER_SIZE:
            position = start + at - _MAGIC_AT
            header = _header(data, at - _MAGIC_AT)
            if (
                header is not None
                and header.size <= size - position
                and could_be(header)
                and _crc(disk, descriptor, position + CRC_START, position + header.size) == header.crc
            ):
                return position
            at = data.find(_MAGIC, at + 1)
        start += max(1, len(data) - HEADER_SIZE + 1)
    return None


def is_whole_but_for_its_frame(disk: Disk, descriptor: int, position: int, size: int) -> bool:
    """Whether all from `position` up to `size` is one batch with the right CRC, whatever its length and magic say."""
    head = disk.read(descriptor, HEADER_SIZE, position) if size - position >= HEADER_SIZE else b""
    if len(head) < HEADER_SIZE:
        return False
    crc: int
    (crc,) = _CRC.unpack_from(head, _CRC_AT)
    return _crc(disk, descriptor, position + CRC_START, size) == crc


def why_not_torn(
    disk: Disk, descriptor: int, position: int, size: int, could_follow: Callable[[Header], bool]
) -> str | None:
    """Why what is damaged from `position` on is not a write that was interrupted, None if it can be."""
    if is_whole_but_for_its_frame(disk, descriptor, position, size):
        return "the batch is whole, its length or magic is wrong"
    behind = batch_behind(disk, descriptor, position + 1, size, could_follow)
    return None if behind is None else f"a batch follows at byte {behind}"


def _header(data: bytes, at: int) -> Header | None:
    try:
        return peek_header(data, at)
    except CorruptBatch:
        return None


def _crc(disk: Disk, descriptor: int, start: int, end: int) -> int:
    """CRC-32C of a part of the file, read in chunks."""
    crc = 0
    while start < end:
        data = disk.read(descriptor, min(CHUNK_SIZE, end - start), start)
        if not data:
            break
        crc = crc32c(data, crc)
        start += len(data)
    return crc
