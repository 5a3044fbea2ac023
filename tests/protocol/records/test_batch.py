"""The header of a batch, and written batches, compared with Kafka's own bytes and another reader."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    Batch,
    CorruptBatch,
    Record,
    check_crc,
    encode_batch,
    peek_header,
)
from protocol.records.walk import decode_batches
from tests.support.batches import FIRST, TOMBSTONE, golden, records_strategy


def test_written_byte_for_byte() -> None:
    """The codec writes the bytes that Kafka wrote for the same records, offset and epoch."""
    assert encode_batch([FIRST, TOMBSTONE], base_offset=42, leader_epoch=7) == golden("plain")


@given(records_strategy, st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_read_by_others(records: list[Record], base_offset: int, leader_epoch: int) -> None:
    """Our reader and another program read the same records and offsets from a batch that we wrote."""
    data = encode_batch(records, base_offset, leader_epoch)
    (batch,) = decode_batches(data)
    assert batch.records == records
    assert batch.offsets == [base_offset + number for number in range(len(records))]
    assert batch.header.partition_leader_epoch == leader_epoch
    assert batch.header.size == len(data)
    assert batch.header.max_timestamp_ms == max(record.timestamp_ms for record in records)
    other: Any = AiokafkaBatch(data)
    assert other.validate_crc()
    assert other.base_offset == base_offset
    read = [(record.offset, Record(record.key, record.value, record.timestamp)) for record in other]
    assert read == list(zip(batch.offsets, records, strict=True))


def test_header_alone() -> None:
    """The reader gets the header of an incomplete batch; the check of the CRC finds that bytes are missing."""
    data = encode_batch([FIRST, TOMBSTONE], 5, 1)
    header = peek_header(b"junk" + data[:HEADER_SIZE], 4)
    assert (header.base_offset, header.next_offset, header.size) == (5, 7, len(data))
    assert (header.partition_leader_epoch, header.record_count) == (1, 2)
    with pytest.raises(CorruptBatch, match="left"):
        check_crc(data[:-1], 0, header)
    check_crc(b"junk" + data, 4, header)


def test_each_flipped_bit_under_the_crc() -> None:
    """The check of the CRC finds each flipped bit in the CRC or behind it."""
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
def test_frame(at: int, value: bytes, reason: str) -> None:
    """The reader refuses an impossible length or magic, although no CRC covers these."""
    data = bytearray(encode_batch([FIRST], 0, 0))
    data[at : at + len(value)] = value
    with pytest.raises(CorruptBatch, match=reason):
        list(decode_batches(data))


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL, TRANSACTIONAL | CONTROL])
def test_a_batch_has_its_producer(attributes: int) -> None:
    """The producer's id, epoch, sequence and the flags are in the header; the records are those of a plain batch."""
    data = encode_batch(Batch([FIRST, TOMBSTONE], 680, 3, attributes, base_sequence=5), 42, 7)
    (batch,) = decode_batches(data)
    header = batch.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (680, 3, 5)
    assert (header.is_transactional, header.is_control) == (
        bool(attributes & TRANSACTIONAL),
        bool(attributes & CONTROL),
    )
    assert (batch.records, batch.offsets, header.record_count) == ([FIRST, TOMBSTONE], [42, 43], 2)
    check_crc(data, 0, header)
