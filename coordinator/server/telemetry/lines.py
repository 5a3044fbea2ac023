"""Log lines: text as a broker of Kafka writes it, or one JSON object a line.

A writer of its own rather than structlog: this is all that is needed of one, and importing structlog alone would cost a
third of what a start may take.

House rule: whatever a client sent us can't start another line: control characters are escaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from coordinator.server.clock import Times

_CONTROLS = bytes([*range(0x20), 0x7F])
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029)}


class Level(Enum):
    """How much it matters."""

    # Enum's own takes four times as long, and there is one member of each kind.
    __hash__ = object.__hash__

    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class Lines:
    """Where log lines go.

    log_format: "text" or "json". node_id: whose lines they are; None: those of the supervisor of several workers.
    has_fields: whether lines are objects with fields; a text line says it all in words.
    """

    def __init__(self, stream: TextIO, log_format: str, node_id: int | None, clock: Times) -> None:
        self._stream = stream
        self._dumps: Callable[[object], str] | None = None
        if log_format == "json":
            from json import dumps  # noqa: PLC0415 - who logs text starts without it

            self._dumps = dumps
        self.has_fields = self._dumps is not None
        who = "Supervisor" if node_id is None else f"GroupCoordinator {node_id}"
        self._heads = {level: f" {level.name} [{who}]: " for level in Level}
        self._node = {} if node_id is None else {"node": node_id}
        self._clock = clock
        self._second = -1
        self._second_stamp = ""
        self._ms = -1
        self._stamp = ""

    def write(self, level: Level, event: str, text: str, /, **fields: Any) -> None:
        """Say that `event` (a stable name) happened: `text` to people, `fields` to programs."""
        if self.has_fields:
            self.put([self.object_line(level, event, text, fields)])
        else:
            self.put_texts([(level, text)])

    def put_texts(self, texts: Sequence[tuple[Level, str]]) -> None:
        """Write lines of words, with one write."""
        now, heads = self._now(), self._heads
        self.put([f"{now}{heads[level]}{text}\n" for level, text in texts])

    def object_line(self, level: Level, event: str, text: str, fields: dict[str, Any]) -> str:
        """A line that is a JSON object."""
        assert self._dumps is not None
        head = {"ts": self._now(), "level": level.value, "event": event}
        return self._dumps({**head, **self._node, **fields, "message": text}) + "\n"

    def _now(self) -> str:
        """The time as lines have it, made once for all lines of a millisecond, and its larger part of a second."""
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
        """A second in words; to make it costs more than all the rest of a line."""
        if self._dumps is not None:
            return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))

    def put(self, lines: Sequence[str]) -> None:
        """Write lines, each with its end, with one write.

        A full disk or a closed pipe: no line is worth an answer that somebody waits for.
        """
        text = "".join(lines)
        # One look at all of them, at a fifth of what `isprintable` takes.
        if not text.isascii() or len(text) - len(text.encode().translate(None, _CONTROLS)) != len(lines):
            text = "".join([f"{line[:-1].translate(_ESCAPES)}\n" for line in lines])
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def info(self, event: str, text: str, /, **fields: Any) -> None:
        """What happens in the normal course of things."""
        self.write(Level.INFO, event, text, **fields)

    def warn(self, event: str, text: str, /, **fields: Any) -> None:
        """What somebody should look at some time."""
        self.write(Level.WARN, event, text, **fields)

    def error(self, event: str, text: str, /, **fields: Any) -> None:
        """What somebody should look at now."""
        self.write(Level.ERROR, event, text, **fields)
