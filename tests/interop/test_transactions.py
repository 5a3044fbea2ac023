"""Exactly once: transactions of an unmodified client, whatever dies.

House rule: conftest.py's.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count, cycle
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from coordinator.group.partition import partition_for
from coordinator.testing import Tenure as Kit
from tests.interop.brokers import Broker, TenureBroker, create_topic
from tests.interop.client import ROOT
from tests.interop.conftest import SETTINGS
from tests.support.length import rounds
from tests.support.patience import WITHIN_S
from tests.support.preloaded import popen
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.early

SEATS = ("seat-0", "seat-1", "seat-2", "seat-3")
"""One for each partition: while some programs start again, the others go on."""
PARTITIONS = range(4)
SESSION_MS = 60_000
"""Longer than a busy machine needs to start a program again."""
AHEAD = 200
"""Records that wait to be read while kills go on."""

Line = tuple["Process", list[str]]


class Process:
    """A transformer.py as a process; its lines go into a queue."""

    def __init__(self, settings: dict[str, object], lines: queue.Queue[Line]) -> None:
        self.settings = settings
        self.lines = lines
        self._process = popen(
            [sys.executable, "-m", "tests.interop.transformer", json.dumps(settings)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.put((self, line.decode().split()))
        assert self._process.stderr is not None
        self.lines.put((self, ["over", self._process.stderr.read().decode()]))

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


class Run:
    """Programs that move numbers from one topic to another, and somebody who kills."""

    def __init__(self, broker: Broker | KitBroker, group: str, stack: ExitStack) -> None:
        self.broker = broker
        self.group = group
        self.source, self.sink = f"{group}-source", f"{group}-sink"
        for topic in (self.source, self.sink):
            create_topic(broker.bootstrap, topic, len(PARTITIONS))
        self.common: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        self.producer = Producer({**self.common, "enable.idempotence": True, "metadata.recovery.strategy": "none"})
        self.admin = AdminClient(self.common)
        # The first transactional producer comes to a server whose groups write a journal.
        plain = Consumer({**self.common, "group.id": f"{group}-plain"})
        for offset in (1, 2):
            plain.commit(offsets=[TopicPartition(self.source, 0, offset)], asynchronous=False)
        plain.close()
        self.fed = self.sent = 0
        self.lines: queue.Queue[Line] = queue.Queue()
        self.processes = {seat: self._start(seat) for seat in SEATS}
        stack.callback(self.stop)

    def _start(self, seat: str) -> Process:
        settings = {"bootstrap": self.broker.bootstrap, "group": self.group, "seat": seat, "source": self.source}
        more = {"sink": self.sink, "session_timeout_ms": SESSION_MS}
        return Process(settings | more, self.lines)

    def stop(self) -> None:
        """End the programs."""
        for process in self.processes.values():
            process.kill()

    def feed(self) -> None:
        """See to it that there is something to read. A record is sent before it is moved, perhaps more than once."""
        while self.fed < self.sent + AHEAD:
            self.producer.produce(self.source, str(self.fed), partition=self.fed % len(PARTITIONS))
            self.fed += 1
        self.producer.poll(0)

    def wait_for(self, step: str) -> Process:
        """Wait until a program that lives reports this step; returns the program."""
        while True:
            self.feed()
            process, words = self.lines.get(timeout=WITHIN_S)
            if words[0] == "sent":
                self.sent += int(words[1])
            if self.processes[str(process.settings["seat"])] is process:
                assert words[0] != "over", words[1]
                if words[0] == step:
                    return process

    def kill(self, process: Process) -> None:
        """Kill a program, and start it again."""
        seat = str(process.settings["seat"])
        process.kill()
        self.processes[seat] = self._start(seat)

    def kill_server(self) -> None:
        """Kill the server, and start it again."""
        self.broker.kill()
        self.broker.start()

    def wait_until_moved(self) -> None:
        """Wait until the group's committed offsets are the ends of the source, and no transaction is open."""
        self.producer.flush(WITHIN_S)
        ends = dict(self.ends(self.source, IsolationLevel.READ_UNCOMMITTED))
        wait_until(lambda: self.committed() == ends, "all numbers are moved", WITHIN_S)
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        wait_until(lambda: len({self.ends(self.sink, level) for level in levels}) == 1, "nothing is open", WITHIN_S)

    def committed(self) -> dict[int, int]:
        """The committed offsets by partition, once they are stable."""
        asked = [ConsumerGroupTopicPartitions(self.group)]
        found = self.admin.list_consumer_group_offsets(asked, require_stable=True, request_timeout=WITHIN_S)
        return {each.partition: each.offset for each in found[self.group].result().topic_partitions}

    def ends(self, topic: str, level: IsolationLevel) -> tuple[tuple[int, int], ...]:
        """Each partition with the offset behind what a consumer may read."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): latest for number in PARTITIONS}
        found = self.admin.list_offsets(asked, isolation_level=level, request_timeout=WITHIN_S)
        return tuple(sorted((each.partition, future.result().offset) for each, future in found.items()))

    def read(self, topic: str) -> Iterator[int]:
        """The numbers in a topic, as a consumer with read_committed gets them."""
        settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
        reader = Consumer({**self.common, **settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        reader.assign([TopicPartition(topic, number, 0) for number in PARTITIONS])
        left = len(PARTITIONS)
        while left:
            each = reader.poll(WITHIN_S)
            assert each is not None
            if each.error():
                left -= 1
            else:
                yield int(each.value() or b"")
        reader.close()


@pytest.mark.rounds
def test_exactly_once_whatever_is_killed(broker: Broker, group: str) -> None:
    """Programs and server get SIGKILL: in a transaction, and just as its end is acknowledged, before its markers.

    Each number arrives once. No restart within the session causes a rebalance, but that of a leader whose server died
    between its JoinGroup and its SyncGroup. That of a follower causes none, because the programs have one assignor
    (docs/start/clients.md). Afterwards nothing is open: each committed offset is stable, and consumers with
    read_committed may read to the end.
    """
    kills = rounds(50, 100, 1_000) if isinstance(broker, TenureBroker) else 6
    with ExitStack() as stack:
        run = Run(broker, group, stack)
        moved = move_under_kills(run, kills, [lambda _: run.kill_server(), *[run.kill] * len(SEATS)])
        assert moved == Moved(Counter(range(run.fed)), rebalances=0)


class Moved(NamedTuple):
    """How often each number arrived, and how many rebalances there were."""

    numbers: Counter[int]
    rebalances: int


def move_under_kills(run: Run, kills: int, ways: Sequence[Callable[[Process], None]]) -> Moved:
    """Kill so often, each way in turn, and wait until all numbers are moved.

    ways: get the program that has just reported a step.
    """
    chance = random.Random(1)
    for seat in SEATS:
        while run.wait_for("sent").settings["seat"] != seat:
            pass
    mark = run.broker.mark()
    for _, kill in zip(range(kills), cycle(ways), strict=False):
        for _ in range(chance.randrange(4)):
            run.wait_for("sent")
        kill(run.wait_for(chance.choice(["sent", "ended"])))
    run.wait_until_moved()
    rebalances = run.broker.rebalances(run.group, mark, without="leader_rejoined")
    return Moved(Counter(run.read(run.sink)), rebalances)


@pytest.mark.nightly
def test_exactly_once_whichever_worker_is_killed() -> None:
    """As above, with workers: the group is one worker's, a program's transactional id the other's.

    Each worker gets SIGKILL in turn. Then the whole server does, so that its supervisor starts workers without a pause.
    """
    with Tenure(SETTINGS, arguments=["--workers", "2"]) as tenure, ExitStack() as stack:
        ids = (f"group-{number}" for number in count())
        group = next(each for each in ids if node_of(each) == 0 and node_of(f"{each}-{SEATS[0]}") == 1)
        run = Run(TenureBroker(tenure), group, stack)

        def kill_worker(node_id: int) -> None:
            mark = tenure.mark()
            os.kill(tenure.worker_pid(node_id), signal.SIGKILL)
            tenure.wait_for_event("worker_back", since=mark)

        ways = [lambda _, each=each: kill_worker(each) for each in (0, 1)]
        moved = move_under_kills(run, rounds(12, 50, 300), [*ways, run.kill, lambda _: run.kill_server()])
        assert moved == Moved(Counter(range(run.fed)), rebalances=0)


class KitBroker:
    """Several nodes of the test kit, as `Run` needs them. dead: the one that was killed last."""

    def __init__(self, cluster: Kit) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap_servers
        self.dead = -1
        self._next = cycle(each.id for each in cluster.nodes)

    def kill(self) -> None:
        """A node dies, each one in turn, and the others take over what it has."""
        self.dead = next(self._next)
        self.cluster.kill_node(self.dead)

    def start(self) -> None:
        """It comes back."""
        self.cluster.start_node(self.dead)

    def mark(self) -> int:
        """The rebalances so far: none began before the programs did."""
        return 0

    def rebalances(self, group: str, since: int, *, without: str = "") -> int:
        """As Broker, without the first one of each program."""
        begun = self.cluster.group(group).rebalances[since:]
        return sum(each.cause not in {without, "member_joined"} for each in begun)


@pytest.mark.rounds
def test_exactly_once_whichever_node_of_a_test_is_killed() -> None:
    """As above, with three nodes of the test kit: each dies in turn, and others take over groups, ids and records."""
    with Kit(nodes=3, timeout=WITHIN_S, settings=SETTINGS) as cluster, ExitStack() as stack:
        broker = KitBroker(cluster)
        run = Run(broker, "moved", stack)

        def kill_node(_: Process) -> None:
            coordinator = cluster.coordinator_of(run.group)
            run.kill_server()
            # A producer that finds its group's coordinator gone from the list of nodes waits for good: librdkafka#5511.
            for process in run.processes.values() if broker.dead == coordinator else ():
                run.kill(process)

        moved = move_under_kills(run, rounds(6, 50, 300), [kill_node])
        assert moved == Moved(Counter(range(run.fed)), rebalances=0)


def node_of(key: str) -> int:
    """The worker of two that coordinates a group or a transactional id."""
    return partition_for(key, 50) % 2
