"""The order and the place of measurements: the servers in turn, the load generator beside them.

Repetitions are interleaved: all servers do a work once, then all do it again, so that a disturbance of the machine
meets all of them. If there are two CPUs, the server runs on one and the generator on the other.

House rule: a failed measurement is reported and left out; the others go on.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import entry, servers
from benchmarks.cases import ECHO, KAFKA, TENURE, Case
from benchmarks.frames import SESSION_TIMEOUT_MS
from benchmarks.members import UnexpectedAnswer
from benchmarks.meter import Meter, cpu_s
from benchmarks.report import Failed, Runs
from benchmarks.works import Bench, Figures, answer
from tests.support.apache import VERSION_44, ApacheKafkaError
from tests.support.certificates import HOSTS, Authority

JOB_TIMEOUT_S = 600

FAILURES = (subprocess.SubprocessError, OSError, ValueError, ApacheKafkaError, UnexpectedAnswer)
"""Failures of a server, of its load generator or of a missing tool; the rest of a run goes on."""

AGE_MAX_S = SESSION_TIMEOUT_MS // 1000 - JOB_TIMEOUT_S
"""The age limit of Apache Kafka when it is chosen for a measurement, which takes far less than the rest of its time.
The sessions of its groups expire together, because they get no heartbeats, and the removal of 300,000 groups takes it a
core for minutes.
"""

GROUPS_MAX = 300_000
"""The limit of groups that Apache Kafka holds when it is chosen; all of them stay in it. So the repetitions of `groups`
share a node that has compiled the code of other works, and later works get another node: with 330,000 groups in its
heap Kafka took most of a core for 10,000 connections, without them a third of one.
"""

WARM_UP_S = 30
"""For each work. After 20 s of mixed work a JVM still compiles: OffsetCommits took it 500 us, and 100 us later."""
WARM_UP: dict[str, dict[str, Any]] = {
    "heartbeat": {"seconds": 1.5},
    "commit": {"seconds": 1.5},
    "bounce": {"size": 100, "restarts": 200},
    "storm": {"size": 200},
    "groups": {"steps": [100, 1_000], "seconds": 0.5},
    "handshakes": {"total": 500},
    "crowd": {"size": 200},
    "consumer_heartbeat": {"seconds": 1.5},
    "consumer_storm": {"size": 200, "partitions": 200},
    "consumer_bounce": {"size": 100, "restarts": 200},
    "transaction": {"seconds": 5.0},
}
WARM_UP_CPU_S = {"transaction": 120.0}
"""Seconds of the node's own CPU that a warm-up takes at least. A JVM compiles what ran often, and on a busy machine it
runs little in WARM_UP_S: behind 30 s a transaction took Kafka 4.4 2.1 ms, median of five turns, and 0.7 ms in turns 16
to 20. Behind 60 s of CPU its turns still differed by a factor of 5, behind 120 s by one of 2.
"""


progress = Console(stderr=True)


def cpus() -> tuple[set[int], set[int]]:
    """Return the CPUs of servers and of the generator: the same ones if there is only one."""
    mine = sorted(os.sched_getaffinity(0))
    return {mine[0]}, {mine[-1]}


class Kafka:
    """Apache Kafka: one node for all measurements, and a new one before it is too old, or too full.

    start: makes a node. clock: in seconds. warm: works, and their listeners, for which the node is warm. groups: about
    how many groups it holds.
    """

    def __init__(
        self, start: Callable[[], AbstractContextManager[servers.Running]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._start = start
        self._clock = clock
        self._node = ExitStack()
        self._running: servers.Running | None = None
        self._since_s = 0.0
        self.warm: set[tuple[str, str]] = set()
        self.groups = 0

    def running(self) -> servers.Running:
        """Return the node; start it if there is none."""
        if self._running is None:
            self._since_s = self._clock()
            self._running = self._node.enter_context(self._start())
        return self._running

    def age(self) -> None:
        """Before each measurement of any server, end a node that is too old, or too full, for one more."""
        if self._running is None:
            return
        if self._clock() - self._since_s > AGE_MAX_S or self.groups >= GROUPS_MAX:
            self.close()

    def close(self) -> None:
        """End the node. The next one must be warmed up anew."""
        self._running = None
        self.warm.clear()
        self.groups = 0
        self._node.close()


class Stage:
    """The chosen servers, and the CPUs that they and the generator run on."""

    def __init__(self, settings: Mapping[str, str], stack: ExitStack) -> None:
        self.settings = settings
        self.server_cpus, self.generator_cpus = cpus()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenure-bench-")))
        self._ca, self._identity = certified(folder)
        self._open = Kafka(lambda: servers.kafka(self.server_cpus))
        self._secured = Kafka(lambda: servers.kafka(self.server_cpus, self._identity))
        self._newer = Kafka(lambda: servers.kafka(self.server_cpus, version=VERSION_44))
        self._kafka = self._open
        for kafka in (self._open, self._secured, self._newer):
            stack.callback(kafka.close)

    def measure(self, case: Case, name: str, tag: str) -> Figures:
        """Measure one repetition of a case with one server."""
        kafka = self._secured if case.listener else self._newer if case.newer else self._open
        if kafka is not self._kafka:
            self._kafka.close()
            self._kafka = kafka
        self._kafka.age()
        with self._server(case, name) as server, self._without(case) as without:
            started = {"start_s": server.start_s} if server.start_s else {}
            return {**started, **self._load(server, case.work, case.parameters, tag, without, case.listener)}

    def _server(self, case: Case, name: str) -> AbstractContextManager[servers.Running]:
        identity = self._identity if case.listener else None
        if name == ECHO:
            return servers.echo(answer(case.work, case.parameters), self.server_cpus, identity)
        if name == TENURE:
            return servers.tenure(
                {**case.settings, **self.settings},
                self.server_cpus,
                hangs=case.hangs,
                is_slow=case.is_slow,
                identity=identity,
            )
        if ":" in name:
            return nullcontext(servers.given(name))
        if case.fresh:
            return servers.kafka(self.server_cpus)
        kafka = self._kafka.running()
        for work in needed(case):
            self._warm_up(kafka, work, case.listener)
        return nullcontext(kafka)

    def _without(self, case: Case) -> AbstractContextManager[servers.Running | None]:
        if case.without is None:
            return nullcontext()
        return servers.tenure({**case.without, **self.settings}, self.server_cpus)

    def _warm_up(self, server: servers.Running, work: str, listener: str) -> None:
        """Do a work for a while before its first measurement, so that its code is compiled."""
        if (work, listener) in self._kafka.warm or work not in WARM_UP:
            return
        progress.print(f"warming up {server.name} for {WARM_UP_S} s or more: {work} {listener}")
        began_s, began_cpu_s = time.monotonic(), cpu_s(server.pid)
        for number in itertools.count():
            if is_warm(work, time.monotonic() - began_s, cpu_s(server.pid) - began_cpu_s):
                break
            self._load(server, work, WARM_UP[work], f"warm-up-{work}-{number}", listener=listener)
        self._kafka.warm.add((work, listener))

    def _load(
        self,
        server: servers.Running,
        work: str,
        parameters: Mapping[str, Any],
        tag: str,
        without: servers.Running | None = None,
        listener: str = "",
    ) -> Figures:
        """Run a generator; returns its figures."""
        bench = _bench(server, tag)._replace(without=without and _bench(without, tag))
        if listener:
            bench = bench._replace(port=server.ports[listener], entry=entry.Entry(listener, str(self._ca)))
        if server.name == KAFKA:
            self._kafka.groups += left_behind(work, parameters)  # also if it fails
        with servers.pinned(self.generator_cpus):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.load", bench.job(work, parameters, tag)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                timeout=JOB_TIMEOUT_S,
            )
        figures: Figures = json.loads(done.stdout)
        return figures


def certified(folder: Path) -> tuple[Path, Path]:
    """Make a CA and a server's identity; returns the files of the CA, and of the server's private key and certificate.

    The key is of the curve P-256, as docs/secure/ten-minutes.md makes it.
    """
    authority = Authority("CA of the benchmark")
    ca, identity = folder / "ca.pem", folder / "server.pem"
    ca.write_text(authority.pem())
    identity.write_text(authority.issue("localhost", hosts=HOSTS).pem())
    return ca, identity


def is_warm(work: str, seconds: float, used_cpu_s: float) -> bool:
    """Whether a node is warm for a work, after that time and that much of its CPU."""
    return seconds > WARM_UP_S and used_cpu_s >= WARM_UP_CPU_S.get(work, 0.0)


def _bench(server: servers.Running, tag: str) -> Bench:
    meter = Meter(server.pid, server.folder, java=server.name == KAFKA, workers=server.workers)
    return Bench("127.0.0.1", server.port, meter, tag, plain=server.name == ECHO, http=server.http)


def needed(case: Case) -> tuple[str, ...]:
    """Return the works of a case."""
    if case.work == "connections":
        return ("groups", "heartbeat")
    if case.work == "latency":
        return ("heartbeat", case.parameters["beside"])
    return (case.work,)


def left_behind(work: str, parameters: Mapping[str, Any]) -> int:
    """Return how many groups a work leaves on the server, if they are many."""
    if work == "groups":
        return int(max(parameters["steps"]))
    return int(parameters["count"]) if work == "connections" else 0


def measured(
    stage: Stage, cases: list[Case], names: list[str], repeat: int, keep: Callable[[Runs], None]
) -> tuple[Runs, list[Failed]]:
    """Measure every case with every server and repetition; returns the figures and the failures.

    keep: receives all results so far after each measurement.
    """
    runs: Runs = {case.name: {} for case in cases}
    failed = []
    keep(runs)
    for case, repetition, name in turns(cases, names, repeat):
        progress.print(f"{case.name} {repetition + 1} of {min(repeat, case.repeat_max)}: {name}")
        try:
            # No server has seen these groups before, not even in a run of yesterday.
            figures = stage.measure(case, name, f"{case.name}-{time.time_ns()}")
        except FAILURES as error:
            text = "see above" if isinstance(error, subprocess.CalledProcessError) else repr(error)
            progress.print(f"{case.name}: {name} failed: {text}", style="red")
            failed.append((case.name, name))
        else:
            runs[case.name].setdefault(name, []).append({"repetition": repetition, **figures})
            keep(runs)
    return runs, failed


def turns(cases: list[Case], names: list[str], repeat: int) -> Iterator[tuple[Case, int, str]]:
    """Return the order of measurements: case, repetition and server."""
    together: list[list[Case]] = []
    for case in cases:
        if together and case.beside == together[-1][0].name:
            together[-1].append(case)
        else:
            together.append([case])
    for compared in together:
        for repetition in range(min(repeat, compared[0].repeat_max)):
            for case in compared:
                for name in (name for name in names if name in case.servers or (":" in name and case.without is None)):
                    yield case, repetition, name
