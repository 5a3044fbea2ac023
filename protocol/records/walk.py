"""Reads a batch's records: the one walker over a batch, and its readers.

    decode_batches   every batch of a buffer, with its records
    decode_records   the records of one batch
    find_records     offset and time of each record, one by one; keys and values aren't looked at

`slice_records` in rewrite.py walks too. `walk` checks the lengths of records. Each reader checks the rest itself,
because logs differ: a record in a group's log needs a key, a record in a topic's log doesn't.

plain_values.py and plain_keys.py have loops of their own: they read nearly all of a log, and a record takes them less
time than a step of the walker.

House rule: the caller has checked the CRC. Bytes that don't parse raise CorruptBatch and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from protocol.checksum import Buffer
from protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    CorruptBatch,
    Header,
    Record,
    check_crc,
    peek_header,
)
from protocol.records.codecs import Codec, decompress
from protocol.records.varint import NULL_LENGTH, read_varint, unzigzag, varint_at
from protocol.speed import new

DECOMPRESSED_SIZE_MAX = 128 * 1024 * 1024
"""Bytes that a batch may unpack to: far above any message.max.bytes in use, far below a server's memory."""

UNPACKED_SIZE_MAX = 32 * 1024 * 1024
"""Bytes that a batch may unpack to in `find_records`, which reads what clients send: 32 times what max.message.bytes
allows by default, and few texts compress better than that."""

_CODECS = tuple(Codec)


class Batch(NamedTuple):
    """A batch with its records.

    position: index of its first byte in the buffer.
    offsets: of each record; they ascend, perhaps with gaps.
    """

    position: int
    header: Header
    codec: Codec
    records: list[Record]
    offsets: list[int]


class Found(NamedTuple):
    """A record that `find_records` found. timestamp_ms: Unix time in milliseconds."""

    offset: int
    timestamp_ms: int
    has_key: bool


def walk(data: bytes, at: int, end: int, count: int) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Go through `count` records in `data[at:end]` and yield six numbers for each.

    They are: the indexes where the record begins and ends, its timestamp delta, its offset delta, the length of its
    key, and the index behind that length. Offset delta and length of the key are as they are stored, in zigzag.

    Raises ValueError if a record doesn't end before `end`, and ValueError or IndexError if a number is broken.
    """
    for _ in range(count):
        start = at
        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = read_varint(data, at, number)
        stop = at + (number >> 1)
        if number & 1 or not at < stop <= end:
            raise ValueError(f"length {unzigzag(number)}, {end - at} bytes left")
        at += 2  # the attributes, none of which are defined, and the first byte of the timestamp
        delta_ms = 0
        if number := data[at - 1]:
            if number > 0x7F:
                number, at = read_varint(data, at, number)
            delta_ms = (number >> 1) ^ -(number & 1)
        delta = data[at]
        at += 1
        if delta > 0x7F:
            delta, at = read_varint(data, at, delta)
        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = read_varint(data, at, number)
        yield start, stop, delta_ms, delta, number, at
        at = stop


def decode_records(
    buffer: Buffer, position: int, header: Header, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX
) -> Batch:
    """Decode the records of the batch at `position`; each needs a key, and their headers are passed over.

    Raises CorruptBatch if they aren't exactly what the header announces, or if they are compressed and would take more
    than `decompressed_size_max` bytes.
    """
    data, at, end = unpacked(buffer, position, header, decompressed_size_max)
    base_timestamp_ms = header.base_timestamp_ms
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    base_offset = header.base_offset
    last_offset = base_offset + header.last_offset_delta
    former_offset = base_offset - 1
    records: list[Record] = []
    offsets: list[int] = []
    stop = at
    try:
        for _, stop, delta_ms, delta, key_length, key_at in walk(data, at, end, header.record_count):
            offset = base_offset + (delta >> 1)
            if delta & 1 or not former_offset < offset <= last_offset:
                raise ValueError(f"offset delta {unzigzag(delta)}, offset before {former_offset}, last {last_offset}")
            former_offset = offset
            if key_length & 1:
                raise ValueError("no key")
            at = key_at + (key_length >> 1)
            key = data[key_at:at]
            number = data[at]
            at += 1
            if number > 0x7F:
                number, at = read_varint(data, at, number)
            value: bytes | None = None
            if not number & 1:
                value = data[at : (at := at + (number >> 1))]
            elif number != NULL_LENGTH:
                raise ValueError(f"value of {unzigzag(number)} bytes")
            if data[at]:
                at = _skip_headers(data, at)
            else:
                at += 1
            if at != stop:
                raise ValueError(f"its fields take {at - stop} bytes more than its length says")
            offsets.append(offset)
            timestamp_ms = base_timestamp_ms + delta_ms if append_time_ms is None else append_time_ms
            records.append(new(Record, (key, value, timestamp_ms)))
    except (IndexError, ValueError) as error:
        raise CorruptBatch(position, f"record {len(records)} of {header.record_count}: {error}") from error
    if stop != end:
        raise CorruptBatch(position, f"{end - stop} bytes behind the last record")
    return Batch(position, header, _CODECS[header.attributes & CODEC_MASK], records, offsets)


def decode_batches(buffer: Buffer) -> Iterator[Batch]:
    """Read the batches that fill `buffer` and check each CRC. Raises CorruptBatch at the first that isn't one."""
    position = 0
    while position < len(buffer):
        header = peek_header(buffer, position)
        check_crc(buffer, position, header)
        yield decode_records(buffer, position, header)
        position += header.size


