"""Chooses the partition to compact next, and handles the result.

A round compacts all partitions that needed it at the start of the round, the dirtiest first. Within a round no other
partition is examined, because appends wait during each look at a partition.

House rule: all of this runs on the engine's thread, between windows of appends. A failure is reported, and the
compaction is tried again later.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from operator import itemgetter

from coordinator.log.compaction.cleaner import Work
from coordinator.log.compaction.task import Compaction
from coordinator.log.embedded.ownership import Owned
from coordinator.log.embedded.report import Availability, Report
from coordinator.log.embedded.upkeep import Upkeep
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import describe


class Compactions:
    """See the module. owned: the partitions that the engine owns. counts: counts the compactions."""

    def __init__(self, owned: Mapping[int, Owned], report: Report, availability: Availability, counts: Counts) -> None:
        self._owned = owned
        self._report = report
        self._availability = availability
        self._counts = counts
        self._dirty: list[Owned] = []

    def find(self, *, is_new_round: bool) -> Work | None:
        """Return the compaction of the dirtiest partition, None if no partition needs one."""
        now_ms = time.time_ns() // 1_000_000
        found: Work | None = None
        if is_new_round:
            works = [(own, self._look(own, now_ms, is_new_round=True)) for own in self._owned.values()]
            worth = [(work.ratio, own) for own, work in works if work is not None]
            self._dirty = [own for _, own in sorted(worth, key=itemgetter(0))]
        while self._dirty and found is None:
            found = self._look(self._dirty[-1], now_ms, is_new_round=False)
            if found is None:
                self._dirty.pop()
        self._counts.dirty_ratio = max(
            (own.upkeep.dirty_ratio for own in self._owned.values() if own.upkeep), default=0.0
        )
        return found

    def _look(self, own: Owned, now_ms: int, *, is_new_round: bool) -> Work | None:
        """The compaction of a partition, None if it doesn't need one."""
        if own.upkeep is None or not own.log.is_open() or self._owned.get(own.partition) is not own:
            return None
        try:
            work = own.upkeep.look(now_ms, is_new_round=is_new_round)
        except Exception as error:  # noqa: BLE001 - of the disk, or a mistake of ours
            self._report("compaction_failed", partition=own.partition, reason=describe(error))
            return None
        if not own.log.is_open():
            self._availability.failed(own.partition, own.log.closed_because)
        return work

    def finish(self, work: Work, compaction: Compaction | None, reason: str, duration_s: float) -> None:
        """Count and report the result of a compaction."""
        assert isinstance(work.upkeep, Upkeep)
        partition = work.upkeep.partition
        try:
            if partition in self._owned:
                work.upkeep.finish(work, compaction)
        except Exception as error:  # noqa: BLE001 - of the disk, or a mistake of ours
            reason = describe(error)
        if compaction is not None and compaction.files:
            self._counts.compacted(compaction.size_before, compaction.size_after, duration_s)
            self._report(
                "compacted",
                partition=partition,
                size_before=compaction.size_before,
                size_after=compaction.size_after,
                duration_s=round(duration_s, 3),
            )
        if reason and work.upkeep.is_current(work):
            self._counts.compaction_failures += 1
            self._report("compaction_failed", partition=partition, reason=reason)
