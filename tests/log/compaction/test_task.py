"""Tests the rules that both passes of a compaction share."""

from __future__ import annotations

from tests.log.compaction.closed import DAY_MS, NOW_MS, task


def test_due_tombstones() -> None:
    """A group log's tombstone is due delete_retention_ms after its timestamp; a topic's cleaner looks at each."""
    assert task(1).due_ms == NOW_MS - DAY_MS
    assert task(1, is_topic=True).due_ms > NOW_MS
