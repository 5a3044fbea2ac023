"""What a compaction must not have lost, from a log as it was before and as it is after.

A key is live at the end of a log if its last record has a value and counts (no aborted transaction). It must be there
afterwards, in that record or in a later one, be it a tombstone. Tombstones go in turn, but no earlier than
log.cleaner.delete.retention.ms after they were written: where the later log reaches further than that, a key that is
missing may have been deleted meanwhile, and nothing can be said of it.

House rule: from one compacted log alone nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator.audit.check.checks import Finding, finding
from coordinator.audit.read.parse import Row
from coordinator.audit.read.records import OFFSET_KIND, read_key


class LastRecord(NamedTuple):
    """The last record with a key: its offset and time, and whether it deletes the key."""

    offset: int
    ts: int
    is_tombstone: bool


PartitionKey = tuple[int, bytes]
"""Partition and key."""


def note_last(last: dict[PartitionKey, LastRecord], rows: Iterable[Row]) -> None:
    """Note the rows of `records`, in the order of the log."""
    for partition, offset, ts, _kind, _group, key, value in (row[:7] for row in rows):
        last[partition, key] = LastRecord(offset, ts, value is None)


def lost_keys(
    before: dict[PartitionKey, LastRecord], after: dict[PartitionKey, LastRecord], delete_retention_ms: int
) -> Iterator[Finding]:
    """Keys that were live and are gone."""
    end_ms = max((each.ts for each in before.values()), default=0)
    reaches_ms = max((each.ts for each in after.values()), default=0)
    if reaches_ms - end_ms > delete_retention_ms:
        return
    for key, was in before.items():
        now = after.get(key)
        if not was.is_tombstone and (now is None or now.offset < was.offset):
            yield lost_key(key, was)


def lost_key(partition_key: PartitionKey, was: LastRecord) -> Finding:
    """The finding of a key that is gone."""
    partition, data = partition_key
    key = read_key(data)
    detail = {"kind": key.kind}
    if key.kind == OFFSET_KIND:
        detail["topic_partition"] = f"{key.topic}-{key.topic_partition}"
    return finding("compaction_lost_key", partition, was.offset, key.group_id, **detail)
