"""The writer of the journal (segments/journal.py): one write and one fdatasync for the appends of many partitions.

The steps of an append, and where it is durable:

    write        the window is durable in the journal: its appends may be reported
    then         the partitions' logs write the same bytes to their segments; nobody waits for that
    checkpoint   a thread syncs the segments; windows from before its start are not needed any more

The logs write up to 50 ms later, because one write then serves many windows.

A checkpoint runs when a file is full and the other one takes over, and SYNC_S after the first append that isn't synced.
Its steps: the logs write, on the engine's thread; the thread syncs each segment; the engine's thread takes the results.
From then on each window says that the former ones aren't needed. Only when such a window is durable may the other file
be written from its front: before the switch an empty window, of the page that each file keeps free, says it if no other
did. A crash between any two of these steps leaves windows that are needed, or windows whose redo changes nothing.

If the full file waits for the checkpoint, or for the other file to be made, the window does as well
(`Counts.journal_waits`).

Failures:

- The journal's write or fdatasync: no page of it is believed. The window's appends fail. The next window, or load,
  first makes durable in the segments what was acknowledged (`settle`), and removes the files. Then it makes new ones.
- A file can't be made, as the disk is full: appends go to their segments, each with an fdatasync, for RETRY_S or more.
- A partition's segment: its log closes, and writes the bytes again (partition.py). If that fails as well, a file beside
  the journal gets them (`leave`), and the partition's next load takes them from there. The others don't notice.
- If neither works, the journal stays as it is, and no partition takes appends until it does.

House rule: all of this runs on the engine's thread, except the fdatasyncs of a checkpoint and the making of a file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple, TypeVar

from coordinator.log.advice import explain
from coordinator.log.embedded.ownership import Owned
from coordinator.log.embedded.report import Report
from coordinator.log.engine import Damaged, Unavailable
from coordinator.log.files import needs_a_person
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk, open_anew, reason, write_all
from coordinator.log.segments.journal import (
    PAGE_SIZE,
    WINDOWS_AT,
    Extent,
    discard,
    discard_unfinished,
    encode_window,
    file_head,
    journal_path,
    leave,
    most_bytes,
    recover,
    redo_left,
)
from coordinator.log.segments.partition import Syncing

JOURNAL_SIZE = 16 * 1024 * 1024
"""Bytes of both files together. A file of 8 MiB takes the commits of about a second of the busiest server, and 2,000
windows of a quiet one. Memory holds what a checkpoint hasn't synced yet: at most as much."""

JOURNAL_SIZE_MIN = 64 * 1024
"""The smallest size that makes sense: a few windows in each file."""

FIRST_SIZE = 1024 * 1024
"""The first file begins with so many bytes: zeros take their time, and most servers in tests never need more."""

WRITE_S = 0.05
"""So long the logs collect bytes before they write them to their segments: one write for many windows."""

RETRY_S = 10.0
"""So long after a file couldn't be made no other try is made: it may write megabytes until the disk is full."""

SYNC_S = 10.0
"""So long after an append its segment is synced, at the latest: it bounds what a recovery has to do."""

_ZEROS = bytes(256 * 1024)
_T = TypeVar("_T")


