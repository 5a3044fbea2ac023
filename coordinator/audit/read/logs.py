"""Finds the files of a log and cuts them into byte ranges that can be read separately.

`plan` looks at a folder (a data folder of Tenure, or one of a broker's log.dirs) and at every batch header in it. It
returns what a reader of one range can't know: where batches begin, which segment is the newest, how far a broker has
cleaned, and how each transaction ended. It decodes no record, and computes a CRC only where bytes make no sense.

Bytes count as a batch if the header makes sense and either another batch or the end follows, or the CRC is right. Else
they are a gap, up to the next batch with the right CRC. So a damaged batch hides no batch behind it. A range is whole
batches, one behind the other, and the gaps between them. `plan` names the reason of a gap once; the bytes of a gap are
never held in memory.

A server may use the folder meanwhile. Each partition is read as it was at one moment (log.segments.outside). If a
file is opened later and is another one by then, that is `Replaced`.

House rule: files are opened for reading, never locked, and read up to the size that they had at first.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from coordinator.audit.read.batches import read_batch, read_marker
from coordinator.log.files import read_regular
from coordinator.log.segments.damage import Search, is_whole_but_for_its_frame
from coordinator.log.segments.disk import Disk, read_data
from coordinator.log.segments.lock import partition_lock
from coordinator.log.segments.outside import (
    BATCH_READ_MAX,
    JournalsBeside,
    Log,
    OpenSegment,
    could_be,
    find_logs,
    opened,
)
from coordinator.log.segments.segment import OFFSETS_TOPIC, topic_partition_of
from protocol.records.batch import CONTROL, FRAME_SIZE, HEADER_SIZE, MAGIC, CorruptBatch, Header, peek_header

RANGE_SIZE = 8 * 1024 * 1024
"""Bytes that one process reads at a time: enough for columns to be fast, few enough for a processor's caches."""

ROOM = "zeros up to the end of the log"
"""The reason of a gap of zeros: a broker with log.preallocate makes them, and a crash may leave them."""

NO_BATCH_KIND = "no_batch"
TORN_TAIL_KIND = "torn_tail"
ROOM_KIND = "room"
OLD_FORMAT_KIND = "old_format"

_CHUNK_SIZE = 1024 * 1024
_LOCK_NAME = re.compile(r"\.lock-\d+")
_CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
_CLEANED = re.compile(rf"\s*{OFFSETS_TOPIC}\s+([0-9]+)\s+([0-9]{{1,19}})\s*")
_CLEANER_CHECKPOINT_SIZE_MAX = 16 * 1024 * 1024
"""A broker has a line of up to 300 bytes for each of its partitions: room for 50,000."""
# Base offset, length, magic, attributes; the epoch and the CRC are left out.
_FRAME = struct.Struct(">qi4xb4xh")
_LENGTH_AND_MAGIC = struct.Struct(">i4xb")
_LENGTH_AT = 8
_LENGTH_MIN = HEADER_SIZE - FRAME_SIZE
_LENGTH_MAX = BATCH_READ_MAX - FRAME_SIZE

OnControlBatch = Callable[["FilePart", int], None]
"""Called with a window of a file and the position of a control batch in it."""


