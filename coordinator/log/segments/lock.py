"""Locks between processes: one on the data folder, one on each partition.

A lock is a file in the data folder (`.lock`, `.lock-7`) that its holder keeps locked (Disk.lock); the system lets go of
it when the process ends, however it ends. The files stay: another process may be about to lock them. Each carries a
number, the process id of the folder's holder and the last epoch of the partition. It is not synced, so a crash of the
machine may lose it, and nothing may depend on it but what a crash of the machine makes needless.

House rule: below the data folder nothing is written without the lock for it.
"""

from __future__ import annotations

import os
from pathlib import Path

from coordinator.log.engine import EngineError
from coordinator.log.segments.disk import Disk, write_all

_NUMBER_SIZE = 19
"""Digits: of an int64, which ids of producers are."""


class DataFolderLocked(EngineError):
    """Another server works with the data folder.

    process_id: of that server, None if it is unknown.
    """

    def __init__(self, data_dir: Path, process_id: int | None) -> None:
        process = "" if process_id is None else f" (process {process_id})"
        super().__init__(f"the data folder {data_dir} is in use by another server{process}")
        self.data_dir = data_dir
        self.process_id = process_id


class Lock:
    """A lock file that is held from construction until `release`.

    Raises BlockingIOError if somebody holds it already, be it this process, and other OSErrors.
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
        """Return the number that was noted last, None if that is lost or was never done."""
        return _number(self._disk.read(self._descriptor, _NUMBER_SIZE, 0))

    def note_number(self, number: int) -> None:
        """Note `number`, of up to 19 digits."""
        write_all(self._disk, self._descriptor, [b"%0*d\n" % (_NUMBER_SIZE, number)], 0)

    def sync(self) -> None:
        """Make the number durable, for the one that has to be."""
        self._disk.fdatasync(self._descriptor)

    def release(self) -> None:
        """Let go of it."""
        self._disk.close(self._descriptor)


def lock_data_folder(disk: Disk, data_dir: Path) -> Lock:
    """Lock the data folder for this process, and make it first, durably. Raises DataFolderLocked and OSError."""
    missing = [folder for folder in (data_dir, *data_dir.parents) if not folder.exists()]
    disk.make_folder(data_dir)
    for folder in missing:
        disk.sync_folder(folder.parent)
    path = data_dir / ".lock"
    try:
        lock = Lock(disk, path)
    except BlockingIOError:
        raise DataFolderLocked(data_dir, noted_number(disk, path)) from None
    lock.note_number(os.getpid())
    return lock


def noted_number(disk: Disk, path: Path) -> int | None:
    """Return the number in the lock file at `path`, which somebody else may hold."""
    descriptor = disk.open(path)
    try:
        return _number(disk.read(descriptor, _NUMBER_SIZE, 0))
    finally:
        disk.close(descriptor)


def _number(content: bytes) -> int | None:
    digits = content.partition(b"\n")[0]  # ten digits and the end of a line, as it was once
    return int(digits) if digits.isdigit() else None
