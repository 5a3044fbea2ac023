"""The records of many batches at once, as far as they are plain: the way in which a whole log is read.

`decode_records` in record_batch.py reads every batch there is and says what is wrong with it. This is the short way
for what nearly all batches are: whole, in order, with the right CRC and no attributes (no codec, no transaction), and
records without headers. It makes no object per batch and none per record, and stops in front of the first batch that
is anything else, be it odd or damaged: that one is for record_batch.py.

House rule: nothing is judged here. What isn't plain is left alone, so that there is one place that refuses.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import NamedTuple

from protocol.checksum import crc32c
from protocol.record_batch import CRC_START, FRAME_SIZE, HEADER_SIZE

Values = dict[bytes, tuple[bytes | None, int]]
"""Key -> value (None: tombstone) and timestamp in milliseconds, of the last record with that key."""

_MAGIC = 2
_NULL = 1  # the length -1 in zigzag
_VARINT_BITS_MAX = 63
# Base offset, length, epoch, magic, CRC, attributes, last offset delta, base timestamp, record count.
_HEADER = struct.Struct(">qiibIhiq22xi")
assert _HEADER.size == HEADER_SIZE


class Place(NamedTuple):
    """Where a scan is in a log.

    at: index of the next batch in the data. next_offset, epoch: the lowest that it may have.
    """

    at: int
    next_offset: int
    epoch: int


def scan(data: bytes, place: Place, offset_end: int, last: Values) -> Place:
    """Add the records of the plain batches from `place` on to `last`; return where the first other batch begins.

    offset_end: no batch may end behind it. Records of that other batch may be in `last` already: reading it in another
    way adds the same ones again, or finds that it is damaged.
    """
    at, next_offset, epoch = place
    unpack = _HEADER.unpack_from
    end = len(data)
    with memoryview(data) as view:
        try:
            while end - at >= HEADER_SIZE:
                offset, size, batch_epoch, magic, crc, attributes, last_delta, base_ms, count = unpack(data, at)
                batch_end = at + FRAME_SIZE + size
                if (
                    batch_end > end
                    or magic != _MAGIC
                    or attributes
                    or offset < next_offset
                    or batch_epoch < epoch
                    or size < HEADER_SIZE - FRAME_SIZE
                    or not 0 < count <= last_delta + 1
                    or offset + last_delta >= offset_end
                    or crc32c(view[at + CRC_START : batch_end]) != crc
                ):
                    break
                cursor = at + HEADER_SIZE
                former_delta = -2  # in zigzag, as the deltas are
                for _ in repeat(None, count):
                    number = data[cursor]
                    cursor += 1
                    if number > 0x7F:
                        if (byte := data[cursor]) < 0x80:
                            number += (byte << 7) - 0x80
                            cursor += 1
                        else:
                            number, cursor = _read_varint(data, cursor, number)
                    odd = number
                    record_end = cursor + (number >> 1)
                    cursor += 2  # the attributes, of which none are defined, and the first byte of the timestamp
                    time_ms = base_ms
                    if number := data[cursor - 1]:
                        if number > 0x7F:
                            number, cursor = _read_varint(data, cursor, number)
                        time_ms += (number >> 1) ^ -(number & 1)
                    delta = data[cursor]
                    cursor += 1
                    if delta > 0x7F:
                        delta, cursor = _read_varint(data, cursor, delta)
                    number = data[cursor]
                    cursor += 1
                    if number > 0x7F:
                        number, cursor = _read_varint(data, cursor, number)
                    if (odd | delta | number) & 1 or delta <= former_delta:
                        break
                    former_delta = delta
                    key = data[cursor : (cursor := cursor + (number >> 1))]
                    number = data[cursor]
                    cursor += 1
                    if number > 0x7F:
                        if (byte := data[cursor]) < 0x80:
                            number += (byte << 7) - 0x80
                            cursor += 1
                        else:
                            number, cursor = _read_varint(data, cursor, number)
                    value = None
                    if not number & 1:
                        value = data[cursor : (cursor := cursor + (number >> 1))]
                    elif number != _NULL:
                        break
                    cursor += 1
                    if data[cursor - 1] or cursor != record_end:
                        break
                    last[key] = value, time_ms
                else:
                    if cursor == batch_end and former_delta >> 1 <= last_delta:
                        at = batch_end
                        next_offset = offset + last_delta + 1
                        epoch = batch_epoch
                        continue
                break
        except (IndexError, ValueError):
            pass
    return Place(at, next_offset, epoch)


def _read_varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Return the number, still in zigzag, that has `first` and more bytes from `at` on, and where it ends."""
    number = first & 0x7F
    shift = 7
    while shift <= _VARINT_BITS_MAX:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("number too long")
