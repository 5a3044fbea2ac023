"""Record batches, format v2: what a log segment is made of (KIP-98; DefaultRecordBatch and DefaultRecord in Kafka).

A segment is batches, one behind the other. A batch is a header of 61 bytes and its records:

    base offset int64 | batch length int32 | leader epoch int32 | magic int8 | CRC-32C uint32      not under the CRC
    attributes int16 | last offset delta int32 | base and max timestamp int64 | producer id int64
    | producer epoch int16 | base sequence int32 | record count int32 | records                    under the CRC

The records are compressed as one block if the attributes name a codec. Offsets and timestamps of records are deltas to
the batch's; all integers inside a record are zigzag varints. Deltas of timestamps may be negative (in batches that
Kafka's cleaner gave a delete horizon the base timestamp lies ahead), offsets may have gaps (compaction), and a batch
may have lost all of its records (likewise).

Writing: `encode_batch`. Reading: `decode_batches` for a buffer; `peek_header` and `check_crc` for who scans without
decoding and `decode_records` for the rest of the way. Rewriting, for compaction: `slice_records` finds the records as
bytes, `encode_slices` makes a batch of those that stay, with the codec that it had.

House rule: nothing read is believed before its CRC was checked. The first 21 bytes are under no CRC: here they are
checked only as far as safety needs; whether offsets and epochs make sense is for the caller, who knows the log.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from protocol.checksum import Buffer, crc32c
from protocol.errors import ProtocolError

HEADER_SIZE = 61
"""Bytes of a batch before its records."""

FRAME_SIZE = 12
"""Bytes of a batch that its length field doesn't count: base offset and length."""

CRC_START = 21
"""The CRC covers a batch from here to its end."""

DECOMPRESSED_SIZE_MAX = 128 * 1024 * 1024
"""What one batch may grow to when decompressed: far above any message.max.bytes in use, far below our memory."""

SHAPES_CACHED_MAX = 4096
"""Places and sizes of a record that are remembered: a client can make up any number of sizes."""

NUMBERS_CACHED_MAX = 4096
"""Sizes and deltas whose bytes are remembered: a batch has five for each record."""

MAGIC = 2
"""Of the batches of this format."""

CONTROL = 0x20
"""The attribute of a batch of markers."""

CODEC_MASK = 0x07
"""The bits of the attributes that name a codec."""

LOG_APPEND_TIME = 0x08
"""The bit of the attributes that says that all records have the time of their append."""

TRANSACTIONAL = 0x10
"""The bit of the attributes that says that the batch is part of a transaction."""

NO_HEADERS = b"\0"
"""The end of a record: it has no headers."""

NULL_LENGTH = 1
"""The length -1 as it is in a record, in zigzag: there is no value, or no key."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_UNCOVERED = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")
_INT32 = struct.Struct(">i")
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\x01\0\0\0\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_DELETE_HORIZON = 0x40
_VARINT_BITS_MAX = 63


class CorruptBatch(ProtocolError):
    """The bytes at `position` are no valid batch, because of `reason`.

    position: index of the batch's first byte in the buffer that was handed in.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason


class Record(NamedTuple):
    """A record of a compacted log: the newest `value` of a `key`; None is a tombstone, which deletes the key.

    timestamp_ms: Unix time in milliseconds.
    """

    key: bytes
    value: bytes | None
    timestamp_ms: int


class RecordSlice(NamedTuple):
    """A record as it lies in its batch.

    key: None where a topic's records need none. data: its bytes, length in front. They hold deltas, so they mean
    something only below the header they were found under. timestamp_ms: Unix time in milliseconds.
    """

    offset: int
    key: bytes | None
    is_tombstone: bool
    timestamp_ms: int
    data: bytes


class Codec(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Codec)


class Header(NamedTuple):
    """The header of a batch, in the order of its bytes; field names are Kafka's.

    batch_length: as on disk, so without the first 12 bytes; `size` is the whole.
    partition_leader_epoch: who wrote it (the epoch of Ownership, in our log).
    producer_id, producer_epoch, base_sequence: -1 where no idempotent producer wrote it.
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
        """The offset behind the batch's last record, compacted away or not."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_control(self) -> bool:
        """Its records are markers (transaction committed, aborted), not data."""
        return self.attributes & CONTROL != 0

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction of `producer_id`: counts only once a control batch says committed."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When Kafka's cleaner may drop the batch's tombstones, once it has decided so (KIP-534)."""
        return self.base_timestamp_ms if self.attributes & _DELETE_HORIZON else None


