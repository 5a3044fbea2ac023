"""When a partition of the groups' log is compacted: the policy, and what its compaction has to do with the log.

Each log.cleaner.backoff.ms, every open partition is looked at. As in Kafka (LogCleanerManager), a compaction is worth
it when a larger part of the bytes in closed segments than log.cleaner.min.cleanable.ratio is dirty: no compaction has
gone through them. Up to where a log is clean is forgotten with its ownership, so the first compaction of an ownership
goes through all of it.

The active segment is closed when its first record is older than log.roll.ms. Other than in Kafka, it is also closed
when it alone makes a compaction worth it and nothing was appended since the last look: so groups that are quiet after a
storm leave a small folder.

House rule: all of this is called on the engine's thread. Source: Kafka's LogCleanerManager, release 3.9.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from coordinator.log.compaction.cleaner import RETRY_BACKOFFS, LogUpkeep, Work
from coordinator.log.compaction.task import KEYS_MAX, Compaction, Task
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.partition import PartitionLog
from coordinator.log.segments.segment import Segment, list_segments
from coordinator.log.segments.swap import recover_swaps, remove_cleaned
from protocol.records.batch import HEADER_SIZE, CorruptBatch, peek_header

QUIET_SIZE_MIN = 64 * 1024
"""An active segment that is smaller isn't worth a file more."""

LAG_PART = 4
"""One that ended at records that were too young goes on after this part of log.cleaner.min.compaction.lag.ms."""


class Cleaning(NamedTuple):
    """Kafka's settings, log.cleaner.* and log.roll.ms; keys_max as in Task."""

    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    delete_retention_ms: int = 86_400_000
    backoff_ms: int = 15_000
    roll_ms: int = 604_800_000
    keys_max: int = KEYS_MAX


class Upkeep(LogUpkeep):
    """Compaction of one partition, as its owner sees it; on the engine's thread.

    dirty_ratio: how much of its closed segments no compaction has gone through, as of the last look.
    """

    def __init__(
        self, disk: Disk, partition: int, folder: Path, log: PartitionLog, segment_size: int, cleaning: Cleaning
    ) -> None:
        super().__init__(disk, folder, log)
        self.partition = partition
        self.dirty_ratio = 0.0
        self._segment_size = segment_size
        self._cleaning = cleaning
        self._dirty_offset = 0
        self._seen_offset = -1
        self._not_before_ms = 0
        self._stopped_at_read = -1

    def look(self, now_ms: int, *, is_new_round: bool) -> Work | None:
        """Return the compaction that is due. Raises OSError. Rolls the active segment first where that is due."""
        log, cleaning = self._log, self._cleaning
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

    def _stopped(self, work: Work, reason: str) -> None:  # noqa: ARG002 - the engine reports it
        self._stopped_at_read = work.reads

    def finish(self, work: Work, compaction: Compaction | None) -> None:
        """Take note of how it went: None if it was broken off. Raises OSError. The partition's lock is held."""
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

    def _is_swapped(self, now_ms: int) -> bool:
        """Whether no swap was broken off; one that was is finished here, unless a read did it. Raises OSError."""
        if self._log.reads == self._stopped_at_read:
            if now_ms < self._not_before_ms:
                return False
            self._pause(now_ms)
            recover_swaps(self._disk, self.folder)
            self._stopped_at_read = -1
            self._not_before_ms = now_ms
        return True

    def _pause(self, now_ms: int) -> None:
        """Leave it alone for a while."""
        self._not_before_ms = now_ms + RETRY_BACKOFFS * self._cleaning.backoff_ms

    def _roll(self, now_ms: int) -> None:
        """Close the active segment if it is old, or quiet and what makes the log dirty."""
        is_quiet = self._seen_offset == self._log.next_offset
        self._seen_offset = self._log.next_offset
        _, total, dirty, active = self._measure()
        if active is None or self._log.size == 0:
            return
        size = self._log.size
        is_dirty = size >= QUIET_SIZE_MIN and dirty + size > self._cleaning.min_cleanable_ratio * (total + size)
        if not (is_quiet and is_dirty):
            try:
                is_old = now_ms - self._first_ms(active) >= self._cleaning.roll_ms
            except CorruptBatch:
                return  # the next load says so
            if not is_old:
                return
        self._log.roll()

    def _measure(self) -> tuple[int, int, int, Segment | None]:
        """Where the active segment starts, bytes of the closed ones, of the dirty ones among them, the active one."""
        segments = list_segments(self._disk, self.folder)
        if not segments:
            return 0, 0, 0, None
        total = dirty = 0
        for segment, following in pairwise(segments):
            descriptor = self._disk.open(segment.path)
            try:
                size = self._disk.size(descriptor)
            finally:
                self._disk.close(descriptor)
            total += size
            dirty += size if following.base_offset > self._dirty_offset else 0
        return segments[-1].base_offset, total, dirty, segments[-1]

    def _first_ms(self, segment: Segment) -> int:
        """When its first record was made."""
        descriptor = self._disk.open(segment.path)
        try:
            return peek_header(self._disk.read(descriptor, HEADER_SIZE, 0)).base_timestamp_ms
        finally:
            self._disk.close(descriptor)
