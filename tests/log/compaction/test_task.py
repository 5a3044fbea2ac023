"""Tests the rules that both passes of a compaction share."""

from __future__ import annotations

import pytest

from protocol.records.batch import encode_batch
from protocol.records.batch import peek_header as header_of
from tests.log.compaction.closed import (
    DAY_MS,
    NOW_MS,
    changed,
    put,
    task,
)


@pytest.mark.parametrize(
    ("attributes", "producer_id", "is_topic", "stays"),
    [
        (0, -1, False, False),
        (0, 7, False, True),
        (0, 7, True, False),
        (0x10, 7, True, True),
        (0x30, 7, True, True),
        (0x30, 7, False, True),
    ],
)
def test_whole_batches(attributes: int, producer_id: int, *, is_topic: bool, stays: bool) -> None:
    """Batches of transactions and their markers stay whole; in a group's log the batches of any producer do."""
    batch = bytearray(changed(encode_batch([put(1)], 0, 1), 0, producer_id))
    batch[22] |= attributes
    assert task(1, is_topic=is_topic).keeps_whole(header_of(bytes(batch))) is stays


def test_due_tombstones() -> None:
    """A group log's tombstone is due delete_retention_ms after its timestamp; a topic's cleaner looks at each."""
    assert task(1).due_ms == NOW_MS - DAY_MS
    assert task(1, is_topic=True).due_ms > NOW_MS
