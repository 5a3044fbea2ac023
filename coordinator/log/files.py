"""Opens files of a data folder, whatever lies there in their places.

A restore, a mistake or an attack may have put a fifo, a device, a folder, a link or a file of any size where a file of
ours belongs. To open a fifo waits for its writer, to read a device may never end, and a hole of 8 GB reads as 8 GB of
zeros. So each file is opened without waiting, and must be a regular file; a small one has a bound.

A reader of a copied folder follows links. A server doesn't, except to a journal. Somebody who can write into its folder
must not choose which other file of its user gets read or overwritten. And a link to nothing must not look like a file
that is missing.

House rule: nothing here waits for another process, and no size is believed before it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

META_NAME = "meta.properties"
"""The file that names the owner of a folder, Tenure (meta.py) or a broker."""
SMALL_MAX = 64 * 1024
"""Bytes of a file that has a few lines at most: meta.properties, checkpoints, partition.metadata."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a fifo",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegular(OSError):
    """Something else than a regular file has the file's name, or the file has more bytes than it can have."""


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a regular file and return its descriptor; O_NOFOLLOW among the flags refuses a link.

    Raises OSError: NotRegular for anything else of that name, unless O_EXCL asks for a new file.
    """
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    except OSError as error:
        kind = None if flags & os.O_EXCL else _kind(path, follow=not flags & os.O_NOFOLLOW)
        if kind is None:
            raise
        raise not_regular(path, kind) from error
    try:
        kind = _KINDS.get(stat.S_IFMT(os.fstat(descriptor).st_mode))
        if kind is not None:
            raise not_regular(path, kind)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, size_max: int = SMALL_MAX, flags: int = os.O_RDONLY) -> bytes:
    """Return the content of a regular file of up to `size_max` bytes. Raises OSError."""
    with open(open_regular(path, flags), "rb") as file:
        content = file.read(size_max + 1)
    if len(content) > size_max:
        raise NotRegular(errno.EFBIG, f"more than the {size_max} bytes that it can have", str(path))
    return content


def not_regular(path: Path, kind: str, wanted: str = "file") -> NotRegular:
    """The error for something of that kind in a file's place, or a folder's."""
    return NotRegular(errno.EINVAL, f"{kind}, where a {wanted} belongs", str(path))


def needs_a_person(error: OSError) -> bool:
    """Whether trying again doesn't help: not the disk fails, but something stands in the way, or a link to nothing."""
    if isinstance(error, FileNotFoundError):
        return isinstance(error.filename, str) and Path(error.filename).is_symlink()
    return isinstance(error, NotRegular | PermissionError | IsADirectoryError | NotADirectoryError)


def _kind(path: Path, *, follow: bool) -> str | None:
    """The kind of thing that has that name; None for a regular file, and if nothing has it."""
    try:
        return _KINDS.get(stat.S_IFMT(path.stat(follow_symlinks=follow).st_mode))
    except OSError as error:
        return _KINDS[stat.S_IFLNK] if error.errno == errno.ELOOP else None
