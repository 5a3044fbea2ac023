"""The journal's files: their format, what counts in them, and how it gets back into the segments.

An engine writes each window of appends to its journal first (embedded/journal.py): one write, one fdatasync. This
module is what recovery and readers of a folder need. Files, in the data folder:

    .journal-1.0  .journal-1.1    of node 1, written in turn, each from its front to its end and then anew
    .journal-left-7.0             what partition 7's segment could not take yet, each time in a file of its own; its
                                  next load takes it. `.journal-left-__transaction_state-7.0`: that of the other log

Two logs share a journal. In it a partition of `__consumer_offsets` has its own number, and partition p of
`__transaction_state` has the number -1 - p (`journal_number`). All numbers in this module are of this kind.

A file begins with a page of its own: magic, CRC, salt, and the file's size, which never changes. So a file that was
cut is known. Windows follow, each at the start of a page and filled up with zeros, so no page holds bytes of two
windows. A window is a head, a table, and the batches:

    head     magic, CRC of head and table, sequence number, first needed number, bytes, extents
    table    for each extent: partition, segment, position in that segment, bytes, CRC

All CRCs begin with the file's salt, which no client knows: bytes that a client chose are never taken for a window.

**What counts.** A window is written only after the window before it is durable. So the whole window with the highest
sequence number is the last, or nothing of a later one was acknowledged. It says from which number on windows are still
needed: the segments have durably what came before. From there to it, each window must be whole. A window among them
that isn't is damage: its extents with a wrong CRC if its head is whole, else all. Behind the last window, whatever
pages of a write got to the disk, nothing counts.

A last window that was durable and changed later looks like a torn one. A segment may know better: a log writes to its
segment only when the window is durable. So one extent of the window that stands whole in its segment proves that all of
the window was durable. Then it counts: a segment's bytes take the place of an extent with a wrong CRC, and an extent
that neither of them has is damage. Without such a proof, or with a damaged head, the window is dropped.

**Redo.** An extent says which bytes stand where in which segment. A segment only grows, and the position of a batch
never changes while its segment is the newest. An engine syncs a segment before the next one begins. So extents of the
newest segment are written to their place, as often as one likes and without a look at what is there; those of older
segments are over. It writes even if the bytes are there: a page in the cache may be one that a failed fdatasync never
wrote.

House rule: nothing here knows an engine. Damage is refused by file and position, as a segment's is.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coordinator.log.engine import Damaged
from coordinator.log.segments.damage import Search
from coordinator.log.segments.disk import Disk, closing, replace_file, write_all
from coordinator.log.segments.segment import (
    ENGINES_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    list_segments,
    partition_folder,
    segment_at,
)
from protocol.checksum import behind_zeros, crc32c, shifted
from protocol.records.batch import CRC_START, HEADER_SIZE, CorruptBatch, check_crc, peek_header

PAGE_SIZE = 4096
"""At least the size of a page and of a block of the file system, where both are what they nearly always are."""

WINDOWS_AT = PAGE_SIZE
"""Where a file's first window begins."""

_FILE_MAGIC = b"tenurejf"
_WINDOW_MAGIC = b"tenurejw"
_FILE = struct.Struct(">8sI16sI")
_WINDOW = struct.Struct(">8sIQQII")
_EXTENT = struct.Struct(">iqqII")
_CRC = struct.Struct(">I")
_CRC_AT = 8
_COVERED_AT = 12
_NAME = re.compile(r"\.journal-(0|[1-9][0-9]*)\.([01])")
_UNFINISHED = re.compile(r"\.journal-.*\.new")
_LEFT_NAME = re.compile(rf"\.journal-left-({TRANSACTIONS_TOPIC}-)?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")

EXTENT_SIZE = _EXTENT.size
"""Bytes that an extent takes beside its batches."""

OVERLAP_FACTOR = 2
"""Windows with whole heads have at most so many times the bytes of their file. Those that an engine writes don't
overlap; a reader may see some that do, if the engine begins the file anew meanwhile."""

