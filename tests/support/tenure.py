"""A `tenure serve` process for a test: started, killed, started again on the same port and data, and read.

The server prints one `ready` line on standard output and its JSON log lines on standard error; both go to files in the
server's directory, so the server never blocks on a full pipe. Tests read from the log what happened in a group: a mark
is a byte position in it, and the events between two marks are the lines between two positions.

`Tenure(listeners={"SASL": "SASL_PLAINTEXT"}, properties=text)` starts a server with these listeners, by name and
security protocol, and with the properties file `text`. `ApacheKafka` takes the same two arguments.

House rule: every wait here has a deadline, and only processes that this module started get signals, by pid.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.support import preloaded
from tests.support.patience import WITHIN_S
from tests.support.started import Started

POLL_INTERVAL_S = 0.01

READY_LINE = re.compile(
    r"^ready listen=(?P<listen>\S+) node=(?P<node>\S+)( control=(?P<control>\S+))? data=(?P<data>.+)$", re.MULTILINE
)

LogEvent = dict[str, Any]
Found = TypeVar("Found")


class ServerFailed(Exception):
    """The server did not do what the test waited for; the text has the end of its output."""


def tenure_command() -> list[str]:
    """Return the `tenure` beside this interpreter, or the module if the project is not installed."""
    script = Path(sys.executable).parent / "tenure"
    if script.exists():
        return [str(script)]
    return [sys.executable, "-m", "coordinator.cli.main"]


def wait_until(probe: Callable[[], Found | None], what: str, within_s: float) -> Found:
    """The first result of `probe` that is neither None nor False; TimeoutError after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        found = probe()
        if found is not None and found is not False:
            return found
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {within_s:g} s")
        time.sleep(POLL_INTERVAL_S)


def ports_in_a_row(count: int) -> int:
    """Return the first of `count` neighbouring ports that are free and outside the system's range for clients."""
    while True:
        first = random.randrange(20_000, 32_000)
        with ExitStack() as stack, suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


