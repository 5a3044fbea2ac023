"""Reads a log without owning it: writes nothing, takes no lock, and reads on behind damage.

A path is a data folder of ours, a broker's log folder (only its `__consumer_offsets-*` count), the folder of one
partition, or one segment.

A server may work with the folder at the same time. Its appends do no harm: a file is read up to the size that it had
when it was opened. A compaction may replace segments, however, and a mixture of old and new segments could contain a
record whose tombstone is gone. So all segments of a partition are opened before any is read. They count only if, after
the last is open, each is still the file of its name and no new segments exist: then all of them existed at one moment.
Otherwise all are opened again. An unfinished compaction is read as if it were finished (swap.py).

A server with a journal writes to the journal first, and after a power cut only the journal may have the last batches
(journal.py). They are read as if they were in their segment: if they aren't, or not yet, the segment is read from a
copy that has them. The journal is read first: what it doesn't need any more then, the segments have.

Bytes that are no batch are read as a `NoBatch`. Reading goes on at the next batch with the right CRC, so one damaged
batch doesn't hide the batches behind it.

House rule: damaged bytes are a value; only errors of the system are raised, as OSError.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from coordinator.log.engine import Damaged
from coordinator.log.segments.damage import Search, is_whole_but_for_its_frame, makes_sense
from coordinator.log.segments.disk import Disk, write_all
from coordinator.log.segments.journal import Extent, journaled
from coordinator.log.segments.segment import OFFSETS_TOPIC, Frame, Segment, list_segments, read_frames, segments_among
from coordinator.log.segments.swap import segments_as_swapped
from protocol.records.batch import CorruptBatch

OPEN_ATTEMPTS = 1_000
"""A swap takes some ms, and the next comes seconds later: a reader that needs more attempts isn't looking at a log."""

JOURNAL_ATTEMPTS = 5
"""A journal that looks damaged is read anew so often: its engine may have begun one of its files anew meanwhile."""

_FOLDER_NAME = re.compile(rf"{OFFSETS_TOPIC}-(\d+)")


class Log(NamedTuple):
    """The log of one partition.

    partition: None for a segment that lies somewhere else. file: the only segment, if no other counts.
    """

    partition: int | None
    folder: Path
    file: Path | None = None


class OpenSegment(NamedTuple):
    """A segment of a log, open; `size` bytes of it count."""

    base_offset: int
    path: Path
    descriptor: int
    size: int


class NoBatch(NamedTuple):
    """Bytes from `position` up to `end` that are no batch, because of `reason`.

    at_end: nothing that could be a batch follows. whole: they are one batch but for its length or magic.
    """

    position: int
    end: int
    reason: str
    at_end: bool
    whole: bool


def find_logs(path: Path) -> list[Log]:
    """The logs at `path`, by partition. Raises OSError, FileNotFoundError too where there is no log."""
    if path.is_file():
        return [Log(_partition_of(path.absolute().parent), path.parent, path)]
    inside = list(path.iterdir())  # first, as this says why a folder can't be read
    partition = _partition_of(path.absolute())
    if partition is not None:
        return [Log(partition, path)]
    found = [(_partition_of(folder), folder) for folder in inside if folder.is_dir()]
    logs = [Log(partition, folder) for partition, folder in found if partition is not None]
    if not logs:
        raise FileNotFoundError(errno.ENOENT, f"no {OFFSETS_TOPIC}-* in it", str(path))
    return sorted(logs)


def _partition_of(folder: Path) -> int | None:
    name = _FOLDER_NAME.fullmatch(folder.name)
    return int(name[1]) if name else None


def size_of(logs: Sequence[Log]) -> int:
    """Bytes of all segments, about, as some may go meanwhile."""
    size = 0
    for log in logs:
        for segment in _segments(Disk(), log):
            with suppress(FileNotFoundError):
                size += segment.path.stat().st_size
    return size


@contextmanager
def opened(log: Log) -> Iterator[list[OpenSegment]]:
    """The segments of a log as they were at one moment, oldest first, until the block ends. Raises OSError."""
    extents = _journaled(log)
    for _ in range(OPEN_ATTEMPTS):
        segments = _open(log)
        if segments is not None:
            break
    else:
        raise OSError(errno.EAGAIN, "segments are replaced all the time", str(log.folder))
    try:
        if segments and extents and _is_newest(log):
            segments[-1] = _overlaid(segments[-1], extents)
        yield segments
    finally:
        _close(segments)


