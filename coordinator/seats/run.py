"""Runs a program with a leased name: two processes, each of which can kill the program.

    supervisor   starts the program, passes signals on, reaps; carries out what the core says. May be process 1.
    keeper       its child: gets the name and renews it, and kills the program in time if the supervisor doesn't.

A pause or the end of one of them leaves the other one. The program is the leader of a process group of its own, so
that its children end with it, and Linux kills it if the supervisor dies.

House rule: the supervisor has one thread and knows no network. Both read the same clock, which goes on while the
machine sleeps.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from coordinator.seats.supervisor import (
    MARGIN_SHARE,
    SIGNAL_EXIT,
    Action,
    Ended,
    Event,
    Exit,
    KeeperEnded,
    Kill,
    Leased,
    Lost,
    Say,
    Send,
    Signalled,
    Start,
    Supervisor,
    Tick,
    Waits,
    Why,
)

TURN_S = 0.1
RELEASE_S = 5.0
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PR_SET_PDEATHSIG = 1
SEAT = "{seat}"
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds, those of a sleeping machine included."""
    return time.clock_gettime(CLOCK)


class Lease(Protocol):
    """A way to lease a name."""

    async def keep(self, report: Callable[[Leased | Waits | Lost], None], clock: Callable[[], float]) -> None:
        """Get a name and keep it, until it is lost."""

    async def release(self) -> None:
        """Give the name back."""


class Options(NamedTuple):
    """How a program runs. variable: of its environment, for the name."""

    command: Sequence[str]
    variable: str
    session_s: float
    grace_s: float
    waits: bool


def run(options: Options, make_lease: Callable[[], Lease], say: Callable[[str], None]) -> Exit:
    """Run the program; returns how it ended. make_lease: called in the keeper."""
    commands, reports = os.pipe(), os.pipe()
    sys.stdout.flush()
    keeper = os.fork()
    if keeper == 0:
        os.close(commands[1])
        os.close(reports[0])
        code = 1
        with suppress(KeyboardInterrupt, BrokenPipeError):
            code = asyncio.run(_Keeper(make_lease(), commands[0], reports[1], options.session_s).run())
        os._exit(code)
    os.close(commands[0])
    os.close(reports[1])
    return _Supervising(options, keeper, commands[1], reports[0], say).run()


