"""The default engine: the log in files below a data folder, in Kafka's format. See Engine for its promises.

A thread takes all calls (writer.py), so it shares no state with others. Several engines of one data folder, each with a
log of its own, may share that thread and its journal: one write and one fdatasync then serve all of them. The first
engine owns the thread; the others end before it.

Compaction (compaction/cleaner.py) uses a thread that waits and a process that works. Between the windows of appends the
engine's thread chooses partitions to compact, and swaps in the files that the process wrote, one at a time.

Files: `__consumer_offsets-N/` (segments/segment.py), created by the first append; `.lock-N` (segments/lock.py).

House rule: the engine reports facts for operators by name and fields (report.py); it writes no log lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from coordinator.log.advice import explain
from coordinator.log.compaction.cleaner import Cleaner, call_on
from coordinator.log.embedded.compactions import Compactions
from coordinator.log.embedded.journal import JOURNAL_SIZE, Journal
from coordinator.log.embedded.ownership import Owned, lock_partition
from coordinator.log.embedded.report import Availability, Report, ignore
from coordinator.log.embedded.upkeep import Cleaning, Upkeep
from coordinator.log.embedded.writer import SYNCS_MAX, Append, Writer
from coordinator.log.engine import Acquired, Appended, Done, Fenced, OnOwnership, Ownership, Page, Unavailable
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.journal import journal_number
from coordinator.log.segments.lock import partition_lock
from coordinator.log.segments.partition import PartitionLog
from coordinator.log.segments.segment import OFFSETS_TOPIC, partition_folder
from protocol.records.batch import Record
from protocol.speed import new

SEGMENT_SIZE = 4 * 1024 * 1024
"""Default of offsets.topic.segment.bytes here; Kafka's is 100 MiB (docs/start/differences.md)."""


class EmbeddedEngine:
    """The engine over the files in `data_dir`, which this process or its parent has locked, for the node `node_id`.

    segment_size: bytes after which a new segment begins.
    cleaning: how to compact; None: don't compact.
    owners: the node that owns each partition, if there are several nodes; this engine acquires only its own partitions.
    syncs_max: partitions that the engine writes at the same time; 1: one after the other, on the engine's thread.
    journal: write windows to a journal of `journal_size` bytes first. recovers_all: at the start, bring back what the
    journals of all nodes have, not only this node's: no other engine uses the folder.
    counts: counts the appends and compactions. log: whose partitions it serves. beside: the first engine of the folder,
    which has started; this one uses its thread and its journal, and has no options of these.
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
        journal: bool = False,
        journal_size: int = JOURNAL_SIZE,
        recovers_all: bool = True,
        report: Report = ignore,
        disk: Disk | None = None,
        counts: Counts | None = None,
        log: str = OFFSETS_TOPIC,
        beside: EmbeddedEngine | None = None,
    ) -> None:
        assert log == OFFSETS_TOPIC or not journal
        self._log = log
        self._data_dir = data_dir
        self._partition_count = partition_count
        self._node_id = node_id
        self._segment_size = segment_size
        self._cleaning = cleaning
        self._owners = owners or [node_id] * partition_count
        self._is_first = beside is None
        self._report = report
        self._disk = disk or Disk()
        self._counts = counts or Counts()
        if beside is None:
            made = Journal(
                self._disk,
                data_dir,
                node_id,
                journal_size,
                recovers_all=recovers_all,
                report=report,
                counts=self._counts,
            )
            self.writer = Writer(made, report, syncs_max, has_journal=journal)
        else:
            self.writer = beside.writer
        self._queue, self._journal, self._thread = self.writer.queue, self.writer.journal, self.writer.thread
        # After the start, only the engine's thread uses the attributes below.
        self._on_ownership: OnOwnership = lambda _partition, _node_id, _epoch: None
        self._owned: dict[int, Owned] = {}
        self._availability = Availability(report)
        self._cleaner: Cleaner | None = None
        if cleaning is not None:
            compactions = Compactions(self._owned, report, self._availability, self._counts)
            self._cleaner = Cleaner(cleaning.backoff_ms, compactions.find, compactions.finish, self._call_and_wait)

    def start(self, on_ownership: OnOwnership) -> None:
        """See Engine. Raises Damaged, and Unavailable if a person must act first (both: `recover`)."""
        self._on_ownership = on_ownership
        self.recover()
        self._queue.put(self._report_owners)
        if self._is_first:
            self._thread.start()
        if self._cleaner is not None:
            self._cleaner.start()

    def recover(self) -> None:
        """Bring back what journals have, in the locked folder, once; this waits for the disk, and `start` calls it too.

        Raises Damaged, and Unavailable if a person must act first.
        """
        if self._log == OFFSETS_TOPIC:  # an engine of another log has the journal of the first one, or none
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
        self._queue.put(partial(self.writer.loads.begin, own, page, done, self._report_epoch))

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        assert batches
        assert all(batches)
        self._queue.put(new(Append, (own, batches, done)))

    def release(self, own: Ownership, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        self._queue.put(partial(self._release, own, done))

    def write_out(self, partitions: Iterable[int], done: Callable[[], object]) -> None:
        """Have the files contain all appends to these partitions that were reported; then call `done`, as others.

        partitions: by their `journal_number`, of all engines that share the journal.
        """
        self._queue.put(partial(self._write_out, partitions, done))

    def close(self) -> None:
        """See Engine."""
        if self._cleaner is not None:
            self._cleaner.stop()
        if self._thread.ident is None:
            return  # it didn't start
        if self._is_first:
            self._queue.put(self._close)
            self.writer.join()
        else:
            self._call_and_wait(self._release_all)

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
            self._owned[partition] = self._journal.owned[own.number] = own
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
        number = journal_number(partition, self._log)
        return Owned(partition, number, lock, log, upkeep, self._availability)

    def _before_read(self, partition: int) -> None:
        if self._log == OFFSETS_TOPIC or not self._is_first:
            self._journal.before_read(journal_number(partition, self._log))

    def _release(self, own: Owned, done: Done) -> None:
        if own.valid():
            del self._owned[own.partition]
            self._end(own)
            self._on_ownership(own.partition, None, own.epoch)
        done(None)

    def _write_out(self, partitions: Iterable[int], done: Callable[[], object]) -> None:
        owned = self._journal.owned
        self._journal.write_out([owned[each] for each in partitions if each in owned])
        done()

    def _end(self, own: Owned) -> None:
        del self._journal.owned[own.number]
        own.end()
        self.writer.loads.end(own, Fenced.of(own))
        self._journal.end(own)
        own.release_lock()

    def _release_all(self) -> None:
        for own in list(self._owned.values()):
            self._release(own, lambda _outcome: None)

    def _close(self) -> None:
        self._release_all()
        assert not self._journal.owned
        self._journal.close()
        self.writer.is_closing = True

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
