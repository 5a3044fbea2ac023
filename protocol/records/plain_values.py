"""Find the last values of keys in many plain batches. A load reads nearly all of a log this way.

A batch is plain here if it is whole and in order, has the right CRC and no attributes (no codec, no transaction), and
its records have no headers. `scan` makes no object per record. It stops in front of the first batch that isn't plain,
legal or damaged. `decode_records` in walk.py reads any batch, and says what is wrong with a damaged one.

Most batches are small and have one record. In such a batch the lengths of record and value follow from the size of the
batch. So `scan` doesn't read them, but compares the bytes with the expected ones.

House rule: this module refuses no batch. `scan` stops in front of a batch that isn't plain, and walk.py refuses it.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import NamedTuple

from protocol.checksum import crc32c
from protocol.records.batch import CRC_START, FRAME_SIZE, HEADER_SIZE, MAGIC
from protocol.records.varint import NULL_LENGTH, read_varint

Values = dict[bytes, tuple[bytes | None, int]]
"""Key -> value (None: a tombstone) and timestamp in milliseconds of the last record with that key."""

# Base offset, length, epoch, magic, CRC, attributes, last offset delta, base timestamp.
_HEADER = struct.Struct(">qiibIhiq")
_COUNT = struct.Struct(">i")
# Indexes in the bytes that the CRC covers: the first record's, and that of the record count in front of it.
_RECORDS_AT = HEADER_SIZE - CRC_START
_COUNT_AT = _RECORDS_AT - _COUNT.size
_COVERED_MIN = _RECORDS_AT + 7
"""The smallest number of bytes under the CRC of a batch with one record."""
_SMALL = 1024
"""A batch is small if fewer bytes are under its CRC."""
_UNCOVERED = CRC_START - FRAME_SIZE
"""Number of bytes that a batch's length counts and its CRC doesn't cover."""


class Position(NamedTuple):
    """How far a scan has come.

    at: index of the next batch in the data. next_offset, epoch: the lowest that the next batch may have.
    """

    at: int
    next_offset: int
    epoch: int


def _length(size: int) -> bytes:
    """Return the varint whose own size plus value equals `size`.

    For some sizes no such varint exists. Then the result is longer than any small batch, so it never matches.
    """
    if 1 <= size <= 64:
        return bytes((size - 1 << 1,))
    if size >= 66:
        zigzag = size - 2 << 1
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    return bytes(_SMALL)


_LENGTHS = [_length(size) for size in range(_SMALL)]
_HEADS = [_COUNT.pack(1) + _length(size - _RECORDS_AT) + b"\0\0\0" for size in range(_SMALL)]
"""Indexed by the number of bytes under the CRC: the bytes in front of the only record's key, if its deltas are 0."""


def scan(data: bytes, position: Position, offset_end: int, last: Values) -> Position:
    """Add the records of plain batches from `position` on to `last`; return the position of the first other batch.

    offset_end: no batch may end behind it. `last` may already have some records of that other batch. This does no harm:
    the caller reads that batch again, and adds the same records or finds that the batch is damaged.
    """
    at, next_offset, epoch = position
    data_end = len(data)
    at_max = data_end - HEADER_SIZE
    unpack, crc_of, heads, lengths = _HEADER.unpack_from, crc32c, _HEADS, _LENGTHS
    try:
        while at <= at_max:
            offset, size, batch_epoch, magic, crc, attributes, last_delta, base_ms = unpack(data, at)
            start = at + CRC_START
            size -= _UNCOVERED
            end = start + size
            covered = data[start:end]
            if (
                crc_of(covered) != crc
                or magic != MAGIC
                or attributes
                or not next_offset <= offset < offset_end - last_delta
                or batch_epoch < epoch
                or size < _COVERED_MIN
                or end > data_end
            ):
                break
            if size < _SMALL and not last_delta and covered.startswith(head := heads[size], _COUNT_AT):
                key_at = _COUNT_AT + len(head) + 1
                number = covered[key_at - 1]
                if number > 0x7F:
                    number += (covered[key_at] << 7) - 0x80
                    key_at += 1
                value_at = key_at + (number >> 1)
                length = lengths[size - 1 - value_at]
                if covered.startswith(length, value_at) and not number & 1 and not covered[-1]:
                    last[covered[key_at:value_at]] = covered[value_at + len(length) : -1], base_ms
                    at = end
                    next_offset = offset + 1
                    epoch = batch_epoch
                    continue
            if not _take_records(covered, last_delta, base_ms, last):
                break
            at = end
            next_offset = offset + last_delta + 1
            epoch = batch_epoch
    except (IndexError, ValueError):
        pass
    return Position(at, next_offset, epoch)


def _take_records(covered: bytes, last_delta: int, base_ms: int, last: Values) -> bool:
    """Add the records of a batch to `last`. Return False, or raise IndexError or ValueError, if it isn't plain.

    covered: the bytes under the CRC.
    """
    count: int
    (count,) = _COUNT.unpack_from(covered, _COUNT_AT)
    if not 0 < count <= last_delta + 1:
        return False
    cursor = _RECORDS_AT
    former_delta = -2  # in zigzag, like the deltas
    for _ in repeat(None, count):
        number = covered[cursor]
        cursor += 1
        if number > 0x7F:
            if (byte := covered[cursor]) < 0x80:
                number += (byte << 7) - 0x80
                cursor += 1
            else:
                number, cursor = read_varint(covered, cursor, number)
        odd = number
        record_end = cursor + (number >> 1)
        cursor += 2  # the attributes, which have no meaning, and the first byte of the timestamp
        time_ms = base_ms
        if number := covered[cursor - 1]:
            if number > 0x7F:
                number, cursor = read_varint(covered, cursor, number)
            time_ms += (number >> 1) ^ -(number & 1)
        delta = covered[cursor]
        cursor += 1
        if delta > 0x7F:
            delta, cursor = read_varint(covered, cursor, delta)
        number = covered[cursor]
        cursor += 1
        if number > 0x7F:
            number, cursor = read_varint(covered, cursor, number)
        if (odd | delta | number) & 1 or delta <= former_delta:
            return False
        former_delta = delta
        key = covered[cursor : (cursor := cursor + (number >> 1))]
        number = covered[cursor]
        cursor += 1
        if number > 0x7F:
            if (byte := covered[cursor]) < 0x80:
                number += (byte << 7) - 0x80
                cursor += 1
            else:
                number, cursor = read_varint(covered, cursor, number)
        value = None
        if not number & 1:
            value = covered[cursor : (cursor := cursor + (number >> 1))]
        elif number != NULL_LENGTH:
            return False
        cursor += 1
        if covered[cursor - 1] or cursor != record_end:
            return False
        last[key] = value, time_ms
    return cursor == len(covered) and former_delta >> 1 <= last_delta