class _File:
    """One of the two files. at: where its next window begins. last: the sequence number of its last window."""

    def __init__(self, path: Path, descriptor: int, salt: bytes, size: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.salt = salt
        self.size = size
        self.at = WINDOWS_AT
        self.last = 0


class _Synced(NamedTuple):
    """A checkpoint of windows up to `sequence`."""

    sequence: int
    logs: list[tuple[Owned, Syncing]]


class Journal:
    """The journal of node `node_id`; see the module. size: bytes of both files together.

    recovers_all: bring back the journals of all nodes at the start, not only this node's.
    owned: the partitions that engines own, by their `journal_number`. wake: queues a call for the engines' thread.
    most: bytes of the extents of a window at most, each with EXTENT_SIZE.
    """

    def __init__(
        self,
        disk: Disk,
        data_dir: Path,
        node_id: int,
        size: int,
        *,
        recovers_all: bool,
        report: Report,
        counts: Counts,
    ) -> None:
        assert size >= JOURNAL_SIZE_MIN
        self._disk = disk
        self._data_dir = data_dir
        self._node_id = node_id
        self._file_size = size // 2 // PAGE_SIZE * PAGE_SIZE
        self.most = most_bytes(self.window_max)
        self._recovers = None if recovers_all else node_id
        self.owned: dict[int, Owned] = {}
        self.wake: Callable[[Callable[[], None]], None] = lambda _call: None  # no thread has this journal yet
        self._report = report
        self._counts = counts
        self._files: list[_File | None] = [None, None]
        self._current = 0
        self._sequence = 0
        self._needed = 1
        self._needed_durable = 1
        self._checkpoint: Future[_Synced] | None = None
        self._making: Future[_File] | None = None
        # Released partitions whose bytes neither the segment nor another file could take.
        self._orphans: list[Owned] = []
        # Partitions for which such a file was begun, and couldn't be finished.
        self._unfinished: set[int] = set()
        self._must_recover = True
        self._has_failed = False
        self._retry_s = 0.0
        self._write_due_s = 0.0
        self._sync_due_s = 0.0

    # Start and end.

    def start(self) -> None:
        """Bring back what a former engine has left, once. Raises Damaged, Unavailable: nothing may be loaded then."""
        if not self._must_recover:
            return
        try:
            self._recover()
        except OSError as error:
            if needs_a_person(error):
                raise Unavailable(explain(error)) from error
            # Else the disk fails: each load tries again.

    def before_read(self, number: int) -> None:
        """Called before a partition's log is read: nothing else has bytes for it then. Raises Damaged, OSError.

        number: its `journal_number`.
        """
        if self._must_recover:
            self._recover()
        if self._has_failed:
            self.settle()
        redo_left(self._disk, self._data_dir, number)

    def _recover(self) -> None:
        for done in recover(self._disk, self._data_dir, self._recovers):
            for name, fields in done.events():
                self._report(name, partition=-1, **fields)
        self._must_recover = False

    def close(self) -> None:
        """Leave an empty journal, which is none, if all partitions could be given up in order."""
        try:
            if not self._must_recover and (self._has_failed or any(self._files)):
                self.settle()
        except OSError:
            self._close_files()

    # Appends.

    @property
    def window_max(self) -> int:
        """The largest window that a file takes."""
        return self._file_size - WINDOWS_AT - PAGE_SIZE

    def make_room(self, size: int) -> bool:
        """See to it that a window of `size` bytes, at most window_max, can be written. Raises OSError.

        False: no file for it can be made now. The appends may go to their segments: no file has anything that was
        refused. Logs may be closed by this: it takes what became of their segments.
        """
        if self._must_recover:
            raise OSError(0, "the journal of the last run isn't recovered yet")
        if self._has_failed:
            self.settle()
        file = self._files[self._current]
        if file is not None and file.at + size + PAGE_SIZE <= file.size:  # an empty window fits behind it
            if file.at > file.size // 2 and self._making is None and self._may_make() and not self._must_wait():
                self._begin_making()
            return True
        if self._must_wait():
            return False
        try:
            if file is None:
                self._files[self._current] = self._make(self._current, max(FIRST_SIZE, WINDOWS_AT + size + PAGE_SIZE))
            else:
                self._switch(file)
        except OSError as error:
            if self._has_failed:
                raise
            self._retry_s = time.monotonic() + RETRY_S
            self._report("journal_left_out", partition=-1, reason=reason(error))
            return False
        return True

    def _must_wait(self) -> bool:
        """Whether it is too early to try once more to make a file."""
        return time.monotonic() < self._retry_s

    def write(self, extents: Sequence[Extent]) -> None:
        """Make a window durable for which there is room. Raises OSError: then nothing of it counts."""
        file = self._files[self._current]
        assert file is not None
        began = time.perf_counter()
        try:
            written = self._write_window(file, extents)
        except OSError:
            self._has_failed = True
            raise
        size = 0
        for extent in extents:
            size += sum(map(len, extent.data))
        ended = time.perf_counter()
        self._counts.appended(size, ended - began, ended - written)
        now_s = time.monotonic()
        self._write_due_s = self._write_due_s or now_s + WRITE_S
        self._sync_due_s = self._sync_due_s or now_s + SYNC_S

    def _write_window(self, file: _File, extents: Sequence[Extent]) -> float:
        sequence, needed = self._sequence + 1, self._needed
        parts, size = encode_window(file.salt, sequence, needed, extents)
        write_all(self._disk, file.descriptor, parts, file.at)
        written = time.perf_counter()
        self._disk.fdatasync(file.descriptor)
        file.at += size
        file.last = self._sequence = sequence
        self._needed_durable = needed
        return written

    @property
    def _other(self) -> int:
        return 1 - self._current

    def _may_make(self) -> bool:
        """Whether the other file is missing or small, and no window in it is needed."""
        other = self._files[self._other]
        return other is None or (other.size < self._file_size and other.last < self._needed_durable)

    def _switch(self, file: _File) -> None:
        """Let the other file take over from a full one, and begin a checkpoint. Raises OSError."""
        began, waits = time.perf_counter(), False
        other = self._files[self._other]
        while other is not None and other.last >= self._needed:
            if self._checkpoint is None:
                self._begin_checkpoint()
            waits = True
            self._end_checkpoint()
        if other is not None and other.last >= self._needed_durable:
            try:
                self._write_window(file, [])
            except OSError:
                self._has_failed = True
                raise
        if self._may_make():
            if self._making is None or (self._making.done() and self._making.exception() is not None):
                self._begin_making()  # what failed before may succeed now
            assert self._making is not None
            making, self._making = self._making, None
            waits |= not making.done()
            made = making.result()
            if other is not None:
                with suppress(OSError):  # nothing in it is needed
                    self._disk.close(other.descriptor)
            self._files[self._other] = other = made
        assert other is not None
        if waits:
            self._counts.journal_waits.add(time.perf_counter() - began)
        other.at = WINDOWS_AT
        self._current = self._other
        if self._checkpoint is None:
            self._begin_checkpoint()

    def _begin_making(self) -> None:
        number = self._other
        self._making = _on_a_thread(lambda: self._make(number, self._file_size))

    def _make(self, number: int, size: int) -> _File:
        """Make a file of zeros, durably, in place of the one of that number. Raises OSError.

        A file whose blocks are there and whose size stays is synced without a change of the file system's own data.
        """
        size = min(size, self._file_size)
        path = journal_path(self._data_dir, self._node_id, number)
        new_path = path.with_name(f"{path.name}.new")
        salt = os.urandom(16)
        descriptor = open_anew(self._disk, new_path)
        try:
            write_all(self._disk, descriptor, [file_head(salt, size)], 0)
            for position in range(PAGE_SIZE, size, len(_ZEROS)):
                write_all(self._disk, descriptor, [_ZEROS[: size - position]], position)
            self._disk.fdatasync(descriptor)
            self._disk.rename(new_path, path)
            self._disk.sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                self._disk.close(descriptor)
            with suppress(OSError):
                self._disk.remove(new_path)
            raise
        return _File(path, descriptor, salt, size)

    # From the journal into the segments.

    def due_s(self) -> float | None:
        """Seconds until `work` has something to do, None if it hasn't."""
        waits = self._has_failed or self._checkpoint is not None  # the next window, or the checkpoint's end, goes on
        due_s = self._write_due_s
        if self._sync_due_s and not waits and not 0.0 < due_s < self._sync_due_s:
            due_s = self._sync_due_s
        return max(0.0, due_s - time.monotonic()) if due_s else None

    def work(self) -> None:
        """Do what is due."""
        now_s = time.monotonic()
        if 0 < self._write_due_s <= now_s:
            self._write_due_s = 0.0
            self.write_out(self.owned.values())
        if self._sync_due_s and now_s >= self._sync_due_s and self._checkpoint is None and not self._has_failed:
            self._begin_checkpoint()

    def write_out(self, owned: Iterable[Owned]) -> None:
        """Have the segments of these partitions contain all that was reported, whether the disk has it or not."""
        for own in owned:
            if own.log.unwritten and own.log.is_open():
                own.log.write_journaled()
                self._note_closed(own)

    def _behind(self) -> list[Owned]:
        """The partitions whose open logs have something that their segments lack."""
        return [own for own in self.owned.values() if own.log.is_behind and own.log.is_open()]

    def _note_closed(self, own: Owned) -> None:
        if not own.log.is_open():
            own.availability.failed(own.partition, own.log.closed_because)

    def _begin_checkpoint(self) -> None:
        logs = []
        for own in self._behind():
            syncing = own.log.begin_sync()
            self._note_closed(own)
            if syncing is not None:
                logs.append((own, syncing))
        self._write_due_s = self._sync_due_s = 0.0
        checkpoint = _Synced(self._sequence, logs)
        self._checkpoint = _on_a_thread(lambda: self._sync(checkpoint))
        self._checkpoint.add_done_callback(lambda _: self.wake(self._checkpoint_ended))

    def _sync(self, checkpoint: _Synced) -> _Synced:
        """Sync the segments; on a thread of its own. Each gets a result, as its log may wait for it."""
        for _, syncing in checkpoint.logs:
            try:
                syncing.error.set_result(self._sync_one(syncing.segment.path))
            except BaseException as error:  # noqa: BLE001 - who waits gets it
                syncing.error.set_exception(error)
        return checkpoint

    def _sync_one(self, path: Path) -> OSError | None:
        """Sync a segment; return the error of the disk."""
        try:
            descriptor = self._disk.open(path)
            try:
                self._disk.fdatasync(descriptor)
            finally:
                with suppress(OSError):  # the sync decided
                    self._disk.close(descriptor)
        except OSError as error:
            return error
        return None

    def _checkpoint_ended(self) -> None:
        """Take the results of a checkpoint, unless a window that waited for it has done so."""
        if self._checkpoint is None or not self._checkpoint.done():
            return
        with suppress(OSError):  # the next window tries again, and fails with the error
            self._end_checkpoint()
            other = self._files[self._other]
            if other is not None and other.last >= self._needed:  # it had begun before the other file was full
                self._begin_checkpoint()

    def _end_checkpoint(self) -> None:
        """Wait for the checkpoint; its windows aren't needed any more. Raises OSError: they are."""
        sequence = self._take_results()
        try:
            for own in [*self.owned.values(), *self._orphans]:
                if not own.log.is_open():
                    self._secure(own)
        except OSError:
            self._has_failed = True
            raise
        self._orphans.clear()
        self._needed = max(self._needed, sequence + 1)

    def _take_results(self) -> int:
        """Wait for the checkpoint, and tell the logs; return the last sequence number that it covers."""
        assert self._checkpoint is not None
        checkpoint, self._checkpoint = self._checkpoint, None
        sequence, logs = checkpoint.result()
        for own, syncing in logs:
            was_open = own.log.is_open()
            own.log.synced(syncing)
            if was_open:
                self._note_closed(own)
        return sequence

    def _secure(self, own: Owned) -> None:
        """Make a partition's appends durable without the journal: in its segment, or in a file of its own.

        Raises OSError: neither can be written.
        """
        try:
            own.log.sync()
        except (OSError, Damaged) as error:
            own.availability.failed(own.partition, reason(error))
            segment, position, data = own.log.behind()
            extent = Extent(own.number, segment.base_offset, position, [data])
            self._unfinished.add(own.number)
            leave(self._disk, self._data_dir, own.number, [extent])
            self._unfinished.remove(own.number)
            own.log.forget_behind()

    def end(self, own: Owned) -> None:
        """A partition is given up: its next owner must find all of it without this journal."""
        try:
            self._secure(own)
        except OSError:
            self._has_failed = True
            self._orphans.append(own)

    def settle(self) -> None:
        """Make all that was acknowledged durable without the journal, and remove its files. Raises OSError."""
        self._has_failed = True
        if self._checkpoint is not None:
            self._take_results()
        if self._making is not None:
            making, self._making = self._making, None
            with suppress(OSError):  # its file is removed below, or wasn't made
                self._disk.close(making.result().descriptor)
        for own in [*self.owned.values(), *self._orphans]:
            self._secure(own)
        self._orphans.clear()
        if self._unfinished:
            discard_unfinished(self._disk, self._data_dir, self._unfinished)
            self._unfinished.clear()
        self._close_files()
        newest = journal_path(self._data_dir, self._node_id, self._current)
        older = journal_path(self._data_dir, self._node_id, self._other)
        discard(self._disk, [path for path in (newest, older) if path.exists()])
        self._disk.sync_folder(self._data_dir)  # a former try may have removed one, and not synced that
        self._write_due_s = self._sync_due_s = 0.0
        self._current, self._sequence, self._needed, self._needed_durable = 0, 0, 1, 1
        self._has_failed = False

    def _close_files(self) -> None:
        for file in self._files:
            if file is not None:
                with suppress(OSError):  # nothing is read from it
                    self._disk.close(file.descriptor)
        self._files = [None, None]


def _on_a_thread(call: Callable[[], _T]) -> Future[_T]:
    """Run `call` on a thread that doesn't keep the process from ending; return its future result."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - who waits gets it
            future.set_exception(error)

    Thread(target=run, name="log-checkpoint", daemon=True).start()
    return future
