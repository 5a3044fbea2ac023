"""A compacted file replaces segments, so that a crash at any moment leaves the old segments or the new one.

    <base>.cleaned              being written, or written but not yet swapped in: doesn't count, removed at a load
    <base>-<next>.swap          counts. The segments from <base> to below <next> don't count, even if they exist
    <base>.log                  the new segment

The rename from the first name to the second decides. Then the old segments are removed. Once that is durable, the file
gets its final name. If this is interrupted, the next process that opens the folder continues. The name contains the end
of the old segments: an old segment that still exists would restore records whose tombstones the new file lacks.

A process that reads a folder without owning it reads the files as if the swaps were finished (`segments_as_swapped`).

Files are swapped in oldest first, for the same reason: a tombstone may go only after the record that it deletes.

House rule: between two steps the folder is synced, so that a crash can't undo one step and keep the next.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from pathlib import Path

from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import OFFSET_MAX, Segment, list_segments, segment_at, segments_among

_SWAP_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.swap")


def cleaned_path(folder: Path, base_offset: int) -> Path:
    """Return the name under which a compacted file is written."""
    return folder / f"{base_offset:020}.cleaned"


def swap_path(folder: Path, base_offset: int, next_offset: int) -> Path:
    """Return the name of a file that counts, and the segments from the one offset to below the other don't."""
    return folder / f"{base_offset:020}-{next_offset:020}.swap"


def swap_in(disk: Disk, folder: Path, base_offset: int, next_offset: int) -> Iterator[None]:
    """Let the `.cleaned` file of `base_offset`, which is durable, replace the segments from there to `next_offset`.

    In steps of a few ms, as each segment that is removed takes so long: between two of them there is time for appends.
    Where it isn't taken to its end, or raises OSError, the segments or the file may count; `recover_swaps` has to
    succeed before anything is read.
    """
    disk.rename(cleaned_path(folder, base_offset), swap_path(folder, base_offset, next_offset))
    disk.sync_folder(folder)
    yield
    yield from _finish(disk, folder, base_offset, next_offset)


def recover_swaps(disk: Disk, folder: Path) -> None:
    """Finish swaps that a crash or an error interrupted, and remove `.cleaned` files."""
    for _name, base_offset, next_offset in _swaps(disk.list_folder(folder)):
        disk.sync_folder(folder)
        for _ in _finish(disk, folder, base_offset, next_offset):
            pass
    remove_cleaned(disk, folder)


def segments_as_swapped(folder: Path, names: Collection[str]) -> list[Segment]:
    """Return the segments of `folder`, oldest first, as `recover_swaps` would leave them, if it holds `names`.

    One that is about to replace others still has its `.swap` name.
    """
    segments = segments_among(folder, names)
    for name, base_offset, next_offset in _swaps(names):
        first, last = (bisect_left(segments, (offset,)) for offset in (base_offset, next_offset))
        segments[first:last] = [Segment(base_offset, folder / name)]
    return segments


def _swaps(names: Collection[str]) -> Iterator[tuple[str, int, int]]:
    """The `.swap` files among `names`, oldest first: each with the offsets in its name."""
    for found in filter(None, map(_SWAP_NAME.fullmatch, sorted(names))):
        base_offset, next_offset = int(found[1]), int(found[2])
        if base_offset < next_offset <= OFFSET_MAX:
            yield found[0], base_offset, next_offset


def remove_cleaned(disk: Disk, folder: Path) -> None:
    """Remove the `.cleaned` files: they were never swapped in."""
    for name in disk.list_folder(folder):
        if name.endswith(".cleaned"):
            disk.remove(folder / name)


def _finish(disk: Disk, folder: Path, base_offset: int, next_offset: int) -> Iterator[None]:
    for segment in list_segments(disk, folder):
        if base_offset <= segment.base_offset < next_offset:
            disk.remove(segment.path)
            yield
    disk.sync_folder(folder)
    disk.rename(swap_path(folder, base_offset, next_offset), segment_at(folder, base_offset).path)
    disk.sync_folder(folder)
