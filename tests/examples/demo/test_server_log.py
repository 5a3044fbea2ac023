"""The demo reads events from a log while the coordinator writes it."""

from __future__ import annotations

import json
from pathlib import Path

from examples.demo.server_log import ServerLog


def line(event: str, group: str = "g", **fields: object) -> bytes:
    """A line as the coordinator writes it."""
    return json.dumps({"event": event, "group": group, **fields}).encode() + b"\n"


def append(log: ServerLog, data: bytes) -> None:
    """Append bytes as the coordinator does."""
    with log.path.open("ab") as file:
        file.write(data)


def names(log: ServerLog, group: str = "g", since: int = 0) -> list[str]:
    """The names of the events."""
    return [event["event"] for event in log.events(group, since=since)]


def test_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    """The log is empty before the coordinator has written anything."""
    assert names(ServerLog(tmp_path / "log")) == []


def test_events_of_one_group_from_a_mark_on(tmp_path: Path) -> None:
    """The events come in order, without other groups, and without events before the mark."""
    log = ServerLog(tmp_path / "log")
    append(log, line("a") + line("b", "other"))
    mark = log.mark()
    append(log, line("c") + line("d"))
    assert names(log) == ["a", "c", "d"]
    assert names(log, since=mark) == ["c", "d"]
    assert names(log, "other") == ["b"]


def test_half_a_line_counts_when_it_is_whole(tmp_path: Path) -> None:
    """A half written line is no event until its end has come."""
    log = ServerLog(tmp_path / "log")
    append(log, line("a") + line("b")[:7])
    assert names(log) == ["a"]
    append(log, line("b")[7:])
    assert names(log) == ["a", "b"]


def test_line_cut_by_sigkill_swallows_nothing(tmp_path: Path) -> None:
    """The rest of a cut line never comes; the reader still reads the first line of the next start."""
    log = ServerLog(tmp_path / "log")
    append(log, line("a") + line("b")[:7])
    log.end_line()
    append(log, line("c"))
    log.end_line()
    append(log, line("d"))
    assert names(log) == ["a", "c", "d"]


def test_other_output_is_no_event(tmp_path: Path) -> None:
    """The reader ignores a traceback or a warning between the lines; the tail shows it to a person."""
    log = ServerLog(tmp_path / "log")
    append(log, b'Traceback\n[1]\n"text"\n{"message": "no event"}\n\xff\n' + line("a"))
    assert names(log) == ["a"]
    assert log.tail(6).startswith("Traceback")
