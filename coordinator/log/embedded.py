"""The default engine: the log in files below a data folder, in Kafka's format (Engine in engine.py says what it does).

One thread takes all the calls, so no state in here is shared and no call waits for another in between:

    queue -> everything that is queued -> appends, per partition: one write, one fdatasync, then their callbacks
                                       -> other calls, in their place between the appends of their partition
          -> one page of a load that is under way -> back to the queue

While the disk syncs, further appends queue up and share the next sync: that is the whole of group commit, and under
little load nobody waits for company. Where several partitions have something, threads of a pool write and
sync at the same time, each one partition's log, and this one waits for them. Loads are read page by page between the
windows of appends, so that one large partition doesn't hold up the others.

Compaction (cleaner.py) has a thread that waits and a process that works; between the windows of appends this thread
looks at the partitions for it, and swaps in what it wrote, a file at a time.

Files: `__consumer_offsets-N/` (segment.py), created by the first append; `.lock` and `.lock-N` (lock.py).

Epochs: an owner's epoch is higher than the one noted in the partition's lock file, and so than that of any owner
before, appends or not. If that note is lost, as a crash of the machine may do, or the log comes from elsewhere, the
first load finds it out and raises the epoch above that of any batch, before anything is appended; an epoch whose owner
appended nothing may be given out once more then.

House rule: what the outside must know is reported by name and fields; no log lines are made in here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, ItemsView, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from coordinator.log.cleaner import Cleaner, Cleaning, Upkeep, Work, call_on
from coordinator.log.compaction import Compaction
from coordinator.log.counts import Counts
from coordinator.log.disk import Disk, reason
from coordinator.log.engine import (
    Acquired,
    Appended,
    Damaged,
    Done,
    EngineError,
    Fenced,
    OnOwnership,
    Ownership,
    Page,
    Unavailable,
)
from coordinator.log.lock import Lock, lock_data_folder
from coordinator.log.partition import EPOCH_MAX, PartitionLog
from coordinator.log.segment import partition_folder
from protocol.records.batch import Record

SEGMENT_SIZE = 4 * 1024 * 1024
"""Default of offsets.topic.segment.bytes here; Kafka's is 100 MiB (docs/decisions)."""

PROGRESS_INTERVAL_S = 5.0
"""How often a long load says how far it is."""

WINDOW_MAX = 4096
"""Calls that are taken from the queue at once: what is queued later doesn't make the first of them wait longer."""

SYNCS_MAX = 8
"""Threads that write: twice as many were hardly faster (docs/decisions/one-sync-per-partition.md)."""


class Report(Protocol):
    """Told, on the engine's thread, what a person should know: a name, and fields; `partition` is always one of them.

    tail_cut: a write that a crash had interrupted was removed, `size` bytes from `position` of `file`.
    partition_damaged: `file` at `position` breaks the rules as `reason` says; refused until a person has seen to it.
    partition_unavailable: the disk failed, `reason` says how. Once, until
    partition_available: it works again.
    compacted: a log that took `size_before` bytes takes `size_after`, but for what is active; it took `duration_s`.
    compaction_failed: `reason` says why not all of it was done; the rest only grows until it is tried again, later.
    load_progress: `percent` of the partition is read; every few seconds of a long load.
    transactions_open: `commits` of offsets in so many `transactions` without an end don't count, and never will unless
    their coordinator ends them: nobody here can.
    engine_failed: an `error` in the program ended the engine's thread (partition -1); nothing is written any more.
    """

    def __call__(self, name: str, /, **fields: object) -> None:
        """Take note."""


def _ignore(_name: str, /, **_fields: object) -> None:
    """Report nothing."""


class _Owned:
    """An ownership, and what its owner holds: the lock on the partition and the log."""

    __slots__ = ("_is_valid", "lock", "log", "partition", "told_epoch", "upkeep")

    def __init__(self, partition: int, lock: Lock, log: PartitionLog, upkeep: Upkeep | None) -> None:
        self.partition = partition
        self.told_epoch = log.epoch
        self.lock = lock
        self.log = log
        self.upkeep = upkeep
        self._is_valid = True

    @property
    def epoch(self) -> int:
        return self.log.epoch

    def valid(self) -> bool:
        return self._is_valid

    def end(self) -> None:
        self._is_valid = False
        self.log.close("it was given up")


