"""Compaction of one partition: its closed segments are written anew with the last record of each key.

Two passes over the files, as in Kafka's cleaner (Cleaner, LogCleanerManager). The first goes through what was appended
since the last compaction, from `dirty_offset` on, and notes the last offset of each key, by a digest of 16 bytes. The
second goes through all closed segments from the oldest on, and leaves out each record that has a later one. When the
map is full, or records are too young (log.cleaner.min.compaction.lag.ms), it ends there: what lies behind is left as it
is, and the next compaction goes on from that offset. So memory is bounded by the map, whatever the log's size.

What stays keeps its offset, timestamp, epoch and bytes. A batch that loses no record is copied, one that loses all is
left out, so offsets get gaps. A tombstone stays until log.cleaner.delete.retention.ms after its own timestamp; a batch
to which Kafka's cleaner gave a delete horizon keeps them until then (KIP-534). Batches of producers (idempotent,
transactional, control) are copied, and what they hold supersedes nothing, as a transaction may have been aborted; from
the first of them on tombstones stay, or what is in there could come back to life.

The new files are `.cleaned` (swap.py says how they take the place of the old). Segments are joined while the outcome
fits a segment. Files in which nothing changes aren't written.

As a program, `python -m coordinator.log.compaction FOLDER TASK` does this with the least priority, TASK being the
fields of Task as JSON; standard output gets one line of JSON, a Compaction or {"error": ...}. It ends when its standard
input does, so it doesn't outlive its parent, and it holds `.lock-compaction`: no two work below one data folder.

House rule: nothing here touches a file that a reader of the log reads.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from coordinator.log.disk import Disk, write_all
from coordinator.log.engine import Damaged
from coordinator.log.lock import Lock
from coordinator.log.segment import CHUNK_SIZE, SEGMENT_OFFSETS_MAX, Frame, Segment, list_segments, read_frames
from coordinator.log.swap import cleaned_path
from protocol.record_batch import CorruptBatch, Header, RecordSlice, encode_slices, slice_records

KEYS_MAX = 500_000
"""Entries of the map, some 150 bytes each: what a compaction takes of memory at most, beside its largest batch."""

LOCK_NAME = ".lock-compaction"
PRIORITY = 19
DIGEST_SIZE = 16


class Task(NamedTuple):
    """What to do.

    end_offset: segments that start below it are closed. dirty_offset: below it no key is there twice.
    now_ms: Unix time. lag_ms, retention_ms: log.cleaner.min.compaction.lag.ms, log.cleaner.delete.retention.ms.
    segment_size: in bytes. keys_max: entries of the map, exceeded by one batch's keys at most.
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

    def copy(self, frame: Frame) -> None:
        """Keep a batch as it is."""
        if self._descriptor is None:
            self.size += frame.header.size
        else:
            self.write(frame.data[frame.at : frame.at + frame.header.size])

    def write(self, batch: bytes) -> None:
        """Write a batch, to a file that differs."""
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
        self._last: dict[bytes, int] = {}
        self._map_end = task.end_offset
        self._tombstones_stay = False

    def run(self) -> Compaction:
        segments = [
            segment
            for segment in list_segments(self._disk, self._folder)
            if segment.base_offset < self._task.end_offset
        ]
        ends = [*(segment.base_offset for segment in segments), self._task.end_offset][1:]
        for segment, end in zip(segments, ends, strict=True):
            if end > self._task.dirty_offset and segment.base_offset < self._map_end:
                self._note_keys(segment)
        files: list[Cleaned] = []
        before = after = 0
        for sources, end, output in self._outputs(segments, ends):
            before += sources
            after += output.size
            if output.finish():
                files.append(Cleaned(output.base_offset, end))
        return Compaction(self._map_end, files, before, after)

    def _note_keys(self, segment: Segment) -> None:
        """Note the last offset of each key, up to where the map is full or records are too young."""
        task = self._task
        for frame in self._frames(segment):
            header = frame.header
            if header.next_offset <= task.dirty_offset:
                continue
            is_too_young = task.lag_ms > 0 and header.max_timestamp_ms > task.now_ms - task.lag_ms
            if is_too_young or len(self._last) >= task.keys_max:
                self._map_end = header.base_offset
                return
            if not _is_of_producer(header):
                for record in self._records(segment, frame):
                    self._last[_digest(record.key)] = record.offset

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
                for frame in self._frames(segment):
                    self._filter(segment, frame, output)
                sources += size
                output_end = end
            if output is not None:
                yield sources, output_end, output
        finally:
            if output is not None:
                output.close()

    def _filter(self, segment: Segment, frame: Frame, output: _Output) -> None:
        header = frame.header
        if _is_of_producer(header):
            self._tombstones_stay = True
            output.copy(frame)
            return
        if header.base_offset >= self._map_end:
            output.copy(frame)
            return
        records = self._records(segment, frame)
        stay = [record for record in records if self._stays(header, record)]
        if stay and len(stay) == len(records):
            output.copy(frame)
            return
        output.differ()
        if stay:
            output.write(encode_slices(header, stay))

    def _stays(self, header: Header, record: RecordSlice) -> bool:
        if record.offset < self._last.get(_digest(record.key), -1):
            return False
        if not record.is_tombstone or self._tombstones_stay:
            return True
        horizon_ms = header.delete_horizon_ms
        return self._task.now_ms < (record.timestamp_ms + self._task.retention_ms if horizon_ms is None else horizon_ms)

    def _frames(self, segment: Segment) -> Iterator[Frame]:
        """Yield the batches of a segment, with right CRCs and in the order of their offsets."""
        next_offset = segment.base_offset
        descriptor = self._disk.open(segment.path)
        try:
            for frame in read_frames(self._disk, descriptor, self._disk.size(descriptor)):
                if frame.header.base_offset < next_offset:
                    reason = f"offset {frame.header.base_offset}, expected {next_offset} or later"
                    raise Damaged(str(segment.path), frame.position, reason)
                next_offset = frame.header.next_offset
                yield frame
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


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_SIZE).digest()


def main(arguments: Sequence[str]) -> int:
    """Run as a process of its own (see the module); returns its exit code."""
    os.nice(PRIORITY)
    Thread(target=_end_with_parent, daemon=True).start()
    folder = Path(arguments[0])
    said: dict[str, object]
    try:
        lock = Lock(Disk(), folder.parent / LOCK_NAME)
        said = compact(Disk(), folder, Task(**json.loads(arguments[1])))._asdict()
        lock.release()
    except BlockingIOError:
        said = {"error": "another compaction is at work"}
    except (Damaged, OSError) as error:
        said = {"error": str(error)}
    sys.stdout.write(json.dumps(said))
    return 1 if "error" in said else 0


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
