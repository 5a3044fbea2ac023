"""Reads the coordinator's events from its JSON log.

The log grows meanwhile. The reader goes on where it stopped, so it reads each line once.

House rule: only whole lines count. A line that the coordinator is still writing, or that SIGKILL cut, is no event.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any


class ServerLog:
    """The JSON lines that `tenure serve --log-format json` writes, over all starts of one coordinator."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()
        self._read_to = 0
        self._events: list[dict[str, Any]] = []

    def mark(self) -> int:
        """The number of events so far; later events come behind it."""
        self._read_on()
        return len(self._events)

    def events(self, group_id: str, *, since: int = 0) -> list[dict[str, Any]]:
        """The events of a group from a mark on, in order."""
        self._read_on()
        return [event for event in self._events[since:] if event.get("group") == group_id]

    def newest(self, group_id: str, field: str) -> Any:
        """The value of a field in the last event of a group that has it; None if there is none."""
        return next((each[field] for each in reversed(self.events(group_id)) if field in each), None)

    def generation(self, group_id: str) -> int:
        """A group's generation, from the last event that has one."""
        return int(self.newest(group_id, "generation") or 0)

    def end_line(self) -> None:
        """End a line that SIGKILL cut, so that it doesn't swallow the next one. Only while no coordinator runs."""
        self._read_on()
        with self.path.open("ab") as log:
            if log.tell() != self._read_to:
                log.write(b"\n")

    def tail(self, lines: int = 10) -> str:
        """The last lines, for a person."""
        return "\n".join(self.path.read_text(errors="replace").splitlines()[-lines:])

    def _read_on(self) -> None:
        with self.path.open("rb") as log:
            log.seek(self._read_to)
            new = log.read()
        whole = new.rfind(b"\n") + 1
        self._read_to += whole
        for line in new[:whole].splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                self._events.append(event)


def at_s(event: dict[str, Any]) -> float:
    """The time of an event, Unix time in seconds."""
    return datetime.fromisoformat(event["ts"]).timestamp()
