"""Starts `tenure` and modules of tests without their imports: a process that has made them is forked for each.

    process = popen([sys.executable, "-m", "tests.observe.consumer", settings], stdin=PIPE)     as subprocess.Popen
    done = run([*tenure_command(), "users", "list"])                                            as subprocess.run

The imports are most of the CPU of a start, and tests start programs hundreds of times. One process is forked for
`tenure` and one for modules of tests, so that a server has no memory of clients. It has one thread, and has imported
each module that it was asked for. The processes of `pytest --at-once` share both. tests/cli/test_serve.py starts the
real command.

House rule: a program gets all that a new process has of its own: session, files, environment, folder and arguments.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

from tests.support.patience import WITHIN_S

IS_POSSIBLE = hasattr(os, "pidfd_open")
"""Linux alone tells of the end of a process that another one has started."""

ASKED_BYTES_MAX = 1 << 20
"""The longest message: the arguments and the environment of a program."""

COMMAND = "coordinator.cli.main"
PRELOADED = (
    "coordinator.cli.cluster",
    "coordinator.cli.observe",
    "coordinator.cli.seat",
    "coordinator.cli.serve",
    "coordinator.cli.users",
    "coordinator.cli.watch",
    "coordinator.log.embedded.engine",
    "coordinator.seats.run",
    "coordinator.server.supervisor",
    "coordinator.site.site",
    "coordinator.site.web",
    "encodings.idna",
    "typer._adapters",
)
"""What `tenure` imports once it knows its arguments."""


def popen(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a command; a process is forked for `[sys.executable, "-m", MODULE, ...]` and `tenure ...`."""
    is_forked = IS_POSSIBLE and (list(command[:2]) == [sys.executable, "-m"] or Path(command[0]).name == "tenure")
    return (Forked if is_forked else subprocess.Popen)(command, **options)


def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without input, with its output as text."""
    pipe = subprocess.PIPE
    with popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, **options) as process:
        try:
            output, errors = process.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


class Forked(subprocess.Popen[Any]):
    """A process that is forked."""

    def _execute_child(self, command: Sequence[str], *others: Any) -> None:
        names = list(inspect.signature(subprocess.Popen._execute_child).parameters)[2:]  # type: ignore[attr-defined]
        given = dict(zip(names, others, strict=True))
        assert given["preexec_fn"] is None, "it would run in another process"
        module, *arguments = command[2:] if command[1] == "-m" else (COMMAND, *command[1:])
        asked = {
            "module": module,
            "arguments": arguments,
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "umask": _own_umask() if given["umask"] == -1 else given["umask"],
            "folder": str(given["cwd"] or Path.cwd()),
        }
        files = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        self._forks = preloaded(module.partition(".")[0])
        self.pid = self._forks.ask(asked, [number if file == -1 else file for number, file in enumerate(files)])
        self._child_created = True
        self._process = os.pidfd_open(self.pid)
        self._close_pipe_fds(*(given[name] for name in names if name[-4:] in {"read", "rite"}))  # type: ignore[attr-defined]

    def __del__(self) -> None:
        """Ask nothing: the garbage collector may come in the midst of a request."""
        if hasattr(self, "_process"):  # until here, since another thread may wait for it
            os.close(self._process)

    def _internal_poll(self, *_others: Any, **_more: Any) -> int | None:
        return self.returncode if self.returncode is not None or not self._has_ended(0) else self._reap()

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is not None:
            return self.returncode
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._reap()

    def _has_ended(self, timeout: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._process, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1_000))

    def _reap(self) -> int:
        with self._waitpid_lock:  # type: ignore[attr-defined]  # two threads may wait
            if self.returncode is None:
                self.returncode = self._forks.ask({"reap": self.pid})
        return self.returncode


class Preloaded:
    """A process that is forked. users: how many processes ask it. modules: it imports these before it is asked."""

    def __init__(self, users: int = 1, *modules: str) -> None:
        self._asking = threading.Lock()
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(users)]
        self._sockets = [own for own, _ in pairs]
        self._socket = self._sockets[0]
        numbers = [other.fileno() for _, other in pairs]
        # It outlives an interrupt of the tests, which end their servers themselves; it ends with its users.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.preloaded", ",".join(map(str, numbers)), *modules],
            pass_fds=numbers,
            start_new_session=True,
        )
        for _, other in pairs:
            other.close()
        atexit.register(self._end)

    def _end(self) -> None:
        for each in self._sockets:
            each.close()
        self._process.wait()

    def be_user(self, number: int) -> None:
        """This process, which was forked, is that user."""
        for each in self._sockets:
            if each is not self._sockets[number]:
                each.close()
        self._socket = self._sockets[number]

    def ask(self, asked: Mapping[str, Any], files: Sequence[int] = ()) -> int:
        """Send a request with open files; returns the answer."""
        with self._asking:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], files)
            return int(self._socket.recv(64))


PROCESSES: dict[str, Preloaded] = {}
"""Those of this process, by the package of the modules that they run."""


def preloaded(package: str) -> Preloaded:
    """That for the modules of a package."""
    if package not in PROCESSES:
        PROCESSES[package] = Preloaded()
    return PROCESSES[package]


def share(users: int) -> None:
    """Start those that all processes of the tests will use."""
    PROCESSES["coordinator"] = Preloaded(users, COMMAND)
    PROCESSES["tests"] = Preloaded(users)


def _own_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def answer(askings: list[socket.socket]) -> str:
    """Fork for each request; in a forked process, returns the module to run. Ends when the tests end."""
    while askings:
        for asking in wait(askings):
            assert isinstance(asking, socket.socket)
            message, files, _, _ = socket.recv_fds(asking, ASKED_BYTES_MAX, 3)
            if not message:
                askings.remove(asking)
                asking.close()
                continue
            asked = json.loads(message)
            if "reap" in asked:
                result = os.waitstatus_to_exitcode(os.waitpid(asked["reap"], 0)[1])
            else:
                module = _load(asked["module"])
                result = os.fork()
                if result == 0:
                    for each in askings:
                        each.close()
                    _become(asked, files)
                    sys.modules.pop(module, None)  # it runs again
                    return module
                for file in files:
                    os.close(file)
            with suppress(ConnectionError):  # a process of the tests was killed
                asking.send(str(result).encode())
    os._exit(0)


def _load(module: str) -> str:
    """Import a module and what it imports later; returns the name of the one to run.

    A module that can't be imported fails in the program that runs it, and not for all tests.
    """
    with suppress(Exception, SystemExit):
        if hasattr(import_module(module), "__path__"):
            module += ".__main__"  # a package runs this module, which has the imports
        for name in (module, *(PRELOADED if module == COMMAND else ())):
            import_module(name)
    gc.freeze()  # at its end each fork would look at all modules for garbage, and so copy their memory: 150 ms of CPU
    return module


def _become(asked: Mapping[str, Any], files: Sequence[int]) -> None:
    """Make this a new process: it shares nothing with the one that was forked but its modules."""
    os.setsid()
    os.umask(asked["umask"])
    os.chdir(asked["folder"])
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["", *asked["arguments"]]


def _run(module: str) -> int:
    """Run a module; returns its exit code. A module that raises another exception ends as Python ends it."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        return end.code or 0
    return 0


def _end(code: int) -> NoReturn:
    """End this process, and keep its memory: Python would free all modules, and so copy it first: 30 ms of CPU."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python says so in its own way
    os._exit(code)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        _load(each)
    asked_by = [socket.socket(fileno=int(number)) for number in sys.argv[1].split(",")]
    _end(_run(answer(asked_by)))