class Tenure(Started):
    """One server: a directory with its data and logs, a port that stays, and at most one process.

    settings: Kafka's names to values, passed as `--set name=value`.
    arguments: further arguments of `tenure serve`.
    listeners, properties: see the module. umask: of the process; -1 for that of the test.
    directory: kept if given; otherwise a temporary one that `close` removes.
    program: the command before its arguments; a test may choose another one before the next start.
    """

    def __init__(
        self,
        settings: Mapping[str, str | int] | None = None,
        *,
        directory: Path | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        properties: str = "",
        umask: int = -1,
    ) -> None:
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="tenure-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.settings = dict(settings or {})
        self.arguments = list(arguments)
        self.environment = dict(environment or {})
        self.listeners = dict(listeners or {})
        self.properties = properties
        self.umask = umask
        self.program = tenure_command()
        self.data_dir = self.directory / "data"
        self.log_path = self.directory / "server.jsonl"
        self.output_path = self.directory / "server.out"
        self.port = 0
        self.ports: list[int] = []
        self.node = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._port_holders: list[socket.socket] = []

    # -- the process

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, known after the first start."""
        assert self.port, "not started yet"
        return f"127.0.0.1:{self.port}"

    def bootstrap_of(self, listener: str) -> str:
        """HOST:PORT of the listener of that name, known after the first start."""
        return f"127.0.0.1:{self.ports[list(self.listeners).index(listener)]}"

    @property
    def pid(self) -> int:
        """The running process's id."""
        assert self._process is not None, "not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self, within_s: float = WITHIN_S) -> Self:
        """Start on the port of the former start (the first time on a free one); wait until all groups are loaded.

        The `ready` line alone promises less: on a slow disk, groups may still answer COORDINATOR_LOAD_IN_PROGRESS.
        """
        assert not self.running, "already running"
        if not self.port and "--workers" in self.arguments:
            # With workers the server needs neighbouring ports, and a restart uses the same ones.
            self.port = ports_in_a_row(int(self.arguments[self.arguments.index("--workers") + 1]))
        output_start = self.output_path.stat().st_size if self.output_path.exists() else 0
        command = [
            "serve",
            *self._listener_arguments(),
            *("--data-dir", str(self.data_dir)),
            *("--log-format", "json"),
            *(part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")),
            *self.arguments,
        ]
        with self.output_path.open("ab") as output, self.log_path.open("ab") as log:
            if log.tell() != self.mark():  # ends a line that SIGKILL cut, so that the next line stays whole
                log.write(b"\n")
                log.flush()
            log_start = log.tell()
            is_plain = self.program == tenure_command() and not any(name[:6] == "PYTHON" for name in self.environment)
            self._process = (preloaded.popen if is_plain else subprocess.Popen)(
                [*self.program, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env={**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                umask=self.umask,
            )
        process = self._process

        def ready() -> re.Match[str] | None:
            with self.output_path.open("rb") as output:
                output.seek(output_start)
                match = READY_LINE.search(output.read().decode())
            if match is None and process.poll() is not None:
                raise ServerFailed(f"exit {process.returncode} before ready\n{self.tail()}")
            return match

        try:
            match = wait_until(ready, "ready line", within_s)
        except TimeoutError as error:
            self.kill()
            raise ServerFailed(f"{error}\n{self.tail()}") from None
        self.ports = [int(address.rpartition(":")[2]) for address in match["listen"].split(",")]
        self.port = self.ports[0]
        self.node = match["node"]
        self._release_ports()
        self._wait_until_loaded(log_start, within_s)
        return self

    def _wait_until_loaded(self, log_start: int, within_s: float) -> None:
        """Wait until every group is loaded; log_start: the position in the log before the start."""
        self.wait_for_event("partitions_loaded", since=log_start, count=self._nodes, within_s=within_s)

    @property
    def _nodes(self) -> int:
        """How many there are, each with a port for each listener."""
        return len(self.ports) // max(len(self.listeners), 1)

    def _listener_arguments(self) -> list[str]:
        """The arguments that say where to listen, and the properties file."""
        arguments: list[str] = []
        if self.properties:
            path = self.directory / "server.properties"
            path.write_text(self.properties, encoding="latin-1")
            arguments += ["--config", str(path)]
        if not self.listeners:
            return [*arguments, "--listen", f"127.0.0.1:{self.port}"]
        ports = self.ports[: len(self.listeners)] or [0] * len(self.listeners)
        places = [f"{name}://127.0.0.1:{port}" for name, port in zip(self.listeners, ports, strict=True)]
        protocols = [f"{name}:{protocol}" for name, protocol in self.listeners.items()]
        for name, values in (("listeners", places), ("listener.security.protocol.map", protocols)):
            arguments += ["--set", f"{name}={','.join(values)}"]
        return arguments

    def worker_pid(self, node_id: int) -> int:
        """Return the pid of the worker with this node id, or of its last process; with `--workers`."""
        started = [event for event in self.events("worker_started") if event["node"] == node_id]
        return int(started[-1]["pid"])

    def send_signal(self, signal_number: signal.Signals) -> None:
        """Send a signal to the server's process alone."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal_number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended, and its workers, which still have the data folder."""
        if self._process is not None:
            session = self._process.pid
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
            self._process.wait(WITHIN_S)
            if self._nodes > 1:
                wait_until(lambda: self._workers_are_gone(session), "end of the workers", WITHIN_S)
            self._process = None
            self._hold_ports()

    def _workers_are_gone(self, session: int) -> bool:
        """Whether none of the workers lives. A pid in the log may be another process's, in another session, by now."""
        for started in self.events("worker_started"):
            with suppress(FileNotFoundError, ProcessLookupError):
                state, _, _, its_session, *_ = (
                    Path(f"/proc/{started['pid']}/stat").read_text().rpartition(")")[2].split()
                )
                if int(its_session) == session and state != "Z":
                    return False
        return True

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        assert self._process is not None, "not running"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"did not end on SIGTERM within {WITHIN_S:g} s\n{self.tail()}") from None
        self._process = None
        self._hold_ports()
        return code

    def restart(self) -> None:
        """SIGKILL and a new process on the same port and data."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End the process if it runs, and remove a temporary directory."""
        self.kill()
        self._release_ports()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self, timeout_s: float = WITHIN_S) -> socket.socket:
        """A TCP connection to the server, for tests that write bytes themselves."""
        return socket.create_connection(("127.0.0.1", self.port), timeout_s)

    def tail(self, lines: int = 30) -> str:
        """The last log lines, for a failure's message."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _hold_ports(self) -> None:
        """Reserve the ports while the server is down, or a client that looks for the server could get one of them.

        The sockets are bound with SO_REUSEADDR, but don't listen. So the kernel gives the ports to no program that asks
        for any port, and the next process can listen on them.
        """
        if not self._port_holders:
            self._port_holders = [self._held(port) for port in self.ports]

    def _held(self, port: int) -> socket.socket:
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def bound() -> bool:
            with suppress(OSError):
                holder.bind(("127.0.0.1", port))
            return bool(holder.getsockname()[1] == port)

        try:
            # A child that the server was starting keeps the server's sockets open until it runs its own program.
            wait_until(bound, "port", WITHIN_S)
        except TimeoutError:
            holder.close()
            raise ServerFailed(f"port {port} was taken as soon as the server was gone") from None
        return holder

    def _release_ports(self) -> None:
        for holder in self._port_holders:
            holder.close()
        self._port_holders = []

    # -- the log

    def mark(self) -> int:
        """The position behind the last whole log line."""
        if not self.log_path.exists():
            return 0
        return self.log_path.read_bytes().rfind(b"\n") + 1

    def events(
        self, name: str | None = None, group: str | None = None, *, since: int = 0, until: int | None = None
    ) -> list[LogEvent]:
        """Log events in order, by name and group, between two marks."""
        return [
            event
            for event in self._log_events(since, until)
            if (name is None or event.get("event") == name) and (group is None or event.get("group") == group)
        ]

    def count(self, name: str, group: str | None = None, *, since: int = 0, until: int | None = None) -> int:
        """How many log events of that name (and group) lie between two marks."""
        return len(self.events(name, group, since=since, until=until))

    def wait_for_event(
        self, name: str, group: str | None = None, *, since: int = 0, count: int = 1, within_s: float = WITHIN_S
    ) -> list[LogEvent]:
        """The events of that name (and group) since the mark, once there are `count` of them."""

        def enough() -> list[LogEvent] | None:
            found = self.events(name, group, since=since)
            return found if len(found) >= count else None

        try:
            return wait_until(enough, f"{count} x {name} of {group}", within_s)
        except TimeoutError as error:
            raise ServerFailed(f"{error}\n{self.tail()}") from None

    def _log_events(self, since: int, until: int | None) -> Iterator[LogEvent]:
        """Yield whole lines only. Skip incomplete lines and lines that aren't JSON."""
        if not self.log_path.exists():
            return
        with self.log_path.open("rb") as log:
            log.seek(since)
            text = log.read() if until is None else log.read(until - since)
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event
