"""Record batches, format v2: their header, their records, and how to write one.

A log segment is batches, one behind the other. A batch is a header of 61 bytes and its records:

    base offset int64 | batch length int32 | leader epoch int32 | magic int8 | CRC-32C uint32      not under the CRC
    attributes int16 | last offset delta int32 | base and max timestamp int64 | producer id int64
    | producer epoch int16 | base sequence int32 | record count int32 | records                    under the CRC

The records are compressed as one block if the attributes name a codec. A record holds its offset and timestamp as
deltas to the batch's. All integers inside a record are zigzag varints (varint.py). Compaction leaves gaps between
offsets, and may leave a batch without records. Timestamp deltas are negative where Kafka's cleaner gave a batch a
delete horizon, since its base timestamp then lies ahead.

`encode_batch` writes a batch. `peek_header` and `check_crc` are for readers that need no records; walk.py reads these.

House rule: the CRC is checked before anything under it is believed. The first 21 bytes are under no CRC. Here they are
checked only as far as safety needs; the caller, who knows the log, checks that offsets and epochs make sense.
Source: Kafka's DefaultRecordBatch and DefaultRecord, release 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from protocol.checksum import Buffer, crc32c
from protocol.errors import ProtocolError
from protocol.records.varint import encode_varint

HEADER_SIZE = 61
"""Bytes of a batch before its records."""

FRAME_SIZE = 12
"""Bytes of a batch that its length field doesn't count: base offset and length."""

CRC_START = 21
"""The CRC covers a batch from here to its end."""

MAGIC = 2
"""The number of this format."""

CODEC_MASK = 0x07
"""The bits of the attributes that name a codec."""

LOG_APPEND_TIME = 0x08
"""The bit of the attributes that gives all records the time of their append."""

TRANSACTIONAL = 0x10
"""The bit of the attributes of a batch that is part of a transaction."""

CONTROL = 0x20
"""The bit of the attributes of a batch of markers."""

DELETE_HORIZON = 0x40
"""The bit of the attributes that makes the base timestamp a delete horizon (KIP-534)."""

SHAPES_CACHED_MAX = 4096
"""Shapes of a record that are remembered: a client can make up any number of sizes."""

NO_HEADERS = b"\0"
"""The end of a record that has no headers."""

UNCOVERED = struct.Struct(">qiibI")
"""The header's fields that the CRC doesn't cover, and the CRC."""

COVERED = struct.Struct(">hiqqqhii")
"""The header's fields that the CRC covers."""

_HEADER = struct.Struct(">qiibIhiqqqhii")


class CorruptBatch(ProtocolError):
    """The bytes at `position` are no valid batch, because of `reason`.

    position: index of the batch's first byte in the buffer that was handed in.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason


class Record(NamedTuple):
    """A record: the newest `value` of a `key`. The value None is a tombstone, which deletes the key.

    timestamp_ms: Unix time in milliseconds.
    """

    key: bytes
    value: bytes | None
    timestamp_ms: int


class Batch(list[Record]):
    """Records that a producer wrote, or a marker. A plain list of records is a batch without a producer.

    attributes: TRANSACTIONAL, CONTROL, or none.
    """

    __slots__ = ("attributes", "base_sequence", "producer_epoch", "producer_id")

    def __init__(
        self,
        records: Iterable[Record],
        producer_id: int,
        producer_epoch: int,
        attributes: int = TRANSACTIONAL,
        base_sequence: int = 0,
    ) -> None:
        super().__init__(records)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.attributes = attributes
        self.base_sequence = base_sequence


class Header(NamedTuple):
    """The header of a batch, in the order of its bytes; field names are Kafka's.

    batch_length: as on disk, so without the first 12 bytes; `size` counts these too.
    partition_leader_epoch: the epoch of the partition's owner that wrote it.
    producer_id, producer_epoch, base_sequence: -1 unless an idempotent producer wrote it.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + FRAME_SIZE

    @property
    def next_offset(self) -> int:
        """The offset behind the batch's last record, even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        """Whether its records are markers (transaction committed, aborted), not data."""
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction of `producer_id`: it counts once a control batch says committed."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When Kafka's cleaner may drop the batch's tombstones; None while it hasn't decided (KIP-534)."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None


def encode_batch(records: Sequence[Record], base_offset: int, leader_epoch: int) -> bytes:
    """Write `records`, at least one, as a batch that starts at `base_offset`: no codec, CreateTime.

    Most batches have one record, or many of one shape. So the bytes around keys and values are remembered by shape.
    """
    assert records
    assert base_offset >= 0
    assert leader_epoch >= 0
    base_timestamp_ms = max_timestamp_ms = records[0].timestamp_ms
    parts = [b""]
    for delta, (key, value, timestamp_ms) in enumerate(records):
        max_timestamp_ms = max(max_timestamp_ms, timestamp_ms)
        value_size = -1 if value is None else len(value)
        before_key, before_value = _shape(delta, timestamp_ms - base_timestamp_ms, len(key), value_size)
        parts += before_key, key, before_value, value or b"", NO_HEADERS
    count = len(records)
    attributes, producer_id, producer_epoch, base_sequence = 0, -1, -1, -1
    if records.__class__ is Batch:
        batch: Any = records
        attributes, base_sequence = batch.attributes, batch.base_sequence
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
    parts[0] = COVERED.pack(
        attributes,
        count - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    covered = b"".join(parts)
    size = CRC_START - FRAME_SIZE + len(covered)
    return UNCOVERED.pack(base_offset, size, leader_epoch, MAGIC, crc32c(covered)) + covered


@lru_cache(SHAPES_CACHED_MAX)
def _shape(delta: int, delta_ms: int, key_size: int, value_size: int) -> tuple[bytes, bytes]:
    """The bytes before the key, and those between key and value, of a record with these deltas and sizes.

    value_size: -1 if there is no value.
    """
    before_value = encode_varint(value_size)
    middle = b"".join((b"\0", encode_varint(delta_ms), encode_varint(delta), encode_varint(key_size)))
    record_size = len(middle) + key_size + len(before_value) + max(value_size, 0) + len(NO_HEADERS)
    return encode_varint(record_size) + middle, before_value


def peek_header(buffer: Buffer, position: int = 0) -> Header:
    """Read the header at `position`. The CRC isn't checked, and the batch may be cut short.

    Raises CorruptBatch if fewer than 61 bytes are left, or if magic or length can't be a batch's.
    """
    left = len(buffer) - position
    if left < HEADER_SIZE:
        raise CorruptBatch(position, f"{left} bytes left, a header takes {HEADER_SIZE}")
    header = Header._make(_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptBatch(position, f"magic {header.magic}, expected {MAGIC}")
    if header.batch_length < HEADER_SIZE - FRAME_SIZE:
        raise CorruptBatch(position, f"batch length {header.batch_length}, a header alone takes more")
    return header


def check_crc(buffer: Buffer, position: int, header: Header) -> None:
    """Raise CorruptBatch unless the batch at `position` is all there and its CRC is right."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(position, f"batch of {header.size} bytes, {len(buffer) - position} left")
    with memoryview(buffer)[position + CRC_START : end] as covered:
        crc = crc32c(covered)
    if crc != header.crc:
        raise CorruptBatch(position, f"CRC {crc:08x}, header says {header.crc:08x}")
