"""Searches bytes that are no batch, to tell a torn tail from damage and from messages of an older format.

Behind a damaged batch nothing marks where the next one begins. So the search tries each byte that could be a magic: the
header around it claims a length, and the CRC over that length decides. Bytes may be full of such headers, by chance or
by intent, and each may claim the rest of the file. All these CRCs would take a time that grows with the square of the
file's size. So a `Search` has an allowance of bytes, which grows with the bytes that it has passed over, and it doesn't
try a header that claims more than the rest of the allowance. The starting allowance is larger than any batch, so the
search always tries what an accident leaves. Holes of a sparse file are not read, and add nothing to the allowance.

Messages of format 0 and 1 (Kafka before 0.11) are no batches, and no damage either. Their own CRC-32 tells them from
anything else.

House rule: this module answers; its caller decides what an answer means.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from coordinator.log.segments.disk import Disk, read_data
from coordinator.log.segments.segment import BATCH_SIZE_MAX, CHUNK_SIZE
from protocol.checksum import CASTAGNOLI, IEEE, behind_zeros, crc32c
from protocol.records.batch import CRC_START, FRAME_SIZE, HEADER_SIZE, MAGIC, CorruptBatch, Header, peek_header

CRC_SIZE_MIN = 256 * 1024 * 1024
"""The allowance at the start: CRCs of so many bytes take a twentieth of a second."""
CRC_SIZE_FACTOR = 16
"""The allowance grows by so many bytes for each byte passed over; to look at that byte costs about as much."""

_MAGIC = b"\x02"
_MAGIC_AT = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = 0x7F
_OLD = struct.Struct(">8xiIb")
"""The head of a message of format 0 or 1: the length, the CRC-32 of everything from the magic on, the magic."""
_OLD_LENGTH_MIN = 14
"""CRC, magic, attributes, and the lengths of key and value."""
_Crc = Callable[[bytes, int], int]


class OldMessages(NamedTuple):
    """Messages of an older format, up to `end`; `magic` is the first message's."""

    end: int
    magic: int

    @property
    def reason(self) -> str:
        """Why the messages are no batches."""
        return f"message format {self.magic}, only {MAGIC} is read"


