"""What a broker changes in a producer's batch, and finds in it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from protocol.records.batch import HEADER_SIZE, CorruptBatch, check_crc, peek_header
from protocol.records.rewrite import UNPACKED_SIZE_MAX, Found, find_records, placed
from tests.support.batches import Sent, batch, numbered

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


@pytest.mark.parametrize("zipped", [False, True])
def test_records_are_found(*, zipped: bool) -> None:
    """Offsets, times and whether there is a key, packed or not."""
    data = batch(SENT, base_offset=10, zipped=zipped)
    assert list(find_records(data, 0, peek_header(data))) == [
        Found(10, 1_000, has_key=True),
        Found(11, 1_500, has_key=False),
        Found(12, 900, has_key=True),
    ]


def test_all_records_have_the_time_of_their_append() -> None:
    """Where the topic's time counts, the deltas don't."""
    data = b"".join(map(bytes, placed(data := batch(SENT), peek_header(data), 0, 0, 7_777)))
    assert [found.timestamp_ms for found in find_records(data, 0, peek_header(data))] == [7_777] * 3


def test_long_numbers() -> None:
    """Keys, values and distances that take more than a byte."""
    data = batch([(b"k" * 300, b"v" * 70_000, 1), (None, b"", 2**40)])
    assert [found.timestamp_ms for found in find_records(data, 0, peek_header(data))] == [1, 2**40]


@pytest.mark.parametrize("count", [2, 4])
def test_records_that_are_not_what_the_header_says(count: int) -> None:
    """Fewer or more than announced."""
    data = batch(SENT, record_count=count)
    with pytest.raises(CorruptBatch):
        list(find_records(data, 0, peek_header(data)))


def test_no_byte_of_the_records_makes_it_fail_otherwise() -> None:
    """Whatever stands there: records, or CorruptBatch."""
    data = bytearray(batch(numbered(0, 5)))
    header = peek_header(data)
    for at in range(HEADER_SIZE, len(data)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = bytes(data[:at]) + bytes([value]) + bytes(data[at + 1 :])
            with suppress(CorruptBatch):
                assert len(list(find_records(changed, 0, header))) == 5


def test_records_are_found_one_by_one() -> None:
    """Whoever looks for the first has it, whatever comes behind: no list of millions is made."""
    data = bytearray(batch(SENT))
    data[-1] = 0xFF
    found = find_records(bytes(data[:-4]) + b"\xff" * 4, 0, peek_header(data))
    assert next(found) == Found(0, 1_000, has_key=True)
    with pytest.raises(CorruptBatch):
        list(found)


def test_a_small_batch_that_unpacks_to_a_large_one_is_not_looked_into() -> None:
    """Its size is limited before it is taken."""
    data = batch([(b"k", b"x" * UNPACKED_SIZE_MAX, 0)], zipped=True)
    assert len(data) < UNPACKED_SIZE_MAX // 900
    with pytest.raises(CorruptBatch):
        next(find_records(data, 0, peek_header(data)))
