"""Programs with leased names as processes, which are killed and paused at random, and a check of what they wrote.

    with Round(broker, folder, lease_arguments, seed=1) as round_:
        round_.run(minutes=10)
        print(round_.figures())

By command, with groups of Tenure; --kafka takes those of Apache Kafka, --kubernetes Leases of a control plane:

    python -m tests.seats.leased --minutes 10

A fault hits the keeper, the supervisor, or both and the program. A process that was killed starts again under its
identity. `late` are the lines of a program behind the first line of the next holder: a receiver that keeps the
highest token refuses them. Only a program that slept as a whole, and woke with its supervisor, may write some.

House rule: only processes that this module started, and their children, get signals, by pid.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups
from coordinator.seats.run import clock
from tests.interop.brokers import ApacheBroker, TenureBroker, create_topic
from tests.kubernetes.control_plane import ControlPlane
from tests.support.apache import VERSION, ApacheKafka
from tests.support.certificates import make_certificates
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen
from tests.support.started import Started
from tests.support.tenure import Tenure, tenure_command, wait_until

if TYPE_CHECKING:
    from tests.interop.brokers import Broker

NAMES, PROCESSES = 8, 12
SESSION_S, GRACE_S = 6.0, 1.0
SETTINGS = {"group.initial.rebalance.delay.ms": "500"}
POOL = f"w-[0..{NAMES - 1}]"
WORKER = Path(__file__).with_name("leased_worker.py")
WAKING_S = 1.0
"""A supervisor that woke kills its program within this time."""


class Line(NamedTuple):
    """A line that a program wrote while it worked."""

    at: float
    name: str
    token: int
    pid: int


class Run:
    """A process `tenure seat run`, with its children."""

    def __init__(self, command: Sequence[str], identity: str, log: Path, *, is_deaf: bool) -> None:
        self.identity = identity
        self.log = log
        environment = {**os.environ, **({"DEAF": "1"} if is_deaf else {})}
        with log.open("ab") as out:
            self.process = popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        self.wakes_at: float | None = None
        self.paused: list[int] = []

    def supervisor(self) -> int | None:
        """The child of the keeper, which is the process itself."""
        return next(iter(children(self.process.pid)), None)

    def program(self) -> int | None:
        """The child of the supervisor, if it runs."""
        return next((pid for above in children(self.process.pid) for pid in children(above)), None)

    def pause(self, pids: Sequence[int | None], wakes_at: float) -> None:
        """Stop processes until then."""
        self.wakes_at, self.paused = wakes_at, [pid for pid in pids if pid is not None]
        for pid in self.paused:
            _signal(pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let them go on."""
        for pid in self.paused:
            _signal(pid, signal.SIGCONT)
        self.wakes_at, self.paused = None, []


