"""Tests lock files: one holder at a time, and a number that the next holder finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.log.engine import EngineError
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.lock import Lock, lock_data_folder, noted_number
from tests.log.disks import FailingDisk


def test_one_holder(tmp_path: Path) -> None:
    """A lock has one holder; after its release, the next one gets it."""
    disk, path = FailingDisk(), tmp_path / ".lock"
    lock = Lock(disk, path)
    with pytest.raises(BlockingIOError):
        Lock(disk, path)
    assert len(disk.descriptors) == 1
    lock.release()
    Lock(disk, path).release()
    assert disk.descriptors == set()


def test_number_stays(tmp_path: Path) -> None:
    """The next holder finds the number, and so does a reader that doesn't hold the lock."""
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
    """A lock file that a crash of the machine damaged has no number, and raises no error."""
    path = tmp_path / ".lock"
    path.write_bytes(content)
    lock = Lock(Disk(), path)
    assert lock.read_number() is None
    lock.release()


def test_a_data_folder_is_made_and_says_who_has_it(tmp_path: Path) -> None:
    """A data folder's folders are durable before use; a second server's error names the first process."""
    disk, folder = FailingDisk(), tmp_path / "some" / "data"
    lock = lock_data_folder(disk, folder)
    assert disk.calls["sync_folder"] == 2
    with pytest.raises(EngineError, match=str(folder)) as caught:
        lock_data_folder(disk, folder)
    assert str(caught.value).endswith(f"in use by another server (process {os.getpid()})")
    lock.release()
    lock_data_folder(disk, folder).release()
    assert disk.descriptors == set()


RECORD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


def record_lock(path: Path) -> subprocess.Popen[str]:
    """Start a process that tries to lock the file as a JVM does."""
    command = [sys.executable, "-c", RECORD_LOCK, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_broker_and_a_server_keep_each_other_out(tmp_path: Path) -> None:
    """A broker and a server can't use one folder at a time: both take a record lock of Kafka's `.lock`."""
    with record_lock(tmp_path / ".lock") as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "held\n"
        with pytest.raises(EngineError, match=r"in use by another server$"):
            lock_data_folder(Disk(), tmp_path)
        broker.kill()
    lock = lock_data_folder(Disk(), tmp_path)
    with record_lock(tmp_path / ".lock") as broker:
        said = broker.communicate()
    assert said[0] == ""
    assert "BlockingIOError" in said[1]
    lock.release()
