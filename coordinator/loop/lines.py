"""Log lines: text in the form of a Kafka broker's, or one JSON object a line.

Tenure has its own small writer (docs/contribute/decisions.md): importing structlog alone would cost a
third of the time that a start may take.

House rule: text from a client can't start another line, steer a terminal or turn a line around, because characters
that aren't printable are escaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from coordinator.loop.clock import Times
from protocol.speed import HashedById

_CONTROLS = bytes([*range(0x20), 0x7F])


class _Escapes(dict[int, str]):
    """For str.translate: a character that isn't printable becomes its escape."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        return character if character.isprintable() else ascii(character)[1:-1]


_ESCAPES = _Escapes({code: f"\\x{code:02x}" for code in _CONTROLS})


class Level(HashedById):
    """The weight of a line."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class Lines:
    """Writes log lines to a stream.

    log_format: "text" or "json". node_id: the node that writes; None for a process that is no node: `who`, by default
    the supervisor of several workers. has_fields: whether lines are JSON objects with fields; in text, the words say
    everything.
    """

    def __init__(
        self, stream: TextIO, log_format: str, node_id: int | None, clock: Times, who: str = "Supervisor"
    ) -> None:
        self._stream = stream
        self._dumps: Callable[[object], str] | None = None
        if log_format == "json":
            from json import dumps  # noqa: PLC0415 - text lines don't need it

            self._dumps = dumps
        self.has_fields = self._dumps is not None
        if node_id is not None:
            who = f"GroupCoordinator {node_id}"
        self._heads = {level: f" {level.name} [{who}]: " for level in Level}
        self._node = {} if node_id is None else {"node": node_id}
        self._clock = clock
        self._second = -1
        self._second_stamp = ""
        self._ms = -1
        self._stamp = ""

    def write(self, level: Level, event: str, text: str, /, **fields: Any) -> None:
        """Write that `event` (a stable name) happened: `text` for people, `fields` for programs."""
        if self.has_fields:
            self.put([self.object_line(level, event, text, fields)])
        else:
            self.put_texts([(level, text)])

    def put_texts(self, texts: Sequence[tuple[Level, str]]) -> None:
        """Write text lines, with one write."""
        now, heads = self._now(), self._heads
        lines = []  # without a comprehension, which is a call before Python 3.12
        for level, text in texts:
            lines.append(f"{now}{heads[level]}{text}\n")
        self.put(lines)

    def object_line(self, level: Level, event: str, text: str, fields: dict[str, Any]) -> str:
        """A line of JSON."""
        assert self._dumps is not None
        head = {"ts": self._now(), "level": level.value, "event": event}
        return self._dumps({**head, **self._node, **fields, "message": text}) + "\n"

    def _now(self) -> str:
        """The time stamp of a line. It is made once for all lines of a millisecond, its seconds once a second."""
        wall_ms = self._clock.wall_ms()
        if wall_ms != self._ms:
            self._ms = wall_ms
            second, ms = divmod(wall_ms, 1000)
            if second != self._second:
                self._second = second
                self._second_stamp = self._stamp_of(second)
            self._stamp = (
                f"[{self._second_stamp},{ms:03d}]" if self._dumps is None else f"{self._second_stamp}.{ms:03d}Z"
            )
        return self._stamp

    def _stamp_of(self, second: int) -> str:
        """The seconds of a time stamp: making them costs more than all the rest of a line."""
        if self._dumps is not None:
            return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))

    def put(self, lines: Sequence[str]) -> None:
        """Write lines, which end in newlines, with one write.

        If the disk is full or the pipe closed, the lines are lost: no answer to a client waits for a log line.
        """
        text = "".join(lines)
        # One check of all lines together, in a fifth of the time that `isprintable` takes.
        if not text.isascii() or len(text) - len(text.encode().translate(None, _CONTROLS)) != len(lines):
            text = "".join([f"{line[:-1].translate(_ESCAPES)}\n" for line in lines])
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # without `suppress`, which takes three calls
            pass

    def info(self, event: str, text: str, /, **fields: Any) -> None:
        """Write about normal work."""
        self.write(Level.INFO, event, text, **fields)

    def warn(self, event: str, text: str, /, **fields: Any) -> None:
        """Write about something that a person should look at soon."""
        self.write(Level.WARN, event, text, **fields)

    def error(self, event: str, text: str, /, **fields: Any) -> None:
        """Write about something that a person should look at at once."""
        self.write(Level.ERROR, event, text, **fields)


SPARED_ABOVE, SPARING_MS = 20, 10_000
"""Lines that `Sparing` writes in so many milliseconds: enough to see who it is, too few to fill a disk."""


class Sparing:
    """Writes warnings that strangers can cause at will: SPARED_ABOVE in SPARING_MS, further ones are counted.

    The next line behind them says how many there were.
    """

    def __init__(self, lines: Lines, clock: Times) -> None:
        self._lines = lines
        self._clock = clock
        self._since_ms: int | None = None
        self._count = 0

    def warn(self, event: str, text: str, /, **fields: Any) -> None:
        """Write or count a warning."""
        now_ms = self._clock.ms()
        if self._since_ms is None or now_ms - self._since_ms >= SPARING_MS:
            spared = max(self._count - SPARED_ABOVE, 0)
            if spared:
                text = f"{text} (before this, {spared} such lines were left out)"
                fields["left_out"] = spared
            self._since_ms = now_ms
            self._count = 0
        self._count += 1
        if self._count <= SPARED_ABOVE:
            self._lines.warn(event, text, **fields)
