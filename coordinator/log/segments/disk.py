"""Every call that the log makes to the operating system, in one class, so that a test can make each of them fail.

Two calls make changes durable (POSIX, as Linux file systems keep it). `fdatasync` of a file makes its bytes durable.
`sync_folder` makes the names of a folder's files durable, and their creation and removal. Nothing else is durable, and
after a failed sync nobody knows which bytes are: partition.py handles that.

House rule: no decisions in here. A method of Disk does one thing and raises only OSError.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from coordinator.log.files import not_regular, open_regular

PARTS_MAX = 1024
"""The most parts that one pwritev takes: IOV_MAX of Linux and macOS."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""Only the server's user reads groups, offsets and credentials. The process's umask can take more away."""

_fdatasync = getattr(os, "fdatasync", os.fsync)


class Disk:
    """The real one."""

    def open(self, path: Path, *, create: bool = False, anew: bool = False) -> int:
        """Open a file for reading and writing and return its descriptor; `create` makes it if it isn't there.

        A symbolic link is an error, as is anything but a regular file (files.py). With `anew` any file of that name is
        an error: see `open_anew`.
        """
        flags = os.O_RDWR | os.O_NOFOLLOW
        if create or anew:
            flags |= os.O_CREAT
        return open_regular(path, flags | (os.O_EXCL if anew else 0), FILE_MODE)

    def open_to_read(self, path: Path) -> int:
        """Open a regular file, or a link to one, for reading alone."""
        return open_regular(path)

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""
        os.close(descriptor)

    def lock(self, descriptor: int) -> None:
        """Lock the file until the descriptor is closed; raises BlockingIOError if it is locked, by whomever.

        In both ways that there are, each of which doesn't see the other: flock, and the record lock that a JVM takes.
        """
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def size(self, descriptor: int) -> int:
        """Bytes of the file."""
        return os.fstat(descriptor).st_size

    def free(self, descriptor: int) -> int:
        """Bytes that the file's disk has left."""
        found = os.fstatvfs(descriptor)
        return found.f_bavail * found.f_frsize

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Read up to `size` bytes; b"" is the end of the file."""
        return os.pread(descriptor, size, position)

    def next_data(self, descriptor: int, position: int) -> tuple[int, int] | None:
        """Where the first bytes from `position` on begin and end that are no hole of a sparse file; None if none are.

        A hole reads as zeros. A file system that knows no holes says that all of the file is data.
        """
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
            return start, os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise

    def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
        """Write the parts, at most PARTS_MAX, one behind the other; returns how many bytes were taken."""
        return os.pwritev(descriptor, parts, position)

    def set_time(self, descriptor: int, path: Path) -> None:
        """Let the file have been changed when the one at `path` was."""
        os.utime(descriptor, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        """Make the file's bytes and size durable."""
        _fdatasync(descriptor)

    def make_folder(self, folder: Path) -> None:
        """Make `folder`, and what is missing above it, if it isn't there."""
        # Step by step: mkdir(parents=True) leaves the modes of those above to the umask.
        for each in reversed([each for each in folder.parents if not each.exists()]):
            each.mkdir(FOLDER_MODE, exist_ok=True)
        folder.mkdir(FOLDER_MODE, exist_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Make durable which files are in `folder`, and their names."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def list_folder(self, folder: Path) -> list[str]:
        """Return the names in `folder`; none if it isn't there. A link to nothing is an error: a disk is missing."""
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            if folder.is_symlink():
                raise not_regular(folder, "a symbolic link to nothing", "folder") from None
            return []

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, in place of the one that had the name; at no time is there neither."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()


@contextmanager
def closing(disk: Disk, descriptor: int) -> Iterator[int]:
    """Close an open file at the end of a block."""
    try:
        yield descriptor
    finally:
        disk.close(descriptor)


def data_size(disk: Disk, descriptor: int, start: int, end: int) -> int:
    """How many of the bytes from `start` to `end` are in no hole."""
    size = 0
    while start < end and (found := disk.next_data(descriptor, start)) is not None and found[0] < end:
        size += min(end, found[1]) - found[0]
        start = found[1]
    return size


def read_data(disk: Disk, descriptor: int, start: int, end: int, size_max: int) -> Iterator[tuple[int, bytes]]:
    """The bytes from `start` to `end` without holes, up to `size_max` at a time, each part behind its position."""
    while start < end and (found := disk.next_data(descriptor, start)) is not None and found[0] < end:
        start, data_end = found
        part = disk.read(descriptor, min(size_max, min(end, data_end) - start), start)
        if not part:
            return  # the file became shorter
        yield start, part
        start += len(part)


def write_all(disk: Disk, descriptor: int, parts: Sequence[bytes], position: int) -> None:
    """Write all of `parts` from `position` on, however little the system takes at a time."""
    rest: list[bytes | memoryview] = list(filter(None, parts))
    missing = sum(map(len, rest))
    while missing:
        written = disk.write(descriptor, rest[:PARTS_MAX], position)
        if written == 0:
            raise OSError(errno.EIO, "the system takes no more bytes")
        missing -= written
        if not missing:
            return
        position += written
        whole = 0
        while whole < len(rest) and len(rest[whole]) <= written:
            written -= len(rest[whole])
            whole += 1
        del rest[:whole]
        if written:
            rest[0] = memoryview(rest[0])[written:]


def open_anew(disk: Disk, path: Path) -> int:
    """Make an empty file, in place of one that a crash or somebody left there: its mode and owner go too."""
    try:
        return disk.open(path, anew=True)
    except FileExistsError:
        disk.remove(path)
        return disk.open(path, anew=True)


def replace_file(disk: Disk, path: Path, content: bytes) -> None:
    """Write a small file as a whole, durably: at any time it has its former content, or this.

    Raises OSError: a crash may leave either then, until it succeeds again.
    """
    new_path = path.with_name(f"{path.name}.new")
    descriptor = open_anew(disk, new_path)
    try:
        write_all(disk, descriptor, [content], 0)
        disk.fdatasync(descriptor)
    finally:
        with suppress(OSError):  # all of it is durable, or the error is on its way
            disk.close(descriptor)
    disk.rename(new_path, path)
    disk.sync_folder(path.parent)


def reason(error: BaseException) -> str:
    """The reason of an error in one line: the system's text, with the file if the system names it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def describe(error: Exception) -> str:
    """The reason in one line: as `reason` for an error of the system, else the exception itself (a mistake of ours)."""
    return reason(error) if isinstance(error, OSError) else repr(error)
