"""Lock files: one holder, and a number that the next holder finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator.log.disk import Disk
from coordinator.log.lock import DataFolderLocked, Lock, lock_data_folder, noted_number
from tests.log.disks import FailingDisk


def test_one_holder(tmp_path: Path) -> None:
    """As long as it is held, nobody else gets it; afterwards, the next one does."""
    disk, path = FailingDisk(), tmp_path / ".lock"
    lock = Lock(disk, path)
    with pytest.raises(BlockingIOError):
        Lock(disk, path)
    assert len(disk.descriptors) == 1
    lock.release()
    Lock(disk, path).release()
    assert disk.descriptors == set()


def test_number_stays(tmp_path: Path) -> None:
    """The number is there for the next holder, and for one who asks without holding it."""
    disk, path = Disk(), tmp_path / ".lock"
    lock = Lock(disk, path)
    assert lock.read_number() is None
    for number in (0, 5, 2**31 - 1, 12):
        lock.note_number(number)
        assert noted_number(disk, path) == number
    lock.release()
    lock = Lock(disk, path)
    assert lock.read_number() == 12
    lock.release()


@pytest.mark.parametrize("content", [b"", b"\0" * 11, b"12x", b"\xff" * 10])
def test_lost_number_is_none(tmp_path: Path, content: bytes) -> None:
    """What a crash of the machine left of the file is no number, and no error."""
    path = tmp_path / ".lock"
    path.write_bytes(content)
    lock = Lock(Disk(), path)
    assert lock.read_number() is None
    lock.release()


def test_a_data_folder_is_made_and_says_who_has_it(tmp_path: Path) -> None:
    """Its folders are durable before it is used; who comes second is told by which process."""
    disk, folder = FailingDisk(), tmp_path / "some" / "data"
    lock = lock_data_folder(disk, folder)
    assert disk.calls["sync_folder"] == 2
    with pytest.raises(DataFolderLocked, match=str(folder)) as caught:
        lock_data_folder(disk, folder)
    assert caught.value.process_id == os.getpid()
    lock.release()
    lock_data_folder(disk, folder).release()
    assert disk.descriptors == set()
