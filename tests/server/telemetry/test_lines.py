"""Log lines."""

from __future__ import annotations

import io
import json

import pytest

from coordinator.server.telemetry.lines import Level, Lines
from tests.server.harness import ManualClock

HOSTILE = 'a\nfake line\r\x1b[2J\u2028"end'


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_one_call_is_one_line_whatever_it_says(log_format: str) -> None:
    """Text from a client can't start a line of its own, nor reach the terminal as a command."""
    stream = io.StringIO()
    Lines(stream, log_format, 1, ManualClock()).write(Level.WARN, "something", HOSTILE, group=HOSTILE)
    line = stream.getvalue()
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1
    assert not any(character in line[:-1] for character in "\n\r\x1b\u2028")


def test_a_text_line_looks_like_a_brokers() -> None:
    """Time, level, who, what."""
    stream = io.StringIO()
    Lines(stream, "text", 7, ManualClock()).info("something", "It happened")
    assert stream.getvalue().rstrip().endswith("] INFO [GroupCoordinator 7]: It happened")


def test_a_json_line_is_an_object() -> None:
    """It has ts in UTC with milliseconds, level, event, node, the fields and the text."""
    stream = io.StringIO()
    Lines(stream, "json", 1, ManualClock()).error("something", "It happened", partition=3, names=("a", "b"))
    assert json.loads(stream.getvalue()) == {
        "ts": "2023-11-14T22:30:00.000Z",
        "level": "error",
        "event": "something",
        "node": 1,
        "partition": 3,
        "names": ["a", "b"],
        "message": "It happened",
    }


def test_a_supervisors_lines_are_of_no_node() -> None:
    """A node in them is one that they are about."""
    text, objects = io.StringIO(), io.StringIO()
    Lines(text, "text", None, ManualClock()).info("something", "It happened")
    Lines(objects, "json", None, ManualClock()).info("something", "It happened")
    assert text.getvalue().rstrip().endswith("] INFO [Supervisor]: It happened")
    assert "node" not in json.loads(objects.getvalue())


def test_a_line_that_can_not_be_written_is_let_go() -> None:
    """A closed pipe or a full disk is nobody's failure."""
    stream = io.StringIO()
    stream.close()
    Lines(stream, "text", 1, ManualClock()).info("event", "text")
