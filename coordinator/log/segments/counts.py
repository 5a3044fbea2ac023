"""The cost of logs: counts of one thread's appends, flushes and compactions, as plain numbers.

The engine of the groups has one `Counts`, the logs of topics another. The log's threads write them, and any thread
reads them without a lock: a reader may see a value in a bucket a moment before it is in the total.

House rule: counts only grow, except `dirty_ratio`, which is the value of the last look.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from threading import Lock

DISK_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Upper ends of the buckets of appends and flushes: from a good disk's to one that hangs."""

COMPACTION_SECONDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


class Histogram:
    """How many values fell under which upper end, and their sum.

    counts: one for each of `ends`, and a last one for what is above all of them; each value is in one of them.
    """

    __slots__ = ("counts", "ends", "total")

    def __init__(self, ends: Sequence[float]) -> None:
        self.ends = ends
        self.counts = [0] * (len(ends) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.ends, value)] += 1
        self.total += value


class Counts:
    """See the module.

    appends: from the first byte handed to the system until all are durable, in seconds, for each write; flushes: the
    part of it that fdatasync took. bytes: appended. failures: appends that a disk failed for. compactions: those that
    were done, in seconds; compaction_failures: those put off. bytes_before, bytes_after: of the closed segments
    of logs that were compacted. dirty_ratio: of the log that needs a compaction most, from 0 to 1, as of the last look.
    journal_waits: how long windows waited for room in the journal, in seconds, for each that did.
    """

    def __init__(self) -> None:
        self.appends = Histogram(DISK_SECONDS)
        self.flushes = Histogram(DISK_SECONDS)
        self.bytes = 0
        self.failures = 0
        self.compactions = Histogram(COMPACTION_SECONDS)
        self.compaction_failures = 0
        self.bytes_before = 0
        self.bytes_after = 0
        self.dirty_ratio = 0.0
        self.journal_waits = Histogram(DISK_SECONDS)
        # Several threads of one engine append at the same time, each to another log.
        self._guard = Lock()

    def appended(self, size: int, append_s: float, flush_s: float) -> None:
        """Count a write of so many bytes."""
        with self._guard:
            self.appends.add(append_s)
            self.flushes.add(flush_s)
            self.bytes += size

    def failed(self) -> None:
        """Count an append that failed."""
        with self._guard:
            self.failures += 1

    def compacted(self, size_before: int, size_after: int, duration_s: float) -> None:
        """Count a compaction."""
        self.compactions.add(duration_s)
        self.bytes_before += size_before
        self.bytes_after += size_after