class Search:
    """Looks for batches in the first `size` bytes of a file, in a time that is linear in the bytes that it has on disk.

    untried: where the first header begins whose CRC would have taken too long; None if the search tried all headers.
    passed: called with the number of bytes that `behind` has passed over since the last call.
    """

    def __init__(
        self, disk: Disk, descriptor: int, size: int, passed: Callable[[int], None] = lambda _size: None
    ) -> None:
        self.untried: int | None = None
        self._passed = passed
        self._disk = disk
        self._descriptor = descriptor
        self._size = size
        self._taken = 0
        self._holes = 0

    def is_right(self, position: int, header: Header) -> bool:
        """Whether the batch at `position` is complete with the right CRC; False if its CRC would take too long."""
        if header.size > self._size - position:
            return False
        if not self._may_take(position, header.size):
            if self.untried is None:
                self.untried = position
            return False
        return _crc(self._disk, self._descriptor, position + CRC_START, position + header.size) == header.crc

    def _may_take(self, position: int, size: int) -> bool:
        """Whether the allowance has that many bytes; if so, they are taken from it."""
        if self._taken + size > CRC_SIZE_MIN + CRC_SIZE_FACTOR * max(0, position - self._holes):
            return False
        self._taken += size
        return True

    def old_messages(self, position: int) -> OldMessages | None:
        """The messages of format 0 or 1 that begin at `position`, up to the last one; None if there are none."""
        found: OldMessages | None = None
        while self._size - position >= _OLD.size:
            head = self._disk.read(self._descriptor, _OLD.size, position)
            if len(head) < _OLD.size:
                break  # the file became shorter
            length, crc, magic = _OLD.unpack(head)
            end = position + FRAME_SIZE + length
            if not 0 <= magic < MAGIC or length < _OLD_LENGTH_MIN or end > self._size:
                break
            if not self._may_take(position, length):
                break
            if _crc(self._disk, self._descriptor, position + _MAGIC_AT, end, zlib.crc32, IEEE) != crc:
                break
            found = OldMessages(end, magic if found is None else found.magic)
            position = end
        return found

    def behind(self, start: int, could_be: Callable[[Header], bool]) -> int | None:
        """Where the first batch with the right CRC begins, from `start` on; None if there is none.

        could_be: whether the caller accepts a header.
        """
        while self._size - start >= HEADER_SIZE:
            found = self._disk.next_data(self._descriptor, start)
            if found is None:
                self._passed(self._size - start)
                break
            data_start, data_end = found
            # A magic is no zero, so that no header has it in a hole; the bytes in front of it may be there.
            if data_start - _MAGIC_AT > start:
                hole = min(data_start, self._size) - _MAGIC_AT - start
                self._holes += hole
                self._passed(hole)
                start += hole
                continue
            wanted = data_end - start + HEADER_SIZE
            data = self._disk.read(self._descriptor, min(CHUNK_SIZE, self._size - start, wanted), start)
            if not data:
                break  # the file became shorter
            at = data.find(_MAGIC, _MAGIC_AT)
            while 0 <= at - _MAGIC_AT <= len(data) - HEADER_SIZE:
                position = start + at - _MAGIC_AT
                header = _header(data, at - _MAGIC_AT)
                if header is not None and could_be(header) and self.is_right(position, header):
                    return position
                at = data.find(_MAGIC, at + 1)
            step = max(1, len(data) - HEADER_SIZE + 1)
            self._passed(step)
            start += step
        return None


def makes_sense(header: Header) -> bool:
    """Whether the fields of a header have possible values; random bytes hardly ever do."""
    return (
        header.base_offset >= 0
        and header.attributes & ~_ATTRIBUTES == 0
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and min(header[6:12]) >= -1
    )


def is_whole_but_for_its_frame(disk: Disk, descriptor: int, position: int, size: int) -> bool:
    """Whether the bytes from `position` to `size` are one batch with the right CRC but a wrong length or magic."""
    could_be = HEADER_SIZE <= size - position <= BATCH_SIZE_MAX
    head = disk.read(descriptor, HEADER_SIZE, position) if could_be else b""
    if len(head) < HEADER_SIZE:
        return False
    crc: int
    (crc,) = _CRC.unpack_from(head, _CRC_AT)
    return _crc(disk, descriptor, position + CRC_START, size) == crc


def why_not_torn(
    disk: Disk, descriptor: int, position: int, size: int, could_follow: Callable[[Header], bool]
) -> str | None:
    """Why an interrupted write can't have caused the damage at `position`; None if it can."""
    if is_whole_but_for_its_frame(disk, descriptor, position, size):
        return "the batch is whole, its length or magic is wrong"
    search = Search(disk, descriptor, size)
    behind = search.behind(position + 1, could_follow)
    if behind is not None:
        return f"a batch follows at byte {behind}"
    if search.untried is not None:
        return (
            f"a batch may follow at byte {search.untried}: too much behind the damage looks like one to try all of it"
        )
    return None


def _header(data: bytes, at: int) -> Header | None:
    try:
        return peek_header(data, at)
    except CorruptBatch:
        return None


def _crc(disk: Disk, descriptor: int, start: int, end: int, of: _Crc = crc32c, polynomial: int = CASTAGNOLI) -> int:
    """The CRC of a part of the file, read in chunks without its holes; `of` computes it."""
    crc = 0
    for position, data in read_data(disk, descriptor, start, end, CHUNK_SIZE):
        crc = of(data, behind_zeros(crc, position - start, polynomial))
        start = position + len(data)
    return behind_zeros(crc, end - start, polynomial)
