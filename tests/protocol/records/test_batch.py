"""Record batches against Kafka's own bytes, against another reader and writer, and against damage."""

from __future__ import annotations

import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.records.batch import (
    CRC_START,
    HEADER_SIZE,
    Batch,
    Codec,
    CorruptBatch,
    Record,
    check_crc,
    decode_batches,
    decode_records,
    encode_batch,
    peek_header,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "record_batch"
START_MS = 1_700_000_000_000
LARGE = b"".join(b"0123456789abcdef"[(at // 7) % 16 :][:1] for at in range(100_000))
FIRST = Record(b"first", b"value", START_MS)
TOMBSTONE = Record(b"tombstone", None, START_MS - 10)
WITH_HEADERS = Record(b"headers", b"", START_MS + 500)
WITH_LARGE = Record(b"large", LARGE, START_MS + 600)

int64s = st.integers(-(2**40), 2**41)
records_strategy = st.lists(
    st.builds(Record, st.binary(max_size=200), st.none() | st.binary(max_size=300), int64s), min_size=1, max_size=150
)


def golden(name: str) -> bytes:
    """The bytes of a batch that Kafka wrote."""
    return (GOLDEN / f"{name}.bin").read_bytes()


def decode_one(data: bytes) -> Batch:
    """The only batch in `data`."""
    (batch,) = decode_batches(data)
    return batch


def with_crc(data: bytes) -> bytes:
    """A single batch with its CRC made right again, as whoever tampers with it would do."""
    return data[:17] + struct.pack(">I", crc32c(data[CRC_START:])) + data[CRC_START:]


def compressed(codec: Codec, body: bytes, record_count: int = 1) -> bytes:
    """A batch whose records are `body`, whatever that is."""
    header = struct.pack(">hiqqqhii", codec, record_count - 1, START_MS, START_MS, -1, -1, -1, record_count)
    frame = struct.pack(">qiib", 0, len(header) + len(body) + 9, 0, 2)
    return with_crc(frame + bytes(4) + header + body)


class TestKafkasBytes:
    """What Kafka wrote is read as it was meant, and what is written is what Kafka would have written."""

    def test_written_byte_for_byte(self) -> None:
        """The batch of the same records, offset and epoch equals Kafka's."""
        assert encode_batch([FIRST, TOMBSTONE], base_offset=42, leader_epoch=7) == golden("plain")

    @pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
    def test_every_codec(self, codec: Codec) -> None:
        """All codecs, as Java clients write them, unpack to the same records; headers of records are passed over."""
        batch = decode_one(golden(codec.name.lower()))
        expected = [FIRST, TOMBSTONE, WITH_HEADERS, WITH_LARGE]
        assert batch.records == (expected if codec else expected[:3])
        assert batch.codec is codec
        assert batch.offsets == [42 + number for number in range(len(batch.records))]
        assert (batch.base_offset, batch.leader_epoch, batch.producer_id) == (42, 7, -1)
        assert not batch.is_control
        assert not batch.is_transactional

    def test_append_time(self) -> None:
        """With LogAppendTime every record has the batch's time."""
        batch = decode_one(golden("append_time"))
        assert [record.timestamp_ms for record in batch.records] == [batch.header.max_timestamp_ms] * 2
        assert batch.header.max_timestamp_ms > START_MS

    def test_transaction(self) -> None:
        """A batch of a transaction and its marker say what they are, and whose."""
        data, marker = decode_one(golden("transactional")), decode_one(golden("control"))
        assert (data.is_transactional, data.is_control, data.producer_id) == (True, False, 5000)
        assert (marker.is_transactional, marker.is_control, marker.producer_id) == (True, True, 5000)
        assert data.header.producer_epoch == 3
        commit = struct.pack(">hh", 0, 1)
        assert [record.key for record in marker.records] == [commit]

    def test_batch_without_records(self) -> None:
        """A batch that compaction left nothing of still moves the offset on."""
        batch = decode_one(golden("empty"))
        assert batch.records == []
        assert batch.header.next_offset == 48

    def test_cleaned_batch(self) -> None:
        """Gaps in the offsets, and negative deltas to a base time that is a delete horizon, are no damage."""
        batch = decode_one(golden("cleaned"))
        assert batch.records == [TOMBSTONE, WITH_HEADERS]
        assert batch.offsets == [43, 44]
        assert batch.base_offset == 42
        assert batch.header.delete_horizon_ms == START_MS + 2_000 + 86_400_000
        assert decode_one(golden("plain")).header.delete_horizon_ms is None


class TestAnotherImplementation:
    """An independent reader and writer, aiokafka's, agrees with ours."""

    @given(records_strategy, st.integers(0, 2**62), st.integers(0, 2**31 - 1))
    def test_read_by_others(self, records: list[Record], base_offset: int, leader_epoch: int) -> None:
        """What is written is read back, by us and by another, to the same records and offsets."""
        data = encode_batch(records, base_offset, leader_epoch)
        batch = decode_one(data)
        assert batch.records == records
        assert batch.offsets == [base_offset + number for number in range(len(records))]
        assert batch.leader_epoch == leader_epoch
        assert batch.size == len(data)
        assert batch.header.max_timestamp_ms == max(record.timestamp_ms for record in records)
        other: Any = AiokafkaBatch(data)
        assert other.validate_crc()
        assert other.base_offset == base_offset
        read = [(record.offset, Record(record.key, record.value, record.timestamp)) for record in other]
        assert read == list(zip(batch.offsets, records, strict=True))

    @pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
    @given(records=records_strategy)
    def test_written_by_another(self, codec: Codec, records: list[Record]) -> None:
        """What another writes, in any codec, is read here."""
        builder: Any = AiokafkaBuilder(
            magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=1 << 20,
        )  # fmt: skip
        for number, record in enumerate(records):
            assert builder.append(number, record.timestamp_ms, record.key, record.value, []) is not None
        assert decode_one(bytes(builder.build())).records == records

    def test_snappy_block(self) -> None:
        """Snappy without Java's framing (librdkafka's) is read too."""
        plain = encode_batch([FIRST], 0, 0)
        body = bytes(cramjam.snappy.compress_raw(plain[HEADER_SIZE:]))
        assert decode_one(compressed(Codec.SNAPPY, body)).records == [FIRST]


class TestDamage:
    """Whatever the bytes are: the right batch, or CorruptBatch."""

    def test_error_names_the_position(self) -> None:
        """The position is that of the batch in the buffer; the error is one of the protocol's."""
        good = encode_batch([FIRST], 0, 0)
        batches = decode_batches(good + good[:-1])
        assert next(batches).records == [FIRST]
        with pytest.raises(CorruptBatch) as caught:
            next(batches)
        assert caught.value.position == len(good)
        assert isinstance(caught.value, ProtocolError)

    def test_each_prefix(self) -> None:
        """A batch that ends early is found, wherever it ends."""
        data = encode_batch([FIRST, TOMBSTONE], 5, 1)
        for size in range(1, len(data)):
            with pytest.raises(CorruptBatch):
                list(decode_batches(data[:size]))

    def test_each_flipped_bit_under_the_crc(self) -> None:
        """Any bit of the CRC, or behind it."""
        data = encode_batch([FIRST, TOMBSTONE], 5, 1)
        for bit in range(17 * 8, len(data) * 8):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptBatch, match="CRC"):
                list(decode_batches(flipped))

    @pytest.mark.parametrize(
        "at,value,reason",
        [
            (8, struct.pack(">i", 48), "batch length 48"),
            (8, struct.pack(">i", -1), "batch length -1"),
            (8, struct.pack(">i", 2**31 - 1), "left"),
            (16, b"\1", "magic 1"),
        ],
    )
    def test_frame(self, at: int, value: bytes, reason: str) -> None:
        """A length or magic that no batch has is found although no CRC covers it."""
        data = bytearray(encode_batch([FIRST], 0, 0))
        data[at : at + len(value)] = value
        with pytest.raises(CorruptBatch, match=reason):
            list(decode_batches(data))

    @pytest.mark.parametrize(
        "at,value",
        [
            (21, struct.pack(">h", 5)),  # a codec that doesn't exist
            (23, struct.pack(">i", 0)),  # the last offset before that of the second record
            (23, struct.pack(">i", -1)),
            (57, struct.pack(">i", -1)),  # record count
            (57, struct.pack(">i", 1)),
            (57, struct.pack(">i", 3)),
            (61, b"\x22"),  # length of the first record: one more than its fields
            (61, b"\x1e"),
            (61, b"\x01"),  # -1
            (61, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),  # and one that never ends
            (64, b"\x02"),  # the first record's offset is the second's
            (64, b"\x01"),  # offset delta -1
            (65, b"\x01"),  # no key
            (71, b"\x03"),  # a value of -2 bytes
        ],
    )
    def test_records_that_break_the_rules(self, at: int, value: bytes) -> None:
        """With a right CRC, records that contradict their header or themselves are refused."""
        data = bytearray(encode_batch([FIRST, TOMBSTONE], 0, 0))
        data[at : at + len(value)] = value
        with pytest.raises(CorruptBatch):
            decode_one(with_crc(bytes(data)))

    @given(st.data())
    def test_nothing_else_is_raised(self, data: st.DataObject) -> None:
        """A few bytes changed anywhere and the CRC made right: a batch, or CorruptBatch, in every codec."""
        batch = bytearray(golden(data.draw(st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd", "cleaned"]))))
        edits = st.lists(st.tuples(st.integers(CRC_START, len(batch) - 1), st.integers(0, 255)), max_size=4)
        for at, value in data.draw(edits):
            batch[at] = value
        del batch[data.draw(st.integers(HEADER_SIZE, len(batch))) :]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        with suppress(CorruptBatch):
            decode_one(with_crc(bytes(batch)))

    @pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.name)
    def test_bomb(self, codec: Codec) -> None:
        """A small batch that unpacks to more than the limit is refused, and one that unpacks to the limit is read."""
        plain = encode_batch([Record(b"k", bytes(1_000_000), 0)], 0, 0)[HEADER_SIZE:]
        compress: Any = {
            Codec.GZIP: cramjam.gzip.compress,
            Codec.SNAPPY: cramjam.snappy.compress_raw,
            Codec.LZ4: cramjam.lz4.compress,
            Codec.ZSTD: cramjam.zstd.compress,
        }[codec]
        data = compressed(codec, bytes(compress(plain)))
        header = peek_header(data)
        assert len(decode_records(data, 0, header, len(plain)).records) == 1
        with pytest.raises(CorruptBatch, match=codec.name.lower()):
            decode_records(data, 0, header, len(plain) - 1)

    def test_snappy_block_sizes(self) -> None:
        """Blocks of Java's framing whose lengths point outside the batch are refused."""
        for size in (-1, 5, 2**31 - 1):
            body = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, size) + b"abc"
            with pytest.raises(CorruptBatch, match="snappy"):
                decode_one(compressed(Codec.SNAPPY, body))


class TestScanning:
    """Reading without decoding."""

    def test_header_alone(self) -> None:
        """The header is read although the batch isn't all there; the check of the CRC says that it isn't."""
        data = encode_batch([FIRST, TOMBSTONE], 5, 1)
        header = peek_header(b"junk" + data[:HEADER_SIZE], 4)
        assert (header.base_offset, header.next_offset, header.size) == (5, 7, len(data))
        assert (header.partition_leader_epoch, header.record_count) == (1, 2)
        with pytest.raises(CorruptBatch, match="left"):
            check_crc(data[:-1], 0, header)
        check_crc(b"junk" + data, 4, header)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_buffer(self, kind: Any) -> None:
        """Any buffer is read, and what comes out is bytes."""
        first, second = encode_batch([FIRST], 0, 0), encode_batch([TOMBSTONE], 1, 0)
        records = [record for batch in decode_batches(kind(first + second)) for record in batch.records]
        assert records == [FIRST, TOMBSTONE]
        assert type(records[0].key) is bytes
        assert [batch.position for batch in decode_batches(kind(first + second))] == [0, len(first)]

    def test_codecs_are_loaded_when_met(self) -> None:
        """Reading and writing what our own log holds doesn't import the codecs: they would cost start-up time."""
        program = (
            "import sys; from protocol.records.batch import *;"
            "list(decode_batches(encode_batch([Record(b'k', b'v', 0)], 0, 0)));"
            "print('cramjam' in sys.modules)"
        )
        root = Path(__file__).parents[3]
        output = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
        assert output.stdout.strip() == "False"