class Replaced(OSError):
    """The file was replaced or changed after the plan was made: a server compacted meanwhile."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ESTALE, "the log changed while it was read: try again, or copy it first", path)


class Piece(NamedTuple):
    """A batch from `position` up to `end`, its CRC not checked; or a gap, with a `kind` and a `reason`.

    kind: one of the constants above. A torn tail ends at the end of its file, and isn't a whole batch.
    """

    position: int
    end: int
    reason: str | None = None
    kind: str | None = None


class Range(NamedTuple):
    """Bytes of a segment that begin and end where pieces do.

    segment: the offset in its name. file: the `file_id` of `path`. gaps: the pieces that are no batches; all other
    bytes are batches. descriptor: of the file, while this process has it open.
    """

    partition: int
    segment: int
    path: str
    start: int
    end: int
    file: int = 0
    gaps: tuple[Piece, ...] = ()
    descriptor: int | None = None

    @property
    def ends_in_gap(self) -> bool:
        """Whether the last bytes are no batch."""
        return bool(self.gaps) and self.gaps[-1].end == self.end

    @property
    def stretches(self) -> Iterator[tuple[int, int]]:
        """Begin and end of each run of batches between the gaps."""
        at = self.start
        for gap in self.gaps:
            if gap.position > at:
                yield at, gap.position
            at = gap.end
        if self.end > at:
            yield at, self.end


@dataclass
class Plan:
    """The parts of a log.

    logs: the partitions. partition_count: offsets.topic.num.partitions; None if the folder doesn't show it.
    sizes: bytes by partition; a folder without segments has 0. is_replica: a broker may have copied the partitions from
    another one, because this is no data folder of Tenure.
    The others are known of partitions that were looked at. ranges: in the order of partitions and offsets.
    uncleaned_from: by partition, the offset from which on no compaction can have been. newest: by partition, the offset
    in the name of its newest segment. damaged_ends: by partition, the segments that end in bytes that are no batch.
    markers: partition -> producer id -> (offset, committed) of the ends of its transactions, ascending.
    """

    logs: list[Log] = field(default_factory=list)
    partition_count: int | None = None
    ranges: list[Range] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    is_replica: bool = True
    uncleaned_from: dict[int, int] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    damaged_ends: dict[int, list[int]] = field(default_factory=dict)
    markers: dict[int, dict[int, list[tuple[int, bool]]]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes to be read."""
        return sum(self.sizes.values())

    def counts(self, partition: int, producer_id: int | None, offset: int) -> bool | None:
        """Whether a record counts: the next marker of its producer, if it has one, must be a commit.

        None if no marker ends its transaction.
        """
        return producer_id is None or is_committed(self.markers.get(partition, {}), producer_id, offset)


def is_committed(markers: dict[int, list[tuple[int, bool]]], producer_id: int, offset: int) -> bool | None:
    """Whether the transaction of a record was committed, by a partition's markers; None if no marker ends it."""
    ends = markers.get(producer_id, [])
    at = bisect_right(ends, (offset, True))
    return ends[at][1] if at < len(ends) else None


class FilePart:
    """A part of a file in memory; `index` moves it.

    data: the bytes from position `at` of the file on. end: the end of the file.
    """

    def __init__(self, descriptor: int, end: int, chunk_size: int = _CHUNK_SIZE) -> None:
        self.data = b""
        self.at = 0
        self.descriptor = descriptor
        self.end = end
        self._chunk_size = chunk_size

    def index(self, position: int, size: int) -> int:
        """The index in `data` of the byte at `position`; `size` bytes follow from there, if the file has as many."""
        at = position - self.at
        if not 0 <= at <= len(self.data) - size:
            self.data = os.pread(self.descriptor, min(max(size, self._chunk_size), self.end - position), position)
            self.at = position
            at = 0
        return at


# -- the parts of a log


def look(path: Path, partition_count: int | None = None) -> Plan:
    """Find the log at `path`: a data folder, a broker's log folder, or the folder of one partition.

    No file is opened. Raises OSError.
    """
    if path.is_file():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    home = path.absolute()  # processes in other working folders read its ranges too
    logs = [log for log in find_logs(home) if not log.has_ids]
    if not logs:
        raise FileNotFoundError(errno.ENOENT, f"no {OFFSETS_TOPIC}-* in it", str(path))
    sizes = {log.partition: 0 for log in logs if log.partition is not None}
    found = Plan(logs, partition_count, sizes=sizes, is_replica=not _is_tenures(home))
    if partition_count is None and logs[0].folder != home:
        # If some are missing, this folder doesn't show how many there are.
        known = known_partitions(home, logs)
        found.partition_count = len(known) if len(known) == max(known) + 1 else None
    return found


def plan(path: Path, partition_count: int | None = None, range_size: int = RANGE_SIZE) -> Plan:
    """Find the log at `path` and look at all of its partitions. Raises OSError."""
    made = look(path, partition_count)
    journals = JournalsBeside()
    for log in made.logs:
        with opened(log, journals) as segments:
            ranges = plan_partition(made, log, segments, range_size)
            made.ranges += [each._replace(descriptor=None) for each in ranges]
    return made