class _Append(NamedTuple):
    own: _Owned
    batches: list[list[Record]]
    done: Appended


class _Load(NamedTuple):
    own: _Owned
    pages: Generator[list[Record]]
    page: Page
    done: Done


class EmbeddedEngine:
    """The engine over the files in `data_dir`, on behalf of the node `node_id`.

    segment_size: bytes after which a segment is followed by a new one.
    cleaning: how to compact; None: not at all.
    owners: the node that each partition belongs to, where there are several; this one acquires no others.
    syncs_max: partitions that are written to at the same time; 1: one after the other, on the engine's thread.
    lock_folder: off where a supervisor of several workers holds the lock of the data folder.
    counts: where appends and compactions are counted.
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
        report: Report = _ignore,
        disk: Disk | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._partition_count = partition_count
        self._node_id = node_id
        self._segment_size = segment_size
        self._cleaning = cleaning
        self._cleaner = (
            Cleaner(cleaning.backoff_ms, self._find_work, self._finish_work, self._on_thread) if cleaning else None
        )
        self._owners = owners or [node_id] * partition_count
        self._syncs_max = syncs_max
        self._lock_folder = lock_folder
        self._report = report
        self._disk = disk or Disk()
        self._counts = counts or Counts()
        self._queue: SimpleQueue[_Append | Callable[[], None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        # Below: touched by the engine's thread only, once it runs.
        self._on_ownership: OnOwnership = lambda _partition, _node_id, _epoch: None
        self._folder_lock: Lock | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._owned: dict[int, _Owned] = {}
        self._loads: deque[_Load] = deque()
        self._progress_due_s = 0.0
        self._unavailable: set[int] = set()
        self._dirty: list[_Owned] = []
        self._is_closing = False

    def start(self, on_ownership: OnOwnership) -> None:
        """See Engine. Raises DataFolderLocked, or Unavailable if the data folder can't be used."""
        self._on_ownership = on_ownership
        try:
            if self._lock_folder:
                self._folder_lock = lock_data_folder(self._disk, self._data_dir)
        except OSError as error:
            raise Unavailable(f"the data folder {self._data_dir}: {_reason(error)}") from error
        self._queue.put(self._tell_snapshot)
        self._thread.start()
        if self._cleaner is not None:
            self._cleaner.start()

    def acquire(self, partition: int, done: Acquired) -> None:
        """See Engine."""
        assert 0 <= partition < self._partition_count
        assert self._owners[partition] == self._node_id
        self._queue.put(partial(self._acquire, partition, done))

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, _Owned)
        self._queue.put(partial(self._begin_load, own, page, done))

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        """See Engine."""
        assert isinstance(own, _Owned)
        assert batches
        assert all(batches)
        self._queue.put(_Append(own, batches, done))

    def release(self, own: Ownership, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, _Owned)
        self._queue.put(partial(self._release, own, done))

    def close(self) -> None:
        """See Engine."""
        if self._cleaner is not None:
            self._cleaner.stop()
        self._queue.put(self._close)
        self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._work(self._take_calls())
                self._read_page()
        except BaseException as error:
            self._report("engine_failed", partition=-1, error=repr(error))
            raise

    def _take_calls(self) -> list[_Append | Callable[[], None]]:
        """Everything that is queued; waits for the first unless there is a load to go on with."""
        calls = []
        with suppress(Empty):
            calls.append(self._queue.get(block=not self._loads))
            while len(calls) < WINDOW_MAX:
                calls.append(self._queue.get_nowait())
        return calls

    def _work(self, calls: list[_Append | Callable[[], None]]) -> None:
        window: dict[_Owned, list[_Append]] = {}
        for call in calls:
            if isinstance(call, _Append):
                window.setdefault(call.own, []).append(call)
            else:
                self._write(window)
                window = {}
                call()
        self._write(window)

    def _write(self, window: dict[_Owned, list[_Append]]) -> None:
        items = window.items()
        for (own, appends), outcome in zip(items, self._append(items), strict=True):
            durable = outcome or 0
            for append in appends:
                wanted = len(append.batches)
                if durable >= wanted:
                    append.done(wanted, None)
                    durable -= wanted
                    continue
                if outcome is not None:
                    self._tell_unavailable(own.partition, own.log.closed_because)
                append.done(durable, Unavailable(own.log.closed_because) if own.valid() else _fenced(own))
                durable = 0

    def _append(self, items: ItemsView[_Owned, list[_Append]]) -> Iterable[int | None]:
        """What `_append_to` returns of each, in order; the threads of the pool are made when they are first needed."""
        if len(items) < 2 or self._syncs_max == 1:
            return map(_append_to, items)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._syncs_max, thread_name_prefix="log-sync")
        return self._pool.map(_append_to, items)

    def _read_page(self) -> None:
        """Go one page on with the load that was asked for first."""
        if not self._loads:
            return
        load = self._loads[0]
        outcome: EngineError | None = None
        try:
            records = next(load.pages, None)
        except Damaged as damage:
            outcome = damage
            self._report(
                "partition_damaged",
                partition=load.own.partition,
                file=damage.file,
                position=damage.position,
                reason=damage.reason,
            )
        except OSError as error:
            outcome = Unavailable(_reason(error))
            self._tell_unavailable(load.own.partition, _reason(error))
        else:
            if records is not None:
                if records:
                    load.page(records)
                self._tell_progress(load.own)
                return
            self._tell_available(load.own.partition)
            self._tell_epoch(load.own)
            self._tell_transactions(load.own)
        if outcome is not None:
            load.own.log.close(str(outcome))
        self._loads.popleft()
        load.done(outcome)

    def _acquire(self, partition: int, done: Acquired) -> None:
        former = self._owned.pop(partition, None)
        if former is not None:
            self._end(former)
        try:
            own = self._own(partition)
        except BlockingIOError:
            done(Unavailable(f"partition {partition} is owned by another process"))
        except OSError as error:
            done(Unavailable(_reason(error)))
        except Damaged as damage:
            done(damage)
        else:
            self._owned[partition] = own
            self._on_ownership(partition, self._node_id, own.epoch)
            done(own)

    def _own(self, partition: int) -> _Owned:
        """Lock the partition and give out the next epoch."""
        folder = partition_folder(self._data_dir, partition)
        path = self._data_dir / f".lock-{partition}"
        lock = Lock(self._disk, path)
        try:
            noted = lock.read_number()
            epoch = 0 if noted is None else noted + 1
            if epoch > EPOCH_MAX:
                raise Damaged(str(path), 0, f"epoch {EPOCH_MAX} was the last there is")
            lock.note_number(epoch)
        except BaseException:
            lock.release()
            raise
        cut = partial(self._tell_cut, partition)
        log = PartitionLog(self._disk, folder, epoch, self._segment_size, cut, self._counts)
        upkeep = (
            Upkeep(self._disk, partition, folder, log, self._segment_size, self._cleaning) if self._cleaning else None
        )
        return _Owned(partition, lock, log, upkeep)

    def _begin_load(self, own: _Owned, page: Page, done: Done) -> None:
        self._end_loads(own, Unavailable("it is loaded anew"))
        if not self._loads:
            self._progress_due_s = time.monotonic() + PROGRESS_INTERVAL_S
        if own.valid():
            own.log.close("it is being loaded")
            self._loads.append(_Load(own, own.log.read(), page, done))
        else:
            done(_fenced(own))

    def _end_loads(self, own: _Owned, outcome: EngineError) -> None:
        ended = [load for load in self._loads if load.own is own]
        self._loads = deque(load for load in self._loads if load.own is not own)
        for load in ended:
            load.pages.close()
            load.done(outcome)

    def _release(self, own: _Owned, done: Done) -> None:
        if own.valid():
            del self._owned[own.partition]
            self._end(own)
            self._on_ownership(own.partition, None, own.epoch)
        done(None)

    def _end(self, own: _Owned) -> None:
        own.end()
        self._end_loads(own, _fenced(own))
        with suppress(OSError):  # whatever close says, the system has let go of it
            own.lock.release()

    def _close(self) -> None:
        for own in list(self._owned.values()):
            self._release(own, lambda _outcome: None)
        if self._folder_lock is not None:
            with suppress(OSError):
                self._folder_lock.release()
        self._is_closing = True

    def _on_thread(self, call: Callable[[], object]) -> object:
        """Call on the engine's thread, in the queue's order, and wait for it; None if that thread has ended."""
        return call_on(self._thread, self._queue.put, call)

    def _find_work(self, *, is_new_round: bool) -> Work | None:
        """Return the compaction that is most worth doing.

        A round has all that it found at its beginning done, and looks at nothing else: appends wait for each look.
        """
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

    def _look(self, own: _Owned, now_ms: int, *, is_new_round: bool) -> Work | None:
        """What is to be compacted of a partition, if it is worth it."""
        if own.upkeep is None or not own.log.is_open() or self._owned.get(own.partition) is not own:
            return None
        try:
            work = own.upkeep.look(now_ms, is_new_round=is_new_round)
        except Exception as error:  # noqa: BLE001 - of the disk, or a mistake of ours
            self._report("compaction_failed", partition=own.partition, reason=_reason(error))
            return None
        if not own.log.is_open():
            self._tell_unavailable(own.partition, own.log.closed_because)
        return work

    def _finish_work(self, work: Work, compaction: Compaction | None, reason: str, duration_s: float) -> None:
        """Take note of how a compaction went."""
        assert isinstance(work.upkeep, Upkeep)
        partition = work.upkeep.partition
        try:
            if partition in self._owned:
                work.upkeep.finish(work, compaction)
        except Exception as error:  # noqa: BLE001 - of the disk, or a mistake of ours
            reason = _reason(error)
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

    def _tell_snapshot(self) -> None:
        for partition, owner in enumerate(self._owners):
            self._on_ownership(partition, None if owner == self._node_id else owner, -1)

    def _tell_cut(self, partition: int, file: Path, position: int, size: int) -> None:
        self._report("tail_cut", partition=partition, file=str(file), position=position, size=size)

    def _tell_progress(self, own: _Owned) -> None:
        now_s = time.monotonic()
        if now_s >= self._progress_due_s:
            self._progress_due_s = now_s + PROGRESS_INTERVAL_S
            self._report("load_progress", partition=own.partition, percent=int(own.log.progress * 100))

    def _tell_epoch(self, own: _Owned) -> None:
        """Note and tell the epoch if the load has raised it."""
        if own.epoch != own.told_epoch:
            own.told_epoch = own.epoch
            with suppress(OSError):  # the next owner's load finds it as well
                own.lock.note_number(own.epoch)
            self._on_ownership(own.partition, self._node_id, own.epoch)

    def _tell_transactions(self, own: _Owned) -> None:
        if own.log.open_transactions:
            self._report(
                "transactions_open",
                partition=own.partition,
                transactions=own.log.open_transactions,
                commits=own.log.waiting_commits,
            )

    def _tell_unavailable(self, partition: int, reason: str) -> None:
        if partition not in self._unavailable:
            self._unavailable.add(partition)
            self._report("partition_unavailable", partition=partition, reason=reason)

    def _tell_available(self, partition: int) -> None:
        if partition in self._unavailable:
            self._unavailable.remove(partition)
            self._report("partition_available", partition=partition)


def _append_to(item: tuple[_Owned, list[_Append]]) -> int | None:
    """Append to one partition's log; return how many of the batches are durable, None if it takes none."""
    own, appends = item
    if own.log.closed_because:
        return None
    return own.log.append([records for append in appends for records in append.batches])


def _fenced(own: _Owned) -> Fenced:
    return Fenced(f"the ownership of partition {own.partition} at epoch {own.epoch} is over")


def _reason(error: Exception) -> str:
    """What the system says; of a mistake of ours, what it is."""
    return reason(error) if isinstance(error, OSError) else repr(error)
