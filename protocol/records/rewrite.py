"""Makes a batch anew from one that was read: for a broker that takes a producer's batch, and for compaction.

A broker stores a producer's records as they came, compressed or not. It gives the batch its base offset and leader
epoch, which no CRC covers. For topics with message.timestamp.type=LogAppendTime it also sets a time, which the CRC
covers. All of that stands in the header, so `placed` never copies the records behind it.

Compaction drops records. `slice_records` finds the records of a batch as bytes, and `encode_slices` makes a batch of
those that stay, with the codec that it had.

House rule: the caller has checked the CRC of the batch that comes in.
Source: Kafka's LogValidator, MemoryRecords.filterTo and DefaultRecordBatch, release 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from protocol.checksum import Buffer, crc32c
from protocol.records.batch import (
    CODEC_MASK,
    COVERED,
    CRC_START,
    DELETE_HORIZON,
    FRAME_SIZE,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    UNCOVERED,
    CorruptBatch,
    Header,
)
from protocol.records.codecs import compress
from protocol.records.varint import NULL_LENGTH, encode_varint, read_varint, unzigzag, varint_at
from protocol.records.walk import unpacked, walk

NOT_CHANGED_AT = 16
"""From here on a batch is as its producer sent it, but for its time."""

_FRONT = struct.Struct(">qii")
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35
_CRC = struct.Struct(">I")
_CRC_AT = 17


class RecordSlice(NamedTuple):
    """A record as it lies in its batch.

    key: None if it has none, which a topic's log allows.
    timestamp_ms: Unix time in milliseconds.
    data: its bytes, length in front. They hold deltas, so they mean something only below the header of their batch.
    """

    offset: int
    key: bytes | None
    is_tombstone: bool
    timestamp_ms: int
    data: bytes


def placed(data: Buffer, header: Header, base_offset: int, leader_epoch: int, append_time_ms: int = -1) -> list[Buffer]:
    """The parts in which the batch at the start of `data` is written: a few new bytes of header, a view of the rest.

    append_time_ms: the time that all its records get; -1: each keeps the time that its producer gave it, even if the
    producer's header says LogAppendTime.
    """
    front = _FRONT.pack(base_offset, header.batch_length, leader_epoch)
    view = memoryview(data)
    if append_time_ms < 0 and not header.attributes & LOG_APPEND_TIME:
        return [front, view[NOT_CHANGED_AT : header.size]]
    head = bytearray(view[:HEADER_SIZE])
    head[: len(front)] = front
    if append_time_ms < 0:
        _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, header.attributes & ~LOG_APPEND_TIME)
    else:
        _ATTRIBUTES.pack_into(head, _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
        _MAX_TIMESTAMP.pack_into(head, _MAX_TIMESTAMP_AT, append_time_ms)
    rest = view[HEADER_SIZE : header.size]
    _CRC.pack_into(head, _CRC_AT, crc32c(rest, crc32c(memoryview(head)[CRC_START:])))
    return [bytes(head), rest]


def slice_records(buffer: Buffer, position: int, header: Header) -> list[RecordSlice]:
    """Find the records of the batch at `position`. Raises CorruptBatch as `decode_records` does.

    The headers of a record, which follow its value, aren't looked at.
    """
    data, at, end = unpacked(buffer, position, header)
    base_offset, base_timestamp_ms = header.base_offset, header.base_timestamp_ms
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    slices: list[RecordSlice] = []
    former_delta = -1
    stop = at
    try:
        for start, stop, delta_ms, delta_zigzag, key_length, key_at in walk(data, at, end, header.record_count):
            delta = unzigzag(delta_zigzag)
            if not former_delta < delta <= header.last_offset_delta:
                raise ValueError(f"offset delta {delta} behind {former_delta}, the last is {header.last_offset_delta}")
            former_delta = delta
            at = key_at if key_length & 1 else key_at + (key_length >> 1)
            key = None if key_length & 1 else data[key_at:at]
            number = data[at]
            at += 1
            if number > 0x7F:
                number, at = read_varint(data, at, number)
            is_tombstone = number == NULL_LENGTH
            if at + (0 if is_tombstone else unzigzag(number)) > stop:
                raise ValueError("its fields take more than its length says")
            timestamp_ms = base_timestamp_ms + delta_ms if append_time_ms is None else append_time_ms
            slices.append(RecordSlice(base_offset + delta, key, is_tombstone, timestamp_ms, data[start:stop]))
    except (IndexError, ValueError) as error:
        raise CorruptBatch(position, f"record {len(slices)} of {header.record_count}: {error}") from error
    if stop != end:
        raise CorruptBatch(position, f"{end - stop} bytes behind the last record")
    return slices


def encode_slices(header: Header, slices: Sequence[RecordSlice], horizon_ms: int | None = None) -> bytes:
    """Write the batch that `header` was read from anew, with `slices` as its records; there may be none.

    Offsets, timestamps, epoch, producer and codec stay as they are. The batch still spans the same offsets
    (lastOffsetDelta), as in Kafka (MemoryRecords.filterTo, writeEmptyHeader).

    horizon_ms: a delete horizon for a batch that has none; it becomes the base of all timestamps.
    """
    attributes = header.attributes
    base_timestamp_ms, max_timestamp_ms = header.base_timestamp_ms, header.max_timestamp_ms
    parts = [record.data for record in slices]
    if not slices:
        attributes &= ~(CODEC_MASK | DELETE_HORIZON)
        base_timestamp_ms = -1
    elif not attributes & LOG_APPEND_TIME:
        max_timestamp_ms = max(record.timestamp_ms for record in slices)
    if horizon_ms is not None:
        assert slices
        assert header.delete_horizon_ms is None
        attributes |= DELETE_HORIZON
        base_timestamp_ms = horizon_ms
        parts = [_rebased(horizon_ms, record) for record in slices]
    if codec := attributes & CODEC_MASK:
        parts = [compress(b"".join(parts), codec)]
    covered = COVERED.pack(
        attributes, header.last_offset_delta, base_timestamp_ms, max_timestamp_ms,
        header.producer_id, header.producer_epoch, header.base_sequence, len(slices),
    )  # fmt: skip
    parts.insert(0, covered)
    crc = 0
    size = CRC_START - FRAME_SIZE
    for part in parts:
        crc = crc32c(part, crc)
        size += len(part)
    return b"".join((UNCOVERED.pack(header.base_offset, size, header.partition_leader_epoch, MAGIC, crc), *parts))


def _rebased(base_timestamp_ms: int, record: RecordSlice) -> bytes:
    """A record's bytes with its timestamp as delta to another base."""
    _, body = varint_at(record.data, 0)
    _, rest = varint_at(record.data, body + 1)
    moved = b"".join((b"\0", encode_varint(record.timestamp_ms - base_timestamp_ms), record.data[rest:]))
    return encode_varint(len(moved)) + moved