def plan_partition(made: Plan, log: Log, segments: Sequence[OpenSegment], range_size: int = RANGE_SIZE) -> list[Range]:
    """Look at a partition, whose segments are open, and add it to the plan; return its ranges."""
    partition = log.partition
    assert partition is not None
    made.sizes[partition] = sum(segment.size for segment in segments)
    if segments:
        made.uncleaned_from[partition] = uncleaned_from(log, segments)
        made.newest[partition] = segments[-1].base_offset
    ranges: list[Range] = []
    for segment in segments:

        def on_control(window: FilePart, position: int) -> None:
            _note_marker(made, partition, window, position)

        ranges += ranges_of(partition, segment, range_size, on_control)
        if ranges and ranges[-1].segment == segment.base_offset and ranges[-1].ends_in_gap:
            made.damaged_ends.setdefault(partition, []).append(segment.base_offset)
    if ranges and ranges[-1].ends_in_gap and ranges[-1].end == segments[-1].size:
        ranges[-1:] = _settled(ranges[-1], segments[-1])
    return ranges


def ranges_of(
    partition: int,
    segment: OpenSegment,
    range_size: int,
    on_control: OnControlBatch | None = None,
    searched: Callable[[int], None] = lambda _size: None,
) -> Iterator[Range]:
    """The ranges of a segment, one behind the other. Raises OSError.

    searched: called with the bytes of gaps that were searched since the last call, as a gap may be of any size.
    """
    with _named(segment.path):
        window = FilePart(segment.descriptor, segment.size)
        file = file_id(segment.descriptor)
        search = Search(Disk(), segment.descriptor, segment.size, searched)
        for start, end, gaps in cut(window, 0, segment.size, range_size, on_control, search):
            yield Range(partition, segment.base_offset, str(segment.path), start, end, file, gaps, segment.descriptor)


def _settled(range_: Range, segment: OpenSegment) -> list[Range]:
    """The last range of a log that ends in a gap: a write under way is left out, and zeros are no torn tail."""
    *gaps, gap = range_.gaps
    if os.fstat(segment.descriptor).st_size > segment.size:
        return [range_._replace(end=gap.position, gaps=tuple(gaps))] if gap.position > range_.start else []
    if _is_zero(segment.descriptor, gap.position, gap.end):
        gaps.append(gap._replace(reason=ROOM, kind=ROOM_KIND))
        return [range_._replace(gaps=tuple(gaps))]
    return [range_]


def _is_zero(descriptor: int, start: int, end: int) -> bool:
    chunks = read_data(Disk(), descriptor, start, end, _CHUNK_SIZE)
    return all(data.count(0) == len(data) for _, data in chunks)


def _note_marker(made: Plan, partition: int, window: FilePart, position: int) -> None:
    """Note how transactions end by the control batch at `position`."""
    size = peek_header(window.data, window.index(position, HEADER_SIZE)).size
    header, batch, _, _ = read_batch(window.data, window.index(position, size))
    if batch is None:
        return  # a reader of the range reports it
    for offset, record in zip(batch.offsets, batch.records, strict=True):
        ends = read_marker(record).ends
        if ends is not None:
            made.markers.setdefault(partition, {}).setdefault(header.producer_id, []).append((offset, ends))


def _is_tenures(home: Path) -> bool:
    """Whether `home`, or the folder around that of a partition, is a data folder of Tenure: its lock files stay."""
    folder = home.parent if home.name.startswith(f"{OFFSETS_TOPIC}-") else home
    return any(_LOCK_NAME.fullmatch(each.name) for each in folder.iterdir())


def known_partitions(path: Path, logs: Sequence[Log], topic: str = OFFSETS_TOPIC) -> set[int]:
    """The partitions of a log in a folder: a broker has a folder for each, Tenure a lock file for each."""
    named = (topic_partition_of(each.name) for each in path.iterdir())
    lock = topic_partition_of(partition_lock(path, 0, topic).name)
    locked = {name[1] for name in named if name and lock and name[0] == lock[0]}
    return {log.partition for log in logs if log.partition is not None} | locked


def uncleaned_from(log: Log, segments: Sequence[OpenSegment]) -> int:
    """The offset from which on no compaction can have been; the partition has at least one segment."""
    assert log.partition is not None
    cleaned_to = _cleaned_to(log.folder.absolute().parent, log.partition)
    newest = segments[-1].base_offset
    return newest if cleaned_to is None else min(cleaned_to, newest)


