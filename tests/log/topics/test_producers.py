"""Tests idempotent producers: the next batch, a repeated one, and one out of order (KIP-98)."""

from __future__ import annotations

from coordinator.log.topics import producers
from coordinator.log.topics.producers import BATCHES_KEPT, DuplicateBatch, Producers, last_sequence
from protocol.records.batch import Header, peek_header
from schemas.errors import ErrorCode
from tests.support.batches import batch, numbered

INT32_MAX = 2**31 - 1


def header(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, attributes: int = 0) -> Header:
    """Return a batch's header."""
    data = batch(
        numbered(0, count), producer_id=producer_id, producer_epoch=epoch, sequence=sequence, attributes=attributes
    )
    return peek_header(data)


def after(*taken: Header) -> Producers:
    """Return the producers of a log with these batches, one record behind the other."""
    known, offset = Producers(), 100
    for each in taken:
        assert known.check(each) is ErrorCode.NONE
        known.take(each, offset)
        offset += each.record_count
    return known


def test_who_has_no_number_is_not_looked_at() -> None:
    """Producers without idempotence may repeat themselves."""
    known = after(header(-1, producer_id=-1))
    assert known.check(header(-1, producer_id=-1)) is ErrorCode.NONE
    assert len(known) == 0


def test_the_next_batch_follows_the_last_record() -> None:
    """The next batch follows the last record; a gap and a step back are out of order."""
    known = after(header(0, 3))
    assert known.check(header(3)) is ErrorCode.NONE
    assert known.check(header(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check(header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_comes_again_is_known_by_its_ends() -> None:
    """A repeated batch is known by its first and last sequence, as long as it is among the last."""
    known = after(*(header(number * 2, 2) for number in range(BATCHES_KEPT + 1)))
    assert known.check(header(2, 2)) == DuplicateBatch(102, 1_001)
    assert known.check(header(2 * BATCHES_KEPT, 2)) == DuplicateBatch(100 + 2 * BATCHES_KEPT, 1_001)
    assert known.check(header(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check(header(2, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """An unknown producer may begin anywhere: its batches may have gone with their segment. One of v2 begins with 0."""
    assert Producers().check(header(55)) is ErrorCode.NONE
    assert Producers().check(header(0), is_v2=True) is ErrorCode.NONE
    assert Producers().check(header(55), is_v2=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_newer_epoch_begins_at_0_and_ends_the_older_one() -> None:
    """A newer epoch begins at 0; a batch of the older one gets INVALID_PRODUCER_EPOCH."""
    known = after(header(0, 3), header(3))
    assert known.check(header(4, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check(header(0, epoch=1)) is ErrorCode.NONE
    known.take(header(0, epoch=1), 200)
    assert known.check(header(4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.check(header(1, epoch=1)) is ErrorCode.NONE


def test_sequences_begin_anew_behind_the_largest() -> None:
    """Sequence 0 follows 2^31 - 1, in a batch and between two."""
    known = after(header(INT32_MAX - 1, 2))
    assert known.check(header(0)) is ErrorCode.NONE
    assert last_sequence(header(INT32_MAX, 3)) == 1


def test_a_marker_keeps_the_sequence_or_raises_the_epoch() -> None:
    """A marker has no sequence: the next one goes on. One of a higher epoch fences the producer, which starts at 0."""
    known = after(header(0, 3))
    known.take(header(-1, attributes=0x30), 103)
    assert known.check(header(3)) is ErrorCode.NONE
    known.take(header(-1, attributes=0x30, epoch=1), 104)
    assert known.check(header(3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.check(header(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.check(header(0, epoch=1)) is ErrorCode.NONE


def test_memory_is_bounded() -> None:
    """The producers forget the one first that hasn't written for longest."""
    known = Producers()
    for number in range(producers.PRODUCERS_MAX):
        known.take(header(0, producer_id=number), number)
    known.take(header(1, producer_id=0), 10_000)
    known.take(header(0, producer_id=10_000_000), 10_001)
    assert len(known) == producers.PRODUCERS_MAX
    assert known.check(header(9, producer_id=1)) is ErrorCode.NONE
    assert known.check(header(9, producer_id=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
