"""Tests batches as producers send them: the log refuses those that Kafka refuses, with Kafka's code."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from coordinator.log.segments.view import Rejected
from coordinator.log.topics.log import Written
from coordinator.log.topics.produced import RECORDS_MAX
from protocol.records.batch import HEADER_SIZE
from protocol.records.codecs import Codec
from schemas.errors import ErrorCode
from tests.log.topics.test_log import LIMITS, a_log, append, expected, one, values
from tests.support.batches import batch, compressed, numbered


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch(numbered(0, 1), base_offset=5), ErrorCode.INVALID_RECORD),
        (batch(numbered(0, 2), record_count=1), ErrorCode.INVALID_RECORD),
        (batch([]), ErrorCode.INVALID_RECORD),
        (batch(numbered(0, 1), record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
        (batch([(None, None, 0)] * 20, record_count=21, last_offset_delta=20), ErrorCode.INVALID_RECORD),
        (batch(numbered(0, 1), producer_id=3, producer_epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (batch(numbered(0, 1), attributes=0x20), ErrorCode.INVALID_RECORD),
        (batch(numbered(0, 1), attributes=5), ErrorCode.UNKNOWN_SERVER_ERROR),
        (
            batch(numbered(0, 1), zipped=True, record_count=RECORDS_MAX + 1, last_offset_delta=RECORDS_MAX),
            ErrorCode.INVALID_RECORD,
        ),
        (one(0)[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (one(0)[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch(numbered(0, 1, size=500)), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(numbered(0, 1, size=290)), ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_a_batch_that_can_not_be_kept(tmp_path: Path, data: bytes, error: ErrorCode) -> None:
    """The log refuses a bad batch with Kafka's code, and keeps the batches beside it."""
    log = a_log(tmp_path / "t-0")
    limits = LIMITS._replace(max_message_bytes=400, segment_bytes=350)
    before, refused, behind = append(log, one(0), data, one(1), limits=limits)
    assert isinstance(refused, Rejected)
    assert refused.error is error
    assert (before, behind) == (Written(0, -1, 0), Written(1, -1, 0))
    assert values(log) == expected(2)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_compacted_topic_wants_keys(tmp_path: Path, zipped: bool) -> None:
    """A compacted topic refuses a batch with records without keys as INVALID_RECORD, and names these records."""
    log = a_log(tmp_path / "t-0")
    limits = LIMITS._replace(is_compacted=True)
    sent = batch([(b"a", b"1", 0), (None, b"2", 0), (b"", b"3", 0), (None, None, 0)], zipped=zipped)
    (refused,) = append(log, sent, limits=limits)
    assert isinstance(refused, Rejected)
    assert refused.error is ErrorCode.INVALID_RECORD
    assert str(refused).startswith("One or more of the batch's records are refused: ")
    ((flags, text),) = refused.records
    assert list(flags) == [0, 1, 0, 1]
    assert text.endswith("in topic partition t-0")
    assert append(log, one(0), limits=limits) == [Written(0, -1, 0)]


@pytest.mark.parametrize("has_append_time", [False, True])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_producer_says_no_append_time(tmp_path: Path, has_append_time: bool, is_compacted: bool) -> None:
    """A batch that claims LogAppendTime is INVALID_TIMESTAMP if its records need a time, by their key or not.

    As in Kafka, the batch's time is that of its records where the topic wants their own.
    """
    log = a_log(tmp_path / "t-0")
    limits = LIMITS._replace(has_append_time=has_append_time, is_compacted=is_compacted, max_message_bytes=1_000)
    for time_ms in (5, -1):
        sent = batch([(b"a", b"1", time_ms), (None, b"2", time_ms)], attributes=0x08)
        (outcome,) = append(log, sent, limits=limits)
        named = [list(flags) for flags, _ in outcome.records] if isinstance(outcome, Rejected) else None
        if has_append_time or time_ms < 0:
            assert isinstance(outcome, Rejected)
            assert outcome.error is ErrorCode.INVALID_TIMESTAMP
            assert named == ([[0, 1], [1, 0]] if is_compacted else [[1, 1]])
        else:
            assert named == ([[0, 1]] if is_compacted else None)


def test_a_batch_names_no_more_records_than_it_has_bytes(tmp_path: Path) -> None:
    """A small compressed batch can't fill the memory; a batch that isn't compressed names every record."""
    log = a_log(tmp_path / "t-0")
    limits = LIMITS._replace(is_compacted=True, max_message_bytes=100_000)
    keyless = batch([(None, b"", 0)])[HEADER_SIZE:]
    small = compressed(Codec.GZIP, gzip.compress(10_000 * keyless), 10_000)
    for data, named in ((small, len(small)), (batch([(None, b"", 0)] * 10_000), 10_000)):
        (refused,) = append(log, data, limits=limits)
        assert isinstance(refused, Rejected)
        ((flags, _),) = refused.records
        assert flags == b"\1" * named


def test_a_record_without_key_is_found_behind_those_that_are_named(tmp_path: Path) -> None:
    """The batch is refused, without a name."""
    log = a_log(tmp_path / "t-0")
    keyed, keyless = (batch([(key, b"", 0)])[HEADER_SIZE:] for key in (b"k", None))
    data = compressed(Codec.GZIP, gzip.compress(10_000 * keyed + keyless), 10_001)
    (refused,) = append(log, data, limits=LIMITS._replace(is_compacted=True))
    assert isinstance(refused, Rejected)
    assert refused.error is ErrorCode.INVALID_RECORD
    assert [flags for flags, _ in refused.records] == [bytes(len(data))]
    assert refused.__traceback__ is None  # it would keep the unpacked batch