class Batch(NamedTuple):
    """A batch, read.

    position: of its first byte in the buffer.
    offsets: of each record; strictly ascending, perhaps with gaps.
    """

    position: int
    header: Header
    codec: Codec
    records: list[Record]
    offsets: list[int]

    @property
    def base_offset(self) -> int:
        """The offset of the first record that it was written with."""
        return self.header.base_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch of the partition's owner that wrote it."""
        return self.header.partition_leader_epoch

    @property
    def attributes(self) -> int:
        """The header's bits, as on disk."""
        return self.header.attributes

    @property
    def producer_id(self) -> int:
        """The idempotent producer that wrote it, or -1."""
        return self.header.producer_id

    @property
    def is_control(self) -> bool:
        """See Header."""
        return self.header.is_control

    @property
    def is_transactional(self) -> bool:
        """See Header."""
        return self.header.is_transactional

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.header.size


def encode_batch(records: Sequence[Record], base_offset: int, leader_epoch: int) -> bytes:
    """Write `records`, at least one, as a batch that starts at `base_offset`: no codec, CreateTime, no producer.

    Most batches have one record, or many of one shape, so only what differs is put together.
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
    parts[0] = _COVERED.pack(0, count - 1, base_timestamp_ms, max_timestamp_ms, -1, -1, -1, count)
    covered = b"".join(parts)
    size = CRC_START - FRAME_SIZE + len(covered)
    return _UNCOVERED.pack(base_offset, size, leader_epoch, MAGIC, crc32c(covered)) + covered


@lru_cache(SHAPES_CACHED_MAX)
def _shape(delta: int, delta_ms: int, key_size: int, value_size: int) -> tuple[bytes, bytes]:
    """What stands before the key and before the value of a record, whose offset and timestamp are these deltas.

    value_size: -1 if there is none.
    """
    before_value = _varint(value_size)
    middle = b"".join((b"\0", _varint(delta_ms), _varint(delta), _varint(key_size)))
    record_size = len(middle) + key_size + len(before_value) + max(value_size, 0) + len(NO_HEADERS)
    return _varint(record_size) + middle, before_value


def encode_slices(header: Header, slices: Sequence[RecordSlice], horizon_ms: int | None = None) -> bytes:
    """Write the batch that `header` was read from anew, with `slices` as all that is left of it: perhaps nothing.

    Offsets, timestamps, epoch, producer and codec stay, as do the offsets that the batch spans (lastOffsetDelta), as in
    Kafka (DefaultRecordBatch.writeHeader as MemoryRecords.filterTo calls it, and writeEmptyHeader). horizon_ms: the
    delete horizon that it gets, having none; all timestamps are then told from there.
    """
    attributes = header.attributes
    base_timestamp_ms, max_timestamp_ms = header.base_timestamp_ms, header.max_timestamp_ms
    parts = [record.data for record in slices]
    if not slices:
        attributes &= ~(CODEC_MASK | _DELETE_HORIZON)
        base_timestamp_ms = -1
    elif not attributes & LOG_APPEND_TIME:
        max_timestamp_ms = max(record.timestamp_ms for record in slices)
    if horizon_ms is not None:
        assert slices
        assert header.delete_horizon_ms is None
        attributes |= _DELETE_HORIZON
        base_timestamp_ms = horizon_ms
        parts = [_told_from(horizon_ms, record) for record in slices]
    if codec := attributes & CODEC_MASK:
        parts = [_compress(b"".join(parts), codec)]
    covered = _COVERED.pack(
        attributes, header.last_offset_delta, base_timestamp_ms, max_timestamp_ms,
        header.producer_id, header.producer_epoch, header.base_sequence, len(slices),
    )  # fmt: skip
    parts.insert(0, covered)
    crc = 0
    size = CRC_START - FRAME_SIZE
    for part in parts:
        crc = crc32c(part, crc)
        size += len(part)
    return b"".join((_UNCOVERED.pack(header.base_offset, size, header.partition_leader_epoch, MAGIC, crc), *parts))


def _told_from(base_timestamp_ms: int, record: RecordSlice) -> bytes:
    """A record's bytes below another base timestamp."""
    _, body = _varint_at(record.data, 0)
    _, rest = _varint_at(record.data, body + 1)
    moved = b"".join((b"\0", _varint(record.timestamp_ms - base_timestamp_ms), record.data[rest:]))
    return _varint(len(moved)) + moved


