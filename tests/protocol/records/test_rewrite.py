"""Batches made anew: with a broker's offset and time, and with fewer records."""

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
    """Base offset and epoch change, and the time if the topic says so; the CRC is right, the records are in place."""
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
    """Not for the producer: its records have their own times."""
    data = batch(SENT, attributes=0x08)
    whole = b"".join(map(bytes, placed(data, peek_header(data), 0, -1)))
    check_crc(whole, 0, peek_header(whole))
    assert whole == batch(SENT)


@pytest.mark.parametrize("name", ["plain", "none", "append_time", "transactional", "control"])
def test_a_batch_of_all_its_records_is_the_same(name: str) -> None:
    """Without a codec, the bytes of what Kafka wrote come out again."""
    data = golden(name)
    header = peek_header(data)
    assert encode_slices(header, slice_records(data, 0, header)) == data


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_delete_horizon_changes_no_record(name: str) -> None:
    """Records keep their times below another base, whatever the codec."""
    data = golden(name)
    header = peek_header(data)
    (before,) = decode_batches(data)
    (after,) = decode_batches(encode_slices(header, slice_records(data, 0, header)[1:], horizon_ms=2**41))
    assert after.header.delete_horizon_ms == 2**41
    assert (after.codec, after.records, after.offsets) == (before.codec, before.records[1:], before.offsets[1:])


def test_a_batch_without_records_spans_its_offsets() -> None:
    """As Kafka's cleaner leaves it: no codec, no horizon, the offset behind it stays."""
    header = peek_header(golden("cleaned"))
    (empty,) = decode_batches(encode_slices(header, []))
    assert (empty.records, empty.attributes, empty.header.next_offset) == ([], 0, header.next_offset)
    assert empty.header.base_timestamp_ms == -1


def test_slices_of_records_without_keys() -> None:
    """A topic's record may have no key, and no value; the slice has all its bytes."""
    data = batch([(None, b"v", 1_000), (None, None, 900), (b"", b"", 2_000)], base_offset=7)
    slices = slice_records(data, 0, peek_header(data))
    assert [each[:4] for each in slices] == [(7, None, False, 1_000), (8, None, True, 900), (9, b"", False, 2_000)]
    assert b"".join(each.data for each in slices) == data[HEADER_SIZE:]
    assert isinstance(slices[0], RecordSlice)


@pytest.mark.parametrize(
    "at,content",
    [
        (57, b"\0\0\0\1"),  # fewer records than there are
        (57, b"\0\0\0\3"),
        (61, b"\0"),  # a record of no bytes
        (61, b"\x21"),  # -17: the right length but for the sign
        (61, b"\xff" * 11),
        (64, b"\2"),  # the first record's offset is the second's
        (64, b"\4"),  # and one behind the last
        (71, b"\x7e"),  # a value longer than its record
    ],
)
def test_records_that_break_the_rules(at: int, content: bytes) -> None:
    """Lengths and offsets that contradict the header or each other are refused."""
    data = bytearray(encode_batch([FIRST, TOMBSTONE], 0, 0))
    data[at : at + len(content)] = content
    with pytest.raises(CorruptBatch):
        slice_records(with_crc(bytes(data)), 0, peek_header(data))


def test_no_byte_makes_slicing_fail_otherwise() -> None:
    """Whatever stands there: all records, or CorruptBatch."""
    data = batch(numbered(0, 5))
    header = peek_header(data)
    for at in range(HEADER_SIZE, len(data)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            with suppress(CorruptBatch):
                assert len(slice_records(changed, 0, header)) == 5
