"""Finds keys that a compaction lost, from the log before it and the log after it.

A key is live at the end of the earlier log if its last record has a value and isn't part of an aborted transaction. The
later log must have that record or a later record of the key, which may be a tombstone.

Compaction drops tombstones too, log.cleaner.delete.retention.ms after they were written at the earliest. If the later
log ends later than that, a missing key may have been deleted, and the check finds nothing.

House rule: one compacted log alone proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator.audit.check.checks import Finding, finding
from coordinator.audit.read.parse import Row
from coordinator.story.records.values import OFFSET_KIND, read_key


class LastRecord(NamedTuple):
    """The last record with a key: its offset and time, and whether it deletes the key."""

    offset: int
    ts: int
    is_tombstone: bool


PartitionKey = tuple[int, bytes]
"""A partition and the key of a record."""


def note_last(last: dict[PartitionKey, LastRecord], rows: Iterable[Row]) -> None:
    """Note the last record of each key; rows: of `records`, in the order of the log."""
    for partition, offset, ts, _kind, _group, key, value in (row[:7] for row in rows):
        last[partition, key] = LastRecord(offset, ts, value is None)


def lost_keys(
    before: dict[PartitionKey, LastRecord], after: dict[PartitionKey, LastRecord], delete_retention_ms: int
) -> Iterator[Finding]:
    """The keys that were live in the earlier log and are missing in the later one."""
    end_ms = max((each.ts for each in before.values()), default=0)
    reaches_ms = max((each.ts for each in after.values()), default=0)
    if reaches_ms - end_ms > delete_retention_ms:
        return
    for key, was in before.items():
        now = after.get(key)
        if not was.is_tombstone and (now is None or now.offset < was.offset):
            yield lost_key(key, was)


def lost_key(partition_key: PartitionKey, was: LastRecord) -> Finding:
    """The finding about a key that is missing."""
    partition, data = partition_key
    key = read_key(data)
    detail = {"kind": key.kind}
    if key.kind == OFFSET_KIND:
        detail["topic_partition"] = f"{key.topic}-{key.topic_partition}"
    return finding("compaction_lost_key", partition, was.offset, key.group_id, **detail)
