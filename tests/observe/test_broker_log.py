"""The follower of a broker's log file reads each line once, over rotations, cuts and files that come late."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest

from coordinator.observe import broker_log
from coordinator.observe.broker_log import BrokerLog

if TYPE_CHECKING:
    from pathlib import Path


def append(path: Path, text: str) -> None:
    """Write behind what the file has."""
    with path.open("a") as file:
        file.write(text)


def test_each_line_comes_once_when_it_is_whole(tmp_path: Path) -> None:
    """A line comes when its end is written; a file that isn't there is waited for, and the problem says so."""
    path = tmp_path / "server.log"
    with closing(BrokerLog(path)) as log:
        assert log.lines() == []
        assert log.problem == f"{path}: No such file or directory"
        append(path, "one\ntwo\r\nthr")
        assert (log.lines(), log.problem) == (["one", "two"], "")
        assert log.lines() == []
        append(path, "ee\n")
        assert log.lines() == ["three"]


def test_a_fifo_of_its_name_is_a_problem(tmp_path: Path) -> None:
    """Nobody waits for a writer, and the file that takes the fifo's place is read."""
    path = tmp_path / "server.log"
    os.mkfifo(path)
    with closing(BrokerLog(path)) as log:
        assert log.lines() == []
        assert log.problem == f"{path}: a fifo, where a file belongs"
        path.unlink()
        append(path, "one\n")
        assert (log.lines(), log.problem) == (["one"], "")


def test_a_rotated_file_is_read_to_its_end(tmp_path: Path) -> None:
    """After a rotation the rest of the old file comes first, then the new one from its start."""
    path = tmp_path / "server.log"
    append(path, "one\n")
    with closing(BrokerLog(path)) as log:
        assert log.lines() == ["one"]
        append(path, "two\nlast without an end")
        path.rename(tmp_path / "server.log.2026-11-27-16")
        assert log.lines() == ["two"]
        append(path, "three\n")
        assert [line for _ in range(3) for line in log.lines()] == ["last without an end", "three"]


def test_a_file_that_is_cut_is_read_from_its_start(tmp_path: Path) -> None:
    """copytruncate empties the file; what is written then is read."""
    path = tmp_path / "server.log"
    append(path, "one\ntwo\nbegun")
    with closing(BrokerLog(path)) as log:
        assert log.lines() == ["one", "two"]
        path.write_text("new\n")
        assert log.lines() == ["new"]


class Failing:
    """A file whose next read fails."""

    def __init__(self, file: BinaryIO) -> None:
        self.fileno, self.tell, self.close = file.fileno, file.tell, file.close

    def read(self, _size: int) -> bytes:
        """Fail."""
        raise OSError(5, "Input/output error")


def test_after_an_error_the_file_is_read_on(tmp_path: Path) -> None:
    """Not from its start, unless it is another file by then."""
    path = tmp_path / "server.log"
    append(path, "one\ntw")
    with closing(BrokerLog(path)) as log:
        assert log.lines() == ["one"]
        assert log._file is not None
        log._file = cast("BinaryIO", Failing(log._file))
        assert (log.lines(), log.problem) == ([], f"{path}: Input/output error")
        append(path, "o\n")
        assert (log.lines(), log.problem) == (["two"], "")
        log._file = cast("BinaryIO", Failing(log._file))
        assert log.lines() == []
        path.rename(tmp_path / "server.log.2026-11-27-16")
        assert log.lines() == []
        append(path, "three\n")
        assert log.lines() == ["three"]


def test_a_large_file_is_read_from_its_newest_part_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call goes back a limited part of the file, to the begin of a line; each call reads a limited part."""
    monkeypatch.setattr(broker_log, "BACK_BYTES", 20)
    monkeypatch.setattr(broker_log, "READ_BYTES", 10)
    path = tmp_path / "server.log"
    append(path, "".join(f"line {number}\n" for number in range(10)))
    with closing(BrokerLog(path)) as log:
        assert log.lines() == ["line 8"]
        assert log.is_behind
        assert log.lines() == ["line 9"]
        assert not log.is_behind
