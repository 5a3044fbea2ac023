"""The processes of the demo: a coordinator and its consumers, which the demo starts, ends and starts again.

Each process has a session of its own. So Ctrl-C reaches only the demo, and the demo ends the processes one by one.

House rule: this module signals only processes that it started, and every wait has a deadline.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from examples.demo.server_log import ServerLog

READY = re.compile(rb"^ready listen=127\.0\.0\.1:(\d+)", re.MULTILINE)
READY_WITHIN_S = 15.0
STOPPED_WITHIN_S = 10.0
POLL_S = 0.1

Found = TypeVar("Found")


class DemoFailed(Exception):
    """The demo can't go on; `str()` of it says what it waited for."""


def wait_until(probe: Callable[[], Found | None], what: str, within_s: float) -> Found:
    """Call `probe` until its result isn't None, and return that. Raises DemoFailed after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while (found := probe()) is None:
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what}: not within {within_s:g} s")
        time.sleep(POLL_S)
    return found


class Process:
    """Runs one command line, at most one process of it at a time; `with` ends the process in any case."""

    def __init__(self, name: str, command: list[str], output: Path, errors: Path) -> None:
        self.name = name
        self.command = command
        self._output = output
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process; it appends its output to the files."""
        assert self._process is None, "runs already"
        with self._output.open("ab") as output, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                # Without these variables, the coordinator has only the settings that the demo shows.
                env={name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "KAFKA_"))},
            )

    def require_alive(self) -> None:
        """Raise DemoFailed if the process ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            said = self._errors.read_text(errors="replace").strip().splitlines()
            raise DemoFailed(f"{self.name} ended by itself: {said[-1] if said else 'it said nothing'}")

    def stop(self) -> None:
        """Send SIGTERM, and wait for the end of the process."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DemoFailed(f"{self.name} did not end within {STOPPED_WITHIN_S:g} s") from None
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Server(Process):
    """The coordinator: each start has the same data and, from the second on, the same port.

    settings: values by Kafka's names.
    """

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.port = 0
        self.log = ServerLog(folder / "server.jsonl")
        self._ready = folder / "server.out"
        self._data = folder / "data"
        self._settings = settings
        super().__init__("coordinator", [], self._ready, self.log.path)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, known after the first start."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the coordinator and wait until it accepts requests."""
        self._ready.unlink(missing_ok=True)
        self.log.end_line()
        self.command = [
            *(sys.executable, "-m", "coordinator.cli.main", "serve"),
            *("--listen", self.bootstrap, "--data-dir", str(self._data), "--log-format", "json"),
            *(part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")),
        ]
        super().start()

        def listening() -> int | None:
            match = READY.search(self._ready.read_bytes())
            if match is None:
                self.require_alive()
                return None
            return int(match[1])

        self.port = wait_until(listening, "coordinator ready", READY_WITHIN_S)


class Worker(Process):
    """A consumer that keeps its name over restarts; the name is the instance id if the member is static."""

    def __init__(
        self, name: str, server: Server, group_id: str, topic: str, folder: Path, protocol: str, *, static: bool
    ) -> None:
        command = [sys.executable, "-m", "examples.demo.consumer", str(os.getpid())]
        command += [server.bootstrap, group_id, topic, protocol]
        self._said = folder / f"{group_id}-{name}.out"
        super().__init__(name, [*command, name] if static else command, self._said, self._said.with_suffix(".err"))

    def start(self) -> None:
        """Start the consumer; it has no member id until it has joined."""
        self._said.unlink(missing_ok=True)
        super().start()

    @property
    def member_id(self) -> str | None:
        """Its member id in the group, as the consumer printed it."""
        said = self._said.read_text().split()
        return said[-1] if said else None
