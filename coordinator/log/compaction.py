"""Compaction of one log, of groups or of a topic: closed segments are written anew with the last record of each key.

Two passes over the files, as in Kafka's cleaner (Cleaner, LogCleanerManager). The first goes through what was appended
since the last compaction, from `dirty_offset` on, and notes the last offset of each key. The second goes through all
closed segments from the oldest on, and leaves out each record that has a later one. When the map is full, or records
are too young (log.cleaner.min.compaction.lag.ms), it ends there: what lies behind is left as it is, and the next
compaction goes on from that offset. So memory is bounded by the map, whatever the log's size.

Both passes take plain batches the short way (plain_keys.py), and of what the first has gone through the second
needs no keys: what stays is what the map says, by its offset. Neighbours that stay are copied as one run, and a
segment of which nothing stays isn't read again. Any other batch, and one that loses some of its records, goes the long
way, through `_note` and `_filter`, which are what the rules say.

What stays keeps its offset, timestamp and epoch. A batch that loses no record is copied, one that loses all is left
out, so offsets get gaps. Batches of transactions are copied, and what they hold supersedes nothing, as a transaction
may have been aborted; a tombstone of a key that is in one of them stays, or what is in there could come back to life.
In a group's log:

- a tombstone stays until delete_retention_ms after its own timestamp, or, in a batch to which Kafka's cleaner gave a
  delete horizon, until then (KIP-534);
- any producer's batches are copied as those of transactions are.

In a topic's log, as in Kafka's:

- the compaction that first sees a tombstone gives its batch a delete horizon, delete_retention_ms from then; the first
  one behind that drops it;
- of each idempotent producer the last batch stays, empty if need be: it says which number comes next;
- a record without a key goes: it was appended before the topic was compacted.

And other than in Kafka's, the last batch of each file stays, empty if need be, so that a segment ends where the next
begins, and a log that has lost one is known by that.

The new files are `.cleaned` (swap.py says how they take the place of the old). Segments are joined while the outcome
fits a segment. Files in which nothing changes aren't written. As in Kafka's cleaner, each is swapped in before the next
is begun, so a disk needs room for one segment more, not for the log once more; and it may end after any of them.

Where there is no room, and some to spare for who appends, segments are tried one by one until there is, and one whose
rest doesn't fit is left as it is. From there on no tombstone goes in this compaction, for what it deletes may be in
there, and the next one begins there.

As a program, `python -m coordinator.log.compaction` does this for one log after the other: to start an interpreter
takes a hundred times as long as to compact a small one. A line of its standard input has a folder and the fields of
Task, as JSON: {"folder": ..., "task": ...}. Standard output gets a line of JSON for each file, {"cleaned": Cleaned},
upon which it waits for an empty line on standard input, and in the end a Compaction or {"error": ...}. It ends when its
standard input does, in the middle of whatever, so it doesn't outlive its parent. It works inside the folder, whatever
that is renamed to, and holds `.lock-compaction` there: no two work on one log, should the one before not have ended
yet.

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
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, NamedTuple

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
    read_frames,
    read_others,
)
from coordinator.log.swap import cleaned_path
from coordinator.log.view import Part
from protocol.records.batch import CorruptBatch, Header, peek_header
from protocol.records.plain_keys import Plain, find_keys, peek_plain
from protocol.records.rewrite import RecordSlice, encode_slices, slice_records

KEYS_MAX = 500_000
"""Entries of the map, 150 to 200 bytes each; what else is noted counts as one too. So this is what a compaction takes
of memory at most, beside its largest batch and, in a log that was a broker's, as many keys of producers again."""

FREE_PART = 8
"""This part of a segment's size stays free on the disk: for those who append, until the old segments are gone."""

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says where a file can't grow."""

OFFSET_END = TIME_END_MS = 2**63
KEY_SIZE_MAX = 63
"""A longer key is in the map by its digest, which has 64 bytes and so is no other key."""


