"""Runs a program with a leased name: two processes, each of which can kill the program.

    keeper       gets the name and renews it; process 1 of a container. Passes signals on, and reaps orphans
    supervisor   its child: starts the program, and carries out what the core says

Each watches the time, so that a pause of one of them leaves the other one. On Linux the kernel wakes the supervisor
when the keeper dies, and kills the program when the supervisor dies, also while they are paused. The program leads a
process group of its own, so that its children end with it: the kernel alone would leave them.

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
    Report,
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
CANNOT_RUN = 126
"""The exit code of shells for a program that is there and can't be run."""
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds, those of a sleeping machine included."""
    return time.clock_gettime(CLOCK)


class Lease(Protocol):
    """A way to lease a name."""

    async def keep(self, report: Callable[[Report], None], clock: Callable[[], float]) -> None:
        """Get a name and keep it, until it is lost."""

    async def release(self) -> None:
        """Give the name back."""


class Options(NamedTuple):
    """The options of a run. variable: of the program's environment, for the name. waits: for a name."""

    command: Sequence[str]
    variable: str
    session_s: float
    grace_s: float
    waits: bool


def run(options: Options, make_lease: Callable[[], Lease], say: Callable[[str], None]) -> Exit:
    """Run the program; returns how it ended. make_lease: called in the keeper, which this process becomes."""
    words, reports = os.pipe(), os.pipe()
    sys.stdout.flush()
    above = os.getpid()
    # A signal that comes before both have their handlers waits for them.
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    supervisor = os.fork()
    if supervisor == 0:
        # It ends the program and its children then; the signal wakes a supervisor that is paused.
        _at_the_end_of(above, signal.SIGCONT)
        os.setpgid(0, 0)  # Ctrl-C comes from the keeper alone, and once
        os.close(words[0])
        os.close(reports[1])
        _Supervising(options, words[1], reports[0], say).run()
        os._exit(0)
    os.close(words[1])
    os.close(reports[0])
    return asyncio.run(_Keeper(make_lease(), supervisor, words[0], reports[1], options.session_s).run())


def _at_the_end_of(above: int, number: int) -> None:
    """On Linux: get a signal when the parent ends. End if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != above:
        os._exit(1)


class _Supervising:
    """The supervisor's process."""

    def __init__(self, options: Options, words: int, reports: int, say: Callable[[str], None]) -> None:
        self._options, self._words, self._reports, self._say = options, words, reports, say
        self._core = Supervisor(options.session_s, options.grace_s, waits=options.waits)
        self._program: subprocess.Popen[bytes] | None = None
        self._exit: Exit | None = None
        self._unread = b""

    def run(self) -> None:
        woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        os.set_blocking(woken, False)
        for number in (*PASSED_ON, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wakes)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
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
        self._tell("exit", self._exit.why.name, self._exit.code)

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
        above = os.getpid()

        def prepare() -> None:
            # The keeper knows the program before it begins: a supervisor that sleeps here does no harm.
            self._tell("program", os.getpid())
            _at_the_end_of(above, signal.SIGKILL)

        # The kernel stops a program that reads the terminal of another process group, and Ctrl-C can't end it.
        stdin = subprocess.DEVNULL if os.isatty(0) else None
        try:
            # One thread runs here, so that `preexec_fn` is safe.
            self._program = subprocess.Popen(  # noqa: S603
                command,
                env=environment,
                stdin=stdin,
                process_group=0,
                preexec_fn=prepare,  # noqa: PLW1509
            )
        except OSError as error:
            self._say(f"{command[0]} can't be run: {error.strerror}")
            self._take(Ended(CANNOT_RUN))

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
        """Take the end of the program."""
        if self._program is None or self._program.returncode is not None:
            return
        found = os.waitid(os.P_PID, self._program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None:
            # Its number is its own until it is reaped.
            _kill_group(found.si_pid)
            os.waitpid(found.si_pid, 0)
            self._program.returncode = found.si_status
            has_exited = found.si_code == os.CLD_EXITED
            self._take(Ended(found.si_status if has_exited else SIGNAL_EXIT + found.si_status))

    def _tell(self, *words: object) -> None:
        """Tell the keeper, if it lives."""
        with suppress(BrokenPipeError):
            os.write(self._words, f"{' '.join(map(str, words))}\n".encode())


class _Keeper:
    """The keeper's process."""

    def __init__(self, lease: Lease, supervisor: int, words: int, reports: int, session_s: float) -> None:
        self._lease, self._supervisor, self._words, self._reports = lease, supervisor, words, reports
        self._margin_s = session_s * MARGIN_SHARE
        self._program = 0
        self._until = 0.0
        self._said: Event | None = None
        self._unread = b""
        self._over = asyncio.Event()
        self._exit = Exit(Why.LOST, 0)
        """The outcome if the supervisor dies before it has told another one."""

    async def run(self) -> Exit:
        os.set_blocking(self._reports, False)
        loop = asyncio.get_running_loop()
        for number in PASSED_ON:
            loop.add_signal_handler(number, self._pass_on, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_reader(self._words, self._read_words)
        keeping = loop.create_task(self._lease.keep(self._report, clock))
        over = loop.create_task(self._over.wait())
        while not self._over.is_set():
            self._look_at_the_time()
            await asyncio.wait([over], timeout=TURN_S)
            if keeping.done() and (error := keeping.exception()) is not None:
                self._report(Lost(f"{type(error).__name__}: {error}"))
        keeping.cancel()
        # Nobody saw the end of a program whose lease or supervisor was lost: its name is free with its session.
        if self._exit.why is not Why.LOST:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._lease.release(), RELEASE_S)
        return self._exit

    def _pass_on(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._supervisor, number)

    def _reap(self) -> None:
        """Take the end of orphans, which process 1 inherits."""
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _look_at_the_time(self) -> None:
        if self._program and clock() >= self._until - self._margin_s:
            _kill_group(self._program)

    def _report(self, event: Report) -> None:
        # A name that is lost has no time left, though the supervisor may sleep.
        self._until = event.until if isinstance(event, Leased) else 0.0
        self._look_at_the_time()
        if event != self._said:
            self._said = event
            line = json.dumps({"kind": type(event).__name__, **event._asdict()})
            # A supervisor that sleeps for hours doesn't read.
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(self._reports, f"{line}\n".encode())

    def _read_words(self) -> None:
        data = os.read(self._words, 65536)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            word, *rest = line.decode().split()
            if word == "program":
                self._program = int(rest[0])
                self._look_at_the_time()
            else:
                self._program, self._exit = 0, Exit(Why[rest[0]], int(rest[1]))
        if not data:
            if self._program:
                _kill_group(self._program)
            self._over.set()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
