"""`scan` compared with the full reader: both find the same records in plain batches."""

from __future__ import annotations

from random import Random

import pytest

from protocol.checksum import crc32c
from protocol.records.batch import CorruptBatch, Record, check_crc, encode_batch, peek_header
from protocol.records.plain_values import Position, Values, scan
from protocol.records.walk import decode_batches, decode_records
from tests.support.batches import any_size, golden

OFFSET_END = 2**31
NO_PLAIN = ("append_time", "cleaned", "control", "empty", "gzip", "lz4", "none", "snappy", "transactional", "zstd")


def last_values(data: bytes) -> Values:
    """Return the last values that the full reader finds."""
    records = [record for batch in decode_batches(data) for record in batch.records]
    return {key: (value, timestamp_ms) for key, value, timestamp_ms in records}


@pytest.mark.parametrize("seed", range(30))
def test_plain_batches(seed: int) -> None:
    """`scan` reads all bytes and finds the same last values, for all sizes, record counts, gaps and epochs."""
    chance = Random(seed)
    parts, offset, epoch = [], 7, 3
    for _ in range(chance.randrange(1, 12)):
        records = [any_size(chance) for _ in range(chance.choice([1, 1, 2, 70, 200]))]
        offset += chance.choice([0, 0, 5])
        epoch += chance.choice([0, 0, 1])
        parts.append(encode_batch(records, offset, epoch))
        offset += len(records)
    data = b"".join(parts)
    last: Values = {}
    assert scan(data, Position(0, 7, 3), OFFSET_END, last) == (len(data), offset, epoch)
    assert last == last_values(data)


@pytest.mark.parametrize("key_size", [1, 2, 62, 63, 64, 65, 900])
def test_one_record_of_each_size(key_size: int) -> None:
    """`scan` reads the only record of a small or larger batch like the full reader, for all sizes."""
    last: Values = {}
    for size in range(1_100):
        data = encode_batch([Record(b"k" * key_size, b"v" * size, size)], size, 0)
        assert scan(data, Position(0, size, 0), OFFSET_END, last) == (len(data), size + 1, 0)
        assert last == last_values(data)


def test_value_of_an_impossible_length() -> None:
    """No varint of one byte says that 64 bytes follow it, so `scan` accepts none in its place."""
    data = bytearray(encode_batch([Record(b"key", b"v" * 64, 1)], 0, 0))
    at = data.index(b"key")
    data[at - 1] += 2  # the key takes the first of two bytes of the value's length
    for byte in range(256):
        data[at + 4] = byte
        data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
        assert scan(bytes(data), Position(0, 0, 0), OFFSET_END, {}) == (0, 0, 0)


def test_golden_plain() -> None:
    """`scan` reads Kafka's own plain batch."""
    data = golden("plain")
    last: Values = {}
    assert scan(data, Position(0, 42, 7), OFFSET_END, last) == (len(data), 44, 7)
    assert last == last_values(data)


@pytest.mark.parametrize("name", NO_PLAIN)
def test_stops_in_front_of_what_is_not_plain(name: str) -> None:
    """`scan` stops at codecs, headers, LogAppendTime, transactions, markers and batches that the cleaner rewrote."""
    plain, other = golden("plain"), golden(name)
    other = (44).to_bytes(8, "big") + other[8:]
    assert scan(plain + other, Position(0, 42, 7), OFFSET_END, {}) == (len(plain), 44, 7)


def test_stops_in_front_of_what_does_not_follow() -> None:
    """`scan` stops at an offset or epoch that falls, an offset that is too high, and an incomplete batch."""
    first, second = (encode_batch([Record(b"k", b"v", 1)], offset, 2) for offset in (5, 6))
    data = first + second
    for at in (0, 10):
        assert scan(bytes(at) + data, Position(at, 5, 2), 7, {}) == (at + len(data), 7, 2)
    stopped = Position(len(first), 6, 2)
    assert scan(first + first, Position(0, 5, 2), OFFSET_END, {}) == stopped
    assert scan(data, Position(0, 5, 2), 6, {}) == stopped
    assert scan(first + encode_batch([Record(b"k", b"v", 1)], 6, 1), Position(0, 5, 2), OFFSET_END, {}) == stopped
    for size in range(1, len(second)):
        assert scan(first + second[:size], Position(0, 5, 2), OFFSET_END, {}) == stopped


MANY = [Record(b"key", b"value", 1), Record(b"other", None, 70), Record(b"k" * 70, b"v" * 70, 3)]


@pytest.mark.parametrize("mends_crc", [False, True])
@pytest.mark.parametrize("records", [MANY, MANY[:1], MANY[1:2], MANY[2:], [Record(b"key", b"v" * 70, 1)]])
def test_every_byte_changed(records: list[Record], mends_crc: bool) -> None:
    """After a change of one byte, `scan` takes nothing that the full reader refuses, and the same records.

    This holds with a wrong CRC and with a right one.
    """
    whole = encode_batch(records, 5, 2)
    for at in range(len(whole)):
        for change in (1, 2, 0x55, 0x80, 0xFF):
            changed = bytearray(whole)
            changed[at] ^= change
            if mends_crc:
                changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
            data = bytes(changed)
            last: Values = {}
            taken = scan(data, Position(0, 5, 2), OFFSET_END, last).at
            try:
                header = peek_header(data)
                check_crc(data, 0, header)
                found = decode_records(data, 0, header).records
            except CorruptBatch:
                assert taken == 0
            else:
                assert taken in {0, header.size}
                assert not taken or last == {key: (value, time_ms) for key, value, time_ms in found}


def test_endless_number() -> None:
    """`scan` stops at a varint that has no end in 64 bits."""
    data = bytearray(encode_batch([Record(b"k" * 20, b"v" * 20, 1)], 0, 0))
    data[61:75] = b"\xff" * 14
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    assert scan(bytes(data), Position(0, 0, 0), OFFSET_END, {}) == (0, 0, 0)
