"""Log lines: text as a broker of Kafka writes it, or one JSON object a line.

A writer of its own rather than structlog: this is all that is needed of one, and importing structlog alone would cost a
third of what a start may take.

House rule: one call, one line. Whatever a client sent us can't start another one: control characters are escaped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from coordinator.server.clock import Times

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029)}


class Level(Enum):
    """How much it matters."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class Lines:
    """Where log lines go.

    log_format: "text" or "json". node_id: whose lines they are; None: those of the supervisor of several workers.
    """

    def __init__(self, stream: TextIO, log_format: str, node_id: int | None, clock: Times) -> None:
        self._stream = stream
        self._dumps: Callable[[object], str] | None = None
        if log_format == "json":
            from json import dumps  # noqa: PLC0415 - who logs text starts without it

            self._dumps = dumps
        self._who = "Supervisor" if node_id is None else f"GroupCoordinator {node_id}"
        self._node = {} if node_id is None else {"node": node_id}
        self._clock = clock
        self._second = -1
        self._stamp = ""

    @property
    def has_fields(self) -> bool:
        """Whether a line shows its fields; a text line says it all in words."""
        return self._dumps is not None

    def write(self, level: Level, event: str, text: str, /, **fields: Any) -> None:
        """Say that `event` (a stable name) happened: `text` to people, `fields` to programs."""
        self.put(self.line(level, event, text, fields))

    def line(self, level: Level, event: str, text: str, fields: dict[str, Any]) -> str:
        """The line that `write` writes."""
        second, ms = divmod(self._clock.wall_ms(), 1000)
        if second != self._second:
            self._second = second
            self._stamp = self._stamp_of(second)
        if self._dumps is not None:
            head = {"ts": f"{self._stamp}.{ms:03d}Z", "level": level.value, "event": event}
            return self._dumps({**head, **self._node, **fields, "message": text}) + "\n"
        if not text.isprintable():
            text = text.translate(_ESCAPES)
        return f"[{self._stamp},{ms:03d}] {level.name} [{self._who}]: {text}\n"

    def _stamp_of(self, second: int) -> str:
        """A second in words: made once for all its lines, for to make it costs more than all the rest of a line."""
        if self._dumps is not None:
            return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))

    def put(self, lines: str) -> None:
        """Write lines that `line` made, one or several.

        A full disk or a closed pipe: no line is worth an answer that somebody waits for.
        """
        with suppress(OSError, ValueError):
            self._stream.write(lines)
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
