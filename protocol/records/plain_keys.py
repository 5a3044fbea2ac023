"""The keys of plain batches, one batch at a time: what compaction asks of nearly all that a log is made of.

A batch is plain here if it has no attributes (no codec, no transaction, no horizon), no producer, as many records as
its offsets allow, or fewer, and a key in each. `peek_plain` looks at the header alone; `find_keys` checks the CRC and
goes from record to record by their lengths, past values and headers, which it doesn't read. No value is copied and
nothing is made per record but its line in the outcome.

House rule: who asks has loaded the log before, so with the right CRC each record parses. What doesn't is for
record_batch.py to judge.
"""

from __future__ import annotations

import struct
from itertools import repeat

from protocol.checksum import crc32c
from protocol.records.batch import CRC_START, FRAME_SIZE, HEADER_SIZE, MAGIC
from protocol.records.varint import NULL_LENGTH, read_varint

Plain = tuple[int, int, int, int, int, int, int]
"""The index behind the batch, its base and last offset, its base and max timestamp, its record count, its CRC."""

Found = tuple[int, bytes, int | None]
"""A record's offset, its key, and, of a tombstone, its timestamp."""

# Base offset, length, magic, CRC, attributes, last offset delta, base and max timestamp, producer id, record count.
_HEADER = struct.Struct(">qi4xbIhiqqq6xi")
assert _HEADER.size == HEADER_SIZE


def peek_plain(data: bytes, at: int) -> Plain | None:
    """Read the header of the batch at `at`; None if the batch isn't plain, or not all of it is in `data`."""
    end = len(data)
    if end - at < HEADER_SIZE:
        return None
    base_offset, size, magic, crc, attributes, last_delta, base_ms, max_ms, producer_id, count = _HEADER.unpack_from(
        data, at
    )
    batch_end = at + FRAME_SIZE + size
    if (
        batch_end > end
        or attributes
        or producer_id >= 0
        or magic != MAGIC
        or size < HEADER_SIZE - FRAME_SIZE
        or not 0 < count <= last_delta + 1
    ):
        return None
    return batch_end, base_offset, base_offset + last_delta, base_ms, max_ms, count, crc


def find_keys(data: bytes, at: int, plain: Plain) -> list[Found] | None:
    """Find the records of the batch at `at`, of which `peek_plain` said `plain`; None if it isn't what that says."""
    batch_end, base_offset, _last_offset, base_ms, _max_ms, count, crc = plain
    if crc32c(memoryview(data)[at + CRC_START : batch_end]) != crc:
        return None
    found: list[Found] = []
    odd = 0
    cursor = at + HEADER_SIZE
    try:
        for _ in repeat(None, count):
            number = data[cursor]
            cursor += 1
            if number > 0x7F:
                number, cursor = read_varint(data, cursor, number)
            record_end = cursor + (number >> 1)
            cursor += 2  # the attributes, of which none are defined, and the first byte of the timestamp
            time_ms = base_ms
            if number := data[cursor - 1]:
                if number > 0x7F:
                    number, cursor = read_varint(data, cursor, number)
                time_ms += (number >> 1) ^ -(number & 1)
            number = data[cursor]
            cursor += 1
            if number > 0x7F:
                number, cursor = read_varint(data, cursor, number)
            offset = base_offset + (number >> 1)
            number = data[cursor]
            cursor += 1
            if number > 0x7F:
                number, cursor = read_varint(data, cursor, number)
            odd |= number
            key = data[cursor : (cursor := cursor + (number >> 1))]
            found.append((offset, key, time_ms if data[cursor] == NULL_LENGTH else None))
            cursor = record_end
    except (IndexError, ValueError):
        return None
    return found if cursor == batch_end and not odd & 1 else None
