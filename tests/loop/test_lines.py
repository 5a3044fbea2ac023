"""The format of log lines."""

from __future__ import annotations

import errno
import io
import json

import pytest

from coordinator.loop.lines import Level, Lines
from tests.server.harness import ManualClock

HOSTILE = 'a\nfake line\r\x1b[2J\u2028"end'


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_one_call_is_one_line_whatever_it_says(log_format: str) -> None:
    """One call is one line: text from a client can't start a new line or send a command to the terminal."""
    stream = io.StringIO()
    Lines(stream, log_format, 1, ManualClock()).write(Level.WARN, "something", HOSTILE, group=HOSTILE)
    line = stream.getvalue()
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1
    assert not any(character in line[:-1] for character in "\n\r\x1b\u2028")


def test_a_json_line_has_every_character_of_its_text() -> None:
    """Whatever a client calls itself, a program reads the line, and gets the same text back."""
    stream, name = io.StringIO(), "".join(map(chr, (*range(0xA1), 0x202E, 0x2028, 0xFFFE, 0x1F600)))
    Lines(stream, "json", 1, ManualClock()).warn("something", name, group=name)
    line = stream.getvalue()
    assert line[:-1].isprintable()
    found = json.loads(line)
    assert (found["message"], found["group"]) == (name, name)


def test_text_lines_have_no_character_that_reorders_or_hides() -> None:
    """A terminal would show the rest of the line from right to left, or nothing where something stands."""
    stream = io.StringIO()
    Lines(stream, "text", 1, ManualClock()).warn("something", "gr\xf6\xdfe \u202eabc\u2066\u200b\ufeff\x9b\x7f\xad")
    assert stream.getvalue().endswith("gr\xf6\xdfe \\u202eabc\\u2066\\u200b\\ufeff\\x9b\\x7f\\xad\n")


def test_a_text_line_looks_like_a_brokers() -> None:
    """A text line has time, level, logger and text, as a broker's line has."""
    stream = io.StringIO()
    Lines(stream, "text", 7, ManualClock()).info("something", "It happened")
    assert stream.getvalue().rstrip().endswith("] INFO [GroupCoordinator 7]: It happened")


def test_a_json_line_is_an_object() -> None:
    """A JSON line is an object with ts in UTC with milliseconds, level, event, node, the fields and the text."""
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
    """A supervisor's line has no node of its own; a node in it is its subject."""
    text, objects = io.StringIO(), io.StringIO()
    Lines(text, "text", None, ManualClock()).info("something", "It happened")
    Lines(objects, "json", None, ManualClock()).info("something", "It happened")
    assert text.getvalue().rstrip().endswith("] INFO [Supervisor]: It happened")
    assert "node" not in json.loads(objects.getvalue())


def test_a_line_that_can_not_be_written_is_let_go() -> None:
    """A line that can't be written, because of a closed pipe or a full disk, is dropped; the next one is written."""

    class Stream(io.StringIO):
        error: Exception | None = None

        def write(self, text: str) -> int:
            if self.error is not None:
                raise self.error
            return super().write(text)

    stream = Stream()
    lines = Lines(stream, "text", 1, ManualClock())
    for stream.error in (OSError(errno.ENOSPC, "full"), OSError(errno.EPIPE, "closed"), ValueError("a closed file")):
        lines.info("event", "lost")
    stream.error = None
    lines.info("event", "written")
    assert [line.partition(": ")[2] for line in stream.getvalue().splitlines()] == ["written"]
