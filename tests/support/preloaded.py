"""Starts `tenure serve` without its imports: a process that has made them is forked for each server.

    process = start(["serve", "--listen", "127.0.0.1:0"], output, log, environment, umask)
    process.poll(), process.wait(timeout), process.send_signal(...)     as of subprocess.Popen

The imports are nine tenths of the CPU of a start, and tests start a server hundreds of times. The first start in a
process makes the one that is forked; it has one thread, and runs no server itself. tests/cli/test_serve.py starts the
real command.

House rule: the server gets all that a new process has of its own: session, files, environment, folder and arguments.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any

IS_POSSIBLE = hasattr(os, "pidfd_open")
"""Linux alone tells of the end of a process that another one has started."""

ASKED_BYTES_MAX = 1 << 20
"""The longest message: the arguments and the environment of a server."""


class Forked:
    """A server's process, as subprocess.Popen has it. forks: the process that forked it."""

    def __init__(self, pid: int, forks: Preloaded) -> None:
        self.pid = pid
        self._forks = forks
        self.returncode: int | None = None
        self._process = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit code, or None while the process runs."""
        return self.returncode if self.returncode is not None or not self._has_ended(0) else self._reap()

    def wait(self, timeout: float) -> int:
        """The exit code, once the process has ended. Raises subprocess.TimeoutExpired."""
        if self.returncode is not None:
            return self.returncode
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("tenure serve", timeout)
        return self._reap()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._process, number)

    def _has_ended(self, timeout: float) -> bool:
        waiting = select.poll()
        waiting.register(self._process, select.POLLIN)
        return bool(waiting.poll(timeout * 1_000))

    def _reap(self) -> int:
        os.close(self._process)
        self.returncode = self._forks.ask({"reap": self.pid})
        return self.returncode


class Preloaded:
    """The process that is forked."""

    def __init__(self) -> None:
        self._asking = Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            # It outlives an interrupt of the tests, which end their servers themselves; it ends with this process.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.preloaded", str(other.fileno())],
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def ask(self, asked: Mapping[str, Any], files: Sequence[int] = ()) -> int:
        """Send a request with open files; returns the answer."""
        with self._asking:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], files)
            return int(self._socket.recv(64))


@cache
def preloaded() -> Preloaded:
    """That of this process."""
    return Preloaded()


def start(
    arguments: Sequence[str], output: IO[bytes], log: IO[bytes], environment: Mapping[str, str], umask: int
) -> Forked:
    """Start a server in a session of its own. umask: -1 for that of this process."""
    asked = {
        "arguments": arguments,
        "environment": dict(environment),
        "umask": _own_umask() if umask == -1 else umask,
        "folder": str(Path.cwd()),
    }
    forks = preloaded()
    return Forked(forks.ask(asked, [output.fileno(), log.fileno()]), forks)


def _own_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def answer(asking: socket.socket) -> list[str]:
    """Fork for each request; in a forked process, returns the arguments of its command. Ends when the tests end."""
    while True:
        message, files, _, _ = socket.recv_fds(asking, ASKED_BYTES_MAX, 2)
        if not message:
            os._exit(0)
        asked = json.loads(message)
        if "reap" in asked:
            result = os.waitstatus_to_exitcode(os.waitpid(asked["reap"], 0)[1])
        else:
            result = os.fork()
            if result == 0:
                asking.close()
                _become(asked, *files)
                arguments: list[str] = asked["arguments"]
                return arguments
            for file in files:
                os.close(file)
        asking.send(str(result).encode())


def _become(asked: Mapping[str, Any], output: int, log: int) -> None:
    """Make this a new process: it shares nothing with the one that was forked but its modules."""
    os.setsid()
    os.umask(asked["umask"])
    os.chdir(asked["folder"])
    for file, place in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (log, 2)):
        os.dup2(file, place)
        os.close(file)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["tenure", *asked["arguments"]]


if __name__ == "__main__":
    from importlib import import_module

    from coordinator.cli.main import main

    for name in ("cli.serve", "log.embedded.engine", "server.http.site", "server.http.web", "server.supervisor"):
        import_module(f"coordinator.{name}")
    main(answer(socket.socket(fileno=int(sys.argv[1]))))
