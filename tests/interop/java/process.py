"""A Java program as a process: lines in, JSON lines or plain text out, and a test that waits for what it says.

House rule: every wait has a deadline, and a failure shows the end of what was said.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.started import Closes

WAIT_S = 150.0
SHOWN = 40


class JavaProcess(Closes):
    """`with JavaProcess([...]) as process`; it is killed in the end if it still runs.

    events: the JSON lines of its standard output; other lines, and its standard error, are kept for messages.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.events: list[dict[str, Any]] = []
        self._said: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self._readers = [
            threading.Thread(target=self._read, args=(pipe,)) for pipe in (self._process.stdout, self._process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def close(self) -> None:
        """Kill it, unless it has ended by itself."""
        self.kill()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        """Freeze it, or let it go on."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, unless it has ended by itself."""
        self._process.kill()
        self.join()

    def join(self) -> int:
        """Wait for its end; its exit code."""
        code = self._process.wait(WAIT_S)
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    def wait_for(self, what: str, holds: Callable[[dict[str, Any]], bool], since: int = 0) -> dict[str, Any]:
        """The first event, from that number on, of which it holds."""

        def found() -> dict[str, Any] | None:
            return next((event for event in self.events[since:] if holds(event)), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None or not self.running, WAIT_S)
        event = found()
        assert event is not None, "\n".join([f"{what}: not within {WAIT_S:g} s", *self._said[-SHOWN:]])
        return event

    def _read(self, pipe: Any) -> None:
        for line in pipe:
            with self._changed:
                self._said.append(line.rstrip())
                if line.startswith("{"):
                    self.events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()
