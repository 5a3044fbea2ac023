"""The thread that takes the calls of a data folder's engines, and writes their appends.

    queue -> all queued calls -> appends, per partition: one write, one fdatasync, then their callbacks
                              -> other calls, in their place between the appends of their partition
          -> one page of the current load -> back to the queue

While the disk syncs, further appends queue up; the next sync makes all of them durable (group commit). Under light load
no append waits for others. If several partitions have appends, a pool of threads writes and syncs their logs at the
same time, one log per thread, and the engines' thread waits for the pool. The thread reads loads page by page between
the windows of appends, so that a large partition doesn't delay the others.

With a journal (journal.py), one write and one fdatasync serve all partitions of a window, on this thread: those of all
engines. Appends that begin a segment, or that the journal has no room for, take the way above.

House rule: what a partition is for, the writer doesn't know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, ItemsView, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import NamedTuple

from coordinator.log.embedded.journal import Journal
from coordinator.log.embedded.loads import Loads
from coordinator.log.embedded.ownership import Owned
from coordinator.log.embedded.report import Report
from coordinator.log.engine import Appended, Fenced, Unavailable
from coordinator.log.segments.journal import EXTENT_SIZE, Extent, window_size
from coordinator.log.segments.partition import Staged
from protocol.records.batch import Record
from protocol.speed import new

WINDOW_MAX = 4096
"""The most calls that the thread takes from the queue at once. The limit bounds how long the first of them waits."""

SYNCS_MAX = 8
"""Threads that write. Twice as many were hardly faster (docs/contribute/decisions.md)."""


class Append(NamedTuple):
    """Batches for a partition; see `Engine.append`."""

    own: Owned
    batches: list[list[Record]]
    done: Appended


class Writer:
    """See the module.

    report, syncs_max: as of EmbeddedEngine. has_journal: write windows to `journal` first.
    queue: what the thread is to do. loads: of all engines. is_closing: the thread ends behind the calls that it has.
    """

    def __init__(self, journal: Journal, report: Report, syncs_max: int, *, has_journal: bool) -> None:
        self.queue: SimpleQueue[Append | Callable[[], None]] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="log", daemon=True)
        self.journal = journal
        self.loads = Loads()
        self.is_closing = False
        self._report = report
        self._syncs_max = syncs_max
        self._has_journal = has_journal
        self._pool: ThreadPoolExecutor | None = None
        journal.wake = self.queue.put

    def join(self) -> None:
        """Wait for the thread, which ends once `is_closing` is set."""
        self.thread.join()
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self) -> None:
        try:
            while not self.is_closing:
                wait_s = self.journal.due_s()
                if wait_s == 0.0:
                    self.journal.work()
                    wait_s = self.journal.due_s()
                if self.loads.waiting:
                    self.loads.read_page()
                # Last, and with little behind it: the loop's thread wakes up for what this reports, and both threads
                # share Python's lock.
                self._work(self._take_calls(wait_s, waits=not self.loads.waiting))
        except BaseException as error:
            self._report("engine_failed", partition=-1, error=repr(error))
            raise

    def _take_calls(self, wait_s: float | None, *, waits: bool) -> list[Append | Callable[[], None]]:
        """Take all queued calls. If there are none, wait for one, at most that long. waits: nothing else is to do."""
        try:
            calls = [self.queue.get(waits, wait_s)]
        except Empty:  # nothing came in time
            return []
        while len(calls) < WINDOW_MAX and not self.queue.empty():
            calls.append(self.queue.get_nowait())
        return calls

    def _work(self, calls: list[Append | Callable[[], None]]) -> None:
        window: dict[Owned, list[Append]] = {}
        for call in calls:
            if isinstance(call, Append):
                window.setdefault(call.own, []).append(call)
            else:
                if window:
                    self._write(window)
                window = {}
                call()
        if window:
            self._write(window)

    def _write(self, window: dict[Owned, list[Append]]) -> None:
        if self._has_journal:
            window = self._write_journal(window)
            if not window:
                return
        items = window.items()
        for (own, appends), outcome in zip(items, self._append(items), strict=True):
            self._tell(own, appends, outcome)

    def _tell(self, own: Owned, appends: list[Append], outcome: int | None) -> None:
        """Report the outcomes. outcome: as of `_append_to`."""
        durable = outcome or 0
        for append in appends:
            wanted = len(append.batches)
            if durable >= wanted:
                append.done(wanted, None)
                durable -= wanted
                continue
            if outcome is not None:
                own.availability.failed(own.partition, own.log.closed_because)
            append.done(durable, Unavailable(own.log.closed_because) if own.valid() else Fenced.of(own))
            durable = 0

    def _append(self, items: ItemsView[Owned, list[Append]]) -> Iterable[int | None]:
        """Return the result of `_append_to` for each item, in order. The first use creates the pool's threads."""
        if len(items) < 2 or self._syncs_max == 1:
            return map(_append_to, items)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._syncs_max, thread_name_prefix="log-sync")
        return self._pool.map(_append_to, items)

    def _write_journal(self, window: dict[Owned, list[Append]]) -> dict[Owned, list[Append]]:
        """Write appends to the journal and report them; return those that don't go through it."""
        others: dict[Owned, list[Append]] = {}
        staged: list[tuple[Owned, list[Append], Staged]] = []
        size, most = 0, self.journal.most
        for own, appends in window.items():
            batches = appends[0].batches
            if len(appends) > 1:
                batches = [records for append in appends for records in append.batches]
            stage = None if own.log.closed_because else own.log.stage(batches)
            if stage is None or stage.size + EXTENT_SIZE > most:
                others[own] = appends
                continue
            if size + stage.size + EXTENT_SIZE > most:
                others |= self._write_staged(staged, size)
                staged, size = [], 0
            staged.append((own, appends, stage))
            size += stage.size + EXTENT_SIZE
        if staged:
            others |= self._write_staged(staged, size)
        return others

    def _write_staged(self, window: list[tuple[Owned, list[Append], Staged]], size: int) -> dict[Owned, list[Append]]:
        """Write a window to the journal, and report each append's outcome; return those that it can't take now.

        size: of the batches, with EXTENT_SIZE for each partition.
        """
        try:
            if not self.journal.make_room(window_size(size)):
                return {own: appends for own, appends, _ in window}
            extents = []
            for own, _, (segment, position, batches, _, _) in window:
                if not own.log.closed_because:
                    extent = own.number, segment.base_offset, position, batches, False, None
                    extents.append(new(Extent, extent))
            if extents:
                self.journal.write(extents)
        except OSError as error:
            for own, _, _ in window:
                if own.log.is_open():
                    own.log.refuse(error)
        for own, appends, staged in window:
            if own.log.closed_because:
                self._tell(own, appends, 0)
            else:
                own.log.journaled(staged)
                self._tell(own, appends, len(staged.batches))
        return {}


def _append_to(item: tuple[Owned, list[Append]]) -> int | None:
    """Append to one partition's log; return the number of durable batches, None if the log takes no appends."""
    own, appends = item
    if own.log.closed_because:
        return None
    return own.log.append([records for append in appends for records in append.batches])
