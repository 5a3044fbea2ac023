"""Reads a log without owning it: writes nothing, takes no lock, and reads on behind damage.

A path is a data folder of ours, a broker's log folder (only its `__consumer_offsets-*` count, unless another log is
named), the folder of one partition of any of the logs, or one segment.

A server may work with the folder at the same time. Its appends do no harm: a file is read up to the size that it had
when it was opened. A compaction may replace segments, however, and a mixture of old and new segments could contain a
record whose tombstone is gone. So all segments of a partition are opened before any is read. They count only if, after
the last is open, each is still the file of its name and no new segments exist: then all of them existed at one moment.
Otherwise all are opened again. An unfinished compaction is read as if it were finished (swap.py).

A server with a journal writes to the journal first, and after a power cut only the journal may have the last batches
(journal.py). They are read as if they were in their segment: if they aren't, or not yet, the segment is read from a
copy that has them. The journal is read first, and once for all partitions (`Journals`): the segments, opened later,
have all that it does not need at that moment.

Bytes that are no batch are read as a `NoBatch`. Reading goes on at the next batch with the right CRC, so one damaged
batch doesn't hide the batches behind it.

House rule: damaged bytes are a value; only errors of the system are raised, as OSError.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from coordinator.log.engine import Damaged
from coordinator.log.files import META_NAME, read_regular
from coordinator.log.segments.damage import Search, is_whole_but_for_its_frame, makes_sense
from coordinator.log.segments.disk import Disk, read_data, write_all
from coordinator.log.segments.journal import Extent, Journals, fitting, journal_number, numbered_folder, segment_gone
from coordinator.log.segments.segment import (
    CHUNK_SIZE,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Frame,
    Segment,
    list_segments,
    read_frames,
    segment_at,
    segments_among,
    topic_partition_of,
)
from coordinator.log.segments.swap import segments_as_swapped
from protocol.records.batch import CorruptBatch, Header

BATCH_READ_MAX = 128 * 1024 * 1024
"""Bytes of a batch that is read: far above any message.max.bytes in use, far below the memory of a machine."""

OPEN_ATTEMPTS = 1_000
"""A swap takes some ms, and the next comes seconds later: a reader that needs more attempts isn't looking at a log."""

JOURNAL_ATTEMPTS = 5
"""A journal that looks damaged is read anew so often: its engine may have begun one of its files anew meanwhile."""


class Log(NamedTuple):
    """The log of one partition.

    partition: None for a segment that lies somewhere else. file: the only segment, if no other counts.
    """

    partition: int | None
    folder: Path
    file: Path | None = None

    @property
    def has_ids(self) -> bool:
        """Whether it is of `__transaction_state`."""
        return _log_partition(self.folder)[0] == TRANSACTIONS_TOPIC


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


def find_logs(path: Path, topic: str = OFFSETS_TOPIC) -> list[Log]:
    """The logs at `path`, by partition; in a folder also those of which only journals have batches.

    topic: of the partitions that count in a folder of several.

    Raises OSError, FileNotFoundError too where there is no log, and NotRegular for an owner's name that is no file.
    """
    if path.is_file():
        return [Log(_log_partition(path.parent)[1], path.parent, path)]
    inside = list(path.iterdir())  # first, as this says why a folder can't be read
    partition = _log_partition(path)[1]
    if partition is not None:
        return [Log(partition, path)]
    if path / META_NAME in inside:
        read_regular(path / META_NAME)
    logs = _logs_among(inside, topic)
    try:
        journaled = _journals(path).partitions()
        lacking = {numbered_folder(path, each) for each in journaled}.difference(inside)
    except OSError:
        if not logs and topic == OFFSETS_TOPIC:
            raise
        lacking = set()  # each reader of a log meets the error
    logs += _logs_among(lacking, topic)
    if not logs:
        raise FileNotFoundError(errno.ENOENT, f"no {topic}-* in it", str(path))
    return sorted(logs)


