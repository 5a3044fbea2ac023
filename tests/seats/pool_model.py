"""A small model of programs with leased names, on the real core of a coordinator and in virtual time.

    problems = PoolWorld(seed).run()

One seed decides all: requests and answers that are late or lost, processes that are killed, or paused as a whole or in
one half, programs that don't listen to SIGTERM, a coordinator that crashes. Programs that are killed start again under
their identity.

`problems` names each moment in which two programs worked under one name, each token that didn't grow, and each name
that nobody has when the world has been at rest.

House rule: a planted fault changes one method of one class, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from coordinator.seats.group_lease import PROTOCOL, PROTOCOL_TYPE, joined
from coordinator.seats.membership import (
    REBALANCE_SESSIONS,
    Answer,
    Beat,
    Beaten,
    Join,
    Membership,
    Request,
    Sync,
    Synced,
)
from coordinator.seats.pool import Given, names_of
from coordinator.seats.supervisor import MARGIN_SHARE, Ended, Exit, Kill, Leased, Lost, Send, Start, Supervisor, Tick
from tests.group.harness import Bench, Call

POOL = "w-[0..2]"
PROCESSES = 5
SESSION_S, GRACE_S = 6.0, 1.5
TURN_MS = 50
LASTS_MS, RESTS_MS = 90_000, 60_000
GROUP = "names"
LONG_S = REBALANCE_SESSIONS * SESSION_S + 5.0


class Process:
    """A run of `tenure seat run`: its two halves and its program."""

    def __init__(self, world: PoolWorld, identity: str) -> None:
        self.world, self.identity = world, identity
        self.member = world.make_member(identity)
        self.core = world.make_supervisor()
        self.paused: set[str] = set()
        """Of "supervisor", "keeper" and "program"."""
        self.calls: list[tuple[Request, Call[Any] | None, float, float]] = []
        """The requests under way: with their call, when it arrives, and when the client gives up."""
        self.answers: list[tuple[float, Request, Answer | None]] = []
        self.name, self.token = "", 0
        self.is_deaf = world.random.random() < 0.5
        """Whether the program doesn't listen to SIGTERM."""
        self.dies_at: float | None = None
        self.reports: list[Any] = []
        self.until = 0.0
        self.is_over = False

    def keep(self) -> None:
        """Let the keeper have a turn."""
        now = self.world.now
        self.guard(now)
        for at, request, answer in self.answers.copy():
            if at <= now:
                self.answers.remove((at, request, answer))
                self.member.answered(request, answer, now, self.world.bench.now.wall_ms)
        for request in self.member.due(now):
            self.calls.append((request, None, now + self.world.delay(), now + self.patience(request)))
        if self.member.name:
            self.until = self.member.until
            self.reports = [Leased(self.member.name, self.member.token, self.member.until)]
        elif self.member.lost:
            self.until = 0.0
            self.reports = [Lost(self.member.lost)]
        self.guard(now)

    def guard(self, now: float) -> None:
        """Kill the program if its time is over."""
        if self.name and now >= self.until - SESSION_S * MARGIN_SHARE:
            self.end_program()

    def patience(self, request: Request) -> float:
        """The time in seconds for which the client waits for an answer."""
        return SESSION_S / 4 if isinstance(request, Beat) else LONG_S

    def supervise(self) -> None:
        """Let the supervisor have a turn."""
        for event in [*self.reports, Tick(), *([Ended(0)] if self.token and not self.name else [])]:
            for action in self.core.handle(event, self.world.now):
                if isinstance(action, Start):
                    self.name, self.token = action.name, action.token
                    self.world.starts(self)
                elif isinstance(action, Send) and not self.is_deaf and self.dies_at is None:
                    self.dies_at = self.world.now + self.world.random.uniform(0, 2 * GRACE_S)
                elif isinstance(action, Kill):
                    self.end_program()
                elif isinstance(action, Exit):
                    self.is_over = True
        self.reports = []

    def end_program(self) -> None:
        """The program is dead."""
        self.name = ""


