"""The new file of a compaction: the retained batches of one or more old segments.

A file that would equal its old segment is never written. Up to the first change the output only counts bytes; then the
file begins with a copy of so many bytes of the old segment.

House rule: the file has a `.cleaned` name, which no reader of the log reads (segments/swap.py).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from coordinator.log.segments.disk import Disk, closing, open_anew, write_all
from coordinator.log.segments.segment import CHUNK_SIZE, Segment
from coordinator.log.segments.swap import cleaned_path


class Output:
    """The file for `source` and the segments behind it; `size`: its bytes so far.

    free_min: bytes that have to stay free on the disk; a write that would leave less raises OSError.
    """

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
        """Write bytes of a batch or more; `mark_changed` was called before."""
        self._parts.append(batch)
        self._parts_size += len(batch)
        self.size += len(batch)
        if self._parts_size >= CHUNK_SIZE:
            self._flush()

    def mark_changed(self) -> None:
        """Write a file from here on; it begins with a copy of the unchanged bytes."""
        if self._descriptor is not None:
            return
        self._descriptor = open_anew(self._disk, cleaned_path(self._folder, self.base_offset))
        with closing(self._disk, self._disk.open(self._source.path)) as source:
            for position in range(0, self.size, CHUNK_SIZE):
                chunk = self._disk.read(source, min(CHUNK_SIZE, self.size - position), position)
                self._write(self._descriptor, [chunk], position)

    def finish(self, newest: Segment) -> bool:
        """Make it durable, with the time of `newest`; False if nothing changed and there is no file."""
        if self._descriptor is None:
            return False
        self._flush()
        self._disk.set_time(self._descriptor, newest.path)
        self._disk.fdatasync(self._descriptor)
        self.close()
        return True

    def remove(self) -> None:
        """Remove what was written: it won't be used."""
        if self._descriptor is not None:
            self.close()
            with suppress(OSError):  # the partition's next failure or load removes it
                self._disk.remove(cleaned_path(self._folder, self.base_offset))

    def close(self) -> None:
        """Close the file, be it whole or not."""
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
