"""`find_keys` compared with the full reader: both find the same keys and tombstones in a plain batch."""

from __future__ import annotations

from random import Random

import pytest

from protocol.checksum import crc32c
from protocol.records.batch import CorruptBatch, Record, check_crc, encode_batch
from protocol.records.batch import peek_header as header_of
from protocol.records.plain_keys import Found, find_keys, peek_plain
from protocol.records.walk import decode_batches, decode_records
from tests.support.batches import any_size, golden

NO_PLAIN = ("append_time", "cleaned", "control", "empty", "gzip", "lz4", "snappy", "transactional", "zstd")


def by_long_way(data: bytes) -> list[list[Found]]:
    """Return the records of each batch, found by the full reader."""
    return [
        [
            (offset, record.key, record.timestamp_ms if record.value is None else None)
            for offset, record in zip(batch.offsets, batch.records, strict=True)
        ]
        for batch in decode_batches(data)
    ]


def by_short_way(data: bytes) -> list[list[Found]]:
    """Return the records of each batch, found by `find_keys`, up to the first batch that isn't plain."""
    found, at = [], 0
    while (plain := peek_plain(data, at)) is not None:
        header = header_of(data, at)
        assert plain == (
            at + header.size,
            header.base_offset,
            header.next_offset - 1,
            header.base_timestamp_ms,
            header.max_timestamp_ms,
            header.record_count,
            header.crc,
        )
        keys = find_keys(data, at, plain)
        if keys is None:
            break
        found.append(keys)
        at += header.size
    return found


@pytest.mark.parametrize("seed", range(30))
def test_plain_batches(seed: int) -> None:
    """Both readers find the same keys, offsets and tombstones, for all sizes, record counts and gaps."""
    chance = Random(seed)
    parts, offset = [], 7
    for _ in range(chance.randrange(1, 12)):
        records = [any_size(chance) for _ in range(chance.choice([1, 1, 2, 70, 200]))]
        offset += chance.choice([0, 0, 5])
        parts.append(encode_batch(records, offset, 1))
        offset += len(records)
    data = b"".join(parts)
    assert by_short_way(data) == by_long_way(data)


@pytest.mark.parametrize("name", ["plain", "none"])
def test_golden_plain(name: str) -> None:
    """`find_keys` reads Kafka's own batches without attributes, and skips headers of records."""
    data = golden(name)
    assert by_short_way(data) == by_long_way(data)


@pytest.mark.parametrize("name", NO_PLAIN)
def test_stops_in_front_of_what_is_not_plain(name: str) -> None:
    """A batch with a codec, LogAppendTime, a transaction, a marker or a horizon, or without records, isn't plain."""
    plain, other = golden("plain"), golden(name)
    assert by_short_way(plain + other) == by_long_way(plain)


def test_stops_in_front_of_what_is_not_whole() -> None:
    """A batch isn't plain if the data end within it."""
    first, second = (encode_batch([Record(b"k", b"v", 1)], offset, 2) for offset in (5, 6))
    for size in range(len(second)):
        assert peek_plain(first + second[:size], len(first)) is None


@pytest.mark.parametrize("mends_crc", [False, True])
def test_every_byte_changed(mends_crc: bool) -> None:
    """After a change of one byte, both readers find the same keys, or `find_keys` finds none.

    With a wrong CRC it finds none at all.
    """
    whole = encode_batch(
        [Record(b"key", b"value", 1), Record(b"other", None, 70), Record(b"k" * 70, b"v" * 70, 3)], 5, 2
    )
    for at in range(len(whole)):
        for change in (1, 2, 0x55, 0x80, 0xFF):
            changed = bytearray(whole)
            changed[at] ^= change
            if mends_crc:
                changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
            data = bytes(changed)
            plain = peek_plain(data, 0)
            found = None if plain is None else find_keys(data, 0, plain)
            try:
                header = header_of(data)
                check_crc(data, 0, header)
            except CorruptBatch:
                assert found is None
                continue
            try:
                decode_records(data, 0, header)
            except CorruptBatch:
                continue  # the CRC is right, so a program wrote it like this, and a load refuses it
            assert found is None or [found] == by_long_way(data[: header.size])


@pytest.mark.parametrize(("at", "content"), [(57, b"\0\0\0\1"), (61, b"\xff" * 14), (61, b"\x7e")])
def test_records_that_do_not_fill_their_batch(at: int, content: bytes) -> None:
    """`find_keys` refuses a record count that is too low, and a length that is too large or has no end in 64 bits."""
    data = bytearray(encode_batch([Record(b"k" * 20, b"v" * 20, 1)] * 2, 0, 0))
    data[at : at + len(content)] = content
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    assert by_short_way(bytes(data)) == []
