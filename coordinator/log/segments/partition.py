"""The log of one partition, as its owner holds it: reading it, appending to it, and handling failures of the disk.

A log is closed until `read` has read all of it. The first call of the system that fails in an append closes it again.
While it is open, this rule holds: an append is durable when the system has taken the bytes of its batch and a later
fdatasync of that file has succeeded. A file's name is durable before its first byte is written.

**After a failed write** the file may contain nothing, a part or all of the batches. The log gives all of them up: it
cuts the file back to its durable size at once. If the cut fails too, the next `read` repeats it, and reads only after
it has succeeded.

**After a failed fdatasync** Linux reports the failed write-back once and then takes the pages for clean, although the
disk never got them. The next fdatasync succeeds without writing them. So the log never trusts an fdatasync for bytes
for which an earlier one has failed:

- The cut removes the bytes of the failed append. Later appends make their pages dirty anew.
- The last durable block may share a page with these bytes. It is written again, in place, before the fdatasync of the
  cut.
- The fdatasync at the end of `read` may fail, with bytes of a killed process in the file that are perhaps not on the
  disk yet. Then the next `read` first writes the whole newest segment again, in place.

**With a journal** (journal.py) the journal makes an append durable in place of the segment's fdatasync. `stage` makes
the bytes, and `journaled` takes them as appended once the journal has them. The segment's file gets them later
(`write_journaled`), and a later fdatasync makes them durable there (`sync`). Until then the log keeps them in memory:
if the segment fails, they are written again, behind what is durable in the segment. A segment is synced before the next
one begins. An append that begins a segment doesn't go through the journal, and syncs what came before it.

Without a journal, one case isn't covered: a process is killed between a failed fdatasync and the cut. The next process
sees whole batches in the cache and can't know that the disk lacks them. A power cut may then lose appends that were
refused first and were read back later.

House rule: if a method raises in its middle, the next `read` finds a state that it can mend.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coordinator.config import INT32_MAX, INT64_MAX
from coordinator.log.engine import Damaged
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk, write_all
from coordinator.log.segments.recovery import LogReader
from coordinator.log.segments.segment import CHUNK_SIZE, SEGMENT_OFFSETS_MAX, Segment, segment_at
from coordinator.log.segments.swap import recover_swaps
from coordinator.log.segments.tail import Cut, Durable
from protocol.records.batch import Record, encode_batch
from protocol.speed import new

EPOCH_MAX = INT32_MAX
"""The last epoch. An owner behind it has the same one."""

OFFSET_ROOM = 2**48
"""A log takes appends if so many offsets are left: more than it gets until it is read again."""

_BLOCK_SIZE = 4096
"""At least the size of a page and of a block of the file system, where both are what they nearly always are."""


class Staged(NamedTuple):
    """Batches for the journal, in bytes, to stand at `position` of the newest segment. next_offset: behind them."""

    segment: Segment
    position: int
    batches: list[bytes]
    size: int
    next_offset: int


class Syncing(NamedTuple):
    """An fdatasync of a segment on another thread, which makes so many batches durable there. error: its result."""

    segment: Segment
    batches: int
    error: Future[OSError | None]


def check_room(segment: Segment, size: int, next_offset: int) -> None:
    """Raise Damaged if there are hardly any offsets behind the `size` bytes of the newest segment."""
    if next_offset > INT64_MAX - OFFSET_ROOM:
        raise Damaged(str(segment.path), size, f"the next offset {next_offset} leaves no room: {INT64_MAX} is the last")


class PartitionLog:
    """The log in `folder`, written with `epoch`, in segments of up to `segment_size` bytes.

    epoch: what was asked for, or, once `read` has found that a batch has that one already or a higher one, the next.
    next_offset: of the record to be appended next, in an open log.
    closed_because: why appends aren't taken, "" while they are. reads: how often `read` was begun.
    progress: of a `read` that is under way, from 0 to 1. open_transactions, waiting_commits: what the last one found,
    transactions without an end and the records in there that don't count yet. counts: where appends are counted.
    before_read: called before the files are read; raises as `read` does.
    unwritten: batches that only the journal makes durable, and that the segment's file lacks.
    """

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        epoch: int,
        segment_size: int,
        cut: Cut,
        counts: Counts | None = None,
        before_read: Callable[[], None] = lambda: None,
    ) -> None:
        self.closed_because = "not loaded"
        self.progress = 0.0
        self.open_transactions = 0
        self.waiting_commits = 0
        self.reads = 0
        self.epoch = epoch
        self._may_have_appended = False
        self._disk = disk
        self._folder = folder
        self._segment_size = segment_size
        self._cut = cut
        self._counts = counts or Counts()
        self.next_offset = 0
        self._descriptor: int | None = None
        # The newest segment, and what of it is durable; None before the first read, and in a log without segments.
        self._durable: Durable | None = None
        self._must_mend = False
        self._must_rewrite = False
        self._before_read = before_read
        # All batches that only the journal makes durable.
        self._unsynced: list[bytes] = []
        self.unwritten: list[bytes] = []
        self._syncing: Syncing | None = None

    def is_open(self) -> bool:
        """Whether appends are taken."""
        return not self.closed_because

    @property
    def size(self) -> int:
        """Bytes of the newest segment, all durable there or in the journal, in an open log."""
        return self._durable.size if self._durable else 0

    @property
    def is_behind(self) -> bool:
        """Whether only the journal makes the last appends durable."""
        return bool(self._unsynced)

    def read(self) -> Generator[list[Record]]:
        """Yield pages of records, oldest first; after the last page all of them are durable and the log is open.

        Records of open transactions come last, each as a `Batch` with its producer's id.

        Raises Damaged, or OSError: the log stays closed then, and the caller notes the reason (`close`).
        """
        self.close("it is being loaded")
        self.reads += 1
        recover_swaps(self._disk, self._folder)
        if self._must_mend or self._unsynced:
            self._mend()
        self._before_read()
        reader = LogReader(self._disk, self._folder, self._durable, self._cut)
        for page in reader.pages():
            self.progress = reader.progress
            yield page
        yield from reader.transactions.open()
        self.open_transactions = reader.transactions.open_count
        self.waiting_commits = reader.transactions.waiting_count
        if not self._may_have_appended and reader.epoch >= self.epoch:
            self.epoch = min(reader.epoch + 1, EPOCH_MAX)
        if reader.segment is not None:
            check_room(reader.segment, reader.size, reader.next_offset)
            self._make_durable(reader.segment, reader.size)
        self.next_offset = reader.next_offset
        self._may_have_appended = True
        self.closed_because = ""

    def append(self, appends: Sequence[list[Record]]) -> int:
        """Write each list of records as a batch; return how many of them, from the first, are durable.

        If not all are, the log is closed.
        """
        assert not self.closed_because
        durable = 0
        batches: list[bytes] = []
        size = self._durable.size if self._durable else 0
        next_offset = self.next_offset
        try:
            for number, records in enumerate(appends):
                batch = encode_batch(records, next_offset, self.epoch)
                if self._is_full(size, len(batch), next_offset + len(records)):
                    self._flush(batches, next_offset)
                    durable, batches, size = number, [], 0
                    self._begin_segment(next_offset)
                batches.append(batch)
                size += len(batch)
                next_offset += len(records)
            self._flush(batches, next_offset)
        except OSError as error:
            self._fail(error)
            return durable
        return len(appends)

    def stage(self, appends: Sequence[list[Record]]) -> Staged | None:
        """Encode each list of records as a batch for the journal; None if they need a new segment (`append`)."""
        assert not self.closed_because
        if self._durable is None:
            return None
        segment, position = self._durable
        batches: list[bytes] = []
        size, next_offset = position, self.next_offset
        for records in appends:
            batch = encode_batch(records, next_offset, self.epoch)
            next_offset += len(records)
            if self._is_full(size, len(batch), next_offset):
                return None
            batches.append(batch)
            size += len(batch)
        return new(Staged, (segment, position, batches, size - position, next_offset))

    def journaled(self, staged: Staged) -> None:
        """The journal has made durable what was staged last."""
        assert self._durable == (staged.segment, staged.position)
        self._durable = new(Durable, (staged.segment, staged.position + staged.size))
        self.next_offset = staged.next_offset
        self._unsynced += staged.batches
        self.unwritten += staged.batches

    def refuse(self, error: OSError) -> None:
        """The journal couldn't take what was staged: the log is closed, and none of it is in its files."""
        self._counts.failed()
        self.close(error.strerror or str(error))

    def write_journaled(self) -> None:
        """Hand the system what only the journal has; if that fails, the log is closed."""
        assert not self.closed_because
        if self.unwritten:
            try:
                self._write([])
            except OSError as error:
                self._fail(error)

    def begin_sync(self) -> Syncing | None:
        """Let the caller sync the segment on another thread, then call `synced`; None if the log is closed by this."""
        self.write_journaled()
        if not self.is_open():
            return None
        assert self._durable is not None
        assert self._syncing is None
        self._syncing = Syncing(self._durable.segment, len(self._unsynced), Future())
        return self._syncing

    def synced(self, syncing: Syncing) -> None:
        """Take the result of an fdatasync that has ended, unless the log has waited for it."""
        if self._syncing is syncing:
            error = self._end_sync()
            if error is not None:
                self._fail(error)

    def sync(self) -> None:
        """Make durable in the segment what only the journal has. Raises Damaged, OSError; the log is closed then."""
        if self._unsynced and self.is_open():
            try:
                self._flush([], self.next_offset)
            except OSError as error:
                self._fail(error)
        if self._unsynced:
            self._mend()

    def behind(self) -> tuple[Segment, int, bytes]:
        """The bytes that are durable in the journal alone: their segment, their position there, and the bytes."""
        assert self._durable is not None
        data = b"".join(self._unsynced)
        return self._durable.segment, self._durable.size - len(data), data

    def forget_behind(self) -> None:
        """Forget what `behind` has returned: somebody else keeps it for the next read. The log is closed."""
        assert not self.is_open()
        segment, size, _ = self.behind()
        self._durable = Durable(segment, size)
        self._unsynced, self.unwritten = [], []
        self._must_mend = True

    def roll(self) -> None:
        """Begin a new segment behind one that isn't empty, so that this one may be compacted; or the log is closed."""
        assert not self.closed_because
        assert self.size
        try:
            self._begin_segment(self.next_offset)
        except OSError as error:
            self._fail(error)

    def close(self, because: str) -> None:
        """Take no more appends; what was appended is durable, in the segment or in the journal."""
        self.closed_because = because
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):  # all bytes that count are durable
                self._disk.close(descriptor)

    def _is_full(self, size: int, batch_size: int, next_offset: int) -> bool:
        """Whether a batch needs a new segment; one that is too large for any gets one of its own."""
        if self._descriptor is None or self._durable is None:
            return True
        if next_offset > self._durable.segment.base_offset + SEGMENT_OFFSETS_MAX:
            return True
        return 0 < size > self._segment_size - batch_size

    def _flush(self, batches: list[bytes], next_offset: int) -> None:
        """Make `batches` durable at the end of the newest segment, and what only the journal has."""
        if self._syncing is not None:
            error = self._end_sync()
            if error is not None:
                raise error
        if not batches and not self._unsynced:
            return
        assert self._durable is not None
        assert self._descriptor is not None
        segment, size = self._durable
        began = time.perf_counter()
        self._write(batches)
        written = time.perf_counter()
        self._disk.fdatasync(self._descriptor)
        ended = time.perf_counter()
        self._unsynced = []
        appended = sum(map(len, batches))
        self._durable = Durable(segment, size + appended)
        if batches:
            self._counts.appended(appended, ended - began, ended - written)
        self.next_offset = next_offset

    def _write(self, batches: list[bytes]) -> None:
        """Write to the segment what it wasn't handed yet, and `batches` behind it."""
        assert self._durable is not None
        assert self._descriptor is not None
        position = self._durable.size - sum(map(len, self.unwritten))
        write_all(self._disk, self._descriptor, [*self.unwritten, *batches], position)
        self.unwritten = []

    def _end_sync(self) -> OSError | None:
        """Wait for the fdatasync under way, and return its error: no other one would report it again."""
        assert self._syncing is not None
        syncing, self._syncing = self._syncing, None
        error = syncing.error.result()
        if error is None:
            del self._unsynced[: syncing.batches]
        return error

    def _begin_segment(self, base_offset: int) -> None:
        """Create an empty segment, durably, and write to it from now on. All before it is made durable first."""
        self._flush([], self.next_offset)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._disk.close(descriptor)
        self._durable = Durable(segment_at(self._folder, base_offset), 0)
        self._disk.make_folder(self._folder)
        self._descriptor = self._disk.open(self._durable.segment.path, create=True)
        self._disk.sync_folder(self._folder)
        self._disk.sync_folder(self._folder.parent)

    def _make_durable(self, segment: Segment, size: int) -> None:
        """Open `segment`, the newest, and make what was read from it durable: its writer may have been killed."""
        self._descriptor = self._disk.open(segment.path)
        if self._must_rewrite:
            for position in range(0, size, CHUNK_SIZE):
                chunk = self._disk.read(self._descriptor, min(CHUNK_SIZE, size - position), position)
                write_all(self._disk, self._descriptor, [chunk], position)
        self._must_rewrite = True
        self._disk.fdatasync(self._descriptor)
        self._must_rewrite = False
        self._disk.sync_folder(self._folder)
        self._disk.sync_folder(self._folder.parent)
        self._durable = Durable(segment, size)

    def _fail(self, error: OSError) -> None:
        self._counts.failed()
        self.close(error.strerror or str(error))
        self._must_mend = True
        with suppress(OSError, Damaged):  # the next read mends it again, and raises the error
            self._mend()

    def _mend(self) -> None:
        """Cut the newest segment back to what is durable in it, and make durable behind it what the journal has.

        The block where the former ends is made durable once more.
        """
        assert self._durable is not None
        segment, size = self._durable
        if self._syncing is not None:
            self._end_sync()
        size -= sum(map(len, self._unsynced))
        try:
            descriptor = self._disk.open(segment.path)
        except FileNotFoundError:
            if size or self._unsynced:
                raise Damaged(str(segment.path), 0, f"the file is gone, {size} bytes were durable") from None
            self._must_mend = False  # it was the creation of the file that failed
            return
        try:
            if self._disk.size(descriptor) < size:
                raise Damaged(str(segment.path), self._disk.size(descriptor), f"ends here, {size} bytes were durable")
            block = size % _BLOCK_SIZE
            tail = self._disk.read(descriptor, block, size - block)
            self._disk.truncate(descriptor, size)
            write_all(self._disk, descriptor, [tail, *self._unsynced], size - block)
            self._disk.fdatasync(descriptor)
        finally:
            self._disk.close(descriptor)
        self._unsynced, self.unwritten = [], []
        self._must_mend = False
