"""When a topic partition's log is compacted: the policy, and how a compaction uses the log.

As in Kafka (LogCleanerManager), a log is compacted for one of two reasons. The dirty part of the closed segments that
may be compacted is larger than min.cleanable.dirty.ratio, or dirty records there are older than max.compaction.lag.ms.
The segments that may be compacted end at the first one with a record younger than min.compaction.lag.ms. The active
segment is never compacted. Only appends (segment.bytes, segment.ms, max.compaction.lag.ms) and retention close it.

A file beside the log notes the offset up to which the log is clean (log.py), so it stays clean over a restart. Opening
a log reads all of it. So a log that is closed since the restart is opened only if the sizes of its files suggest a
compaction.

House rule: all of this runs on the thread of the logs. Source: Kafka's LogCleanerManager, release 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from coordinator.log.compaction.cleaner import LogUpkeep, Work
from coordinator.log.compaction.task import KEYS_MAX, Cleaned, Compaction, Task
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import list_segments
from coordinator.log.segments.swap import remove_cleaned
from coordinator.log.topics.log import CLEAN_NAME, TopicLog, noted_offset
from coordinator.log.topics.partition import Limits

NEVER_MS = 2**63 - 1
"""The value of max.compaction.lag.ms that means no limit."""


class TopicUpkeep(LogUpkeep):
    """Compaction of one topic partition."""

    log: TopicLog

    def __init__(
        self, disk: Disk, folder: Path, log: TopicLog, key: tuple[UUID, int], keys_max: int = KEYS_MAX
    ) -> None:
        super().__init__(disk, folder, log)
        self.key = key
        self._keys_max = keys_max

    def look(self, limits: Limits, now_ms: int) -> Work | None:
        """Return the compaction that is due, if any; it begins with `log.begin_compaction`."""
        log = self.log
        if log.is_being_compacted:
            return None
        closed = log.view.parts[:-1]
        dirty_offset = max(log.clean_offset, log.view.start)
        dirty = [part for part in closed if part.end > dirty_offset]
        young = (part for part in dirty if part.max_ms > now_ms - limits.min_compaction_lag_ms)
        end = next(young, None) if limits.min_compaction_lag_ms > 0 else None
        if end is not None:
            closed, dirty = closed[: closed.index(end)], dirty[: dirty.index(end)]
        dirty_size, total = (sum(part.size for part in parts) for parts in (dirty, closed))
        self.dirty_ratio = dirty_size / total if total else 0.0
        times = [part.first_ms for part in dirty if part.first_ms > 0]
        is_overdue = bool(times) and min(times) < now_ms - limits.max_compaction_lag_ms
        if not dirty_size or not (is_overdue or dirty_size > limits.min_cleanable_ratio * total):
            return None
        end_offset = closed[-1].end
        task = Task(
            end_offset,
            dirty_offset,
            now_ms,
            lag_ms=0,
            retention_ms=limits.delete_retention_ms,
            segment_size=limits.segment_bytes,
            keys_max=self._keys_max,
            is_topic=True,
            last_offsets=log.producers.last_offsets(end_offset),
        )
        return Work(self, task, log.reads, self.dirty_ratio)

    def begin_swap(self, cleaned: Cleaned) -> Iterator[None]:
        """See LogUpkeep."""
        return self.log.swap(cleaned)

    def finish(self, work: Work, compaction: Compaction | None) -> None:
        """Note the result, None if the compaction was interrupted. Raises OSError."""
        if not self.is_current(work):
            return
        self.log.end_compaction(self.log.clean_offset if compaction is None else compaction.clean_offset)
        if compaction is None:
            remove_cleaned(self._disk, self.folder)

    def was_given_up(self, work: Work) -> bool:
        """Whether the log was closed for a reason other than this compaction; then the result isn't reported."""
        return not self.is_current(work) and self._stopped_at_read != work.reads

    def _stopped(self, work: Work, reason: str) -> None:
        super()._stopped(work, reason)
        self.log.close(reason)  # the next `open` mends it


def may_need_compaction(disk: Disk, folder: Path, limits: Limits) -> bool:
    """Whether a closed log may need a compaction, by the sizes of its files. Raises Damaged, OSError."""
    segments = list_segments(disk, folder)
    if len(segments) < 2:
        return False
    clean_offset = noted_offset(folder / CLEAN_NAME) or 0
    total = dirty = 0
    for segment, following in pairwise(segments):
        size = segment.path.stat().st_size
        total += size
        dirty += size if following.base_offset > clean_offset else 0
    return dirty > 0 and (limits.max_compaction_lag_ms < NEVER_MS or dirty > limits.min_cleanable_ratio * total)
