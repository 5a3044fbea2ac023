"""The default engine: the log in files below a data folder, in Kafka's format. See Engine for its promises.

One thread takes all calls, so it shares no state with others:

    queue -> all queued calls -> appends, per partition: one write, one fdatasync, then their callbacks
                              -> other calls, in their place between the appends of their partition
          -> one page of the current load -> back to the queue

While the disk syncs, further appends queue up; the next sync makes all of them durable (group commit). Under light load
no append waits for others. If several partitions have appends, a pool of threads writes and syncs their logs at the
same time, one log per thread, and the engine's thread waits for the pool. The engine reads loads page by page between
the windows of appends, so that a large partition doesn't delay the others.

With a journal (journal.py), one write and one fdatasync serve all partitions of a window, on the engine's thread.
Appends that begin a segment, or that the journal has no room for, take the way above.

Compaction (compaction/cleaner.py) uses a thread that waits and a process that works. Between the windows of appends the
engine's thread chooses partitions to compact, and swaps in the files that the process wrote, one at a time.

Files: `__consumer_offsets-N/` (segments/segment.py), created by the first append; `.lock` and `.lock-N`
(segments/lock.py).

House rule: the engine reports facts for operators by name and fields (report.py); it writes no log lines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, ItemsView, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple

from coordinator.log.advice import explain
from coordinator.log.compaction.cleaner import Cleaner, call_on
from coordinator.log.embedded.compactions import Compactions
from coordinator.log.embedded.journal import JOURNAL_SIZE, Journal
from coordinator.log.embedded.loads import Loads
from coordinator.log.embedded.ownership import Owned, fenced, lock_partition
from coordinator.log.embedded.report import Availability, Report, ignore
from coordinator.log.embedded.upkeep import Cleaning, Upkeep
from coordinator.log.engine import Acquired, Appended, Done, OnOwnership, Ownership, Page, Unavailable
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.journal import EXTENT_SIZE, Extent, window_size
from coordinator.log.segments.lock import Lock, lock_data_folder, partition_lock
from coordinator.log.segments.partition import PartitionLog, Staged
from coordinator.log.segments.segment import OFFSETS_TOPIC, partition_folder
from protocol.records.batch import Record
from protocol.speed import new

SEGMENT_SIZE = 4 * 1024 * 1024
"""Default of offsets.topic.segment.bytes here; Kafka's is 100 MiB (docs/start/differences.md)."""

WINDOW_MAX = 4096
"""The most calls that the thread takes from the queue at once. The limit bounds how long the first of them waits."""

SYNCS_MAX = 8
"""Threads that write. Twice as many were hardly faster (docs/contribute/decisions.md)."""


class _Append(NamedTuple):
    own: Owned
    batches: list[list[Record]]
    done: Appended


