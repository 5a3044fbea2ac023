"""Compaction of one partition: its closed segments are written anew with the last record of each key.

Two passes over the files, as in Kafka's cleaner (Cleaner, LogCleanerManager). The first goes through what was appended
since the last compaction, from `dirty_offset` on, and notes the last offset of each key. The second goes through all
closed segments from the oldest on, and leaves out each record that has a later one. When the map is full, or records
are too young (log.cleaner.min.compaction.lag.ms), it ends there: what lies behind is left as it is, and the next
compaction goes on from that offset. So memory is bounded by the map, whatever the log's size.

Both passes take plain batches the short way (protocol/key_scan.py), and of what the first has gone through the second
needs no keys: what stays is what the map says, by its offset. Neighbours that stay are copied as one run, and a
segment of which nothing stays isn't read again. Any other batch, and one that loses some of its records, goes the long
way, through `_note` and `_filter`, which are what the rules say.

What stays keeps its offset, timestamp, epoch and bytes. A batch that loses no record is copied, one that loses all is
left out, so offsets get gaps. A tombstone stays until log.cleaner.delete.retention.ms after its own timestamp; a batch
to which Kafka's cleaner gave a delete horizon keeps them until then (KIP-534). Batches of producers (idempotent,
transactional, control) are copied, and what they hold supersedes nothing, as a transaction may have been aborted; a
tombstone of a key that is in one of them stays, or what is in there could come back to life.

The new files are `.cleaned` (swap.py says how they take the place of the old). Segments are joined while the outcome
fits a segment. Files in which nothing changes aren't written. As in Kafka's cleaner, each is swapped in before the next
is begun, so a disk needs room for one segment more, not for the log once more; and it may end after any of them.

Where there is no room, and some to spare for who appends, segments are tried one by one until there is, and one whose
rest doesn't fit is left as it is. From there on no tombstone goes in this compaction, for what it deletes may be in
there, and the next one begins there.

As a program, `python -m coordinator.log.compaction FOLDER TASK` does this with the least priority, TASK being the
fields of Task as JSON. Standard output gets a line of JSON for each file, {"cleaned": Cleaned}, upon which it waits for
a byte on standard input, and in the end a Compaction or {"error": ...}. It ends when its standard input does, so it
doesn't outlive its parent, and it holds `.lock-compaction-N`: no two work on one partition, should the one before not
have ended yet.

House rule: nothing here touches a file that a reader of the log reads.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import Semaphore, Thread
from typing import NamedTuple

from coordinator.log.disk import Disk, write_all
from coordinator.log.engine import Damaged
from coordinator.log.lock import Lock
from coordinator.log.segment import (
    CHUNK_SIZE,
    SEGMENT_OFFSETS_MAX,
    Frame,
    Segment,
    Take,
    list_segments,
    read_others,
)
from coordinator.log.swap import cleaned_path
from protocol.key_scan import Plain, find_keys, peek_plain
from protocol.record_batch import CorruptBatch, Header, RecordSlice, encode_slices, slice_records

KEYS_MAX = 500_000
"""Entries of the map, 150 to 200 bytes each; what else is noted counts as one too. So this is what a compaction takes
of memory at most, beside its largest batch and, in a log that was a broker's, as many keys of producers again."""

FREE_PART = 8
"""This part of a segment's size stays free on the disk: for those who append, until the old segments are gone."""

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says where a file can't grow."""

PRIORITY = 19
OFFSET_END = 2**63
KEY_SIZE_MAX = 63
"""A longer key is in the map by its digest, which has 64 bytes and so is no other key."""


class Task(NamedTuple):
    """What to do.

    end_offset: segments that start below it are closed. dirty_offset: below it no key is there twice.
    now_ms: Unix time. lag_ms, retention_ms: log.cleaner.min.compaction.lag.ms, log.cleaner.delete.retention.ms.
    segment_size: in bytes. keys_max: entries of the map, exceeded by those of one batch at most.
    """

    end_offset: int
    dirty_offset: int
    now_ms: int
    lag_ms: int
    retention_ms: int
    segment_size: int
    keys_max: int = KEYS_MAX


