"""Find the keys of a plain batch. Compaction reads nearly all of a log this way.

A batch is plain here if it has no attributes (no codec, no transaction, no horizon), no producer, no more records than
its offsets allow, and a key in each record. `peek_plain` reads the header alone. `find_keys` checks the CRC, goes from
record to record by their lengths, and skips values and headers. So it copies no value, and makes one tuple per record.

House rule: this module reports no damage. The caller has loaded the log before, so with the right CRC each record
parses. If a batch doesn't parse, walk.py reads it again and says why.
"""

from __future__ import annotations

import struct
from itertools import repeat

from protocol.checksum import crc32c
from protocol.records.batch import CRC_START, FRAME_SIZE, HEADER_SIZE, MAGIC
from protocol.records.varint import NULL_LENGTH, read_varint

Plain = tuple[int, int, int, int, int, int, int]
"""A plain batch: the index behind it, base and last offset, base and max timestamp, record count, CRC."""

Found = tuple[int, bytes, int | None]
"""A record's offset and key, and a tombstone's timestamp; None as the timestamp of a record with a value."""

# Base offset, length, magic, CRC, attributes, last offset delta, base and max timestamp, producer id, record count.
_HEADER = struct.Struct(">qi4xbIhiqqq6xi")
assert _HEADER.size == HEADER_SIZE


def peek_plain(data: bytes, at: int) -> Plain | None:
    """Read the header of the batch at `at`. None if the batch isn't plain, or if `data` ends before it does."""
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
    """Find the records of the batch at `at`, whose header is `plain`. None if CRC or records contradict the header."""
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
            cursor += 2  # the attributes, which have no meaning, and the first byte of the timestamp
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
