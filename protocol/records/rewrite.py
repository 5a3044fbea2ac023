"""Batches of which only the frame is ours: what a broker changes in one that a producer sent, and finds in it.

A broker stores a producer's records as they came, compressed or not. It gives the batch its base offset and leader
epoch, which no CRC covers, and, for topics with message.timestamp.type=LogAppendTime, a time, which the CRC does cover.
Both stand in the header; the records behind it are never copied here.

House rule: as batch.py's: check the CRC first. Keys and values are passed over, null keys are fine.
Source: Kafka's LogValidator and DefaultRecordBatch, release 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from protocol.checksum import Buffer, crc32c
from protocol.records.batch import CRC_START, HEADER_SIZE, LOG_APPEND_TIME, CorruptBatch, Header, unpacked

NOT_CHANGED_AT = 16
"""From here on a batch is as its producer sent it, but for its time."""

UNPACKED_SIZE_MAX = 32 * 1024 * 1024
"""Bytes that a batch may unpack to, to be looked into: a few kB can be packed that grow to gigabytes. 32 times what
max.message.bytes allows by default is more than the texts that people send are packed by."""

_PLACE = struct.Struct(">qii")
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_CRC = struct.Struct(">I")
_CRC_AT = 17
_VARINT_SHIFT_MAX = 63


class Found(NamedTuple):
    """A record of a batch. timestamp_ms: Unix time in milliseconds."""

    offset: int
    timestamp_ms: int
    has_key: bool


def placed(data: Buffer, header: Header, base_offset: int, leader_epoch: int, append_time_ms: int = -1) -> list[Buffer]:
    """The parts that the batch at the start of `data` is written as: a few bytes of header, and the rest in place.

    append_time_ms: what becomes the time of all its records; -1: each keeps the one that its producer gave it, and what
    the producer says about whose time it is doesn't count.
    """
    place = _PLACE.pack(base_offset, header.batch_length, leader_epoch)
    view = memoryview(data)
    if append_time_ms < 0 and not header.attributes & LOG_APPEND_TIME:
        return [place, view[NOT_CHANGED_AT : header.size]]
    head = bytearray(view[:HEADER_SIZE])
    head[: len(place)] = place
    if append_time_ms < 0:
        _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, header.attributes & ~LOG_APPEND_TIME)
    else:
        _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
        _MAX_TIMESTAMP.pack_into(head, _MAX_TIMESTAMP_AT, append_time_ms)
    rest = view[HEADER_SIZE : header.size]
    _CRC.pack_into(head, _CRC_AT, crc32c(rest, crc32c(memoryview(head)[CRC_START:])))
    return [bytes(head), rest]


def find_records(data: Buffer, position: int, header: Header) -> Iterator[Found]:
    """The records of the batch at `position`, one by one, unpacked if need be.

    Raises CorruptBatch, perhaps behind the first of them, if they don't parse, or unpack to UNPACKED_SIZE_MAX and more.
    """
    data, at, end = unpacked(data, position, header, UNPACKED_SIZE_MAX)
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    number = 0
    try:
        while number < header.record_count:
            size, at = _varint(data, at)
            if not 0 < size <= end - at:
                raise ValueError(f"length {size}, {end - at} bytes left")
            next_at = at + size
            delta_ms, at = _varint(data, at + 1)  # behind the attributes, of which none are defined
            delta, at = _varint(data, at)
            key_size, at = _varint(data, at)
            timestamp_ms = header.base_timestamp_ms + delta_ms if append_time_ms is None else append_time_ms
            yield Found(header.base_offset + delta, timestamp_ms, key_size >= 0)
            at = next_at
            number += 1
    except (IndexError, ValueError) as error:
        raise CorruptBatch(position, f"record {number} of {header.record_count}: {error}") from error
    if at != end:
        raise CorruptBatch(position, f"{end - at} bytes behind the last record")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    number = shift = 0
    while shift <= _VARINT_SHIFT_MAX:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise ValueError("number too long")
