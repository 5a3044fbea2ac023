"""Tests the calls to the system, and writes that the system takes in parts."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_IMODE

import pytest

from coordinator.log.segments.disk import (
    PARTS_MAX,
    Disk,
    describe,
    open_anew,
    read_data,
    reason,
    replace_file,
    write_all,
)


class SlowDisk(Disk):
    """Takes at most `size` bytes at a time."""

    def __init__(self, size: int) -> None:
        self._size = size

    def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
        joined = b"".join(parts)
        return super().write(descriptor, [joined[: self._size]], position) if self._size else 0


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_all_is_written_however_little_is_taken(tmp_path: Path, size: int) -> None:
    """Parts of any size, empty ones too, arrive whole and at their position, however little a call takes."""
    disk = SlowDisk(size)
    descriptor = disk.open(tmp_path / "file", create=True)
    write_all(disk, descriptor, [b"head"], 0)
    write_all(disk, descriptor, [b"", b"abc", b"", b"defgh", b"i", b""], 2)
    disk.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"heabcdefghi"


def test_a_disk_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    """A write that returns 0 raises an error instead of an endless loop."""
    disk = SlowDisk(0)
    descriptor = disk.open(tmp_path / "file", create=True)
    with pytest.raises(OSError, match="no more") as caught:
        write_all(disk, descriptor, [b"abc"], 0)
    disk.close(descriptor)
    assert caught.value.errno == errno.EIO


def test_more_parts_than_the_system_takes(tmp_path: Path) -> None:
    """A disk takes any number of parts in one write."""
    disk = Disk()
    descriptor = disk.open(tmp_path / "file", create=True)
    parts = [b"%07d\n" % number for number in range(PARTS_MAX * 2 + 3)]
    write_all(disk, descriptor, parts, 0)
    disk.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)


def test_only_the_user_reads_what_is_made(tmp_path: Path) -> None:
    """Files have mode 0600 and folders 0700, whatever the umask would allow; what is there keeps its mode."""
    disk = Disk()
    old = os.umask(0)
    try:
        disk.make_folder(tmp_path / "above" / "new")
        disk.close(disk.open(tmp_path / "above" / "new" / "file", create=True))
        disk.close(open_anew(disk, tmp_path / "above" / "new" / "anew"))
        (tmp_path / "there").mkdir(0o755)
        disk.make_folder(tmp_path / "there")
    finally:
        os.umask(old)
    modes = {path.name: S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"above": 0o700, "new": 0o700, "file": 0o600, "anew": 0o600, "there": 0o755}


def test_nothing_stays_of_a_file_that_is_made_anew(tmp_path: Path) -> None:
    """A file that a crash left, or that somebody put there for others to read, and a link: each is replaced."""
    disk, other, left, link = Disk(), tmp_path / "other", tmp_path / "left", tmp_path / "link"
    other.write_bytes(b"another file")
    left.write_bytes(b"of a stranger")
    left.chmod(0o666)
    link.symlink_to(other)
    with left.open("rb") as held:
        for path in (left, link):
            descriptor = open_anew(disk, path)
            write_all(disk, descriptor, [b"secret"], 0)
            disk.close(descriptor)
            assert (path.read_bytes(), S_IMODE(path.lstat().st_mode)) == (b"secret", 0o600)
        assert held.read() == b"of a stranger"
    assert other.read_bytes() == b"another file"


def test_a_link_leads_no_write_out_of_the_folder(tmp_path: Path) -> None:
    """A file that the server makes is made here, or not at all."""
    disk, other = Disk(), tmp_path / "other"
    other.write_bytes(b"precious")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "topics.json.new").symlink_to(other)
    (folder / ".lock").symlink_to(tmp_path / "nowhere")
    replace_file(disk, folder / "topics.json", b"new")
    assert (folder / "topics.json").read_bytes() == b"new"
    with pytest.raises(OSError, match="symbolic link"):
        disk.open(folder / ".lock", create=True)
    assert other.read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


def test_calls(tmp_path: Path) -> None:
    """A disk creates files only on request, reads up to the end, lists a missing folder as empty; locks exclude."""
    disk = Disk()
    path = tmp_path / "a" / "b" / "file"
    assert disk.list_folder(path.parent) == []
    disk.make_folder(path.parent)
    disk.make_folder(path.parent)
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    descriptor = disk.open(path, create=True)
    assert disk.write(descriptor, [b"ab", b"cd"], 0) == 4
    disk.fdatasync(descriptor)
    disk.sync_folder(path.parent)
    assert disk.size(descriptor) == 4
    assert (disk.read(descriptor, 10, 1), disk.read(descriptor, 10, 4)) == (b"bcd", b"")
    disk.truncate(descriptor, 3)
    second = disk.open(path)
    disk.lock(descriptor)
    with pytest.raises(BlockingIOError):
        disk.lock(second)
    disk.close(descriptor)
    disk.lock(second)
    disk.close(second)
    disk.rename(path, path.with_name("new"))
    assert disk.list_folder(path.parent) == ["new"]
    assert path.with_name("new").read_bytes() == b"abc"
    disk.remove(path.with_name("new"))
    assert disk.list_folder(path.parent) == []


def test_what_went_wrong_fits_a_line() -> None:
    """An error's text has the system's words and the file; for a mistake of ours, it has the exception."""
    error = OSError(28, "No space left on device")
    assert reason(error) == describe(error) == "No space left on device"
    error.filename = "a.log"
    assert reason(error) == describe(error) == "No space left on device: a.log"
    assert reason(ValueError("wrong")) == "wrong"
    assert describe(ValueError("wrong")) == "ValueError('wrong')"


def test_holes_of_a_sparse_file_are_known(tmp_path: Path) -> None:
    """The next bytes that are no hole have a begin and an end; behind the last of them is nothing."""
    disk = Disk()
    descriptor = disk.open(tmp_path / "file", create=True)
    assert disk.next_data(descriptor, 0) is None
    block = os.fstat(descriptor).st_blksize
    disk.write(descriptor, [b"x" * block], 4 * block)
    disk.truncate(descriptor, 9 * block)
    assert disk.next_data(descriptor, 0) == (4 * block, 5 * block)
    assert disk.next_data(descriptor, 4 * block + 1) == (4 * block + 1, 5 * block)
    assert disk.next_data(descriptor, 5 * block) is None


def test_bytes_are_read_without_holes(tmp_path: Path) -> None:
    """Each part has its position, none is larger than asked for, and the end that is asked for cuts the last one."""
    disk = Disk()
    descriptor = disk.open(tmp_path / "file", create=True)
    assert list(read_data(disk, descriptor, 0, 1, 1)) == []
    block = os.fstat(descriptor).st_blksize
    disk.write(descriptor, [b"x" * block], block)
    disk.truncate(descriptor, 9 * block)
    parts = [(block, b"x" * (block - 1)), (2 * block - 1, b"x")]
    assert list(read_data(disk, descriptor, 0, 9 * block, block - 1)) == parts
    assert list(read_data(disk, descriptor, 0, block + 2, block)) == [(block, b"xx")]
    assert list(read_data(disk, descriptor, 0, block, block)) == []
