"""Events read from a log that is being written."""

from __future__ import annotations

import json
from pathlib import Path

from coordinator.cli.demo.server_log import ServerLog


def line(event: str, group: str = "g", **fields: object) -> bytes:
    """A line as the coordinator writes it."""
    return json.dumps({"event": event, "group": group, **fields}).encode() + b"\n"


def append(log: ServerLog, data: bytes) -> None:
    """What the coordinator does."""
    with log.path.open("ab") as file:
        file.write(data)


def names(log: ServerLog, group: str = "g", since: int = 0) -> list[str]:
    """The events' names."""
    return [event["event"] for event in log.events(group, since=since)]


def test_log_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    """The demo looks before the coordinator has written anything."""
    assert names(ServerLog(tmp_path / "log")) == []


def test_events_of_one_group_from_a_mark_on(tmp_path: Path) -> None:
    """In order, without those of other groups, and without what was there before the mark."""
    log = ServerLog(tmp_path / "log")
    append(log, line("a") + line("b", "other"))
    mark = log.mark()
    append(log, line("c") + line("d"))
    assert names(log) == ["a", "c", "d"]
    assert names(log, since=mark) == ["c", "d"]
    assert names(log, "other") == ["b"]


def test_half_a_line_counts_when_it_is_whole(tmp_path: Path) -> None:
    """A line that is being written is no event yet, and is one once its end has come."""
    log = ServerLog(tmp_path / "log")
    append(log, line("a") + line("b")[:7])
    assert names(log) == ["a"]
    append(log, line("b")[7:])
    assert names(log) == ["a", "b"]


def test_line_cut_by_sigkill_swallows_nothing(tmp_path: Path) -> None:
    """Its rest never comes; the next start's first line is read all the same."""
    log = ServerLog(tmp_path / "log")
    append(log, line("a") + line("b")[:7])
    log.end_line()
    append(log, line("c"))
    log.end_line()
    append(log, line("d"))
    assert names(log) == ["a", "c", "d"]


def test_other_output_is_no_event(tmp_path: Path) -> None:
    """A traceback or a warning among the lines disturbs nothing, and the tail shows it to a person."""
    log = ServerLog(tmp_path / "log")
    append(log, b'Traceback\n[1]\n"text"\n{"message": "no event"}\n\xff\n' + line("a"))
    assert names(log) == ["a"]
    assert log.tail(6).startswith("Traceback")
