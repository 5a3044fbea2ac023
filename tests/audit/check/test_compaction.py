"""The check of two logs knows which keys a compaction may drop."""

from __future__ import annotations

from coordinator.audit.check.compaction import LastRecord, PartitionKey, lost_keys, note_last
from coordinator.audit.read.parse import parse_record
from protocol.records.batch import Record
from tests.audit.scenes import GROUP, START_MS, group_key, offset_key, offset_value

RETENTION_MS = 24 * 3_600_000
KEY = 0, offset_key(GROUP)
LIVE = LastRecord(5, START_MS, is_tombstone=False)
DELETED = LastRecord(5, START_MS, is_tombstone=True)


def lost(before: dict[PartitionKey, LastRecord], after: dict[PartitionKey, LastRecord]) -> list[tuple[int, int | None]]:
    """Return partition and offset of each lost key."""
    return [(finding.partition, finding.offset) for finding in lost_keys(before, after, RETENTION_MS)]


def test_live_key_must_stay() -> None:
    """A live key must be in the later log: in its record, in a later one, or deleted by a later one."""
    assert lost({KEY: LIVE}, {}) == [(0, 5)]
    assert lost({KEY: LIVE}, {KEY: LastRecord(4, START_MS, is_tombstone=False)}) == [(0, 5)]
    assert lost({KEY: LIVE}, {KEY: LIVE}) == []
    assert lost({KEY: LIVE}, {KEY: LastRecord(9, START_MS, is_tombstone=True)}) == []


def test_deleted_key_may_go() -> None:
    """A deleted key may be missing: compaction drops tombstones too."""
    assert lost({KEY: DELETED}, {}) == []


def test_nothing_is_said_of_a_log_that_reaches_a_day_further() -> None:
    """If the later log reaches a day further, a tombstone may have come and gone: no key counts as lost."""
    other = 0, group_key(GROUP)
    assert lost({KEY: LIVE}, {other: LastRecord(9, START_MS + RETENTION_MS, is_tombstone=False)}) == [(0, 5)]
    assert lost({KEY: LIVE}, {other: LastRecord(9, START_MS + RETENTION_MS + 1, is_tombstone=False)}) == []


def test_last_record_of_a_key_is_noted() -> None:
    """Of two records of a key, the table keeps the later one."""
    last: dict[PartitionKey, LastRecord] = {}
    for offset, value in ((3, offset_value(1)), (4, None)):
        note_last(last, parse_record(0, offset, Record(offset_key(GROUP), value, START_MS))["records"])
    assert last == {KEY: LastRecord(4, START_MS, is_tombstone=True)}