def find_logs_of_ids(path: Path) -> list[Log]:
    """The logs of transactional ids in a folder; none if each is empty, in journals too: no transaction ever was.

    Raises OSError.
    """
    try:
        logs = find_logs(path, TRANSACTIONS_TOPIC)
    except FileNotFoundError:
        return []
    return logs if logs[0].folder != path and not (all(map(_is_empty, logs)) and _are_not_journaled(logs)) else []


def _is_empty(log: Log) -> bool:
    """Whether a log has no byte. A name that isn't of a file counts as bytes, and its reader says what it is."""
    for segment in _segments(Disk(), log):
        with suppress(FileNotFoundError):  # it may go meanwhile
            found = segment.path.lstat()
            if found.st_size or not stat.S_ISREG(found.st_mode):
                return False
    return True


def _are_not_journaled(logs: Iterable[Log]) -> bool:
    """Whether no journal has a batch for any of these logs. If a journal can't be read, each reader meets the error."""
    try:
        return not any(map(JournalsBeside().extents, logs))
    except OSError:
        return False


def _logs_among(folders: Iterable[Path], topic: str) -> list[Log]:
    """The logs of those that have the name of a partition's folder, whatever they are."""
    found = ((_log_partition(folder), folder) for folder in folders)
    return [Log(partition, folder) for (name, partition), folder in found if name == topic]


def _log_partition(folder: Path) -> tuple[str | None, int | None]:
    """The log and the partition that a folder is of, by its name."""
    topic, partition = topic_partition_of(folder.absolute().name) or (None, None)
    return (topic, partition) if topic in {OFFSETS_TOPIC, TRANSACTIONS_TOPIC} else (None, None)


def size_of(logs: Sequence[Log]) -> int:
    """Bytes of all segments, about, as some may go meanwhile."""
    size = 0
    for log in logs:
        for segment in _segments(Disk(), log):
            with suppress(FileNotFoundError):
                size += segment.path.stat().st_size
    return size


class JournalsBeside:
    """The journals beside several logs: those of each data folder are read once, before the first of its logs."""

    def __init__(self) -> None:
        self._found: dict[Path, Journals | OSError] = {}

    def extents(self, log: Log) -> list[Extent]:
        """The batches that journals have for a log. Raises OSError, also if a journal is damaged."""
        data_dir = log.folder.absolute().parent
        topic, partition = _log_partition(log.folder)
        if topic is None or partition is None:
            return []
        number = journal_number(partition, topic)
        for _ in range(OPEN_ATTEMPTS):
            try:
                return self._beside(data_dir).of(number)
            except FileNotFoundError as error:
                _require_removed(error)
                del self._found[data_dir]  # a load has taken what was left
            except Damaged as damage:
                raise _refused(damage) from damage
        raise OSError(errno.EAGAIN, "journals are replaced all the time", str(data_dir))

    def _beside(self, data_dir: Path) -> Journals:
        if data_dir not in self._found:
            try:
                self._found[data_dir] = _journals(data_dir)
            except OSError as error:
                self._found[data_dir] = error
        found = self._found[data_dir]
        if isinstance(found, OSError):
            raise OSError(found.errno, found.strerror, found.filename) from found
        return found


def _journals(data_dir: Path) -> Journals:
    """The journals in a folder. Raises OSError, also if one is damaged."""
    damaged = 0
    for _ in range(OPEN_ATTEMPTS):
        try:
            return Journals(Disk(), data_dir)
        except FileNotFoundError as error:
            _require_removed(error)  # by its engine
        except Damaged as damage:
            damaged += 1
            if damaged > JOURNAL_ATTEMPTS:  # or its engine was writing to it
                raise _refused(damage) from damage
    raise OSError(errno.EAGAIN, "journals are replaced all the time", str(data_dir))


def _require_removed(error: FileNotFoundError) -> None:
    """Raise the error if a link is there that leads nowhere: nobody has removed the file meanwhile."""
    if Path(error.filename).is_symlink():
        raise error


def _refused(damage: Damaged) -> OSError:
    return OSError(errno.EBADMSG, damage.reason, f"{damage.file} at byte {damage.position}")