class PoolWorld:
    """See the module."""

    process = Process

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = Bench()
        self.problems: list[str] = []
        self.tokens: dict[str, int] = {}
        self.took: dict[str, list[str]] = {}
        """By name, the identities that had it, in order."""
        self.is_resting = False
        self.slow_until = 0.0
        self.processes = [self.process(self, f"p-{number}") for number in range(PROCESSES)]
        self.later: list[tuple[float, Callable[[], None]]] = []

    @property
    def now(self) -> float:
        """The time in seconds."""
        return self.bench.now_ms / 1000

    def make_member(self, identity: str) -> Membership:
        """The core of a keeper."""
        return Membership(POOL, identity, SESSION_S)

    def make_supervisor(self) -> Supervisor:
        """The core of a supervisor."""
        return Supervisor(SESSION_S, GRACE_S)

    def run(self) -> list[str]:
        """Let much happen, then let the world come to rest; returns what went wrong."""
        while self.bench.now_ms < LASTS_MS:
            self.turn()
            if self.random.random() < 0.02:
                self.happen()
        self.is_resting = True
        for process in self.processes:
            process.paused.clear()
        while self.bench.now_ms < LASTS_MS + RESTS_MS:
            self.turn()
        missing = set(names_of(POOL)).difference(process.name for process in self.processes)
        if missing:
            self.problems.append(f"nobody has {', '.join(sorted(missing))}")
        return self.problems

    def turn(self) -> None:
        """Let some time go by."""
        self.bench.advance(TURN_MS)
        for at, action in self.later.copy():
            if at <= self.now:
                self.later.remove((at, action))
                action()
        for process in self.random.sample(self.processes, len(self.processes)):
            halves = [("keeper", process.keep), ("supervisor", process.supervise)]
            self.random.shuffle(halves)
            for half, does in halves:
                if half not in process.paused:
                    does()
            if process.dies_at is not None and self.now >= process.dies_at and "program" not in process.paused:
                process.end_program()
            self.carry(process)
            if process.is_over:
                self.restart(process)
        self.look()

    def look(self) -> None:
        """Find two programs that work under one name."""
        working: dict[str, str] = {}
        for process in self.processes:
            if process.name and "program" not in process.paused:
                if process.name in working:
                    self.problems.append(
                        f"{self.now:.2f} s: {working[process.name]} and {process.identity} both work as {process.name}"
                    )
                working[process.name] = process.identity

    def starts(self, process: Process) -> None:
        """A program starts: its token is higher than all before it."""
        if process.token <= self.tokens.get(process.name, 0):
            self.problems.append(f"{self.now:.2f} s: token {process.token} of {process.name} isn't higher")
        self.tokens[process.name] = process.token
        self.took.setdefault(process.name, []).append(process.identity)

    def delay(self) -> float:
        """The delay of a message in seconds; some are lost."""
        if self.is_resting:
            return 0.01
        if self.random.random() < 0.03:
            return 1e9
        return self.random.choice([0.01, 0.1, 0.1, 0.5]) + (2.0 if self.now < self.slow_until else 0)

    def carry(self, process: Process) -> None:
        """Bring requests to the coordinator, and answers back."""
        for under_way in process.calls.copy():
            request, call, at, gives_up = under_way
            if call is None and at <= self.now:
                process.calls.remove(under_way)
                process.calls.append((request, self.ask(request), 0.0, gives_up))
            elif call is not None and not call.waits:
                process.calls.remove(under_way)
                answer = None if call.lost else self.read(request, call.response)
                delay = 0.0 if answer is None else self.delay()
                came = min(self.now + delay, gives_up)
                process.answers.append((came, request, answer if self.now + delay <= gives_up else None))
            elif self.now >= gives_up:
                process.calls.remove(under_way)
                process.answers.append((self.now, request, None))

    def ask(self, request: Request) -> Call[Any]:
        """Hand a request to the coordinator."""
        if isinstance(request, Join):
            return self.bench.join(
                group=GROUP,
                member=request.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=((PROTOCOL, request.wish.encode()),),
                session_ms=int(SESSION_S * 1000),
                rebalance_ms=int(SESSION_S * REBALANCE_SESSIONS * 1000),
            )
        if isinstance(request, Sync):
            given = {member_id: each.encode() for member_id, each in request.given.items()}
            return self.bench.sync(
                group=GROUP, member=request.member_id, generation=request.generation, assignments=given
            )
        return self.bench.heartbeat(group=GROUP, member=request.member_id, generation=request.generation)

    def read(self, request: Request, response: Any) -> Answer:
        """The answer that a coordinator gave."""
        if isinstance(request, Join):
            return joined(response)
        if isinstance(request, Sync):
            return Synced(response.error_code, Given.decode(response.assignment))
        return Beaten(response.error_code)

    def happen(self) -> None:
        """Something goes wrong."""
        what = self.random.random()
        process = self.random.choice(self.processes)
        if what < 0.3:
            process.end_program()
            self.restart(process)
        elif what < 0.8:
            halves = self.random.choice([{"supervisor"}, {"keeper"}, {"supervisor", "keeper", "program"}])
            process.paused |= halves
            if process.paused >= {"supervisor", "keeper"}:
                process.paused.add("program")  # nothing kills one that works while both halves sleep
            wakes = self.now + self.random.choice([0.5, 3.0, 5.0, 6.5, 10.0, 25.0])
            self.later.append((wakes, lambda: self.wake(process)))
        elif what < 0.9:
            self.slow_until = self.now + self.random.uniform(1, 8)
        elif what < 0.95:
            self.bench.restart()

    def wake(self, process: Process) -> None:
        """A process goes on: the halves look at the clock before the program does anything."""
        process.paused.clear()
        process.guard(self.now)
        process.supervise()

    def restart(self, process: Process) -> None:
        """Put a new run in the place of one that ended."""
        place = self.processes.index(process)
        self.processes[place] = self.process(self, process.identity)
        if not self.is_resting:
            self.processes[place].paused = {"supervisor", "keeper"}
            new = self.processes[place]
            self.later.append((self.now + self.random.uniform(0, 8), new.paused.clear))