def peek_header(buffer: Buffer, position: int = 0) -> Header:
    """Read the header at `position`; neither the CRC is checked nor that the whole batch is there.

    Raises CorruptBatch if fewer than 61 bytes are left, or magic or length can't be a batch's.
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


def decode_records(
    buffer: Buffer, position: int, header: Header, decompressed_size_max: int = DECOMPRESSED_SIZE_MAX
) -> Batch:
    """Decode the records of the batch at `position`, whose CRC was checked.

    Raises CorruptBatch if they don't parse to exactly what the header announces, or if they are compressed and would
    take more than `decompressed_size_max` bytes.
    """
    data, at, end = unpacked(buffer, position, header, decompressed_size_max)
    records: list[Record] = []
    offsets: list[int] = []
    try:
        at = _parse_records(data, at, end, header, records, offsets)
    except (IndexError, ValueError) as error:
        reason = f"record {len(records)} of {header.record_count}: {error}"
        raise CorruptBatch(position, reason) from error
    if at != end:
        raise CorruptBatch(position, f"{end - at} bytes behind the last record")
    return Batch(position, header, _CODECS[header.attributes & CODEC_MASK], records, offsets)


def slice_records(buffer: Buffer, position: int, header: Header) -> list[RecordSlice]:
    """Find the records of the batch at `position`, whose CRC was checked. Raises CorruptBatch as `decode_records`.

    What stands behind a value, its headers, is passed over.
    """
    data, at, end = unpacked(buffer, position, header, DECOMPRESSED_SIZE_MAX)
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    slices: list[RecordSlice] = []
    former_delta = -1
    try:
        while len(slices) < header.record_count:
            start = at
            number, at = _varint_at(data, at)
            stop = at + _unzigzag(number)
            if not at < stop <= end:
                raise ValueError(f"length {_unzigzag(number)}, {end - at} bytes left")
            number, at = _varint_at(data, at + 1)  # behind the attributes, of which none are defined
            timestamp_ms = header.base_timestamp_ms + _unzigzag(number)
            number, at = _varint_at(data, at)
            delta = _unzigzag(number)
            if not former_delta < delta <= header.last_offset_delta:
                raise ValueError(f"offset delta {delta} behind {former_delta}, the last is {header.last_offset_delta}")
            former_delta = delta
            number, at = _varint_at(data, at)
            key = None if number == NULL_LENGTH else data[at : (at := at + _unzigzag(number))]
            number, at = _varint_at(data, at)
            is_tombstone = number == NULL_LENGTH
            if at + (0 if is_tombstone else _unzigzag(number)) > stop:
                raise ValueError("its fields take more than its length says")
            time_ms = timestamp_ms if append_time_ms is None else append_time_ms
            slices.append(RecordSlice(header.base_offset + delta, key, is_tombstone, time_ms, data[start:stop]))
            at = stop
    except (IndexError, ValueError) as error:
        raise CorruptBatch(position, f"record {len(slices)} of {header.record_count}: {error}") from error
    if at != end:
        raise CorruptBatch(position, f"{end - at} bytes behind the last record")
    return slices


def decode_batches(buffer: Buffer) -> Iterator[Batch]:
    """Read the batches that fill `buffer`, each with its CRC checked; raises CorruptBatch at the first that is none."""
    position = 0
    while position < len(buffer):
        header = peek_header(buffer, position)
        check_crc(buffer, position, header)
        yield decode_records(buffer, position, header)
        position += header.size


def unpacked(
    buffer: Buffer, position: int, header: Header, size_max: int = DECOMPRESSED_SIZE_MAX
) -> tuple[bytes, int, int]:
    """Return bytes that hold a batch's records without codec, and where these start and end in there."""
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
            data = _decompress(body, codec_number, size_max)
        except (ValueError, struct.error) as error:
            raise CorruptBatch(position, f"{Codec(codec_number).name.lower()}: {error}") from error
    return data, 0, len(data)


@lru_cache(NUMBERS_CACHED_MAX)
def _varint(number: int) -> bytes:
    """Zigzag, then base 128 with the low bits first."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _unzigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def read_varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Return the number, still in zigzag, that has `first` and more bytes from `at` on, and where it ends.

    Raises ValueError if it takes more than ten bytes, IndexError if `data` ends before it.
    """
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