def _journaled(log: Log) -> list[Extent]:
    """The extents that journals have for a log. Raises OSError, also if a journal is damaged."""
    data_dir = log.folder.absolute().parent
    partition = _partition_of(log.folder.absolute())
    if partition is None:
        return []
    for attempt in range(OPEN_ATTEMPTS):
        try:
            return journaled(Disk(), data_dir, partition)
        except FileNotFoundError:
            continue  # its engine has removed it
        except Damaged as damage:
            if attempt > JOURNAL_ATTEMPTS:  # or its engine was writing to it
                raise OSError(errno.EBADMSG, damage.reason, f"{damage.file} at byte {damage.position}") from damage
    raise OSError(errno.EAGAIN, "journals are replaced all the time", str(data_dir))


def _is_newest(log: Log) -> bool:
    """Whether the last segment that counts is the newest of the folder."""
    return log.file is None or list_segments(Disk(), log.folder)[-1:] == _segments(Disk(), log)


def _overlaid(segment: OpenSegment, extents: Sequence[Extent]) -> OpenSegment:
    """The newest segment, with what the journal has for it."""
    disk = Disk()
    counted = [extent for extent in extents if extent.base_offset == segment.base_offset]
    if any(extent.base_offset > segment.base_offset for extent in extents):
        raise OSError(errno.ENOENT, "it is gone, and the journal has batches for it", str(segment.path))
    end = segment.size
    content = b""
    for extent in counted:
        data = b"".join(extent.data)
        if disk.read(segment.descriptor, len(data), extent.position) != data or extent.position + len(data) > end:
            content = content or disk.read(segment.descriptor, segment.size, 0)
            if extent.position > len(content):
                break  # what is missing was durable: whoever reads the segment finds that
            content = content[: extent.position] + data + content[extent.position + len(data) :]
    if not content:
        return segment
    with tempfile.TemporaryFile() as copy:
        descriptor = os.dup(copy.fileno())
    write_all(disk, descriptor, [content], 0)
    os.close(segment.descriptor)
    return segment._replace(descriptor=descriptor, size=len(content))


def _open(log: Log) -> list[OpenSegment] | None:
    """Open all segments; None if they changed meanwhile."""
    disk = Disk()
    wanted = _segments(disk, log)
    segments: list[OpenSegment] = []
    is_one_moment = False
    try:
        for base_offset, path in wanted:
            descriptor = disk.open_to_read(path)
            segments.append(OpenSegment(base_offset, path, descriptor, disk.size(descriptor)))
        # At the moment of this list all of them were there: each was opened before it and is found in its place after
        # it. A file that is open keeps its number, so that no other can be taken for it.
        is_one_moment = _segments(disk, log) == wanted and all(map(_is_in_place, segments))
    except FileNotFoundError as error:
        if log.file is not None or Path(error.filename).is_symlink():
            raise  # nobody has put another file in its place
    finally:
        if not is_one_moment:
            _close(segments)
    return segments if is_one_moment else None


def _segments(disk: Disk, log: Log) -> list[Segment]:
    if log.file is not None:
        named = segments_among(log.folder, [log.file.name])
        return [Segment(named[0].base_offset if named else 0, log.file)]
    return segments_as_swapped(log.folder, disk.list_folder(log.folder))


def _is_in_place(segment: OpenSegment) -> bool:
    return os.path.samestat(os.fstat(segment.descriptor), segment.path.stat())


def _close(segments: Sequence[OpenSegment]) -> None:
    for segment in segments:
        os.close(segment.descriptor)


def read_segment(segment: OpenSegment) -> Iterator[Frame | NoBatch]:
    """The batches of a segment, each with the right CRC, and the gaps between them. Raises OSError."""
    disk = Disk()
    descriptor, size = segment.descriptor, segment.size
    search = Search(disk, descriptor, size)
    start = 0
    while start < size:
        try:
            yield from read_frames(disk, descriptor, size, start=start)
            start = size
        except CorruptBatch as error:
            old = search.old_messages(error.position)
            if old is not None:
                start = old.end
                yield NoBatch(error.position, start, old.reason, at_end=False, whole=False)
                continue
            following = search.behind(error.position + 1, makes_sense)
            is_whole = following is None and is_whole_but_for_its_frame(disk, descriptor, error.position, size)
            start = size if following is None else following
            yield NoBatch(error.position, start, error.reason, following is None, is_whole)
