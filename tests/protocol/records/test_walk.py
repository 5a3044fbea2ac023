"""The reader of batches, compared with Kafka's own bytes and another writer, and with damaged bytes."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.records.batch import CRC_START, HEADER_SIZE, CorruptBatch, Record, encode_batch, peek_header
from protocol.records.codecs import Codec
from protocol.records.rewrite import placed
from protocol.records.walk import UNPACKED_SIZE_MAX, Batch, Found, decode_batches, find_records
from tests.support.batches import FIRST, START_MS, TOMBSTONE, Sent, batch, golden, numbered, records_strategy, with_crc

LARGE = b"".join(b"0123456789abcdef"[(at // 7) % 16 :][:1] for at in range(100_000))
WITH_HEADERS = Record(b"headers", b"", START_MS + 500)
WITH_LARGE = Record(b"large", LARGE, START_MS + 600)
SENT: list[Sent] = [(b"a", b"1", 1_000), (None, b"22", 1_500), (b"", None, 900)]


def decode_one(data: bytes) -> Batch:
    """Return the only batch in `data`."""
    (decoded,) = decode_batches(data)
    return decoded


class TestKafkasBytes:
    """The reader understands the batches that Kafka wrote."""

    @pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
    def test_every_codec(self, codec: Codec) -> None:
        """Batches in all codecs of Java clients unpack to the same records, without the records' headers."""
        batch = decode_one(golden(codec.name.lower()))
        expected = [FIRST, TOMBSTONE, WITH_HEADERS, WITH_LARGE]
        assert batch.records == (expected if codec else expected[:3])
        assert batch.codec is codec
        assert batch.offsets == [42 + number for number in range(len(batch.records))]
        assert (batch.header.base_offset, batch.header.partition_leader_epoch, batch.header.producer_id) == (42, 7, -1)
        assert not batch.header.is_control
        assert not batch.header.is_transactional

    def test_append_time(self) -> None:
        """With LogAppendTime every record has the batch's time."""
        batch = decode_one(golden("append_time"))
        assert [record.timestamp_ms for record in batch.records] == [batch.header.max_timestamp_ms] * 2
        assert batch.header.max_timestamp_ms > START_MS

    def test_transaction(self) -> None:
        """A batch of a transaction and its marker have their attributes and the producer's id."""
        data, marker = decode_one(golden("transactional")), decode_one(golden("control"))
        assert (data.header.is_transactional, data.header.is_control, data.header.producer_id) == (True, False, 5000)
        assert (marker.header.is_transactional, marker.header.is_control, marker.header.producer_id) == (
            True,
            True,
            5000,
        )
        assert data.header.producer_epoch == 3
        commit = struct.pack(">hh", 0, 1)
        assert [record.key for record in marker.records] == [commit]

    def test_batch_without_records(self) -> None:
        """A batch whose records compaction removed still has its offsets."""
        batch = decode_one(golden("empty"))
        assert batch.records == []
        assert batch.header.next_offset == 48

    def test_cleaned_batch(self) -> None:
        """Offset gaps are no damage, and neither are negative deltas to a base time that is a delete horizon."""
        batch = decode_one(golden("cleaned"))
        assert batch.records == [TOMBSTONE, WITH_HEADERS]
        assert batch.offsets == [43, 44]
        assert batch.header.base_offset == 42
        assert batch.header.delete_horizon_ms == START_MS + 2_000 + 86_400_000
        assert decode_one(golden("plain")).header.delete_horizon_ms is None


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@given(records=records_strategy)
def test_written_by_another(codec: Codec, records: list[Record]) -> None:
    """The reader reads another program's batches, in any codec."""
    assume(records[0].timestamp_ms != -1)  # this builder takes it for a time that is still to be set, and writes 0
    builder: Any = AiokafkaBuilder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    for number, record in enumerate(records):
        assert builder.append(number, record.timestamp_ms, record.key, record.value, []) is not None
    assert decode_one(bytes(builder.build())).records == records


