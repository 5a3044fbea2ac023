"""Writes closed segments for tests of compaction, compacts them by hand, and reads them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.transactions import marker
from coordinator.log.compaction.rewrite import compact
from coordinator.log.compaction.task import Cleaned, Compaction, Task
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.recovery import LogReader
from coordinator.log.segments.segment import list_segments, segment_at
from coordinator.log.segments.swap import cleaned_path, swap_in
from protocol.records.batch import Batch, Record, encode_batch
from protocol.records.walk import decode_batches

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
PRODUCER_AT = 43
ATTRIBUTES_AT = 21

State = dict[bytes, bytes]


def task(end_offset: int, **fields: Any) -> Task:
    """Return a compaction task with the defaults and the current time."""
    return Task(
        **{
            "end_offset": end_offset,
            "dirty_offset": 0,
            "now_ms": NOW_MS,
            "lag_ms": 0,
            "retention_ms": DAY_MS,
            "segment_size": 1_000_000,
            **fields,
        }
    )


def put(key: int, value: bytes = b"value", timestamp_ms: int = NOW_MS) -> Record:
    """Return a record of a key."""
    return Record(b"key-%d" % key, value, timestamp_ms)


def tombstone(key: int, timestamp_ms: int = NOW_MS) -> Record:
    """Return a tombstone of a key."""
    return Record(b"key-%d" % key, None, timestamp_ms)


def sent(producer_id: int, *records: Record) -> Batch:
    """Return records in a transaction of a producer."""
    return Batch(records, producer_id, 0)


def marker_of(producer_id: int, *, commit: bool, timestamp_ms: int = NOW_MS) -> Batch:
    """Return the marker that ends a producer's transaction."""
    return marker(producer_id, 0, is_commit=commit, coordinator_epoch=0, wall_ms=timestamp_ms)


def write(folder: Path, *segments: Sequence[list[Record]]) -> int:
    """Write segments, each of some batches; return the offset behind them."""
    folder.mkdir(exist_ok=True)
    next_offset = 0
    for batches in segments:
        parts = []
        base_offset = next_offset
        for records in batches:
            parts.append(encode_batch(records, next_offset, 1))
            next_offset += len(records)
        segment_at(folder, base_offset).path.write_bytes(b"".join(parts))
    return next_offset


def swap(folder: Path, cleaned: Cleaned) -> None:
    """Swap a file in as the only one of its compaction."""
    assert list(folder.glob("*.cleaned")) == [cleaned_path(folder, cleaned.base_offset)]
    deque(swap_in(Disk(), folder, cleaned.base_offset, cleaned.next_offset), 0)


def not_swapped(_cleaned: Cleaned) -> None:
    """Leave a file as it is."""


def compacted(folder: Path, task: Task) -> Compaction:
    """Compact, and swap each file in."""
    outcome = compact(Disk(), folder, task, lambda cleaned: swap(folder, cleaned))
    assert all(path.suffix == ".log" for path in folder.iterdir())
    return outcome


def records(folder: Path) -> list[tuple[int, Record]]:
    """Return the records of a log with their offsets."""
    return [
        (offset, record)
        for segment in list_segments(Disk(), folder)
        for batch in decode_batches(segment.path.read_bytes())
        for offset, record in zip(batch.offsets, batch.records, strict=True)
    ]


def state(folder: Path) -> State:
    """Return the state that a replay finds."""
    return replayed(folder)[0]


def replayed(folder: Path) -> tuple[State, dict[tuple[int, bytes], bytes]]:
    """Return the state that a replay finds, and what a commit would add, by producer and key."""
    found: dict[bytes, bytes | None] = {}
    reader = LogReader(Disk(), folder, None, lambda *_: pytest.fail("nothing is torn here"))
    for page in reader.pages():
        found |= {record.key: record.value for record in page}
    pending = {
        (batch.producer_id, key): value
        for batch in reader.transactions.open()
        for key, value, _ in batch
        if value is not None
    }
    return {key: value for key, value in found.items() if value is not None}, pending


def changed(batch: bytes, attributes: int, producer_id: int = -1) -> bytes:
    """Return the batch from this producer, with these attributes added (0x08: LogAppendTime, 0x40: delete horizon)."""
    from crc32c import crc32c  # noqa: PLC0415 - an implementation that isn't ours

    changing = bytearray(batch)
    changing[ATTRIBUTES_AT + 1] |= attributes
    changing[PRODUCER_AT : PRODUCER_AT + 8] = producer_id.to_bytes(8, "big", signed=True)
    changing[17:21] = crc32c(bytes(changing[21:])).to_bytes(4, "big")
    return bytes(changing)


def epochs(folder: Path) -> list[int]:
    """Return the epoch of each batch."""
    return [
        batch.header.partition_leader_epoch
        for segment in list_segments(Disk(), folder)
        for batch in decode_batches(segment.path.read_bytes())
    ]
