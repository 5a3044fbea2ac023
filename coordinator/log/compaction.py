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
fits a segment. Files in which nothing changes aren't written.

As a program, `python -m coordinator.log.compaction FOLDER TASK` does this with the least priority, TASK being the
fields of Task as JSON; standard output gets one line of JSON, a Compaction or {"error": ...}. It ends when its standard
input does, so it doesn't outlive its parent, and it holds `.lock-compaction-N`: no two work on one partition, should
the one before not have ended yet.

House rule: nothing here touches a file that a reader of the log reads.
"""

from __future__ import annotations

import json
import os
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import Thread
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
    """What was done: the files, oldest first, in which order they have to be swapped in.

    clean_offset: the dirty offset once they are. size_before, size_after: bytes of the segments that were looked at.
    """

    clean_offset: int
    files: list[Cleaned]
    size_before: int
    size_after: int


def compact(disk: Disk, folder: Path, task: Task) -> Compaction:
    """Write what compaction leaves of the log in `folder`. Raises Damaged, or OSError."""
    return _Compactor(disk, folder, task).run()


class _Output:
    """A new file, for `base_offset` and what follows. It is written from the first difference to the old one on."""

    def __init__(self, disk: Disk, folder: Path, source: Segment) -> None:
        self.base_offset = source.base_offset
        self.size = 0
        self._disk = disk
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
                write_all(self._disk, self._descriptor, [chunk], position)
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

    def close(self) -> None:
        """Let go of the file, be it whole or not."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):  # its bytes are durable, or it won't be used
                self._disk.close(descriptor)

    def _flush(self) -> None:
        assert self._descriptor is not None
        write_all(self._disk, self._descriptor, self._parts, self.size - self._parts_size)
        self._parts, self._parts_size = [], 0


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
        self._next_offset = 0

    def run(self) -> Compaction:
        segments = [
            segment
            for segment in list_segments(self._disk, self._folder)
            if segment.base_offset < self._task.end_offset
        ]
        ends = [*(segment.base_offset for segment in segments), self._task.end_offset][1:]
        for segment, end in zip(segments, ends, strict=True):
            if end > self._task.dirty_offset and segment.base_offset < self._map_end:
                self._note(segment)
        self._stay = sorted([*self._last.values(), *self._of_producers])
        self._stay.append(OFFSET_END)
        files: list[Cleaned] = []
        before = after = 0
        for sources, end, output in self._outputs(segments, ends):
            before += sources
            after += output.size
            if output.finish():
                files.append(Cleaned(output.base_offset, end))
        return Compaction(self._map_end, files, before, after)

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

    def _outputs(self, segments: Sequence[Segment], ends: Sequence[int]) -> Iterator[tuple[int, int, _Output]]:
        """Yield, oldest first: bytes of the segments that it replaces, the offset where these end, the new file."""
        output: _Output | None = None
        sources = output_end = 0
        try:
            for segment, end in zip(segments, ends, strict=True):
                if segment.base_offset >= self._map_end:
                    break
                size = self._size(segment)
                if output is not None and (
                    output.size + size > self._task.segment_size or end - output.base_offset > SEGMENT_OFFSETS_MAX
                ):
                    yield sources, output_end, output
                    output, sources = None, 0
                if output is None:
                    output = _Output(self._disk, self._folder, segment)
                else:
                    output.differ()
                if self._nothing_stays(segment.base_offset, end):
                    if size:
                        output.differ()
                else:
                    for frame in self._frames(segment, partial(self._filter_plain, output)):
                        self._filter(segment, frame, output)
                sources += size
                output_end = end
            if output is not None:
                yield sources, output_end, output
        finally:
            if output is not None:
                output.close()

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
        if not record.is_tombstone:
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
    Thread(target=_end_with_parent, daemon=True).start()
    folder = Path(arguments[0])
    said: dict[str, object]
    try:
        lock = Lock(Disk(), lock_path(folder))
        said = compact(Disk(), folder, Task(**json.loads(arguments[1])))._asdict()
        lock.release()
    except BlockingIOError:
        said = {"error": "another compaction is at work"}
    except (Damaged, OSError) as error:
        said = {"error": str(error)}
    sys.stdout.write(json.dumps(said))
    return 1 if "error" in said else 0


def lock_path(folder: Path) -> Path:
    """The lock of compactions of the partition in `folder`."""
    return folder.parent / f".lock-compaction-{folder.name.rpartition('-')[2]}"


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