class Round(Started):
    """See the module."""

    def __init__(self, broker: Broker, folder: Path, lease: Sequence[str], seed: int) -> None:
        self._broker, self._folder, self._lease = broker, folder, lease
        self._random = random.Random(seed)
        self._out = folder / "lines.jsonl"
        self._group = f"workers-{seed}"
        self._topic = f"work-{seed}"
        self.faults: dict[str, int] = {}
        self._history: list[str] = []
        self.woken: dict[int, float] = {}
        """By program, when it last woke with its supervisor from a pause."""
        self.runs: list[Run] = []
        self._starts: list[tuple[float, str]] = []
        self._deaf = self._random.sample(range(PROCESSES), PROCESSES // 3)

    def start(self) -> None:
        """Start all programs."""
        create_topic(self._broker.bootstrap, self._topic, NAMES)
        for number in range(PROCESSES):
            self._start(f"p-{number}")

    def close(self) -> None:
        """Kill all of them."""
        for run in self.runs:
            run.wake()
            run.process.send_signal(signal.SIGKILL)
            run.process.wait(WITHIN_S)

    def run(self, minutes: float) -> None:
        """Wait until all names have programs, and let things go wrong for that long."""
        wait_until(lambda: len({line.name for line in self.lines()}) == NAMES, "each name has a program", WITHIN_S)
        wait_until(self._is_stable, "all programs are members of their group", WITHIN_S)
        self._since = self._broker.mark()
        ends = time.monotonic() + 60 * minutes
        hurts_at = 0.0
        while time.monotonic() < ends:
            self._look_after()
            if time.monotonic() >= hurts_at:
                hurts_at = time.monotonic() + self._random.uniform(0.2, 2.0)
                self._hurt(self._random.choice(self.runs))
            time.sleep(0.02)
        for run in self.runs:
            self._wake(run)
        count = len(self.lines())
        at = clock()

        def all_work() -> bool:
            self._look_after()
            return len({line.name for line in self.lines()[count:] if line.at > at}) == NAMES

        wait_until(all_work, "each name has a program again", WITHIN_S)

    def _is_stable(self) -> bool:
        with Client(self._broker.bootstrap, WITHIN_S) as client:
            group = describe_groups(client, [self._group])[self._group]
        return not isinstance(group, Refused) and group.state == "Stable" and len(group.members) == NAMES

    def lines(self) -> list[Line]:
        """The lines of all programs, in order."""
        text = self._out.read_text() if self._out.exists() else ""
        return [Line(*json.loads(each)) for each in text[: text.rfind("\n") + 1].splitlines()]

    @property
    def rebalances(self) -> int:
        """Rebalances of the workers' group since the first fault."""
        return self._broker.rebalances(self._group, self._since)

    @property
    def causes(self) -> list[str]:
        """Their causes, on Tenure."""
        if not isinstance(self._broker, TenureBroker):
            return []
        started = self._broker.tenure.events("rebalance_started", self._group, since=self._since)
        return [json.dumps(each) for each in started]

    def late(self) -> tuple[list[Line], list[Line]]:
        """Lines with a token below one that came before: of programs that had just woken, and of any other."""
        highest: dict[str, int] = {}
        woken: list[Line] = []
        others: list[Line] = []
        for line in sorted(self.lines()):
            if line.token < highest.get(line.name, 0):
                at = self.woken.get(line.pid)
                (woken if at is not None and 0 <= line.at - at <= WAKING_S else others).append(line)
            highest[line.name] = max(line.token, highest.get(line.name, 0))
        return woken, others

    def shared_tokens(self) -> int:
        """Tokens that two programs had."""
        programs: dict[tuple[str, int], set[int]] = {}
        for line in self.lines():
            programs.setdefault((line.name, line.token), set()).add(line.pid)
        return sum(len(pids) > 1 for pids in programs.values())

    def figures(self) -> str:
        """The outcome, in one line."""
        lines = self.lines()
        woken, others = self.late()
        holders = len({(line.name, line.token) for line in lines})
        faults = ", ".join(f"{count} {name}" for name, count in sorted(self.faults.items()))
        return (
            f"{len(lines)} lines of {holders} holders; faults: {faults}; shared tokens {self.shared_tokens()}; "
            f"late lines {len(others)}, of programs that had just woken {len(woken)}; "
            f"rebalances of the workers {self.rebalances}"
        )

    def story(self, line: Line) -> str:
        """The events around a line."""
        faults = [each for each in self._history if abs(float(each.split()[0]) - line.at) < 4 * SESSION_S]
        near = [each for each in self.lines() if each.name == line.name and abs(each.at - line.at) < 4 * SESSION_S]
        ends = {(each.token, each.pid): each.at for each in near}
        begins = {(each.token, each.pid): each.at for each in reversed(near)}
        spans = [f"token {key[0]}, program {key[1]}: {begins[key]:.2f} to {ends[key]:.2f}" for key in begins]
        return "\n".join([str(line), *spans, *faults])

    def _start(self, identity: str) -> None:
        command = [*tenure_command(), "seat", "run", "--pool", POOL, "--identity", identity, *self._lease]
        command += ["--session", f"{SESSION_S:g}", "--grace", f"{GRACE_S:g}", "--", sys.executable, str(WORKER)]
        command += [str(self._out), self._broker.bootstrap, self._group, self._topic]
        is_deaf = int(identity[2:]) in self._deaf
        self.runs.append(Run(command, identity, self._folder / f"{identity}.log", is_deaf=is_deaf))

    def _look_after(self) -> None:
        """Wake processes whose time has come, and start those that ended."""
        for run in self.runs.copy():
            if run.wakes_at is not None and time.monotonic() >= run.wakes_at:
                self._wake(run)
            if run.process.poll() is not None:
                self.runs.remove(run)
                self._starts.append((time.monotonic() + self._random.uniform(0, 3), run.identity))
        for at, identity in self._starts.copy():
            if time.monotonic() >= at:
                self._starts.remove((at, identity))
                self._start(identity)

    def _wake(self, run: Run) -> None:
        program = run.program()
        if program is not None and program in run.paused:
            self.woken[program] = clock()
        run.wake()

    def _hurt(self, run: Run) -> None:
        if run.wakes_at is not None:
            return
        wakes_at = time.monotonic() + self._random.choice([0.5, 2.0, 4.0, 5.5, 7.0, 12.0])
        what = self._random.choice(
            ["supervisor killed", "keeper killed", "ended", "supervisor paused", "keeper paused", "all paused"]
        )
        self.faults[what] = self.faults.get(what, 0) + 1
        self._history.append(f"{clock():.2f} {run.identity}, program {run.program()}: {what}")
        if what == "supervisor killed":
            _signal(run.supervisor(), signal.SIGKILL)
        elif what == "keeper killed":
            _signal(run.process.pid, signal.SIGKILL)
        elif what == "ended":
            _signal(run.process.pid, signal.SIGTERM)
        elif what == "supervisor paused":
            run.pause([run.supervisor()], wakes_at)
        elif what == "keeper paused":
            run.pause([run.process.pid], wakes_at)
        else:
            run.pause([run.process.pid, run.supervisor(), run.program()], wakes_at)


def children(pid: int) -> list[int]:
    """The children of a process."""
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def main() -> None:
    """Run a round and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--kubernetes", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker: Broker
        if given.kafka:
            broker = ApacheBroker(stack.enter_context(ApacheKafka(SETTINGS, version=VERSION)))
        else:
            broker = TenureBroker(stack.enter_context(Tenure(SETTINGS)))
        lease = ["--bootstrap-server", broker.bootstrap]
        if given.kubernetes:
            plane = stack.enter_context(ControlPlane(make_certificates(folder)))
            lease = ["--kubernetes", "--kubeconfig", str(plane.kubeconfig), "--namespace", "default"]
        made = stack.enter_context(Round(broker, folder, lease, given.seed))
        made.run(given.minutes)
        sys.stdout.write(f"{made.figures()}\n")
        for line in made.late()[1][:1] + made.late()[0][:1]:
            sys.stdout.write(f"{made.story(line)}\n")
        sys.stdout.writelines(f"{cause}\n" for cause in made.causes)


if __name__ == "__main__":
    main()