def _cleaned_to(path: Path, partition: int) -> int | None:
    """The offset up to which a broker has cleaned a partition, by its checkpoint (Kafka: OffsetCheckpointFile).

    None without a checkpoint: then any segment but the newest may have been cleaned.
    """
    checkpoint = path / _CLEANER_CHECKPOINT
    try:
        state = checkpoint.stat()
        cleaned = _cleaned(checkpoint, state.st_ino, state.st_mtime_ns, state.st_size)
    except OSError:
        return None
    return None if cleaned is None else cleaned.get(str(partition), 0)


@lru_cache(1)
def _cleaned(checkpoint: Path, _inode: int, _changed_ns: int, size: int) -> dict[str, int] | None:
    """The offsets in a broker's checkpoint by partition, None if they can't be read. Raises OSError.

    A broker replaces the file, so that inode and time tell whether it is the one that was read last.
    """
    if size > _CLEANER_CHECKPOINT_SIZE_MAX:
        return None
    try:
        lines = read_regular(checkpoint, _CLEANER_CHECKPOINT_SIZE_MAX).decode().splitlines()
    except UnicodeDecodeError:
        return None
    found = (_CLEANED.fullmatch(line) for line in lines)
    return {line[1]: int(line[2]) for line in found if line}


def file_id(descriptor: int) -> int:
    """The number of a file in its file system: it doesn't depend on the name, and is the same on all machines."""
    return os.fstat(descriptor).st_ino


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError that has none, as errors of a descriptor do."""
    try:
        yield
    except OSError as error:
        raise error if error.filename else OSError(error.errno, error.strerror, str(path)) from error


# -- reading a range


@contextmanager
def open_range(range_: Range) -> Iterator[int]:
    """A descriptor of the range's file. Raises Replaced if the file is another one now, and other OSErrors."""
    if range_.descriptor is not None:
        yield range_.descriptor
        return
    try:
        descriptor = Disk().open_to_read(Path(range_.path))
    except FileNotFoundError as error:
        raise Replaced(range_.path) from error
    try:
        if file_id(descriptor) != range_.file:
            raise Replaced(range_.path)
        yield descriptor
    finally:
        os.close(descriptor)


def read_into(range_: Range, buffer: memoryview) -> None:
    """Read the bytes of a range into a buffer of their size. Raises Replaced and other OSErrors."""
    with open_range(range_) as descriptor, _named(Path(range_.path)):
        if os.preadv(descriptor, [buffer], range_.start) != range_.end - range_.start:
            raise Replaced(range_.path)  # it became shorter


def read_range(range_: Range) -> tuple[FilePart, list[Piece]]:
    """The batches of a range and the gaps between them, and its bytes if it has a batch.

    Raises Replaced and other OSErrors.
    """
    found = list(range_.gaps)
    with open_range(range_) as descriptor, _named(Path(range_.path)):
        size = range_.end - range_.start
        window = FilePart(descriptor, range_.end, max(size, 1))
        if any(range_.stretches):
            window.index(range_.start, size)
            if len(window.data) < size:
                raise Replaced(range_.path)  # it became shorter
            bounds = zip(*batches_in(window.data, range_), strict=True)
            found += [Piece(range_.start + start, range_.start + end) for start, end in bounds]
    return window, sorted(found)


def batches_in(data: bytes | memoryview, range_: Range) -> tuple[list[int], list[int]]:
    """Begins and ends of the batches in the bytes of a range. Raises Replaced."""
    starts: list[int] = []
    ends: list[int] = []
    unpack = _LENGTH_AND_MAGIC.unpack_from
    for first, last in range_.stretches:
        at, end = first - range_.start, last - range_.start
        while at <= end - HEADER_SIZE:
            length, magic = unpack(data, at + _LENGTH_AT)
            if magic != MAGIC or length < _LENGTH_MIN:
                break
            starts.append(at)
            at += FRAME_SIZE + length
            ends.append(at)
        if at != end:
            raise Replaced(range_.path)
    return starts, ends


# -- bytes into pieces


