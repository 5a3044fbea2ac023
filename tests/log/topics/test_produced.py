"""Tests batches as producers send them: the log refuses those that Kafka refuses, with Kafka's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.log.segments.view import Rejected
from coordinator.log.topics.log import Written
from coordinator.log.topics.produced import RECORDS_MAX
from schemas.errors import ErrorCode
from tests.log.topics.test_log import LIMITS, a_log, append, expected, one, values
from tests.support.batches import batch, numbered


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


def test_a_compacted_topic_wants_keys(tmp_path: Path) -> None:
    """A compacted topic refuses a record without a key as INVALID_RECORD, compressed or not."""
    log = a_log(tmp_path / "t-0")
    limits = LIMITS._replace(is_compacted=True)
    for zipped in (False, True):
        (refused,) = append(log, batch([(b"a", b"1", 0), (None, b"2", 0)], zipped=zipped), limits=limits)
        assert isinstance(refused, Rejected)
        assert refused.error is ErrorCode.INVALID_RECORD
        assert str(refused).endswith("in topic partition t-0.")
    assert append(log, one(0), limits=limits) == [Written(0, -1, 0)]
