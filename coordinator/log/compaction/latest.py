"""The first pass of a compaction: the last offset of each key, in what was appended since the last compaction.

It starts at the task's dirty offset, and ends where the map is full or where records are too young
(log.cleaner.min.compaction.lag.ms). The rest of the log is left as it is, and the next compaction starts there. So the
map bounds the memory, however large the log is.

Plain batches are taken many at a time (protocol/records/plain_keys.py), other batches one by one.

A log with transactions takes one look more, at the headers (outcomes.py): the pass ends where the oldest open
transaction begins, and records of aborted ones supersede nothing.

House rule: this pass only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from coordinator.log.compaction.outcomes import NO_OUTCOMES, Outcomes
from coordinator.log.compaction.reading import ClosedSegment, SegmentReader, records_of
from coordinator.log.compaction.task import Task
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import Segment
from protocol.records.plain_keys import find_keys, peek_plain

KEY_SIZE_MAX = 63
"""A longer key is in the map by its digest. That has 64 bytes, so it is never another key."""

OFFSET_END = 2**63


class Latest:
    """See the module; `read` fills it.

    end: where the pass ended. outcomes: of transactions. offsets: by key (`name_of`). due: offsets of tombstones that
    the second pass has to look at. stay: the offsets of all records and batches from the dirty offset on that may stay,
    in order, and one behind all offsets.
    """

    def __init__(self, disk: Disk, task: Task) -> None:
        self.end = task.end_offset
        self.outcomes = NO_OUTCOMES
        self.offsets: dict[bytes, int] = {}
        self.due: set[int] = set()
        self.stay: list[int] = [OFFSET_END]
        self._task = task
        self._due_ms = task.due_ms
        self._markers: list[int] = []
        self._disk = disk
        self._reader = SegmentReader(disk)
        self._sources: Sequence[ClosedSegment] = ()

    def read(self, sources: Sequence[ClosedSegment]) -> None:
        """Go through the segments from the dirty offset on. Raises Damaged, OSError."""
        self._sources = [source for source in sources if source.end > self._task.dirty_offset]
        for segment, _ in self._sources:
            if segment.base_offset < self.end:
                self._note(segment)
        self.stay = sorted([*self.offsets.values(), *self._markers])
        self.stay.append(OFFSET_END)

    def _note(self, segment: Segment) -> None:
        for frame in self._reader.frames(segment, self._note_plain):
            header = frame.header
            if header.next_offset <= self._task.dirty_offset:
                continue
            if header.is_transactional and self.outcomes is NO_OUTCOMES:
                self.outcomes = Outcomes(self._disk, self._sources)
                self.end = min(self.end, self.outcomes.stable_offset)
            if header.base_offset >= self.end or self._ends_at(header.max_timestamp_ms):
                self.end = min(self.end, header.base_offset)
                return
            if header.is_control:
                self._markers.append(header.base_offset)
                continue
            if self.outcomes.is_aborted(header):
                continue
            for record in records_of(segment, frame):
                if record.key is not None:
                    self.offsets[name_of(record.key)] = record.offset

    def _note_plain(self, data: bytes, at: int) -> int:
        """Do the same for plain batches, up to the one where the pass ends (ChunkHandler)."""
        reader, offsets, due_ms = self._reader, self.offsets, self._due_ms
        dirty_offset, stable_offset = self._task.dirty_offset, self.outcomes.stable_offset
        while (plain := peek_plain(data, at)) is not None:
            end, base_offset, last_offset, _, max_ms, _, _ = plain
            if base_offset < reader.next_offset or base_offset >= stable_offset:
                break
            if last_offset >= dirty_offset:
                if self._ends_at(max_ms) or (found := find_keys(data, at, plain)) is None:
                    break
                for offset, key, tombstone_ms in found:
                    offsets[key if len(key) <= KEY_SIZE_MAX else name_of(key)] = offset
                    if tombstone_ms is not None and tombstone_ms <= due_ms:
                        self.due.add(offset)
            reader.next_offset = last_offset + 1
            at = end
        return at

    def _ends_at(self, max_timestamp_ms: int) -> bool:
        """Whether the pass ends in front of a batch."""
        task = self._task
        is_too_young = task.lag_ms > 0 and max_timestamp_ms > task.now_ms - task.lag_ms
        return is_too_young or len(self.offsets) + len(self.due) + len(self._markers) >= task.keys_max


def name_of(key: bytes) -> bytes:
    """The key that the map uses for a record's key."""
    return key if len(key) <= KEY_SIZE_MAX else blake2b(key).digest()