def _parse_records(data: bytes, at: int, end: int, header: Header, records: list[Record], offsets: list[int]) -> int:
    """Append what `data[at:end]` holds to the lists and return where it ended.

    The loop is the load path of a whole log, so numbers of one byte are read in place. Lengths are not checked one by
    one: `at` only grows, so a record that ends where its own length says has stayed inside.
    """
    base_timestamp_ms = header.base_timestamp_ms
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    base_offset = header.base_offset
    last_offset = base_offset + header.last_offset_delta
    former_offset = base_offset - 1
    for _ in range(header.record_count):
        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = read_varint(data, at, number)
        if number & 1 or number >> 1 > end - at:
            raise ValueError(f"length {_unzigzag(number)}, {end - at} bytes left")
        record_end = at + (number >> 1)
        at += 1  # attributes of a record: none are defined
        timestamp_ms = base_timestamp_ms
        number = data[at]
        at += 1
        if number:
            if number > 0x7F:
                number, at = read_varint(data, at, number)
            timestamp_ms += _unzigzag(number)
        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = read_varint(data, at, number)
        offset = base_offset + (number >> 1)
        if number & 1 or not former_offset < offset <= last_offset:
            raise ValueError(f"offset delta {_unzigzag(number)}, offset before {former_offset}, last {last_offset}")
        former_offset = offset
        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = read_varint(data, at, number)
        if number & 1:
            raise ValueError("no key")
        key = data[at : (at := at + (number >> 1))]
        number = data[at]
        at += 1
        if number > 0x7F:
            number, at = read_varint(data, at, number)
        value: bytes | None = None
        if not number & 1:
            value = data[at : (at := at + (number >> 1))]
        elif number != NULL_LENGTH:
            raise ValueError(f"value of {_unzigzag(number)} bytes")
        number = data[at]
        at += 1
        if number:
            at = _skip_headers(data, at - 1)
        if at != record_end:
            raise ValueError(f"its fields take {at - record_end} bytes more than its length says")
        offsets.append(offset)
        records.append(Record(key, value, timestamp_ms if append_time_ms is None else append_time_ms))
    return at


def _skip_headers(data: bytes, at: int) -> int:
    """Pass over the headers of a record: nothing that we read has a meaning for them."""
    number, at = _varint_at(data, at)
    if number & 1:
        raise ValueError("negative number of headers")
    for _ in range(number >> 1):
        number, at = _varint_at(data, at)
        if number & 1:
            raise ValueError("header without a key")
        at += number >> 1
        number, at = _varint_at(data, at)
        if not number & 1:
            at += number >> 1
        elif number != NULL_LENGTH:
            raise ValueError(f"header value of {_unzigzag(number)} bytes")
    return at


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at`, still in zigzag, and where it ends."""
    first = data[at]
    return (first, at + 1) if first < 0x80 else read_varint(data, at + 1, first)


def _decompress(body: memoryview, codec_number: int, size_max: int) -> bytes:
    """Return what `body` unpacks to; raises ValueError if it is damaged or larger than `size_max`.

    The codecs write into memory that is reserved at `size_max` and only taken as it is touched, so that a small batch
    that claims to be large costs what it really unpacks to, and never more than the limit.
    """
    if codec_number == Codec.NONE or not body:
        return bytes(body)
    import cramjam  # heavy, and no log of our own has a compressed batch

    try:
        if codec_number == Codec.SNAPPY:
            return _decompress_snappy(body, size_max)
        module = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[Codec(codec_number)]
        with mmap.mmap(-1, size_max) as output:
            return output[: module.decompress_into(body, output)]
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error


def _compress(data: bytes, codec_number: int) -> bytes:
    """Pack records as Kafka's clients read them, be they Java's: snappy in blocks, lz4 in blocks that need no other."""
    import cramjam  # as in _decompress

    if codec_number == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec_number == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data))
    if codec_number == Codec.LZ4:
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    parts = [_XERIAL_HEADER]
    for at in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_SIZE]))
        parts += [_INT32.pack(len(block)), block]
    return b"".join(parts)


def _decompress_snappy(body: memoryview, size_max: int) -> bytes:
    """Snappy comes as one raw block, or as the blocks of Java's SnappyOutputStream, each behind its length (int32)."""
    from cramjam import snappy  # as above

    blocks: list[memoryview] = []
    if body[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        at = len(_XERIAL_HEADER)
        while at < len(body):
            (size,) = _INT32.unpack_from(body, at)
            at += _INT32.size
            if not 0 <= size <= len(body) - at:
                raise ValueError(f"block of {size} bytes, {len(body) - at} left")
            blocks.append(body[at : at + size])
            at += size
    else:
        blocks.append(body)
    sizes = [snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > size_max:
        raise ValueError(f"unpacks to {sum(sizes)} bytes, {size_max} allowed")
    output = bytearray(sum(sizes))
    at = 0
    with memoryview(output) as view:
        for block, size in zip(blocks, sizes, strict=True):
            snappy.decompress_raw_into(block, view[at : at + size])
            at += size
    return bytes(output)
