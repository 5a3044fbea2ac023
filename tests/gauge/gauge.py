"""Counts what a server does for one request: `python -m tests.gauge.gauge` prints the table, `--write` keeps it.

A work runs a few times, one at a time, on a quiet server of its own process with a data folder. The server counts its
calls, its system calls and its bytes, thread by thread (counted_server.py). The gauge takes the median of the rounds,
so that a round with a checkpoint in it changes nothing. No count depends on the speed of the machine, as no time passes
on the server's loop. The works of SPREAD differ from round to round: the loop reads the requests of many connections in
one turn or two, and the log writes them in one window or two. A transaction's markers go to two threads at once, and
their outcomes come in one turn or two. On a busy machine the next round may begin before them: its client asks again.

House rule: a round begins and ends on a quiet server.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median_low

from benchmarks import frames
from benchmarks.driver import Driver, Link, Script
from benchmarks.members import Group, accept
from benchmarks.records import Partition, batch_of
from benchmarks.transactions import Producer
from benchmarks.works import create_topic
from tests.gauge.counted_server import COUNTS
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

PYTHON = ".".join(map(str, sys.version_info[:2]))
HEAD = (
    f"Calls of functions, system calls and bytes of one round, on Python {PYTHON}: python -m tests.gauge.gauge --write"
)
TABLE = Path(__file__).with_name("work.txt")

ROUNDS = 16
WARMING = 3
"""Rounds before those that count: the first ones compile codecs and fill caches."""
QUIET = 4
"""A server is quiet if it counts nothing in so many looks: 10 ms lie between two, and 2 ms between two of its steps."""

SETTLING = 5
"""So often it has to be quiet behind a transaction: its markers go through three threads, and each may have to wait."""

TOUCHING = 300
"""Groups that leave no partition of the log without a record: the first one in a partition costs more."""

SMALL, LARGE, MANY = 10, 500, 50
RECORD_BYTES = 100

THREADS = ("MainThread", "log", "topics")
"""The loop, the log of groups, and the logs of topics, which start with the first record. No other thread works for a
request.
"""

Counts = dict[str, dict[str, int]]


class Counted:
    """A server that counts, and a way to read its counts."""

    def __init__(self, process: subprocess.Popen[str], port: int, gauge: socket.socket) -> None:
        self.port = port
        self._process = process
        self._gauge = gauge
        self._lines = gauge.makefile("rb")

    def counts(self) -> Counts:
        """Return the counts of this moment, thread name -> counts."""
        self._gauge.sendall(b"?")
        counts: Counts = json.loads(self._lines.readline())
        return counts

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the server meanwhile, so that all requests of this time reach it at once."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def quiet(self) -> Counts:
        """Wait until the server has nothing to do, and return its counts."""
        seen = [self.counts() for _ in range(QUIET)]

        def unchanged() -> Counts | None:
            seen.append(self.counts())
            return seen[-1] if all(counts == seen[-1] for counts in seen[-QUIET:]) else None

        return wait_until(unchanged, "the server does nothing", WITHIN_S)


@contextmanager
def counted() -> Iterator[Counted]:
    """Start a server that counts, with a folder of its own; stop it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/gauge"
        command = [sys.executable, "-m", "tests.gauge.counted_server", path, "serve", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", f"{folder}/data", "--set", "group.initial.rebalance.delay.ms=0"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        with Path(folder, "log").open("w") as log:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert server.stdout is not None
        try:
            ready = server.stdout.readline()
            assert ready.startswith("ready"), Path(folder, "log").read_text()
            port = int(ready.split()[1].rpartition(":")[2])
            with socket.socket(socket.AF_UNIX) as gauge:
                gauge.connect(path)
                yield Counted(server, port, gauge)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
            server.stdout.close()


Work = Callable[[], None]


class Client:
    """A client of a server that counts. Each method prepares a work and returns one round of it."""

    def __init__(self, server: Counted, driver: Driver) -> None:
        self._server = server
        self._driver = driver
        self._links = driver.connect(LARGE)
        self._run(self._links[0], create_topic())

    def heartbeat(self) -> Work:
        """Send a heartbeat that repeats the one before."""
        group = self._formed("heartbeat", 1)
        start, rest = group.heartbeat(group.members[0])

        def script() -> Script:
            answer = yield start + bytes(4) + rest
            accept(frames.error_of(answer), "Heartbeat")

        return lambda: self._run(self._links[0], script())

    def metadata(self) -> Work:
        """Ask for a topic of a hundred partitions, as another client did before."""
        question = frames.metadata([frames.TOPIC]).fill(0)

        def script() -> Script:
            answer = yield question
            assert frames.string(frames.TOPIC) in answer, answer

        return lambda: self._run(self._links[0], script())

    def commit(self) -> Work:
        """Send an OffsetCommit that repeats the one before, with another offset."""
        return self._commits("commit", 1)

    def commits(self) -> Work:
        """Send OffsetCommits of many groups at once."""
        return self._commits("commits", MANY)

    def new_group(self) -> Work:
        """Form a group of one static member: JoinGroup and SyncGroup."""
        numbers = iter(range(1_000_000))

        def work() -> None:
            self._formed(f"new-{next(numbers):06}", 1)

        for _ in range(TOUCHING):
            work()
        return work

    def small_restart(self) -> Work:
        """Restart a static member of a group: a connection, JoinGroup, SyncGroup."""
        return self._restarts("small", SMALL)

    def large_restart(self) -> Work:
        """Restart a static member of a large group."""
        return self._restarts("large", LARGE)

    def produce(self) -> Work:
        """Produce a batch of one record without a transaction."""
        partition = self._led_partition(0)
        return lambda: self._run(self._links[0], partition.produce(1))

    def fetch(self) -> Work:
        """Fetch the only batch of a topic partition."""
        partition = self._led_partition(1)

        def work() -> None:
            partition.read = 0
            self._run(self._links[0], partition.fetch())

        return work

    def producer_id(self) -> Work:
        """Send InitProducerId with a transactional id that has one."""
        producer = self._producer("init")
        return lambda: self._run(self._links[0], producer.begin())

    def transaction(self) -> Work:
        """Run a transaction of one record and one commit: Produce, TxnOffsetCommit, EndTxn, and both markers."""
        producer = self._producer("both", 2)
        return lambda: self._settled(producer.transaction())

    def transaction_of_commits(self) -> Work:
        """Run a transaction of one commit: TxnOffsetCommit, EndTxn, and the marker of the group's partition."""
        producer = self._producer("commit", 3)
        return lambda: self._settled(producer.transaction(has_record=False))

    def _settled(self, script: Script) -> None:
        """Run a script, and wait for what the server does behind its last answer, on one thread after the other."""
        self._run(self._links[0], script)
        for _ in range(SETTLING):
            self._server.quiet()

    def _producer(self, name: str, number: int = 0) -> Producer:
        """A producer with a transactional id. number: of its partition."""
        producer = Producer(f"gauge-{name}", frames.TOPIC, number)
        self._run(self._links[0], producer.begin())
        return producer

    def _led_partition(self, number: int) -> Partition:
        """One of a batch, which `until_led` has written."""
        partition = Partition(frames.TOPIC, number, *batch_of(RECORD_BYTES, RECORD_BYTES))
        self._run(self._links[0], partition.until_led())
        return partition

    def _run(self, link: Link, script: Script) -> None:
        self._driver.start(link, script)
        self._driver.run()

    def _formed(self, name: str, size: int) -> Group:
        group = Group(name, size, static=True)
        for number in range(size):
            self._driver.start(self._links[number], group.seat(number))
        self._driver.run()
        return group

    def _commits(self, name: str, count: int) -> Work:
        groups = [self._formed(f"{name}-{number:02}", 1) for number in range(count)]
        numbers = iter(range(1, 1_000_000))

        def commit(group: Group, number: int) -> Script:
            member = group.members[0]
            template = frames.commit(group.group_id, 1, static=True)
            start, rest = template.halves(frames.generation(member.generation), *member.identity(), number.to_bytes(8))
            answer = yield start + bytes(4) + rest
            assert answer.endswith(bytes(6)), answer

        def work() -> None:
            number = next(numbers)
            with self._server.stopped():
                for group, link in zip(groups, self._links, strict=False):
                    self._driver.start(link, commit(group, number))
                self._driver.run(0)
            self._driver.run()

        return work

    def _restarts(self, name: str, size: int) -> Work:
        group = self._formed(name, size)
        # Always the same member: the core keeps members' bytes in blocks, whose sizes differ.
        return lambda: self._run(self._driver.connect(1)[0], group.restart(group.members[1]))


WORKS: dict[str, Callable[[Client], Work]] = {
    "heartbeat": Client.heartbeat,
    "Metadata": Client.metadata,
    "commit": Client.commit,
    f"commits of {MANY} groups": Client.commits,
    "new group of 1": Client.new_group,
    f"restart in a group of {SMALL}": Client.small_restart,
    f"restart in a group of {LARGE}": Client.large_restart,
    "produce": Client.produce,
    "fetch": Client.fetch,
    "InitProducerId": Client.producer_id,
    "transaction of a commit": Client.transaction_of_commits,
    "transaction of a record and a commit": Client.transaction,
}

SPREAD = {f"commits of {MANY} groups", "transaction of a commit", "transaction of a record and a commit"}


def measure(names: Iterable[str]) -> dict[str, Counts]:
    """Return what each of these works costs: work -> thread -> counts."""
    with counted() as server, Driver("127.0.0.1", server.port, None) as driver:
        client = Client(server, driver)
        return {name: _rounds(server, WORKS[name](client)) for name in names}


def _rounds(server: Counted, work: Work) -> Counts:
    for _ in range(WARMING):
        work()
    rounds: dict[str, list[dict[str, int]]] = {thread: [] for thread in THREADS}
    before = server.quiet()
    for _ in range(ROUNDS):
        work()
        after = server.quiet()
        for thread, taken in rounds.items():
            if thread in after:
                taken.append({key: after[thread][key] - before[thread][key] for key in COUNTS})
        before = after
    counts = {
        thread: {key: median_low(each[key] for each in taken) for key in COUNTS}
        for thread, taken in rounds.items()
        if taken
    }
    return {thread: counted for thread, counted in counts.items() if any(counted.values())}


def table(measured: Mapping[str, Counts]) -> str:
    """Return the table: a line for each thread of each work."""
    rows: list[tuple[str, ...]] = [("work", "thread", *COUNTS)]
    for work, counts in measured.items():
        rows += [(work, thread, *(str(counts[thread][key]) for key in COUNTS)) for thread in counts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join([HEAD, *lines, ""])


def kept() -> dict[str, Counts]:
    """Return what the table says."""
    found: dict[str, Counts] = {}
    for line in TABLE.read_text().splitlines()[2:]:
        work, thread, *numbers = re.split(r" {2,}", line)
        found.setdefault(work, {})[thread] = dict(zip(COUNTS, map(int, numbers), strict=True))
    return found


if __name__ == "__main__":
    text = table(measure(WORKS))
    print(text, end="")
    if "--write" in sys.argv[1:]:
        TABLE.write_text(text)