@contextmanager
def opened(log: Log, journals: JournalsBeside | None = None) -> Iterator[list[OpenSegment]]:
    """The segments of a log as they were at one moment, oldest first, until the block ends. Raises OSError.

    journals: the same for all logs that a caller opens one after the other, so that it doesn't read them for each.
    """
    extents = (journals or JournalsBeside()).extents(log)
    for _ in range(OPEN_ATTEMPTS):
        segments = _open(log)
        if segments is not None:
            break
    else:
        raise OSError(errno.EAGAIN, "segments are replaced all the time", str(log.folder))
    try:
        if extents and _is_newest(log):
            _overlay(log, segments, extents)
        yield segments
    finally:
        _close(segments)


def _is_newest(log: Log) -> bool:
    """Whether the last segment that counts is the newest of the folder."""
    return log.file is None or list_segments(Disk(), log.folder)[-1:] == _segments(Disk(), log)


def _overlay(log: Log, segments: list[OpenSegment], extents: Sequence[Extent]) -> None:
    """Let the newest segment have what the journal has for it. Raises OSError, also if the two don't fit."""
    disk = Disk()
    newest = segments[-1].base_offset if segments else -1
    counted = [extent for extent in extents if extent.base_offset >= newest]
    if not counted:
        return
    try:
        if counted[-1].base_offset > newest:
            raise segment_gone(segment_at(log.folder, counted[-1].base_offset).path, counted[-1])
        segment = segments[-1]
        found = fitting(disk, segment.path, segment.descriptor, segment.size, counted)
    except Damaged as damage:
        raise _refused(damage) from damage
    lacking = [
        (position, data)
        for position, data in found
        if position + len(data) > segment.size or disk.read(segment.descriptor, len(data), position) != data
    ]
    if not lacking:
        return
    with tempfile.TemporaryFile() as copy:
        descriptor = os.dup(copy.fileno())
    try:
        _copy(disk, segment, descriptor)
        for position, data in lacking:
            write_all(disk, descriptor, [data], position)
    except BaseException:
        disk.close(descriptor)
        raise
    disk.close(segment.descriptor)
    end = max(segment.size, *(position + len(data) for position, data in lacking))
    segments[-1] = segment._replace(descriptor=descriptor, size=end)


def _copy(disk: Disk, segment: OpenSegment, descriptor: int) -> None:
    """Copy the bytes of a segment, and its holes as holes."""
    disk.truncate(descriptor, segment.size)
    for position, data in read_data(disk, segment.descriptor, 0, segment.size, CHUNK_SIZE):
        write_all(disk, descriptor, [data], position)


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
        if log.file is not None:
            raise  # nobody has put another file in its place
        _require_removed(error)
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


def read_segment(
    segment: OpenSegment, progress: Callable[[int], None] = lambda _size: None
) -> Iterator[Frame | NoBatch]:
    """The batches of a segment, each with the right CRC, and the gaps between them. Raises OSError.

    progress: called with the number of bytes that were read since the last call.
    """
    disk = Disk()
    descriptor, size = segment.descriptor, segment.size
    search = Search(disk, descriptor, size, progress)
    start = 0
    while start < size:
        try:
            for frame in read_frames(disk, descriptor, size, start=start, batch_size_max=BATCH_READ_MAX):
                progress(frame.header.size)
                yield frame
            start = size
        except CorruptBatch as error:
            old = search.old_messages(error.position)
            if old is not None:
                start = old.end
                yield NoBatch(error.position, start, old.reason, at_end=False, whole=False)
                continue
            following = search.behind(error.position + 1, could_be)
            is_whole = (
                following is None
                and size - error.position <= BATCH_READ_MAX
                and is_whole_but_for_its_frame(disk, descriptor, error.position, size)
            )
            start = size if following is None else following
            yield NoBatch(error.position, start, error.reason, following is None, is_whole)


def could_be(header: Header) -> bool:
    """Whether a header may be that of a batch that is read."""
    return makes_sense(header) and header.size <= BATCH_READ_MAX
