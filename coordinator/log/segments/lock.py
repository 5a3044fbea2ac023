"""Locks between processes: one on the data folder, one on each partition.

A lock is a file in the data folder (`.lock`; `.lock-7` for a partition of the groups' log, `.lock-NAME-7` for one of
another log) that its holder keeps locked (Disk.lock). The system unlocks it
when the process ends, even if the process is killed. The files are never removed, because another process may be about
to lock them. Each holds a number: `.lock` the process id of the holder, `.lock-7` the last epoch of the partition. The
number isn't synced, so a crash of the machine may lose it. Code may rely on it only where a lost number does no harm.

House rule: a process writes below the data folder only under the lock for that part.
"""

from __future__ import annotations

import os
from pathlib import Path

from coordinator.log.engine import EngineError
from coordinator.log.segments.disk import Disk, closing, write_all
from coordinator.log.segments.segment import OFFSETS_TOPIC

_NUMBER_SIZE = 19
"""Digits of an int64: producer ids are such numbers."""


class Lock:
    """A lock file, locked from construction until `release`.

    Raises BlockingIOError if another holder, or this process itself, has the lock, and other OSErrors.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._descriptor = disk.open(path, create=True)
        try:
            disk.lock(self._descriptor)
        except OSError:
            disk.close(self._descriptor)
            raise

    def read_number(self) -> int | None:
        """Return the number in the file, None if it was never noted or is lost."""
        return _number(self._disk.read(self._descriptor, _NUMBER_SIZE, 0))

    def note_number(self, number: int) -> None:
        """Note `number`, of up to 19 digits."""
        write_all(self._disk, self._descriptor, [b"%0*d\n" % (_NUMBER_SIZE, number)], 0)

    def sync(self) -> None:
        """Make the number durable; only some callers need that."""
        self._disk.fdatasync(self._descriptor)

    def release(self) -> None:
        """Release the lock."""
        self._disk.close(self._descriptor)


def partition_lock(data_dir: Path, partition: int, log: str = OFFSETS_TOPIC) -> Path:
    """Return the lock file of a partition of a log, the groups' by default."""
    return data_dir / (f".lock-{partition}" if log == OFFSETS_TOPIC else f".lock-{log}-{partition}")


def lock_data_folder(disk: Disk, data_dir: Path) -> Lock:
    """Make the data folder durably if it is missing, and lock it. Raises EngineError, and OSError."""
    missing = [folder for folder in (data_dir, *data_dir.parents) if not folder.exists()]
    disk.make_folder(data_dir)
    for folder in missing:
        disk.sync_folder(folder.parent)
    path = data_dir / ".lock"
    try:
        lock = Lock(disk, path)
    except BlockingIOError:
        process_id = noted_number(disk, path)
        process = "" if process_id is None else f" (process {process_id})"
        raise EngineError(f"the data folder {data_dir} is in use by another server{process}") from None
    lock.note_number(os.getpid())
    return lock


def noted_number(disk: Disk, path: Path) -> int | None:
    """Return the number in the lock file at `path`; another process may hold the lock."""
    with closing(disk, disk.open(path)) as descriptor:
        return _number(disk.read(descriptor, _NUMBER_SIZE, 0))


def _number(content: bytes) -> int | None:
    digits = content.partition(b"\n")[0]  # a file may hold 10 digits and a newline instead of 19
    return int(digits) if digits.isdigit() else None
