"""Tests of opening files of a data folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from coordinator.log.files import NotRegular, needs_a_person, open_regular, read_regular

GIB = 2**30


def _put(kind: str, path: Path) -> None:
    """Put something of that kind at `path`."""
    if kind == "a fifo":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW])
@pytest.mark.parametrize("kind", ["a fifo", "a folder", "a socket", "a device"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str, flags: int) -> None:
    """Whatever isn't a regular file is refused at once, by its kind and name; nobody writes to the fifo."""
    path = tmp_path / "file"
    _put(kind, path)
    if flags & os.O_NOFOLLOW and kind == "a device":
        kind = "a symbolic link"
    with pytest.raises(NotRegular) as caught:
        open_regular(path, flags)
    assert caught.value.strerror == f"{kind}, where a file belongs"
    assert caught.value.filename == str(path)


def test_a_link_is_followed_unless_the_caller_says_no(tmp_path: Path) -> None:
    """A reader follows a link to a file; with O_NOFOLLOW the link is refused."""
    (tmp_path / "target").write_bytes(b"content")
    link = tmp_path / "link"
    link.symlink_to("target")
    assert read_regular(link) == b"content"
    with pytest.raises(NotRegular, match="a symbolic link"):
        read_regular(link, flags=os.O_NOFOLLOW)


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    """A link that leads to itself is refused by its kind, as one to a folder: only a person can mend it."""
    link = tmp_path / "link"
    link.symlink_to("link")
    with pytest.raises(NotRegular, match="a symbolic link, where a file belongs") as caught:
        open_regular(link)
    assert needs_a_person(caught.value)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    """A file that isn't there is FileNotFoundError, and so is a link to nothing; only the latter needs a person."""
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        with pytest.raises(FileNotFoundError) as caught:
            open_regular(tmp_path / name)
        assert needs_a_person(caught.value) == (name == "link")


def test_a_new_file_takes_no_other_name(tmp_path: Path) -> None:
    """Where a new file is asked for, anything of that name is FileExistsError."""
    os.mkfifo(tmp_path / "file")
    with pytest.raises(FileExistsError):
        open_regular(tmp_path / "file", os.O_RDWR | os.O_CREAT | os.O_EXCL)


def test_no_more_than_the_bound_is_read(tmp_path: Path) -> None:
    """A sparse file of 8 GB is refused after the bound; one of just the bound is read."""
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 8 * GIB)
    with pytest.raises(NotRegular, match="more than the 10 bytes that it can have"):
        read_regular(path, 10)
    path.write_bytes(b"0123456789")
    assert read_regular(path, 10) == b"0123456789"