def cut(
    window: FilePart,
    start: int,
    end: int,
    range_size: int,
    on_control: OnControlBatch | None = None,
    search: Search | None = None,
) -> Iterator[tuple[int, int, tuple[Piece, ...]]]:
    """Cut the bytes from `start` to `end` where pieces begin; only a part of one piece is larger than `range_size`.

    Yields begin, end and gaps of each part. on_control: called for each control batch. search: as for `pieces`.

    The pieces are those of `pieces`. Batches that follow each other take a tenth of its time here.
    """
    first = position = start
    gaps: list[Piece] = []
    noted = -1
    unpack = _FRAME.unpack_from
    search = search or Search(Disk(), window.descriptor, end)
    while position < end:
        at = window.index(position, min(HEADER_SIZE, end - position))
        data, base = window.data, window.at
        stop = end - base
        limit = min(len(data), stop) - HEADER_SIZE
        part_end = first + range_size - base
        former = at
        while at <= limit:
            base_offset, length, magic, attributes = unpack(data, at)
            following = at + FRAME_SIZE + length
            if magic != MAGIC or not _LENGTH_MIN <= length <= _LENGTH_MAX or base_offset < 0 or following > stop:
                break
            # The batch before it is a batch, as this one follows it.
            if at > part_end and base + former > first:
                yield first, base + former, tuple(gaps)
                first = base + former
                part_end = former + range_size
                gaps.clear()
            if attributes & CONTROL and on_control is not None and base + at > noted:
                noted = base + at
                on_control(window, noted)
            former = at
            at = following
        if base + former > position:
            position = base + former
            continue
        for piece in pieces(window, position, end, search):
            if piece.end - first > range_size and piece.position > first:
                yield first, piece.position, tuple(gaps)
                first = piece.position
                gaps.clear()
            position = piece.end
            if piece.kind is None:
                break
            gaps.append(piece)
    if position > first:
        yield first, position, tuple(gaps)


def pieces(window: FilePart, start: int, end: int, search: Search | None = None) -> Iterator[Piece]:
    """The pieces of the bytes from `start` up to `end`, one behind the other.

    search: of the same file, if the caller has one.
    """
    search = search or Search(Disk(), window.descriptor, end)
    position = start
    header = _header_at(window, position, end)
    while position < end:
        if header is not None:
            following = position + header.size
            next_header = _header_at(window, following, end)
            if next_header is not None or following == end or search.is_right(position, header):
                yield Piece(position, following)
                position, header = following, next_header
                continue
        old = search.old_messages(position)
        if old is not None:
            yield Piece(position, old.end, old.reason, OLD_FORMAT_KIND)
            position = old.end
        else:
            behind = search.behind(position + 1, could_be)
            following = end if behind is None else behind
            yield _gap(window, position, following)
            position = following
        header = _header_at(window, position, end)


def _header_at(window: FilePart, position: int, end: int) -> Header | None:
    """The header at `position`; None if it can't be the header of a batch that ends before `end`."""
    if end - position < HEADER_SIZE:
        return None
    at = window.index(position, HEADER_SIZE)
    try:
        header = peek_header(window.data, at)
    except CorruptBatch:
        return None
    return header if header.base_offset >= 0 and header.size <= min(end - position, BATCH_READ_MAX) else None


def _gap(window: FilePart, position: int, following: int) -> Piece:
    """The gap from `position` up to `following`."""
    reason = _reason(window, position, following)
    if following < window.end:
        return Piece(position, following, reason, NO_BATCH_KIND)
    if following - position <= BATCH_READ_MAX and is_whole_but_for_its_frame(
        Disk(), window.descriptor, position, following
    ):
        return Piece(position, following, f"{reason}; the batch is whole, its length or magic is wrong", NO_BATCH_KIND)
    return Piece(position, following, reason, TORN_TAIL_KIND)


def _reason(window: FilePart, position: int, following: int) -> str:
    """The reason why the bytes from `position` up to `following` are no batch."""
    left = following - position
    if left < HEADER_SIZE:
        return f"{left} bytes left, a header takes {HEADER_SIZE}"
    at = window.index(position, HEADER_SIZE)
    try:
        header = peek_header(window.data, at)
    except CorruptBatch as error:
        return error.reason
    if header.size > BATCH_READ_MAX:
        return f"a batch of {header.size} bytes, {BATCH_READ_MAX} allowed"
    if following == window.end and header.size > left:
        return f"a batch of {header.size} bytes, {left} left"
    return f"its length, {header.size} bytes, or its CRC is wrong"
