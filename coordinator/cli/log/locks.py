"""Checks whether a server uses a folder, and keeps servers away from it.

Tenure and Apache Kafka both lock the file `.lock` of their folder. Tenure uses flock and a record lock; with several
workers, the record lock ends when the supervisor ends. The JVM uses only a record lock, in a file that a broker removes
when it stops. So this module always tries both kinds of lock.

House rule: a check holds a shared lock for an instant at most, and leaves nothing behind.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator.log.files import open_regular

LOCK_FILE = ".lock"


class FolderInUse(Exception):
    """A server works with the folder; the text is for people."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} is in use by a running server: stop it first")


def in_use(folder: Path) -> bool:
    """Whether a server works with `folder` now. Raises OSError if that can't be found out."""
    try:
        descriptor = open_regular(folder / LOCK_FILE)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def write_under_way(file: Path, position: int, size: int) -> str:
    """The note about bytes at the end of a log that are no batch yet, in a folder that a server uses."""
    return f"{file} ends in {size} bytes of a write under way at byte {position}: a server is running"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep servers away from `folder` during a block. Raises FolderInUse if a server uses it, or OSError."""
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "No such folder", str(folder))
    path = folder / LOCK_FILE
    existed = path.exists()
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        if not _lock(descriptor, fcntl.LOCK_EX):
            raise FolderInUse(folder)
        try:
            yield
        finally:
            if not existed:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    """Lock the file in both ways; returns whether that worked."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
