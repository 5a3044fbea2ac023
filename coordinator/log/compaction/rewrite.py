"""Compaction of one log, of groups or of a topic: writes its closed segments anew, without superseded records.

There are two passes over the files, as in Kafka's cleaner (Cleaner, LogCleanerManager). The first (latest.py) reads the
part that was appended since the last compaction, and notes the last offset of each key. The second, in this module,
reads all closed segments from the oldest on, and leaves out each record that has a later one.

Retained records keep their offset, timestamp and epoch. A batch that loses no record is copied. A batch that loses all
its records is left out, so offsets get gaps.

Records of aborted transactions are left out. A compaction ends before the oldest open transaction (outcomes.py), so it
leaves what is pending. A marker stays as long as a batch of its transaction was there, and then as long as a tombstone.

In a group's log a tombstone stays until delete_retention_ms after its own timestamp. In a batch to which Kafka's
cleaner gave a delete horizon, it stays until that horizon (KIP-534).

In a topic's log, as in Kafka's:

- the compaction that first sees a tombstone, or a marker alone, gives its batch a delete horizon, delete_retention_ms
  from then; the first compaction behind that horizon drops it;
- the last batch of each idempotent producer stays, empty if it loses all records: it holds the producer's last number;
- a record without a key is dropped: it was appended before the topic was compacted.

Unlike in Kafka, the last batch of each file of a topic stays: without its producer if it loses all records. So a
segment ends where the next begins, and a missing segment shows as a gap.

Segments are joined while the result fits a segment. Files in which nothing changes aren't written. As in Kafka's
cleaner, each file is swapped in (segments/swap.py) before the next is begun. So a disk needs room for one more segment,
not for a second log, and a compaction may end after any of its files.

If the disk has no room for a file, plus a reserve for appends, segments are tried one by one until there is room. A
segment that doesn't fit stays unchanged. From there on this compaction drops no tombstone, as the record that it
deletes may be in that segment; the next compaction begins there.

Simple batches are handled many at a time (protocol/records/plain_keys.py). In the part that the first pass has read,
the second needs no keys: a list of offsets says which records stay. It copies neighbours that stay as one run, and it
skips a segment whose records are all superseded. `_filter` handles the other batches, and those that lose some of their
records.

House rule: this module never changes a file that readers of the log use.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.log.compaction.latest import KEY_SIZE_MAX, Latest, name_of
from coordinator.log.compaction.outcomes import marker_in
from coordinator.log.compaction.output import Output
from coordinator.log.compaction.reading import ClosedSegment, SegmentReader, closed_segments, records_of
from coordinator.log.compaction.task import Cleaned, Compaction, Swap, Task
from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk, closing, describe
from coordinator.log.segments.segment import SEGMENT_OFFSETS_MAX, Frame, Segment, read_frames
from coordinator.log.segments.swap import cleaned_path
from coordinator.log.segments.view import Part
from protocol.records.batch import CONTROL, TRANSACTIONAL, Header, peek_header
from protocol.records.plain_keys import Plain, find_keys, peek_plain
from protocol.records.rewrite import RecordSlice, encode_slices

FREE_PART = 8
"""So large a part of a segment's size stays free on the disk, for appends until the old segments are gone."""

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""The system's errors for a file that can't grow."""


def compact(disk: Disk, folder: Path, task: Task, swap: Swap) -> Compaction:
    """Compact the log in `folder`, and hand each new file to `swap`. Raises Damaged, or OSError."""
    sources = closed_segments(disk, folder, task.end_offset)
    latest = Latest(disk, task)
    latest.read(sources)
    rewrite = (_TopicRewrite if task.is_topic else _Rewrite)(disk, folder, task, latest)
    return rewrite.run([source for source in sources if source.segment.base_offset < latest.end], swap)


class _Group(NamedTuple):
    """Some source segments: their number, their bytes, the bytes after compaction, the new file (None: no change)."""

    sources: int
    size_before: int
    size_after: int
    cleaned: Cleaned | None


class _Rewrite:
    """The second pass, by the rules of a group's log."""

    def __init__(self, disk: Disk, folder: Path, task: Task, latest: Latest) -> None:
        self._disk = disk
        self._folder = folder
        self._task = task
        self._reader = SegmentReader(disk)
        self._map_end = latest.end
        self._last = latest.offsets
        self._due = latest.due
        self._due_ms = task.due_ms
        self._stay = latest.stay
        self._stay_at = 0
        self._outcomes = latest.outcomes
        # The producers with batches whose marker comes next.
        self._begun: set[int] = set()
        self._is_left_out = False
        # The last batch of the new file if it lost all its records: its bytes and their start.
        self._dropped: tuple[bytes, int] | None = None
        # The last batch if it was empty before: its bytes, their start and end. It stays if the file ends with it.
        self._held: tuple[bytes, int, int] | None = None

    def run(self, sources: Sequence[ClosedSegment], swap: Swap) -> Compaction:
        """Write the new files one by one; a segment whose new file doesn't fit the disk stays unchanged."""
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
                if not alone:  # the file of one segment may be smaller than that of several
                    alone = True
                    continue
                segment = sources[at].segment
                if not self._is_left_out:
                    self._is_left_out = True
                    clean_offset = max(self._task.dirty_offset, segment.base_offset)
                    reason = describe(error)
                group = _Group(1, self._reader.size(segment), self._reader.size(segment), None)
            size_before += group.size_before
            size_after += group.size_after
            at += group.sources
            if group.cleaned is not None:
                alone = False
                swap(group.cleaned)
                files.append(group.cleaned._replace(part=()))
        return Compaction(clean_offset, files, size_before, size_after, reason)

    def _write_group(self, sources: Sequence[ClosedSegment], *, alone: bool) -> _Group:
        """Write the first source and, unless `alone`, the next ones that fit the same segment."""
        first, end = sources[0]
        newest = first
        self._stay_at = bisect_left(self._stay, first.base_offset)
        output = Output(self._disk, self._folder, first, self._task.segment_size // FREE_PART)
        count = size_before = 0
        self._dropped = self._held = None
        begun = set(self._begun)
        try:
            for segment, following in sources:
                size = self._reader.size(segment)
                if count:
                    fits = output.size + size <= self._task.segment_size
                    if alone or not fits or following - first.base_offset > SEGMENT_OFFSETS_MAX:
                        break
                    output.mark_changed()
                self._write_source(segment, following, size, output)
                count += 1
                size_before += size
                newest, end = segment, following
            self._end_file(output)
            cleaned = None
            if output.finish(newest):
                cleaned = Cleaned(first.base_offset, end, self._index(first.base_offset))
        except (OSError, Damaged):
            self._begun = begun
            output.remove()
            raise
        finally:
            output.close()
        return _Group(count, size_before, output.size, cleaned)

    def _write_source(self, segment: Segment, end: int, size: int, output: Output) -> None:
        if not self._nothing_stays(segment.base_offset, end):
            for frame in self._reader.frames(segment, partial(self._filter_plain, output)):
                if frame.header.is_transactional and not frame.header.is_control:
                    self._begun.add(frame.header.producer_id)
                self._filter(segment, frame, output)
        elif size:
            output.mark_changed()

    def _nothing_stays(self, base_offset: int, end_offset: int) -> bool:
        """Whether the first pass has read all records between the two offsets, and all are superseded."""
        if base_offset < self._task.dirty_offset or end_offset > self._map_end:
            return False
        return self._stay[bisect_left(self._stay, base_offset)] >= end_offset

    def _filter(self, segment: Segment, frame: Frame, output: Output) -> None:
        """Copy, rewrite or leave out a batch."""
        header = frame.header
        if header.base_offset < self._map_end:
            records = records_of(segment, frame)
            retained = (
                self._with_marker(header, records, is_marker=marker_in(segment, frame) is not None)
                if header.is_control
                else self._with_records(header, records)
            )
            if retained is not None:
                output.mark_changed()
                output.write(retained)
                self._dropped = None if retained else (frame.data, frame.at)
                return
        self._dropped = None
        output.copy(frame.data, frame.at, frame.at + header.size)

    def _with_records(self, header: Header, records: Sequence[RecordSlice]) -> bytes | None:
        """The batch of the records that stay: none of an aborted transaction."""
        is_aborted = self._outcomes.is_aborted(header)
        stay = [] if is_aborted else [record for record in records if self._stays(header, record)]
        return self._retained(header, records, stay, ends=any(record.is_tombstone for record in stay))

    def _with_marker(self, header: Header, records: Sequence[RecordSlice], *, is_marker: bool) -> bytes | None:
        """The control batch, as far as it stays: a marker goes once no batch of its transaction is left."""
        ends = is_marker and header.producer_id not in self._begun
        self._begun.discard(header.producer_id)
        stay = [record for record in records if not (ends and self._goes(header, record))]
        return self._retained(header, records, stay, ends=ends)

    # Methods that the rules of a topic's log replace.

    def _retained(
        self, header: Header, records: Sequence[RecordSlice], stay: Sequence[RecordSlice], *, ends: bool
    ) -> bytes | None:
        """The bytes of a batch with its retained records, empty without any; None if the batch doesn't change.

        ends: whether a record has a time to be kept.
        """
        del ends
        if stay and len(stay) == len(records):
            return None
        return encode_slices(header, stay) if stay else b""

    def _is_retention_over(self, header: Header, record: RecordSlice) -> bool:
        """Whether the time to keep a tombstone is over."""
        horizon_ms = header.delete_horizon_ms
        end_ms = record.timestamp_ms + self._task.retention_ms if horizon_ms is None else horizon_ms
        return self._task.now_ms >= end_ms

    def _end_file(self, output: Output) -> None:
        """Called after the last batch of a file."""

    def _index(self, base_offset: int) -> Sequence[Any]:  # noqa: ARG002 - nobody reads it by offset
        """The positions of the batches in a new file."""
        return ()

    # Simple batches, many at a time.

    def _filter_plain(self, output: Output, data: bytes, at: int) -> int:
        """Copy or leave out simple batches, run by run, up to the first that loses only a part (ChunkHandler)."""
        dirty_offset, map_end = self._task.dirty_offset, self._map_end
        run = at
        dropped = -1
        while (plain := peek_plain(data, at)) is not None:
            end, base_offset, last_offset, _, _, count, _ = plain
            if base_offset < self._reader.next_offset:
                break
            if base_offset >= map_end:
                stays: bool | None = True
            elif base_offset >= dirty_offset:
                stays = self._stays_by_offset(base_offset, last_offset, count)
            elif last_offset >= dirty_offset:  # deleted records end here; the first pass noted the whole batch
                stays = None
            else:
                stays = self._stays_by_key(data, at, plain)
            if stays is None:
                break
            if not stays:
                output.copy(data, run, at)
                output.mark_changed()
                run = end
                dropped = at
            self._reader.next_offset = last_offset + 1
            at = end
        if at > run:
            self._dropped = None
        elif dropped >= 0:
            self._dropped = data, dropped
        output.copy(data, run, at)
        return at

    def _stays_by_offset(self, base_offset: int, last_offset: int, count: int) -> bool | None:
        """Whether a batch in the part of the first pass stays; None if only some of its records stay."""
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
        """Whether a batch before the part of the first pass stays; None if only some of its records stay."""
        found = find_keys(data, at, plain)
        if found is None:
            return None
        superseded = 0
        for _, key, tombstone_ms in found:
            if (key if len(key) <= KEY_SIZE_MAX else name_of(key)) in self._last:
                superseded += 1
            elif tombstone_ms is not None and tombstone_ms <= self._due_ms:
                return None
        return None if 0 < superseded < len(found) else not superseded

    def _stays(self, header: Header, record: RecordSlice) -> bool:
        if record.key is None:
            return False
        if record.offset < self._last.get(name_of(record.key), -1):
            return False
        return not (record.is_tombstone and self._goes(header, record))

    def _goes(self, header: Header, record: RecordSlice) -> bool:
        """Whether a tombstone or a marker goes: none does behind a segment that was left as it is."""
        return not self._is_left_out and self._is_retention_over(header, record)


class _TopicRewrite(_Rewrite):
    """The second pass, by the rules of a topic's log."""

    def __init__(self, disk: Disk, folder: Path, task: Task, latest: Latest) -> None:
        super().__init__(disk, folder, task, latest)
        self._last_offsets = frozenset(task.last_offsets)

    def _nothing_stays(self, base_offset: int, end_offset: int) -> bool:  # noqa: ARG002 - perhaps the last batch does
        return False

    def _filter(self, segment: Segment, frame: Frame, output: Output) -> None:
        self._drop_held(output)
        header = frame.header
        if header.record_count or header.next_offset - 1 in self._last_offsets:
            super()._filter(segment, frame, output)
            return
        self._dropped = None
        self._held = frame.data, frame.at, frame.at + header.size

    def _filter_plain(self, output: Output, data: bytes, at: int) -> int:
        if self._held is not None and peek_plain(data, at) is not None:
            self._drop_held(output)
        return super()._filter_plain(output, data, at)

    def _drop_held(self, output: Output) -> None:
        if self._held is not None:
            self._held = None
            output.mark_changed()

    def _retained(
        self, header: Header, records: Sequence[RecordSlice], stay: Sequence[RecordSlice], *, ends: bool
    ) -> bytes | None:
        if not stay:
            if header.next_offset - 1 not in self._last_offsets:
                return b""
            return encode_slices(header, []) if records else None
        horizon_ms = None
        if header.delete_horizon_ms is None and ends:
            horizon_ms = self._task.now_ms + self._task.retention_ms
        if horizon_ms is None and len(stay) == len(records):
            return None
        return encode_slices(header, stay, horizon_ms)

    def _is_retention_over(self, header: Header, record: RecordSlice) -> bool:  # noqa: ARG002 - its batch says it
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is not None and self._task.now_ms >= horizon_ms

    def _end_file(self, output: Output) -> None:
        if self._held is not None:
            output.copy(*self._held)
        elif self._dropped is not None:
            header = peek_header(*self._dropped)
            attributes = header.attributes & ~(TRANSACTIONAL | CONTROL)
            nobodys = header._replace(attributes=attributes, producer_id=-1, producer_epoch=-1, base_sequence=-1)
            output.write(encode_slices(nobodys, []))

    def _index(self, base_offset: int) -> Sequence[Any]:
        part = Part(Segment(base_offset, cleaned_path(self._folder, base_offset)))
        with closing(self._disk, self._disk.open_to_read(part.segment.path)) as descriptor:
            for frame in read_frames(self._disk, descriptor, self._disk.size(descriptor)):
                part.add(frame.position, frame.header.base_offset, frame.header)
        return part.fields()