def find_records(buffer: Buffer, position: int, header: Header) -> Iterator[Found]:
    """Yield the records of the batch at `position` one by one, unpacked if need be.

    Raises CorruptBatch, perhaps behind the first of them, if they don't parse or unpack to more than
    UNPACKED_SIZE_MAX.
    """
    data, at, end = unpacked(buffer, position, header, UNPACKED_SIZE_MAX)
    base_offset, base_timestamp_ms = header.base_offset, header.base_timestamp_ms
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    number = 0
    try:
        for _, stop, delta_ms, delta, key_length, _ in walk(data, at, end, header.record_count):
            timestamp_ms = base_timestamp_ms + delta_ms if append_time_ms is None else append_time_ms
            yield new(Found, (base_offset + unzigzag(delta), timestamp_ms, not key_length & 1))
            at = stop
            number += 1
    except (IndexError, ValueError) as error:
        raise CorruptBatch(position, f"record {number} of {header.record_count}: {error}") from error
    if at != end:
        raise CorruptBatch(position, f"{end - at} bytes behind the last record")


def unpacked(
    buffer: Buffer, position: int, header: Header, size_max: int = DECOMPRESSED_SIZE_MAX
) -> tuple[bytes, int, int]:
    """Bytes that hold a batch's records without codec, and where these begin and end in there.

    Raises CorruptBatch if the header's numbers make no sense, or the records can't be unpacked.
    """
    codec_number = header.attributes & CODEC_MASK
    if codec_number > Codec.ZSTD:
        raise CorruptBatch(position, f"unknown codec {codec_number}")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise CorruptBatch(position, f"{header.record_count} records, last at {header.last_offset_delta}")
    at, end = position + HEADER_SIZE, position + header.size
    if codec_number == Codec.NONE and isinstance(buffer, bytes):
        return buffer, at, end
    with memoryview(buffer)[at:end] as body:
        try:
            data = decompress(body, codec_number, size_max)
        except (ValueError, struct.error) as error:
            raise CorruptBatch(position, f"{Codec(codec_number).name.lower()}: {error}") from error
    return data, 0, len(data)


def _skip_headers(data: bytes, at: int) -> int:
    """The index behind the headers of a record, which begin at `at`: no reader needs them."""
    number, at = varint_at(data, at)
    if number & 1:
        raise ValueError("negative number of headers")
    for _ in range(number >> 1):
        number, at = varint_at(data, at)
        if number & 1:
            raise ValueError("header without a key")
        at += number >> 1
        number, at = varint_at(data, at)
        if not number & 1:
            at += number >> 1
        elif number != NULL_LENGTH:
            raise ValueError(f"header value of {unzigzag(number)} bytes")
    return at