_READ_BYTES = 256 * 1024


def journal_number(partition: int, log: str = OFFSETS_TOPIC) -> int:
    """Return the number that a partition of a log, the groups' by default, has in journals."""
    assert log in ENGINES_TOPICS
    return partition if log == OFFSETS_TOPIC else -1 - partition


def _log_of(number: int) -> tuple[str, int]:
    """The log and the partition of a number in journals."""
    return (OFFSETS_TOPIC, number) if number >= 0 else (TRANSACTIONS_TOPIC, -1 - number)


def numbered_folder(data_dir: Path, number: int) -> Path:
    """Return the folder of a partition by its number in journals."""
    log, partition = _log_of(number)
    return partition_folder(data_dir, partition, log)


def partition_name(number: int) -> str:
    """The name of a partition, with its log, by its number in journals."""
    log, partition = _log_of(number)
    return f"{log}-{partition}"


class Extent(NamedTuple):
    """Batches at a position of a segment; `base_offset` is the segment's. data: the batches, in any number of parts.

    is_damaged: its CRC was wrong when it was read, and stays so. source: the file that it was read from.
    """

    partition: int
    base_offset: int
    position: int
    data: Sequence[bytes]
    is_damaged: bool = False
    source: Path | None = None


class Window(NamedTuple):
    """A window with a whole head. size: in bytes, without the zeros behind it.

    sums: bytes and CRC of each extent, as its head has them; the CRCs begin with `seed`. wrong: where damaged extents
    are, by partition.
    """

    path: Path
    position: int
    sequence: int
    needed: int
    size: int
    extents: list[Extent]
    sums: list[tuple[int, int]]
    seed: int
    wrong: dict[int, int]

    def damage_of(self, partition: int) -> Damaged:
        """The error for a partition with a damaged extent."""
        name = f"partition {partition}" if partition >= 0 else partition_name(partition)
        reason = f"the checksum of {name}'s batches is wrong"
        return Damaged(str(self.path), self.wrong[partition], reason)


class _Head(NamedTuple):
    """A window's head. size: in bytes, of all of the window. data_at: where its batches begin, behind the table."""

    sequence: int
    needed: int
    size: int
    data_at: int