class _Supervising:
    """The supervisor's process."""

    def __init__(self, options: Options, keeper: int, commands: int, reports: int, say: Callable[[str], None]) -> None:
        self._options, self._keeper, self._commands, self._reports, self._say = (
            options,
            keeper,
            commands,
            reports,
            say,
        )
        self._core = Supervisor(options.session_s, options.grace_s, waits=options.waits)
        self._program: subprocess.Popen[bytes] | None = None
        self._exit: Exit | None = None
        self._unread = b""

    def run(self) -> Exit:
        woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        os.set_blocking(woken, False)
        for number in (*PASSED_ON, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wakes)
        watched = [woken, self._reports]
        while self._exit is None:
            ready, _, _ = select.select(watched, [], [], TURN_S)
            if self._reports in ready and not self._read_reports():
                watched.remove(self._reports)
                self._take(KeeperEnded())
            self._take(Tick())
            if woken in ready:
                for number in {*os.read(woken, 1000)}.intersection(PASSED_ON):
                    self._take(Signalled(number))
            self._reap()
        if self._exit.why is not Why.LOST:
            self._let_go()
        return self._exit

    def _take(self, event: Event) -> None:
        for action in self._core.handle(event, clock()):
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Start):
            self._start(action)
        elif isinstance(action, Send) and self._program is not None:
            os.kill(self._program.pid, action.number)
        elif isinstance(action, Kill) and self._program is not None:
            _kill_group(self._program.pid)
        elif isinstance(action, Say):
            self._say(action.text)
        elif isinstance(action, Exit):
            self._exit = self._exit or action

    def _start(self, action: Start) -> None:
        self._say(f"has {action.name}, token {action.token}")
        command = [each.replace(SEAT, action.name) for each in self._options.command]
        environment = {**os.environ, self._options.variable: action.name, "TENURE_SEAT_TOKEN": str(action.token)}
        die = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
        above = os.getpid()

        def prepare() -> None:
            if die is not None:
                die(PR_SET_PDEATHSIG, signal.SIGKILL)
            # The keeper knows the program before it begins: a supervisor that sleeps here does no harm.
            os.write(self._commands, f"program {os.getpid()}\n".encode())
            if os.getppid() != above:
                os._exit(1)

        # One thread runs here, so that `preexec_fn` is safe.
        self._program = subprocess.Popen(command, env=environment, process_group=0, preexec_fn=prepare)  # noqa: PLW1509, S603

    def _read_reports(self) -> bool:
        """Take what the keeper says; returns False at its end."""
        data = os.read(self._reports, 65536)
        *lines, self._unread = (self._unread + data).split(b"\n")
        # After a pause there are many, and only the last one says until when.
        for line in lines[-1:]:
            found = json.loads(line)
            kind = {"Leased": Leased, "Waits": Waits, "Lost": Lost}[found.pop("kind")]
            self._take(kind(**found))
        return bool(data)

    def _reap(self) -> None:
        """Take the end of the program, and of any orphan, which process 1 inherits."""
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                is_program = self._program is not None and found.si_pid == self._program.pid
                if is_program:
                    # Its number is its own until it is reaped.
                    _kill_group(found.si_pid)
                os.waitpid(found.si_pid, 0)
                if is_program and self._program is not None:
                    has_exited = found.si_code == os.CLD_EXITED
                    self._program.returncode = found.si_status
                    self._take(Ended(found.si_status if has_exited else SIGNAL_EXIT + found.si_status))

    def _let_go(self) -> None:
        """The keeper gives the name back, if it lives."""
        with suppress(BrokenPipeError):
            os.write(self._commands, b"release\n")
        until = clock() + RELEASE_S
        while clock() < until and select.select([self._reports], [], [], until - clock())[0]:
            if not os.read(self._reports, 65536):
                break


class _Keeper:
    """The keeper's process."""

    def __init__(self, lease: Lease, commands: int, reports: int, session_s: float) -> None:
        self._lease, self._commands, self._reports = lease, commands, reports
        self._margin_s = session_s * MARGIN_SHARE
        self._program = 0
        self._until = 0.0
        self._said: Event | None = None
        self._unread = b""
        self._over = asyncio.Event()
        self._releases = False

    async def run(self) -> int:
        for number in PASSED_ON:
            signal.signal(number, signal.SIG_IGN)
        os.set_blocking(self._reports, False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._commands, self._read_commands)
        keeping = loop.create_task(self._lease.keep(self._report, clock))
        over = loop.create_task(self._over.wait())
        while not self._over.is_set():
            self._look_at_the_time()
            await asyncio.wait([over], timeout=TURN_S)
            if keeping.done() and keeping.exception() is not None:
                self._report(Lost(f"{type(keeping.exception()).__name__}: {keeping.exception()}"))
                break
        keeping.cancel()
        if self._releases:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lease.release(), RELEASE_S)
        return 0

    def _look_at_the_time(self) -> None:
        if self._program and clock() >= self._until - self._margin_s:
            _kill_group(self._program)

    def _report(self, event: Leased | Waits | Lost) -> None:
        if isinstance(event, Leased):
            self._until = event.until
        self._look_at_the_time()
        if event != self._said:
            self._said = event
            line = json.dumps({"kind": type(event).__name__, **event._asdict()})
            with suppress(BlockingIOError):  # a supervisor that sleeps for hours
                os.write(self._reports, f"{line}\n".encode())

    def _read_commands(self) -> None:
        data = os.read(self._commands, 65536)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"program":
                self._program = int(number)
                self._look_at_the_time()
            elif word == b"release":
                self._program, self._releases = 0, True
                self._over.set()
        if not data:
            # The supervisor is dead. Nobody saw the program end, so the name is free with its session.
            if self._program:
                _kill_group(self._program)
            self._over.set()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
