"""When a partition of the groups' log is compacted: the policy, and how a compaction uses the log.

The engine examines every open partition each log.cleaner.backoff.ms. Bytes in closed segments are dirty if no
compaction has processed them. As in Kafka (LogCleanerManager), a partition is compacted when the dirty part of its
closed segments is larger than log.cleaner.min.cleanable.ratio. The dirty offset is kept in memory with the ownership,
so the first compaction of an ownership processes the whole log.

The active segment is closed when its first record is older than log.roll.ms. Unlike Kafka, the engine also closes it
when its bytes make a compaction worth it and no append came since the last look. So groups that are quiet after many
changes leave a small folder.

House rule: all of this runs on the engine's thread. Source: Kafka's LogCleanerManager, release 3.9.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from coordinator.log.compaction.cleaner import RETRY_BACKOFFS, LogUpkeep, Work
from coordinator.log.compaction.task import KEYS_MAX, Compaction, Task
from coordinator.log.segments.disk import Disk, closing
from coordinator.log.segments.partition import PartitionLog
from coordinator.log.segments.segment import Segment, list_segments
from coordinator.log.segments.swap import recover_swaps, remove_cleaned
from protocol.records.batch import HEADER_SIZE, CorruptBatch, peek_header

QUIET_SIZE_MIN = 64 * 1024
"""A smaller active segment isn't closed early: that isn't worth another file."""

LAG_PART = 4
"""A compaction that stopped at too young records continues after 1/LAG_PART of log.cleaner.min.compaction.lag.ms."""


class Cleaning(NamedTuple):
    """Kafka's settings, log.cleaner.* and log.roll.ms; keys_max as in Task."""

    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    delete_retention_ms: int = 86_400_000
    backoff_ms: int = 15_000
    roll_ms: int = 604_800_000
    keys_max: int = KEYS_MAX


class Upkeep(LogUpkeep):
    """Compaction of one partition, as its owner sees it; on the engine's thread. cleaning: may change."""

    def __init__(
        self, disk: Disk, partition: int, folder: Path, log: PartitionLog, segment_size: int, cleaning: Cleaning
    ) -> None:
        super().__init__(disk, folder, log)
        self.partition = partition
        self._segment_size = segment_size
        self.cleaning = cleaning
        self._dirty_offset = 0
        self._seen_offset = -1
        self._not_before_ms = 0

    def look(self, now_ms: int, *, is_new_round: bool) -> Work | None:
        """Return the compaction that is due, if any. First close the active segment if that is due. Raises OSError."""
        log, cleaning = self.log, self.cleaning
        if not log.is_open() or not self._is_swapped(now_ms):
            return None
        if is_new_round:
            self._roll(now_ms)
        if not log.is_open() or now_ms < self._not_before_ms:
            return None
        end_offset, total, dirty, _ = self._measure()
        self.dirty_ratio = dirty / total if total else 0.0
        if dirty <= cleaning.min_cleanable_ratio * total:
            return None
        task = Task(
            end_offset,
            self._dirty_offset,
            now_ms,
            cleaning.min_compaction_lag_ms,
            cleaning.delete_retention_ms,
            self._segment_size,
            cleaning.keys_max,
        )
        return Work(self, task, log.reads, self.dirty_ratio)

    def finish(self, work: Work, compaction: Compaction | None) -> None:
        """Note the result (None: the compaction was interrupted); the owner holds the lock. Raises OSError."""
        if (compaction is None or compaction.reason) and self.is_current(work):
            self._pause(work.task.now_ms)
        if compaction is None:
            remove_cleaned(self._disk, self.folder)
            return
        self._dirty_offset = compaction.clean_offset
        if compaction.reason:
            return
        if work.task.lag_ms and compaction.clean_offset < work.task.end_offset:
            self._not_before_ms = work.task.now_ms + work.task.lag_ms // LAG_PART
        elif compaction.clean_offset <= work.task.dirty_offset:  # an open transaction is in the way
            self._pause(work.task.now_ms)

    def _is_swapped(self, now_ms: int) -> bool:
        """Finish an interrupted swap unless a read of the log did; False if it is too early. Raises OSError."""
        if self.log.reads == self._stopped_at_read:
            if now_ms < self._not_before_ms:
                return False
            self._pause(now_ms)
            recover_swaps(self._disk, self.folder)
            self._stopped_at_read = -1
            self._not_before_ms = now_ms
        return True

    def _pause(self, now_ms: int) -> None:
        """Examine the partition only after RETRY_BACKOFFS times the backoff."""
        self._not_before_ms = now_ms + RETRY_BACKOFFS * self.cleaning.backoff_ms

    def _roll(self, now_ms: int) -> None:
        """Close the active segment if it is old, or if it is quiet and makes the log dirty."""
        is_quiet = self._seen_offset == self.log.next_offset
        self._seen_offset = self.log.next_offset
        _, total, dirty, active = self._measure()
        if active is None or self.log.size == 0:
            return
        size = self.log.size
        is_dirty = size >= QUIET_SIZE_MIN and dirty + size > self.cleaning.min_cleanable_ratio * (total + size)
        if not (is_quiet and is_dirty):
            try:
                is_old = now_ms - self._first_ms(active) >= self.cleaning.roll_ms
            except CorruptBatch:
                return  # the next load reports it
            if not is_old:
                return
        self.log.roll()

    def _measure(self) -> tuple[int, int, int, Segment | None]:
        """Where the active segment starts; bytes of closed segments; dirty bytes among them; the active segment."""
        segments = list_segments(self._disk, self.folder)
        if not segments:
            return 0, 0, 0, None
        total = dirty = 0
        for segment, following in pairwise(segments):
            with closing(self._disk, self._disk.open(segment.path)) as descriptor:
                size = self._disk.size(descriptor)
            total += size
            dirty += size if following.base_offset > self._dirty_offset else 0
        return segments[-1].base_offset, total, dirty, segments[-1]

    def _first_ms(self, segment: Segment) -> int:
        """The timestamp of its first record."""
        with closing(self._disk, self._disk.open(segment.path)) as descriptor:
            return peek_header(self._disk.read(descriptor, HEADER_SIZE, 0)).base_timestamp_ms