class Cleaned(NamedTuple):
    """A `.cleaned` file, durable, that stands for all segments from `base_offset` to below `next_offset`."""

    base_offset: int
    next_offset: int


class Compaction(NamedTuple):
    """What was done: the files that were swapped in, oldest first.

    clean_offset: the dirty offset from now on. size_before, size_after: bytes of the segments that were looked at.
    reason: why some of them were left as they are, "" if none was.
    """

    clean_offset: int
    files: list[Cleaned]
    size_before: int
    size_after: int
    reason: str = ""


Swap = Callable[[Cleaned], None]
"""Handed a new file; returns when it was swapped in, and its space is what the next one may need."""


def compact(disk: Disk, folder: Path, task: Task, swap: Swap) -> Compaction:
    """Write what compaction leaves of the log in `folder`, and hand each file to `swap`. Raises Damaged, or OSError."""
    return _Compactor(disk, folder, task).run(swap)


class _Output:
    """A new file, for `base_offset` and what follows. It is written from the first difference to the old one on."""

    def __init__(self, disk: Disk, folder: Path, source: Segment, free_min: int) -> None:
        self.base_offset = source.base_offset
        self.size = 0
        self._disk = disk
        self._free_min = free_min
        self._folder = folder
        self._source = source
        self._descriptor: int | None = None
        self._parts: list[bytes] = []
        self._parts_size = 0

    def copy(self, data: bytes, start: int, end: int) -> None:
        """Keep the batches in `data[start:end]` as they are."""
        if self._descriptor is None:
            self.size += end - start
        elif start < end:
            self.write(data[start:end])

    def write(self, batch: bytes) -> None:
        """Write bytes of a batch or more, to a file that differs."""
        self._parts.append(batch)
        self._parts_size += len(batch)
        self.size += len(batch)
        if self._parts_size >= CHUNK_SIZE:
            self._flush()

    def differ(self) -> None:
        """From here on it is another file than the old one: begin it with what was the same."""
        if self._descriptor is not None:
            return
        self._descriptor = self._disk.open(cleaned_path(self._folder, self.base_offset), create=True)
        self._disk.truncate(self._descriptor, 0)
        source = self._disk.open(self._source.path)
        try:
            for position in range(0, self.size, CHUNK_SIZE):
                chunk = self._disk.read(source, min(CHUNK_SIZE, self.size - position), position)
                self._write(self._descriptor, [chunk], position)
        finally:
            self._disk.close(source)

    def finish(self) -> bool:
        """Make it durable; False if there is none, because nothing differs."""
        if self._descriptor is None:
            return False
        self._flush()
        self._disk.fdatasync(self._descriptor)
        self.close()
        return True

    def remove(self) -> None:
        """Remove what was written, and won't be used."""
        if self._descriptor is not None:
            self.close()
            with suppress(OSError):  # its partition's next failure or load does it
                self._disk.remove(cleaned_path(self._folder, self.base_offset))

    def close(self) -> None:
        """Let go of the file, be it whole or not."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):  # its bytes are durable, or it won't be used
                self._disk.close(descriptor)

    def _flush(self) -> None:
        assert self._descriptor is not None
        self._write(self._descriptor, self._parts, self.size - self._parts_size)
        self._parts, self._parts_size = [], 0

    def _write(self, descriptor: int, parts: list[bytes], position: int) -> None:
        if self._disk.free(descriptor) < sum(map(len, parts)) + self._free_min:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(self._disk, descriptor, parts, position)


class _Source(NamedTuple):
    """A closed segment, and the offset where it ends."""

    segment: Segment
    end: int


class _Group(NamedTuple):
    """So many sources, their bytes, the bytes that are left of them, and the file that has these if it is another."""

    sources: int
    size_before: int
    size_after: int
    cleaned: Cleaned | None


class _Compactor:
    def __init__(self, disk: Disk, folder: Path, task: Task) -> None:
        self._disk = disk
        self._folder = folder
        self._task = task
        self._map_end = task.end_offset
        # Below: what the first pass finds. _last: of each key, its last offset. _expired: the offsets of tombstones in
        # plain batches whose time is over. _of_producers: the offsets of batches that are kept whatever is in them.
        self._last: dict[bytes, int] = {}
        self._expired: set[int] = set()
        self._of_producers: list[int] = []
        # The offsets in _last and _of_producers, in order, with one at the end that no log has.
        self._stay: list[int] = []
        self._stay_at = 0
        self._keys_of_producers: set[bytes] = set()
        self._is_left_out = False
        self._next_offset = 0

    def run(self, swap: Swap) -> Compaction:
        segments = [
            segment
            for segment in list_segments(self._disk, self._folder)
            if segment.base_offset < self._task.end_offset
        ]
        ends = [*(segment.base_offset for segment in segments), self._task.end_offset][1:]
        sources = list(map(_Source, segments, ends))
        for segment, end in sources:
            if end > self._task.dirty_offset and segment.base_offset < self._map_end:
                self._note(segment)
        self._stay = sorted([*self._last.values(), *self._of_producers])
        self._stay.append(OFFSET_END)
        return self._write([source for source in sources if source.segment.base_offset < self._map_end], swap)

    def _write(self, sources: Sequence[_Source], swap: Swap) -> Compaction:
        """Write what is left of the sources, file by file; of one that doesn't fit the disk, nothing."""
        files: list[Cleaned] = []
        clean_offset, reason = self._map_end, ""
        size_before = size_after = at = 0
        alone = False
        while at < len(sources):
            try:
                group = self._write_group(sources[at:], alone=alone)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                if not alone:  # less may be left of one than of several
                    alone = True
                    continue
                segment = sources[at].segment
                if not self._is_left_out:
                    self._is_left_out = True
                    clean_offset = max(self._task.dirty_offset, segment.base_offset)
                    reason = str(error)
                group = _Group(1, self._size(segment), self._size(segment), None)
            size_before += group.size_before
            size_after += group.size_after
            at += group.sources
            if group.cleaned is not None:
                alone = False
                swap(group.cleaned)
                files.append(group.cleaned)
        return Compaction(clean_offset, files, size_before, size_after, reason)

    def _note(self, segment: Segment) -> None:
        """Note the last offset of each key, up to where the map is full or records are too young."""
        for frame in self._frames(segment, self._note_plain):
            header = frame.header
            if header.next_offset <= self._task.dirty_offset:
                continue
            if self._ends_at(header.max_timestamp_ms):
                self._map_end = header.base_offset
                return
            if _is_of_producer(header):
                self._of_producers.append(header.base_offset)
                continue
            for record in self._records(segment, frame):
                self._last[_name(record.key)] = record.offset

    def _note_plain(self, data: bytes, at: int) -> int:
        """Do the same for plain batches, as far as it doesn't end there (Take)."""
        dirty_offset, last = self._task.dirty_offset, self._last
        expired_ms = self._task.now_ms - self._task.retention_ms
        while (plain := peek_plain(data, at)) is not None:
            end, base_offset, last_offset, _, max_ms, _, _ = plain
            if base_offset < self._next_offset:
                break
            if last_offset >= dirty_offset:
                if self._ends_at(max_ms) or (found := find_keys(data, at, plain)) is None:
                    break
                for offset, key, tombstone_ms in found:
                    last[key if len(key) <= KEY_SIZE_MAX else _name(key)] = offset
                    if tombstone_ms is not None and tombstone_ms <= expired_ms:
                        self._expired.add(offset)
            self._next_offset = last_offset + 1
            at = end
        return at

    def _ends_at(self, max_timestamp_ms: int) -> bool:
        """Whether the first pass ends in front of a batch."""
        task = self._task
        is_too_young = task.lag_ms > 0 and max_timestamp_ms > task.now_ms - task.lag_ms
        return is_too_young or len(self._last) + len(self._expired) + len(self._of_producers) >= task.keys_max

    def _write_group(self, sources: Sequence[_Source], *, alone: bool) -> _Group:
        """Write what is left of the first source, and unless `alone` of those behind it that fit the same segment."""
        first, end = sources[0]
        self._stay_at = bisect_left(self._stay, first.base_offset)
        output = _Output(self._disk, self._folder, first, self._task.segment_size // FREE_PART)
        count = size_before = 0
        try:
            for segment, following in sources:
                size = self._size(segment)
                if count:
                    fits = output.size + size <= self._task.segment_size
                    if alone or not fits or following - first.base_offset > SEGMENT_OFFSETS_MAX:
                        break
                    output.differ()
                self._write_source(segment, following, size, output)
                count += 1
                size_before += size
                end = following
            cleaned = Cleaned(first.base_offset, end) if output.finish() else None
        except (OSError, Damaged):
            output.remove()
            raise
        finally:
            output.close()
        return _Group(count, size_before, output.size, cleaned)

    def _write_source(self, segment: Segment, end: int, size: int, output: _Output) -> None:
        if not self._nothing_stays(segment.base_offset, end):
            for frame in self._frames(segment, partial(self._filter_plain, output)):
                self._filter(segment, frame, output)
        elif size:
            output.differ()

    def _nothing_stays(self, base_offset: int, end_offset: int) -> bool:
        """Whether all that lies between the two was gone through in the first pass, and is superseded."""
        if base_offset < self._task.dirty_offset or end_offset > self._map_end:
            return False
        return self._stay[bisect_left(self._stay, base_offset)] >= end_offset

    def _filter(self, segment: Segment, frame: Frame, output: _Output) -> None:
        """Copy, rewrite or leave out a batch."""
        header = frame.header
        if _is_of_producer(header):
            self._keep_tombstones_of(segment, frame)
        elif header.base_offset < self._map_end:
            records = self._records(segment, frame)
            stay = [record for record in records if self._stays(header, record)]
            if not stay or len(stay) < len(records):
                output.differ()
                if stay:
                    output.write(encode_slices(header, stay))
                return
        output.copy(frame.data, frame.at, frame.at + header.size)

    def _filter_plain(self, output: _Output, data: bytes, at: int) -> int:
        """Do the same for plain batches of which all records stay or none, run by run (Take)."""
        dirty_offset, map_end = self._task.dirty_offset, self._map_end
        run = at
        while (plain := peek_plain(data, at)) is not None:
            end, base_offset, last_offset, _, _, count, _ = plain
            if base_offset < self._next_offset:
                break
            if base_offset >= map_end:
                stays: bool | None = True
            elif base_offset >= dirty_offset:
                stays = self._stays_by_offset(base_offset, last_offset, count)
            else:
                stays = self._stays_by_key(data, at, plain)
            if stays is None:
                break
            if not stays:
                output.copy(data, run, at)
                output.differ()
                run = end
            self._next_offset = last_offset + 1
            at = end
        output.copy(data, run, at)
        return at

    def _stays_by_offset(self, base_offset: int, last_offset: int, count: int) -> bool | None:
        """Whether a batch stays that the first pass has gone through; None if that isn't true of all its records."""
        stay, first = self._stay, self._stay_at
        while stay[first] < base_offset:
            first += 1
        self._stay_at = first
        if stay[first] > last_offset:
            return False
        if first + count >= len(stay) or stay[first + count - 1] > last_offset:
            return None
        if self._expired and not self._expired.isdisjoint(stay[first : first + count]):
            return None
        return True

    def _stays_by_key(self, data: bytes, at: int, plain: Plain) -> bool | None:
        """Whether a batch stays that was there before what the first pass has gone through; None as above."""
        found = find_keys(data, at, plain)
        if found is None:
            return None
        expired_ms = self._task.now_ms - self._task.retention_ms
        superseded = 0
        for _, key, tombstone_ms in found:
            if (key if len(key) <= KEY_SIZE_MAX else _name(key)) in self._last:
                superseded += 1
            elif tombstone_ms is not None and tombstone_ms <= expired_ms:
                return None
        return None if 0 < superseded < len(found) else not superseded

    def _keep_tombstones_of(self, segment: Segment, frame: Frame) -> None:
        """Let no tombstone go that has a key of this batch, or none at all once that are too many keys."""
        if not frame.header.is_control and len(self._keys_of_producers) <= self._task.keys_max:
            self._keys_of_producers.update(_name(record.key) for record in self._records(segment, frame))

    def _stays(self, header: Header, record: RecordSlice) -> bool:
        name = _name(record.key)
        if record.offset < self._last.get(name, -1):
            return False
        if not record.is_tombstone or self._is_left_out:
            return True
        if name in self._keys_of_producers or len(self._keys_of_producers) > self._task.keys_max:
            return True
        horizon_ms = header.delete_horizon_ms
        return self._task.now_ms < (record.timestamp_ms + self._task.retention_ms if horizon_ms is None else horizon_ms)

    def _frames(self, segment: Segment, take: Take) -> Iterator[Frame]:
        """Yield the batches that `take` leaves, with right CRCs and in the order of their offsets."""
        self._next_offset = segment.base_offset
        descriptor = self._disk.open(segment.path)
        try:
            for frame in read_others(self._disk, descriptor, self._disk.size(descriptor), take):
                if not isinstance(frame, Frame):
                    continue
                if frame.header.base_offset < self._next_offset:
                    reason = f"offset {frame.header.base_offset}, expected {self._next_offset} or later"
                    raise Damaged(str(segment.path), frame.position, reason)
                yield frame
                self._next_offset = frame.header.next_offset
        except CorruptBatch as error:
            raise Damaged(str(segment.path), error.position, error.reason) from error
        finally:
            self._disk.close(descriptor)

    def _records(self, segment: Segment, frame: Frame) -> list[RecordSlice]:
        try:
            return slice_records(frame.data, frame.at, frame.header)
        except CorruptBatch as error:
            raise Damaged(str(segment.path), frame.position, error.reason) from error

    def _size(self, segment: Segment) -> int:
        descriptor = self._disk.open(segment.path)
        try:
            return self._disk.size(descriptor)
        finally:
            self._disk.close(descriptor)


def _is_of_producer(header: Header) -> bool:
    return header.producer_id >= 0 or header.is_control or header.is_transactional


def _name(key: bytes) -> bytes:
    """Return what stands for a key in the map."""
    return key if len(key) <= KEY_SIZE_MAX else blake2b(key).digest()


def main(arguments: Sequence[str]) -> int:
    """Run as a process of its own (see the module); returns its exit code."""
    os.nice(PRIORITY)
    swapped = Semaphore(0)
    Thread(target=_listen, args=(swapped,), daemon=True).start()
    folder = Path(arguments[0])

    def swap(cleaned: Cleaned) -> None:
        _say({"cleaned": cleaned})
        swapped.acquire()

    said: dict[str, object]
    try:
        lock = Lock(Disk(), lock_path(folder))
        said = compact(Disk(), folder, Task(**json.loads(arguments[1])), swap)._asdict()
        lock.release()
    except BlockingIOError:
        said = {"error": "another compaction is at work"}
    except (Damaged, OSError) as error:
        said = {"error": str(error)}
    _say(said)
    return 1 if "error" in said else 0


def lock_path(folder: Path) -> Path:
    """The lock of compactions of the partition in `folder`."""
    return folder.parent / f".lock-compaction-{folder.name.rpartition('-')[2]}"


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def _listen(swapped: Semaphore) -> None:
    """Take note of each file that the parent has swapped in; end with it."""
    while os.read(0, 1):
        swapped.release()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