class EmbeddedEngine:
    """The engine over the files in `data_dir`, for the node `node_id`.

    segment_size: bytes after which a new segment begins.
    cleaning: how to compact; None: don't compact.
    owners: the node that owns each partition, if there are several nodes; this engine acquires only its own partitions.
    syncs_max: partitions that the engine writes at the same time; 1: one after the other, on the engine's thread.
    lock_folder: False if a supervisor of several workers holds the lock of the data folder.
    journal: write windows to a journal of `journal_size` bytes first. recovers_all: at the start, bring back what the
    journals of all nodes have, not only this node's: no other engine uses the folder.
    counts: counts the appends and compactions. log: whose partitions it serves; the journal is the groups' log's.
    """

    def __init__(
        self,
        data_dir: Path,
        partition_count: int,
        node_id: int,
        *,
        segment_size: int = SEGMENT_SIZE,
        cleaning: Cleaning | None = None,
        owners: Sequence[int] | None = None,
        syncs_max: int = SYNCS_MAX,
        lock_folder: bool = True,
        journal: bool = False,
        journal_size: int = JOURNAL_SIZE,
        recovers_all: bool = True,
        report: Report = ignore,
        disk: Disk | None = None,
        counts: Counts | None = None,
        log: str = OFFSETS_TOPIC,
    ) -> None:
        assert log == OFFSETS_TOPIC or not journal
        self._log = log
        self._data_dir = data_dir
        self._partition_count = partition_count
        self._node_id = node_id
        self._segment_size = segment_size
        self._cleaning = cleaning
        self._owners = owners or [node_id] * partition_count
        self._syncs_max = syncs_max
        self._lock_folder = lock_folder
        self._report = report
        self._disk = disk or Disk()
        self._counts = counts or Counts()
        self._queue: SimpleQueue[_Append | Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        # After the start, only the engine's thread uses the attributes below.
        self._on_ownership: OnOwnership = lambda _partition, _node_id, _epoch: None
        self._folder_lock: Lock | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._owned: dict[int, Owned] = {}
        self._availability = Availability(report)
        self._has_journal = journal
        self._journal = Journal(
            self._disk,
            data_dir,
            node_id,
            journal_size,
            recovers_all=recovers_all,
            owned=self._owned,
            report=report,
            availability=self._availability,
            counts=self._counts,
            wake=self._queue.put,
        )
        self._loads = Loads(report, self._availability, self._report_epoch)
        self._is_closing = False
        self._cleaner: Cleaner | None = None
        if cleaning is not None:
            compactions = Compactions(self._owned, report, self._availability, self._counts)
            self._cleaner = Cleaner(cleaning.backoff_ms, compactions.find, compactions.finish, self._call_and_wait)

    def start(self, on_ownership: OnOwnership) -> None:
        """See Engine. Raises DataFolderLocked, Unavailable if the data folder can't be used, Damaged (a journal)."""
        self._on_ownership = on_ownership
        try:
            if self._lock_folder:
                self._folder_lock = lock_data_folder(self._disk, self._data_dir)
        except OSError as error:
            raise Unavailable(f"the data folder {self._data_dir}: {explain(error)}") from error
        try:
            self.recover()
        except BaseException:
            self._release_folder()
            raise
        self._queue.put(self._report_owners)
        self._thread.start()
        if self._cleaner is not None:
            self._cleaner.start()

    def recover(self) -> None:
        """Bring back what journals have, in the locked folder, once; this waits for the disk, and `start` calls it too.

        Raises Damaged, and Unavailable if a person must act first.
        """
        if self._log == OFFSETS_TOPIC:  # the journal of another log's engine may be in use
            self._journal.start()

    def clean_by(self, cleaning: Cleaning) -> None:
        """Compact by other settings from now on; the engine compacts already, and has started."""
        assert self._cleaner is not None
        self._queue.put(partial(self._set_cleaning, cleaning))
        self._cleaner.set_backoff(cleaning.backoff_ms)

    def acquire(self, partition: int, done: Acquired) -> None:
        """See Engine."""
        assert 0 <= partition < self._partition_count
        assert self._owners[partition] == self._node_id
        self._queue.put(partial(self._acquire, partition, done))

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        self._queue.put(partial(self._loads.begin, own, page, done))

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        assert batches
        assert all(batches)
        self._queue.put(new(_Append, (own, batches, done)))

    def release(self, own: Ownership, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        self._queue.put(partial(self._release, own, done))

    def write_out(self, partitions: Iterable[int], done: Callable[[], object]) -> None:
        """Have the files contain all appends to these partitions that were reported; then call `done`, as others."""
        self._queue.put(partial(self._write_out, partitions, done))

    def close(self) -> None:
        """See Engine."""
        if self._cleaner is not None:
            self._cleaner.stop()
        if self._thread.ident is None:
            return  # it couldn't start, and has released what it had
        self._queue.put(self._close)
        self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                wait_s = self._journal.due_s()
                if wait_s == 0.0:
                    self._journal.work()
                    wait_s = self._journal.due_s()
                if self._loads.waiting:
                    self._loads.read_page()
                # Last, and with little behind it: the loop's thread wakes up for what this reports, and both threads
                # share Python's lock.
                self._work(self._take_calls(wait_s))
        except BaseException as error:
            self._report("engine_failed", partition=-1, error=repr(error))
            raise

    def _take_calls(self, wait_s: float | None) -> list[_Append | Callable[[], None]]:
        """Take all queued calls. If there are none and nothing else is to do, wait for one, at most that long."""
        try:
            calls = [self._queue.get(not self._loads.waiting, wait_s)]
        except Empty:  # nothing came in time
            return []
        while len(calls) < WINDOW_MAX and not self._queue.empty():
            calls.append(self._queue.get_nowait())
        return calls

    def _work(self, calls: list[_Append | Callable[[], None]]) -> None:
        window: dict[Owned, list[_Append]] = {}
        for call in calls:
            if isinstance(call, _Append):
                window.setdefault(call.own, []).append(call)
            else:
                if window:
                    self._write(window)
                window = {}
                call()
        if window:
            self._write(window)

    def _write(self, window: dict[Owned, list[_Append]]) -> None:
        if self._has_journal:
            window = self._write_journal(window)
            if not window:
                return
        items = window.items()
        for (own, appends), outcome in zip(items, self._append(items), strict=True):
            self._tell(own, appends, outcome)

    def _tell(self, own: Owned, appends: list[_Append], outcome: int | None) -> None:
        """Report the outcomes. outcome: as of `_append_to`."""
        durable = outcome or 0
        for append in appends:
            wanted = len(append.batches)
            if durable >= wanted:
                append.done(wanted, None)
                durable -= wanted
                continue
            if outcome is not None:
                self._availability.failed(own.partition, own.log.closed_because)
            append.done(durable, Unavailable(own.log.closed_because) if own.valid() else fenced(own))
            durable = 0

    def _append(self, items: ItemsView[Owned, list[_Append]]) -> Iterable[int | None]:
        """Return the result of `_append_to` for each item, in order. The first use creates the pool's threads."""
        if len(items) < 2 or self._syncs_max == 1:
            return map(_append_to, items)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._syncs_max, thread_name_prefix="log-sync")
        return self._pool.map(_append_to, items)

    def _write_journal(self, window: dict[Owned, list[_Append]]) -> dict[Owned, list[_Append]]:
        """Write appends to the journal and report them; return those that don't go through it."""
        others: dict[Owned, list[_Append]] = {}
        staged: list[tuple[Owned, list[_Append], Staged]] = []
        size, most = 0, self._journal.most
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

    def _write_staged(self, window: list[tuple[Owned, list[_Append], Staged]], size: int) -> dict[Owned, list[_Append]]:
        """Write a window to the journal, and report each append's outcome; return those that it can't take now.

        size: of the batches, with EXTENT_SIZE for each partition.
        """
        try:
            if not self._journal.make_room(window_size(size)):
                return {own: appends for own, appends, _ in window}
            extents = []
            for own, _, (segment, position, batches, _, _) in window:
                if not own.log.closed_because:
                    extent = own.partition, segment.base_offset, position, batches, False, None
                    extents.append(new(Extent, extent))
            if extents:
                self._journal.write(extents)
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

    def _set_cleaning(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning
        for own in self._owned.values():
            if own.upkeep is not None:
                own.upkeep.cleaning = cleaning

    def _acquire(self, partition: int, done: Acquired) -> None:
        former = self._owned.pop(partition, None)
        if former is not None:
            self._end(former)
        try:
            own = self._own(partition)
        except BlockingIOError:
            done(Unavailable(f"partition {partition} is owned by another process"))
        except OSError as error:
            done(Unavailable(explain(error)))
        else:
            self._owned[partition] = own
            self._on_ownership(partition, self._node_id, own.epoch)
            done(own)

    def _own(self, partition: int) -> Owned:
        """Lock the partition and give out the next epoch."""
        lock, epoch = lock_partition(self._disk, partition_lock(self._data_dir, partition, self._log))
        folder = partition_folder(self._data_dir, partition, self._log)
        cut = partial(self._report_cut, partition)
        before_read = partial(self._before_read, partition)
        log = PartitionLog(self._disk, folder, epoch, self._segment_size, cut, self._counts, before_read)
        upkeep = (
            Upkeep(self._disk, partition, folder, log, self._segment_size, self._cleaning) if self._cleaning else None
        )
        return Owned(partition, lock, log, upkeep)

    def _before_read(self, partition: int) -> None:
        if self._log == OFFSETS_TOPIC:
            self._journal.before_read(partition)

    def _release(self, own: Owned, done: Done) -> None:
        if own.valid():
            del self._owned[own.partition]
            self._end(own)
            self._on_ownership(own.partition, None, own.epoch)
        done(None)

    def _write_out(self, partitions: Iterable[int], done: Callable[[], object]) -> None:
        self._journal.write_out([self._owned[each] for each in partitions if each in self._owned])
        done()

    def _end(self, own: Owned) -> None:
        own.end()
        self._loads.end(own, fenced(own))
        self._journal.end(own)
        own.release_lock()

    def _close(self) -> None:
        for own in list(self._owned.values()):
            self._release(own, lambda _outcome: None)
        self._journal.close()
        self._release_folder()
        self._is_closing = True

    def _release_folder(self) -> None:
        if self._folder_lock is not None:
            with suppress(OSError):
                self._folder_lock.release()

    def _call_and_wait(self, call: Callable[[], object]) -> object:
        """Run `call` on the engine's thread, in the order of the queue, and wait; None if that thread has ended."""
        return call_on(self._thread, self._queue.put, call)

    def _report_owners(self) -> None:
        for partition, owner in enumerate(self._owners):
            self._on_ownership(partition, None if owner == self._node_id else owner, -1)

    def _report_epoch(self, own: Owned) -> None:
        """If a load has raised the epoch, note and report it."""
        if own.epoch != own.reported_epoch:
            own.reported_epoch = own.epoch
            with suppress(OSError):  # the next owner's load raises it too
                own.lock.note_number(own.epoch)
            self._on_ownership(own.partition, self._node_id, own.epoch)

    def _report_cut(self, partition: int, file: Path, position: int, size: int) -> None:
        self._report("tail_cut", partition=partition, file=str(file), position=position, size=size)


def _append_to(item: tuple[Owned, list[_Append]]) -> int | None:
    """Append to one partition's log; return the number of durable batches, None if the log takes no appends."""
    own, appends = item
    if own.log.closed_because:
        return None
    return own.log.append([records for append in appends for records in append.batches])