class _Sums:
    """CRCs of parts of a file, however many and however they overlap: each byte is read once, and no hole.

    Clients choose bytes of batches. These may look like heads of windows, one in each page of a file, and each head may
    claim a table up to the file's end. The CRC of a part follows from those of the bytes up to its start, and to its
    end.
    """

    def __init__(self, disk: Disk, descriptor: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._ends, self._crcs = [0], [0]
        """Ascending positions, one in each page on disk at least, and the CRC of all bytes before each."""

    def crc(self, start: int, end: int, seed: int) -> int:
        """The CRC of a part, behind bytes with the CRC `seed`."""
        return shifted(seed ^ self._up_to(start), end - start) ^ self._up_to(end)

    def _up_to(self, position: int) -> int:
        while self._ends[-1] < position and self._read_on():
            pass
        index = bisect_right(self._ends, position) - 1
        begin, crc = self._ends[index], self._crcs[index]
        if position - begin > PAGE_SIZE:
            return behind_zeros(crc, position - begin)
        return crc32c(self._disk.read(self._descriptor, position - begin, begin), crc)

    def _read_on(self) -> bool:
        """Go on behind the last position; False if all the rest is a hole."""
        start, crc = self._ends[-1], self._crcs[-1]
        found = self._disk.next_data(self._descriptor, start)
        if found is None:
            return False
        data_start, data_end = found
        if data_start > start:
            self._add(data_start, behind_zeros(crc, data_start - start))
            return True
        data = self._disk.read(self._descriptor, min(_READ_BYTES, data_end - start), start)
        for at in range(0, len(data), PAGE_SIZE):
            page = data[at : at + PAGE_SIZE]
            crc = crc32c(page, crc)
            self._add(start + at + len(page), crc)
        return bool(data)

    def _add(self, end: int, crc: int) -> None:
        self._ends.append(end)
        self._crcs.append(crc)


class Contents(NamedTuple):
    """The needed content of a journal: extents by partition, in order; the damage of a partition with a damaged one.

    paths: the files, the one with the newest windows first. torn: a last window with a damaged extent; `extents` has
    nothing of it.
    """

    paths: list[Path]
    extents: dict[int, list[Extent]]
    damaged: dict[int, Damaged]
    torn: Window | None


def journal_path(data_dir: Path, node_id: int, number: int) -> Path:
    """Return the path of a node's file, of which there are two: 0 and 1."""
    return data_dir / f".journal-{node_id}.{number}"


def left_path(data_dir: Path, partition: int, number: int) -> Path:
    """Return the path of a file with what is left for a partition; the numbers count up from 0."""
    log, own = _log_of(partition)
    return data_dir / f".journal-left-{own if log == OFFSETS_TOPIC else f'{log}-{own}'}.{number}"


def padded(size: int) -> int:
    """Return the bytes of whole pages that `size` bytes take."""
    return -(-size // PAGE_SIZE) * PAGE_SIZE


def window_size(size: int) -> int:
    """Return the bytes that a window takes in a file. size: of all extents, each with EXTENT_SIZE."""
    return -(-(_WINDOW.size + size) // PAGE_SIZE) * PAGE_SIZE  # `padded`, without its call for each window


def most_bytes(window_max: int) -> int:
    """Return the largest `size` of a window that takes `window_max` bytes at most."""
    return window_max // PAGE_SIZE * PAGE_SIZE - _WINDOW.size


def file_head(salt: bytes, size: int) -> bytes:
    """Return the first page of a file of `size` bytes, whole pages, with a salt of 16 bytes."""
    assert len(salt) == 16
    assert size % PAGE_SIZE == 0
    head = bytearray(_FILE.pack(_FILE_MAGIC, 0, salt, size))
    _CRC.pack_into(head, _CRC_AT, crc32c(memoryview(head)[_COVERED_AT:]))
    return bytes(head).ljust(PAGE_SIZE, b"\0")


def encode_window(salt: bytes, sequence: int, needed: int, extents: Sequence[Extent]) -> tuple[list[bytes], int]:
    """Return the parts of a window in order, and their bytes together, whole pages."""
    seed = crc32c(salt)
    table, parts = [b""], [b""]
    size = _WINDOW.size + len(extents) * _EXTENT.size
    for extent in extents:
        crc, extent_size = seed, 0
        for part in extent.data:
            crc = crc32c(part, crc)
            extent_size += len(part)
        if extent.is_damaged:
            crc ^= 1
        table.append(_EXTENT.pack(extent.partition, extent.base_offset, extent.position, extent_size, crc))
        parts += extent.data
        size += extent_size
    table[0] = _WINDOW.pack(_WINDOW_MAGIC, 0, sequence, needed, size, len(extents))
    head = bytearray(b"".join(table))
    _CRC.pack_into(head, _CRC_AT, crc32c(memoryview(head)[_COVERED_AT:], seed))
    parts[0] = bytes(head)
    whole = padded(size)
    parts.append(bytes(whole - size))
    return parts, whole


def read_files(disk: Disk, paths: Sequence[Path]) -> Contents:
    """Read what counts in the files of one journal. Raises Damaged if a head is damaged, and OSError."""
    windows = [window for path in paths for window in _windows(disk, path)]
    by_sequence = {window.sequence: window for window in windows}
    newest = max((window.sequence for window in windows if not window.wrong), default=0)
    if any(sequence > newest + 1 for sequence in by_sequence):
        raise _damage(paths, windows, newest + 1)
    last = {path: max((each.sequence for each in windows if each.path == path), default=0) for path in paths}
    contents = Contents(sorted(paths, key=last.__getitem__, reverse=True), {}, {}, None)
    for sequence in range(by_sequence[newest].needed if newest else 1, newest + 1):
        window = by_sequence.get(sequence)
        if window is None:
            raise _damage(paths, windows, sequence)
        for extent in window.extents:
            contents.extents.setdefault(extent.partition, []).append(extent)
        for partition in window.wrong:
            contents.damaged.setdefault(partition, window.damage_of(partition))
    return contents._replace(torn=by_sequence.get(newest + 1))


def _with_last(disk: Disk, data_dir: Path, contents: Contents) -> Contents:
    """Let a last window with a damaged extent count if a segment proves that it was durable; see the module."""
    window = contents.torn
    if window is None:
        return contents
    pairs = zip(window.extents, window.sums, strict=True)
    there = [_in_segment(disk, data_dir, extent, *sums, window.seed) for extent, sums in pairs]
    if not any(there):
        return contents
    extents = {partition: list(found) for partition, found in contents.extents.items()}
    damaged = dict(contents.damaged)
    for extent, data in zip(window.extents, there, strict=True):
        found = extent._replace(data=[data], is_damaged=False) if data else extent
        if found.is_damaged:
            damaged.setdefault(extent.partition, window.damage_of(extent.partition))
        extents.setdefault(extent.partition, []).append(found)
    return contents._replace(extents=extents, damaged=damaged, torn=None)


def _in_segment(disk: Disk, data_dir: Path, extent: Extent, size: int, crc: int, seed: int) -> bytes:
    """The bytes of an extent if they stand whole in its segment, else nothing; an unreadable segment has none."""
    data = b""
    segment = segment_at(numbered_folder(data_dir, extent.partition), extent.base_offset)
    with suppress(OSError), closing(disk, disk.open_to_read(segment.path)) as descriptor:
        data = disk.read(descriptor, size, extent.position)
    return data if len(data) == size and crc32c(data, seed) == crc else b""


def _damage(paths: Sequence[Path], windows: Iterable[Window], sequence: int) -> Damaged:
    """The error for a window that is missing; it names the place where its predecessor ends, if that is there."""
    for window in windows:
        if window.sequence == sequence - 1:
            at = window.position + padded(window.size)
            return Damaged(str(window.path), at, f"window {sequence} is damaged or missing, and later ones follow")
    return Damaged(str(paths[-1]), WINDOWS_AT, f"window {sequence} is damaged or missing, and later ones follow")


def _windows(disk: Disk, path: Path) -> Iterator[Window]:
    """The windows of a file whose heads are whole, needed or not. Holes of a sparse file have none.

    Raises Damaged if they overlap so much that no engine wrote them: to read them all would take too long.
    """
    with closing(disk, disk.open_to_read(path)) as descriptor:
        end, seed = disk.size(descriptor), crc32c(_salt(disk, descriptor, path))
        sums = _Sums(disk, descriptor)
        at, taken = WINDOWS_AT, 0
        while (found := disk.next_data(descriptor, at)) is not None:
            at = max(at, found[0] // PAGE_SIZE * PAGE_SIZE)
            head = _head(disk, descriptor, at, end, seed, sums)
            window = None
            if head is not None:
                taken += head.size
                if taken > OVERLAP_FACTOR * end:
                    raise Damaged(str(path), at, "its windows overlap")
                window = _window(disk, descriptor, at, head, seed, path)
            if window is not None:
                yield window
            at += PAGE_SIZE if window is None or window.wrong else padded(window.size)


def _salt(disk: Disk, descriptor: int, path: Path) -> bytes:
    """The salt of a file that has all its bytes. Raises Damaged, also before a file that grew is read."""
    size = disk.size(descriptor)
    if size < PAGE_SIZE:
        raise Damaged(str(path), size, "it is empty" if not size else "it ends within its first page")
    head = disk.read(descriptor, _FILE.size, 0)
    magic, crc, salt, wanted = _FILE.unpack(head)
    if magic != _FILE_MAGIC or crc != crc32c(head[_COVERED_AT:]):
        raise Damaged(str(path), 0, "its first page is no journal's")
    if size != wanted:
        raise Damaged(str(path), min(size, wanted), f"it has {size} bytes, and was made with {wanted}")
    assert isinstance(salt, bytes)
    return salt


def _head(disk: Disk, descriptor: int, start: int, end: int, seed: int, sums: _Sums) -> _Head | None:
    """The head of the window at `start` of a file of `end` bytes; None if no whole one is there."""
    head = disk.read(descriptor, _WINDOW.size, start)
    if len(head) < _WINDOW.size:
        return None
    magic, crc, sequence, needed, size, count = _WINDOW.unpack(head)
    found = _Head(sequence, needed, size, _WINDOW.size + count * _EXTENT.size)
    if magic != _WINDOW_MAGIC or not found.data_at <= found.size <= end - start:
        return None
    if found.data_at <= PAGE_SIZE:
        is_whole = crc32c(disk.read(descriptor, found.data_at, start)[_COVERED_AT:], seed) == crc
    else:
        is_whole = sums.crc(start + _COVERED_AT, start + found.data_at, seed) == crc
    return found if is_whole else None


def _window(disk: Disk, descriptor: int, start: int, head: _Head, seed: int, path: Path) -> Window | None:
    """The window with a whole head; None if its extents have other bytes than the head says."""
    table = disk.read(descriptor, head.data_at - _WINDOW.size, start + _WINDOW.size)
    rows = list(_EXTENT.iter_unpack(table[: len(table) // _EXTENT.size * _EXTENT.size]))
    if head.data_at + sum(extent_size for *_, extent_size, _ in rows) != head.size:
        return None
    extents: list[Extent] = []
    sums: list[tuple[int, int]] = []
    wrong: dict[int, int] = {}
    at = start + head.data_at
    for partition, base_offset, position, extent_size, extent_crc in rows:
        data = disk.read(descriptor, extent_size, at)
        is_damaged = crc32c(data, seed) != extent_crc
        if is_damaged:
            wrong.setdefault(partition, at)
        extents.append(Extent(partition, base_offset, position, [data], is_damaged, path))
        sums.append((extent_size, extent_crc))
        at += extent_size
    return Window(path, start, head.sequence, head.needed, head.size, extents, sums, seed, wrong)


def node_files(disk: Disk, data_dir: Path) -> dict[int, list[Path]]:
    """Return the journal's files in a folder by the node that wrote them."""
    return _files_among(data_dir, disk.list_folder(data_dir))


def _files_among(data_dir: Path, names: Iterable[str]) -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for name in sorted(names):
        if match := _NAME.fullmatch(name):
            found.setdefault(int(match[1]), []).append(data_dir / name)
    return found


def _left_for(found: re.Match[str]) -> int:
    """The partition that a name of a file with what is left is about."""
    return journal_number(int(found[2]), TRANSACTIONS_TOPIC if found[1] else OFFSETS_TOPIC)


def _left_among(data_dir: Path, names: Iterable[str]) -> dict[int, list[Path]]:
    """The files with what is left, by partition, in the order of their numbers."""
    paths: dict[int, list[Path]] = {}
    for found in sorted(filter(None, map(_LEFT_NAME.fullmatch, names)), key=lambda found: int(found[3])):
        paths.setdefault(_left_for(found), []).append(data_dir / found[0])
    return paths


def discard(disk: Disk, paths: Iterable[Path]) -> None:
    """Remove files of a journal that nobody needs any more, the one with the newest windows first. Raises OSError.

    In this order, those that are still there are a whole journal after each step.
    """
    for path in paths:
        disk.remove(path)
        disk.sync_folder(path.parent)


def redo(disk: Disk, data_dir: Path, partition: int, extents: Sequence[Extent]) -> None:
    """Make a partition's extents durable in its newest segment; see the module. Raises Damaged, OSError."""
    folder = numbered_folder(data_dir, partition)
    segments = list_segments(disk, folder)
    newest = segments[-1].base_offset if segments else -1
    counted = [extent for extent in extents if extent.base_offset >= newest]
    if not counted:
        return
    path = segment_at(folder, counted[-1].base_offset).path
    if counted[-1].base_offset > newest:
        raise segment_gone(path, counted[-1])
    descriptor = disk.open(path)
    try:
        for position, data in fitting(disk, path, descriptor, disk.size(descriptor), counted):
            write_all(disk, descriptor, [data], position)
        disk.fdatasync(descriptor)
    finally:
        with suppress(OSError):  # the sync decided
            disk.close(descriptor)


def segment_gone(path: Path, extent: Extent) -> Damaged:
    """The error for a segment that an extent needs, and that isn't there."""
    return Damaged(str(path), 0, f"the file is gone, and {extent.source} has batches for it")


def fitting(disk: Disk, path: Path, descriptor: int, size: int, extents: Sequence[Extent]) -> list[tuple[int, bytes]]:
    """Return the positions and bytes of a segment's extents. size: bytes of the segment.

    Raises Damaged if the segment lacks bytes before them, or has another batch in the place of one; and OSError.
    """
    found = []
    end = size
    for extent in extents:
        data = b"".join(extent.data)
        if extent.position > end:
            reason = f"ends here, {extent.position} bytes were durable: {extent.source} has the batches behind them"
            raise Damaged(str(path), end, reason)
        if _differs(disk, descriptor, extent.position, data):
            reason = f"a whole batch, but {extent.source} has another one for this place"
            raise Damaged(str(path), extent.position, reason)
        found.append((extent.position, data))
        end = max(end, extent.position + len(data))
    return found


def _differs(disk: Disk, descriptor: int, position: int, data: bytes) -> bool:
    """Whether a whole batch begins where `data` belongs that isn't in it: no interrupted write leaves one.

    It may end behind `data`. The bytes that its CRC doesn't cover may lie in another page, which was lost. If the read
    meets the end of the file, the batch there isn't whole: a server at work may write the rest of it a moment later.
    """
    there = disk.read(descriptor, len(data), position)
    is_cut = len(there) < len(data)
    at = 0
    while len(there) - at >= HEADER_SIZE:
        try:
            header = peek_header(there, at)
            if header.size > len(there) - at:
                return not is_cut and Search(disk, descriptor, disk.size(descriptor)).is_right(position + at, header)
            check_crc(there, at, header)
        except CorruptBatch:
            return False
        if there[at + CRC_START : at + header.size] != data[at + CRC_START : at + header.size]:
            return True
        at += header.size
    return False


def leave(disk: Disk, data_dir: Path, partition: int, extents: Sequence[Extent]) -> None:
    """Keep extents that a partition's segment can't take now, durably, for its next load. Raises OSError.

    They get a file of their own: a former one may be damaged, and counts as it is.
    """
    salt = os.urandom(16)
    parts, size = encode_window(salt, 1, 1, extents)
    former = _left_among(data_dir, disk.list_folder(data_dir)).get(partition)
    number = int(former[-1].suffix[1:]) + 1 if former else 0
    replace_file(disk, left_path(data_dir, partition, number), b"".join([file_head(salt, PAGE_SIZE + size), *parts]))


def discard_unfinished(disk: Disk, data_dir: Path, partitions: Container[int]) -> None:
    """Remove what a failed `leave` for one of these partitions may have begun. Raises OSError."""
    for name in disk.list_folder(data_dir):
        found = _LEFT_NAME.fullmatch(name.removesuffix(".new"))
        if found and name.endswith(".new") and _left_for(found) in partitions:
            disk.remove(data_dir / name)


def _read_left(disk: Disk, partition: int, paths: list[Path]) -> Contents:
    """Read the files with what is left for a partition, oldest first. Raises Damaged, OSError."""
    contents = Contents(paths, {}, {}, None)
    for path in contents.paths:
        windows = list(_windows(disk, path))
        if not windows:
            raise Damaged(str(path), WINDOWS_AT, "a checksum is wrong")
        (window,) = windows
        if window.wrong:
            contents.damaged.setdefault(partition, window.damage_of(partition))
        contents.extents.setdefault(partition, []).extend(window.extents)
    return contents


def redo_left(disk: Disk, data_dir: Path, partition: int) -> None:
    """Give a partition what is left for it, if anything is. Raises Damaged, OSError."""
    left = _read_left(disk, partition, _left_among(data_dir, disk.list_folder(data_dir)).get(partition, []))
    for damage in left.damaged.values():
        raise damage
    redo(disk, data_dir, partition, left.extents.get(partition, ()))
    discard(disk, left.paths)


class Journals:
    """The batches in all journals of a folder, for a reader of its partitions: the folder is listed and read once.

    The reader opens the segments of a partition later. By then they have all that the journals did not need. Raises
    Damaged, OSError: FileNotFoundError if an engine removes a journal meanwhile.
    """

    def __init__(self, disk: Disk, data_dir: Path) -> None:
        self._disk = disk
        names = disk.list_folder(data_dir)
        self._left = _left_among(data_dir, names)
        nodes = _files_among(data_dir, names).values()
        self._nodes = [_with_last(disk, data_dir, read_files(disk, paths)) for paths in nodes]

    def partitions(self) -> set[int]:
        """Return the partitions for which they have anything, readable or not."""
        return self._left.keys() | {partition for contents in self._nodes for partition in contents.extents}

    def of(self, partition: int) -> list[Extent]:
        """Return what they have for a partition. Raises Damaged, OSError."""
        paths = self._left.get(partition)
        found = [_read_left(self._disk, partition, paths), *self._nodes] if paths else self._nodes
        for contents in found:
            if partition in contents.damaged:
                raise contents.damaged[partition]
        return [extent for contents in found for extent in contents.extents.get(partition, ())]


class Recovery(NamedTuple):
    """The result of a recovery of one node's journal. size: bytes of batches. left: partitions that got a file each."""

    node_id: int
    partitions: list[int]
    size: int
    left: list[int]
    torn: Window | None

    def events(self) -> Iterator[tuple[str, dict[str, object]]]:
        """The facts for an operator: names, and fields."""
        left = [partition_name(number) for number in self.left]
        counts = {"partitions": len(self.partitions), "size": self.size, "left": left}
        yield "journal_recovered", {"node": self.node_id, **counts}
        if self.torn is not None:
            torn = self.torn
            yield "journal_cut", {"file": str(torn.path), "position": torn.position, "size": torn.size}


def recover(disk: Disk, data_dir: Path, node_id: int | None = None) -> list[Recovery]:
    """Bring journals back into the segments and remove them: a node's, or those of all nodes. None of them runs.

    A partition that can't take its extents gets a file with them, and its next load tries again. Raises Damaged,
    OSError: the journal stays then, and counts.
    """
    done = []
    for name in disk.list_folder(data_dir):
        if _UNFINISHED.fullmatch(name) and (node_id is None or name.startswith(f".journal-{node_id}.")):
            disk.remove(data_dir / name)
    for node, paths in node_files(disk, data_dir).items():
        if node_id not in (None, node):
            continue
        contents = _with_last(disk, data_dir, read_files(disk, paths))
        left = []
        for partition, extents in contents.extents.items():
            try:
                if partition in contents.damaged:
                    raise contents.damaged[partition]
                redo(disk, data_dir, partition, extents)
            except (OSError, Damaged):
                leave(disk, data_dir, partition, extents)
                left.append(partition)
        discard(disk, contents.paths)
        size = sum(len(part) for extents in contents.extents.values() for extent in extents for part in extent.data)
        done.append(Recovery(node, sorted(contents.extents), size, left, contents.torn))
    return done
