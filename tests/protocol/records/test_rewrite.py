"""Rewritten batches: with a broker's offset and time, and with fewer records."""

from __future__ import annotations

from contextlib import suppress

import pytest

from protocol.records.batch import HEADER_SIZE, CorruptBatch, check_crc, encode_batch, peek_header
from protocol.records.rewrite import RecordSlice, encode_slices, placed, slice_records
from protocol.records.walk import decode_batches
from tests.support.batches import FIRST, TOMBSTONE, Sent, batch, golden, numbered, with_crc

SENT: list[Sent] = [(b"a", b"1", 1_000), (None, b"22", 1_500), (b"", None, 900)]


@pytest.mark.parametrize("append_time_ms", [-1, 5_000])
def test_a_batch_gets_its_place_and_its_records_stay(append_time_ms: int) -> None:
    """A rewrite changes base offset and epoch, and the time if the topic says so; records stay, the CRC is right."""
    data = batch(SENT, producer_id=7, producer_epoch=1, sequence=3) + b"behind it"
    parts = placed(data, peek_header(data), 1_234, 5, append_time_ms)
    whole = b"".join(parts)
    assert len(whole) == len(data) - len(b"behind it")
    header = peek_header(whole)
    check_crc(whole, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (1_234, 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert whole[HEADER_SIZE:] == data[HEADER_SIZE : len(whole)]
    assert isinstance(parts[-1], memoryview)
    assert parts[-1].obj is data
    assert header.max_timestamp_ms == (1_500 if append_time_ms < 0 else append_time_ms)


def test_whose_time_it_is_is_for_the_broker_to_say() -> None:
    """The broker sets the attribute of the timestamp type; the producer's value doesn't count."""
    data = batch(SENT, attributes=0x08)
    whole = b"".join(map(bytes, placed(data, peek_header(data), 0, -1)))
    check_crc(whole, 0, peek_header(whole))
    assert whole == batch(SENT)


@pytest.mark.parametrize("name", ["plain", "none", "append_time", "transactional", "control"])
def test_a_batch_of_all_its_records_is_the_same(name: str) -> None:
    """A batch rewritten with all its records has the bytes that Kafka wrote, if it has no codec."""
    data = golden(name)
    header = peek_header(data)
    assert encode_slices(header, slice_records(data, 0, header)) == data


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_delete_horizon_changes_no_record(name: str) -> None:
    """With a delete horizon as base time the records keep their own times, in each codec."""
    data = golden(name)
    header = peek_header(data)
    (before,) = decode_batches(data)
    (after,) = decode_batches(encode_slices(header, slice_records(data, 0, header)[1:], horizon_ms=2**41))
    assert after.header.delete_horizon_ms == 2**41
    assert (after.codec, after.records, after.offsets) == (before.codec, before.records[1:], before.offsets[1:])


def test_a_batch_without_records_spans_its_offsets() -> None:
    """A batch without records keeps its last offset, without codec and horizon, as Kafka's cleaner writes it."""
    header = peek_header(golden("cleaned"))
    (empty,) = decode_batches(encode_slices(header, []))
    assert (empty.records, empty.header.attributes, empty.header.next_offset) == ([], 0, header.next_offset)
    assert empty.header.base_timestamp_ms == -1


def test_slices_of_records_without_keys() -> None:
    """A record may have no key and no value; its slice has all its bytes."""
    data = batch([(None, b"v", 1_000), (None, None, 900), (b"", b"", 2_000)], base_offset=7)
    slices = slice_records(data, 0, peek_header(data))
    assert [each[:4] for each in slices] == [(7, None, False, 1_000), (8, None, True, 900), (9, b"", False, 2_000)]
    assert b"".join(each.data for each in slices) == data[HEADER_SIZE:]
    assert isinstance(slices[0], RecordSlice)


@pytest.mark.parametrize(
    "at,content",
    [
        (57, b"\0\0\0\1"),  # a count lower than that of the records
        (57, b"\0\0\0\3"),
        (61, b"\0"),  # a record of no bytes
        (61, b"\x21"),  # -17: the right length with the wrong sign
        (61, b"\xff" * 11),
        (64, b"\2"),  # the first record has the offset of the second
        (64, b"\4"),  # the first record's offset is behind the last offset
        (71, b"\x7e"),  # a value longer than its record
    ],
)
def test_records_that_break_the_rules(at: int, content: bytes) -> None:
    """The codec refuses lengths and offsets that contradict the header or each other."""
    data = bytearray(encode_batch([FIRST, TOMBSTONE], 0, 0))
    data[at : at + len(content)] = content
    with pytest.raises(CorruptBatch):
        slice_records(with_crc(bytes(data)), 0, peek_header(data))


def test_no_byte_makes_slicing_fail_otherwise() -> None:
    """After any change of one byte the slicing gives all records, or raises CorruptBatch."""
    data = batch(numbered(0, 5))
    header = peek_header(data)
    for at in range(HEADER_SIZE, len(data)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            with suppress(CorruptBatch):
                assert len(slice_records(changed, 0, header)) == 5