class Task(NamedTuple):
    """What to do.

    end_offset: segments that start below it are closed. dirty_offset: below it no key is there twice; it may lie inside
    a batch, once records were deleted up to there.
    now_ms: Unix time. lag_ms, retention_ms: log.cleaner.min.compaction.lag.ms, log.cleaner.delete.retention.ms.
    segment_size: in bytes. keys_max: entries of the map, exceeded by those of one batch at most.
    is_topic: whether the rules are those of a topic's log. last_offsets: there, where each producer's last batch ends.
    """

    end_offset: int
    dirty_offset: int
    now_ms: int
    lag_ms: int
    retention_ms: int
    segment_size: int
    keys_max: int = KEYS_MAX
    is_topic: bool = False
    last_offsets: Sequence[int] = ()


class Cleaned(NamedTuple):
    """A `.cleaned` file, durable, that stands for all segments from `base_offset` to below `next_offset`.

    part: of a topic's, the fields of its Part.
    """

    base_offset: int
    next_offset: int
    part: Sequence[Any] = ()


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
    return (_TopicCompactor if task.is_topic else _Compactor)(disk, folder, task).run(swap)


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

    def finish(self, newest: Segment) -> bool:
        """Make it durable, as old as `newest`; False if there is none, because nothing differs."""
        if self._descriptor is None:
            return False
        self._flush()
        self._disk.set_time(self._descriptor, newest.path)
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
        # A tombstone in a plain batch that has this time or an earlier one wants to be looked at.
        self._due_ms = task.now_ms - task.retention_ms
        # Below: what the first pass finds. _last: of each key, its last offset. _due: the offsets of tombstones that
        # want to be looked at. _whole: the offsets of batches that are kept whatever is in them.
        self._last: dict[bytes, int] = {}
        self._due: set[int] = set()
        self._whole: list[int] = []
        # The offsets in _last and _whole, in order, with one at the end that no log has.
        self._stay: list[int] = []
        self._stay_at = 0
        self._keys_of_whole: set[bytes] = set()
        self._is_left_out = False
        self._next_offset = 0
        # The batch that came last in the file that is written, if nothing is left of it: where its bytes begin.
        self._dropped: tuple[bytes, int] | None = None
        # Or the empty one that comes last, which stays if the file ends with it: where its bytes begin and end.
        self._held: tuple[bytes, int, int] | None = None

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
        self._stay = sorted([*self._last.values(), *self._whole])
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
                files.append(group.cleaned._replace(part=()))
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
            if self._is_whole(header):
                self._whole.append(header.base_offset)
                continue
            for record in self._records(segment, frame):
                if record.key is not None:
                    self._last[_name(record.key)] = record.offset

    def _note_plain(self, data: bytes, at: int) -> int:
        """Do the same for plain batches, as far as it doesn't end there (Take)."""
        dirty_offset, last, due_ms = self._task.dirty_offset, self._last, self._due_ms
        while (plain := peek_plain(data, at)) is not None:
            end, base_offset, last_offset, _, max_ms, _, _ = plain
            if base_offset < self._next_offset:
                break
            if last_offset >= dirty_offset:
                if self._ends_at(max_ms) or (found := find_keys(data, at, plain)) is None:
                    break
                for offset, key, tombstone_ms in found:
                    last[key if len(key) <= KEY_SIZE_MAX else _name(key)] = offset
                    if tombstone_ms is not None and tombstone_ms <= due_ms:
                        self._due.add(offset)
            self._next_offset = last_offset + 1
            at = end
        return at

    def _ends_at(self, max_timestamp_ms: int) -> bool:
        """Whether the first pass ends in front of a batch."""
        task = self._task
        is_too_young = task.lag_ms > 0 and max_timestamp_ms > task.now_ms - task.lag_ms
        return is_too_young or len(self._last) + len(self._due) + len(self._whole) >= task.keys_max

    def _write_group(self, sources: Sequence[_Source], *, alone: bool) -> _Group:
        """Write what is left of the first source, and unless `alone` of those behind it that fit the same segment."""
        first, end = sources[0]
        newest = first
        self._stay_at = bisect_left(self._stay, first.base_offset)
        output = _Output(self._disk, self._folder, first, self._task.segment_size // FREE_PART)
        count = size_before = 0
        self._dropped = self._held = None
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
                newest, end = segment, following
            self._end_file(output)
            cleaned = None
            if output.finish(newest):
                cleaned = Cleaned(first.base_offset, end, self._index(first.base_offset))
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
        if self._is_whole(header):
            self._keep_tombstones_of(segment, frame)
        elif header.base_offset < self._map_end:
            left = self._left(header, self._records(segment, frame))
            if left is not None:
                output.differ()
                output.write(left)
                self._dropped = None if left else (frame.data, frame.at)
                return
        self._dropped = None
        output.copy(frame.data, frame.at, frame.at + header.size)

    # What a topic's log does otherwise.

    def _is_whole(self, header: Header) -> bool:
        """Whether a batch stays as it is, whatever is in it."""
        return header.producer_id >= 0 or header.is_control or header.is_transactional

    def _left(self, header: Header, records: Sequence[RecordSlice]) -> bytes | None:
        """What is left of a batch, as bytes; None if it stays as it is."""
        stay = [record for record in records if self._stays(header, record)]
        if stay and len(stay) == len(records):
            return None
        return encode_slices(header, stay) if stay else b""

    def _is_over(self, header: Header, record: RecordSlice) -> bool:
        """Whether the time of a tombstone is."""
        horizon_ms = header.delete_horizon_ms
        end_ms = record.timestamp_ms + self._task.retention_ms if horizon_ms is None else horizon_ms
        return self._task.now_ms >= end_ms

    def _end_file(self, output: _Output) -> None:
        """All that goes into a file was looked at."""

    def _index(self, base_offset: int) -> Sequence[Any]:  # noqa: ARG002 - nobody reads it by offset
        """Where the batches of a new file are."""
        return ()

    # The short way.

    def _filter_plain(self, output: _Output, data: bytes, at: int) -> int:
        """Do the same for plain batches of which all records stay or none, run by run (Take)."""
        dirty_offset, map_end = self._task.dirty_offset, self._map_end
        run = at
        dropped = -1
        while (plain := peek_plain(data, at)) is not None:
            end, base_offset, last_offset, _, _, count, _ = plain
            if base_offset < self._next_offset:
                break
            if base_offset >= map_end:
                stays: bool | None = True
            elif base_offset >= dirty_offset:
                stays = self._stays_by_offset(base_offset, last_offset, count)
            elif last_offset >= dirty_offset:  # records were deleted up to inside it: the first pass noted all of it
                stays = None
            else:
                stays = self._stays_by_key(data, at, plain)
            if stays is None:
                break
            if not stays:
                output.copy(data, run, at)
                output.differ()
                run = end
                dropped = at
            self._next_offset = last_offset + 1
            at = end
        if at > run:
            self._dropped = None
        elif dropped >= 0:
            self._dropped = data, dropped
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
        if self._due and not self._due.isdisjoint(stay[first : first + count]):
            return None
        return True

    def _stays_by_key(self, data: bytes, at: int, plain: Plain) -> bool | None:
        """Whether a batch stays that was there before what the first pass has gone through; None as above."""
        found = find_keys(data, at, plain)
        if found is None:
            return None
        superseded = 0
        for _, key, tombstone_ms in found:
            if (key if len(key) <= KEY_SIZE_MAX else _name(key)) in self._last:
                superseded += 1
            elif tombstone_ms is not None and tombstone_ms <= self._due_ms:
                return None
        return None if 0 < superseded < len(found) else not superseded

    def _keep_tombstones_of(self, segment: Segment, frame: Frame) -> None:
        """Let no tombstone go that has a key of this batch, or none at all once that are too many keys."""
        if not frame.header.is_control and len(self._keys_of_whole) <= self._task.keys_max:
            records = self._records(segment, frame)
            self._keys_of_whole.update(_name(record.key) for record in records if record.key is not None)

    def _stays(self, header: Header, record: RecordSlice) -> bool:
        if record.key is None:
            return False
        name = _name(record.key)
        if record.offset < self._last.get(name, -1):
            return False
        if not record.is_tombstone or self._is_left_out:
            return True
        if name in self._keys_of_whole or len(self._keys_of_whole) > self._task.keys_max:
            return True
        return not self._is_over(header, record)

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


class _TopicCompactor(_Compactor):
    """House rule: what is true of both kinds of log is above."""

    def __init__(self, disk: Disk, folder: Path, task: Task) -> None:
        super().__init__(disk, folder, task)
        self._due_ms = TIME_END_MS
        self._last_offsets = frozenset(task.last_offsets)

    def _nothing_stays(self, base_offset: int, end_offset: int) -> bool:  # noqa: ARG002 - perhaps the last batch does
        return False

    def _is_whole(self, header: Header) -> bool:
        return header.is_control or header.is_transactional

    def _filter(self, segment: Segment, frame: Frame, output: _Output) -> None:
        self._drop_held(output)
        header = frame.header
        if header.record_count or self._is_whole(header) or header.next_offset - 1 in self._last_offsets:
            super()._filter(segment, frame, output)
            return
        self._dropped = None
        self._held = frame.data, frame.at, frame.at + header.size

    def _filter_plain(self, output: _Output, data: bytes, at: int) -> int:
        if self._held is not None and peek_plain(data, at) is not None:
            self._drop_held(output)
        return super()._filter_plain(output, data, at)

    def _drop_held(self, output: _Output) -> None:
        if self._held is not None:
            self._held = None
            output.differ()

    def _left(self, header: Header, records: Sequence[RecordSlice]) -> bytes | None:
        stay = [record for record in records if self._stays(header, record)]
        if not stay:
            if header.next_offset - 1 not in self._last_offsets:
                return b""
            return encode_slices(header, []) if records else None
        horizon_ms = None
        if header.delete_horizon_ms is None and any(record.is_tombstone for record in stay):
            horizon_ms = self._task.now_ms + self._task.retention_ms
        if horizon_ms is None and len(stay) == len(records):
            return None
        return encode_slices(header, stay, horizon_ms)

    def _is_over(self, header: Header, record: RecordSlice) -> bool:  # noqa: ARG002 - its batch says it
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and self._task.now_ms >= horizon_ms

    def _end_file(self, output: _Output) -> None:
        if self._held is not None:
            output.copy(*self._held)
        elif self._dropped is not None:
            output.write(encode_slices(peek_header(*self._dropped), []))

    def _index(self, base_offset: int) -> Sequence[Any]:
        part = Part(Segment(base_offset, cleaned_path(self._folder, base_offset)))
        descriptor = self._disk.open_to_read(part.segment.path)
        try:
            for frame in read_frames(self._disk, descriptor, self._disk.size(descriptor)):
                part.add(frame.position, frame.header.base_offset, frame.header)
        finally:
            self._disk.close(descriptor)
        return part.fields()


def _name(key: bytes) -> bytes:
    """Return what stands for a key in the map."""
    return key if len(key) <= KEY_SIZE_MAX else blake2b(key).digest()


def main() -> None:
    """Run as a process of its own (see the module), until standard input ends."""
    swapped = Semaphore(0)
    asked: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(asked, swapped), daemon=True).start()

    def swap(cleaned: Cleaned) -> None:
        _say({"cleaned": cleaned})
        swapped.acquire()

    while True:
        order = json.loads(asked.get())
        _say(_compacted(order["folder"], Task(**order["task"]), swap))


def _compacted(folder: str, task: Task, swap: Swap) -> dict[str, object]:
    """Compact the log in a folder, from inside; return what is to be said of it."""
    try:
        os.chdir(folder)
        lock = Lock(Disk(), lock_path(Path()))
        try:
            return compact(Disk(), Path(), task, swap)._asdict()
        finally:
            lock.release()
    except BlockingIOError:
        return {"error": "another compaction is at work"}
    except Damaged as damage:
        file = str(Path(folder) / damage.file)
        return {"error": str(Damaged(file, damage.position, damage.reason))}
    except OSError as error:
        return {"error": str(error)}


def lock_path(folder: Path) -> Path:
    """The lock of compactions of the log in `folder`."""
    return folder / ".lock-compaction"


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()


def _listen(asked: SimpleQueue[bytes], swapped: Semaphore) -> None:
    """Take what the parent says: what to compact, and that a file is swapped in. End with it."""
    for line in sys.stdin.buffer:
        if line == b"\n":
            swapped.release()
        else:
            asked.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
