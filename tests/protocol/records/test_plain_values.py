"""The short way through plain batches, against the long one: the same records, or none of a batch that isn't plain."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from protocol.checksum import crc32c
from protocol.records.batch import CorruptBatch, Record, check_crc, encode_batch, peek_header
from protocol.records.plain_values import Position, Values, scan
from protocol.records.walk import decode_batches, decode_records

GOLDEN = Path(__file__).parents[1] / "golden" / "record_batch"
OFFSET_END = 2**31
NO_PLAIN = ("append_time", "cleaned", "control", "empty", "gzip", "lz4", "none", "snappy", "transactional", "zstd")


def random_record(chance: Random) -> Record:
    """Sizes and times around each size of a number."""
    size = chance.choice([0, 1, 57, 58, 63, 64, 100, 8_180, 8_191, 8_192, 70_000])
    key = b"%0*d" % (chance.choice([1, 2, 63, 64, 9_000]), chance.randrange(4))
    value = None if chance.random() < 0.2 else chance.randbytes(size)
    return Record(key, value, 1_700_000_000_000 + chance.choice([-10_000, -65, -64, -1, 0, 1, 63, 64, 2**40]))


def last_values(data: bytes) -> Values:
    """What the long way finds."""
    records = [record for batch in decode_batches(data) for record in batch.records]
    return {key: (value, timestamp_ms) for key, value, timestamp_ms in records}


@pytest.mark.parametrize("seed", range(30))
def test_plain_batches(seed: int) -> None:
    """Whatever the sizes, numbers of records, gaps and epochs: the same last values, all bytes passed."""
    chance = Random(seed)
    parts, offset, epoch = [], 7, 3
    for _ in range(chance.randrange(1, 12)):
        records = [random_record(chance) for _ in range(chance.choice([1, 1, 2, 70, 200]))]
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
    """Whatever the sizes of a batch's only record: taken, as the long way does; small batches and larger ones."""
    last: Values = {}
    for size in range(1_100):
        data = encode_batch([Record(b"k" * key_size, b"v" * size, size)], size, 0)
        assert scan(data, Position(0, size, 0), OFFSET_END, last) == (len(data), size + 1, 0)
        assert last == last_values(data)


def test_value_of_an_impossible_length() -> None:
    """No number says that 64 bytes follow it and takes one byte itself, whatever stands there."""
    data = bytearray(encode_batch([Record(b"key", b"v" * 64, 1)], 0, 0))
    at = data.index(b"key")
    data[at - 1] += 2  # the key takes the first of two bytes of the value's length
    for byte in range(256):
        data[at + 4] = byte
        data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
        assert scan(bytes(data), Position(0, 0, 0), OFFSET_END, {}) == (0, 0, 0)


def test_golden_plain() -> None:
    """Kafka's own plain batch."""
    data = (GOLDEN / "plain.bin").read_bytes()
    last: Values = {}
    assert scan(data, Position(0, 42, 7), OFFSET_END, last) == (len(data), 44, 7)
    assert last == last_values(data)


@pytest.mark.parametrize("name", NO_PLAIN)
def test_stops_in_front_of_what_is_not_plain(name: str) -> None:
    """Codecs, headers, LogAppendTime, transactions, markers and what the cleaner left are for the long way."""
    plain, other = (GOLDEN / "plain.bin").read_bytes(), (GOLDEN / f"{name}.bin").read_bytes()
    other = (44).to_bytes(8, "big") + other[8:]
    assert scan(plain + other, Position(0, 42, 7), OFFSET_END, {}) == (len(plain), 44, 7)


def test_stops_in_front_of_what_does_not_follow() -> None:
    """An offset or an epoch that falls, an offset that is too high, and a batch that isn't whole."""
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
    """No byte makes it take what the long way refuses, and what both take is the same; with a right CRC too."""
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
    """A number that doesn't end in 64 bits is left to the long way."""
    data = bytearray(encode_batch([Record(b"k" * 20, b"v" * 20, 1)], 0, 0))
    data[61:75] = b"\xff" * 14
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    assert scan(bytes(data), Position(0, 0, 0), OFFSET_END, {}) == (0, 0, 0)