class TestDamage:
    """From any bytes the reader gets the right batch, or raises CorruptBatch."""

    def test_error_names_the_position(self) -> None:
        """The error is a ProtocolError and has the batch's index in the buffer."""
        good = encode_batch([FIRST], 0, 0)
        batches = decode_batches(good + good[:-1])
        assert next(batches).records == [FIRST]
        with pytest.raises(CorruptBatch) as caught:
            next(batches)
        assert caught.value.position == len(good)
        assert isinstance(caught.value, ProtocolError)

    def test_each_prefix(self) -> None:
        """The reader notices an incomplete batch, wherever it ends."""
        data = encode_batch([FIRST, TOMBSTONE], 5, 1)
        for size in range(1, len(data)):
            with pytest.raises(CorruptBatch):
                list(decode_batches(data[:size]))

    @pytest.mark.parametrize(
        "at,value",
        [
            (21, struct.pack(">h", 5)),  # a codec that doesn't exist
            (23, struct.pack(">i", 0)),  # the last offset is lower than the second record's
            (23, struct.pack(">i", -1)),
            (57, struct.pack(">i", -1)),  # record count
            (57, struct.pack(">i", 1)),
            (57, struct.pack(">i", 3)),
            (61, b"\x22"),  # length of the first record: one more than its fields
            (61, b"\x1e"),
            (61, b"\x01"),  # -1
            (61, b"\x21"),  # -17: the right length with the wrong sign
            (61, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),  # a varint without end
            (64, b"\x02"),  # the first record has the offset of the second
            (64, b"\x01"),  # offset delta -1
            (65, b"\x01"),  # no key
            (71, b"\x03"),  # a value of -2 bytes
        ],
    )
    def test_records_that_break_the_rules(self, at: int, value: bytes) -> None:
        """The reader refuses records that contradict the header or themselves, although the CRC is right."""
        data = bytearray(encode_batch([FIRST, TOMBSTONE], 0, 0))
        data[at : at + len(value)] = value
        with pytest.raises(CorruptBatch):
            decode_one(with_crc(bytes(data)))

    @given(st.data())
    def test_nothing_else_is_raised(self, data: st.DataObject) -> None:
        """A few changed bytes under a right CRC give a batch or CorruptBatch, in each codec."""
        batch = bytearray(golden(data.draw(st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd", "cleaned"]))))
        edits = st.lists(st.tuples(st.integers(CRC_START, len(batch) - 1), st.integers(0, 255)), max_size=4)
        for at, value in data.draw(edits):
            batch[at] = value
        del batch[data.draw(st.integers(HEADER_SIZE, len(batch))) :]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        try:
            found = decode_one(with_crc(bytes(batch)))
        except CorruptBatch:
            return
        assert len(found.offsets) == len(found.records)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(kind: Any) -> None:
    """The reader takes any kind of buffer and returns bytes."""
    first, second = encode_batch([FIRST], 0, 0), encode_batch([TOMBSTONE], 1, 0)
    records = [record for batch in decode_batches(kind(first + second)) for record in batch.records]
    assert records == [FIRST, TOMBSTONE]
    assert type(records[0].key) is bytes
    assert [batch.position for batch in decode_batches(kind(first + second))] == [0, len(first)]


@pytest.mark.parametrize("zipped", [False, True])
def test_records_are_found(*, zipped: bool) -> None:
    """The walk finds offsets, times and whether a record has a key, in packed and plain batches."""
    data = batch(SENT, base_offset=10, zipped=zipped)
    assert list(find_records(data, 0, peek_header(data))) == [
        Found(10, 1_000, has_key=True),
        Found(11, 1_500, has_key=False),
        Found(12, 900, has_key=True),
    ]


def test_all_records_have_the_time_of_their_append() -> None:
    """With LogAppendTime the walk ignores the records' time deltas."""
    data = b"".join(map(bytes, placed(data := batch(SENT), peek_header(data), 0, 0, 7_777)))
    assert [found.timestamp_ms for found in find_records(data, 0, peek_header(data))] == [7_777] * 3


def test_long_numbers() -> None:
    """The walk reads keys, values and deltas whose varints have more than one byte."""
    data = batch([(b"k" * 300, b"v" * 70_000, 1), (None, b"", 2**40)])
    assert [found.timestamp_ms for found in find_records(data, 0, peek_header(data))] == [1, 2**40]


@pytest.mark.parametrize("count", [2, 4])
def test_records_that_are_not_what_the_header_says(count: int) -> None:
    """The walk refuses a batch with fewer or more records than its header says."""
    data = batch(SENT, record_count=count)
    with pytest.raises(CorruptBatch):
        list(find_records(data, 0, peek_header(data)))


def test_no_byte_of_the_records_makes_it_fail_otherwise() -> None:
    """After any change of a byte the walk gives records, or raises CorruptBatch."""
    data = bytearray(batch(numbered(0, 5)))
    header = peek_header(data)
    for at in range(HEADER_SIZE, len(data)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = bytes(data[:at]) + bytes([value]) + bytes(data[at + 1 :])
            with suppress(CorruptBatch):
                assert len(list(find_records(changed, 0, header))) == 5


def test_records_are_found_one_by_one() -> None:
    """The walk yields the first record before it reads the next, so it builds no list of millions."""
    data = bytearray(batch(SENT))
    data[-1] = 0xFF
    found = find_records(bytes(data[:-4]) + b"\xff" * 4, 0, peek_header(data))
    assert next(found) == Found(0, 1_000, has_key=True)
    with pytest.raises(CorruptBatch):
        list(found)


def test_a_small_batch_that_unpacks_to_a_large_one_is_not_looked_into() -> None:
    """The walk refuses a small batch that unpacks to more than the limit."""
    data = batch([(b"k", b"x" * UNPACKED_SIZE_MAX, 0)], zipped=True)
    assert len(data) < UNPACKED_SIZE_MAX // 900
    with pytest.raises(CorruptBatch):
        next(find_records(data, 0, peek_header(data)))
