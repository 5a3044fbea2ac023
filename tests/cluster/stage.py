"""All that a test of a cluster needs: etcd, three nodes, a probe, and real static members of three clients.

    with Stage() as stage:
        stage.cluster.nodes[0].kill()
        stage.check()

`check` is the same for every fault: each group gets a yes again; no generation, member id or assignment has changed;
no callback has told a client that it lost a partition; no acknowledged commit is gone; and the history of the probe is
linearizable (linearizable.py).

House rule: a fault is what a test does; what must hold after it is here, and holds after every fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.cluster.linearizable import violations
from tests.interop.clients import CLIENTS
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.support.cluster_history import Asked, wrongs
from tests.support.cluster_probe import TOPIC, Probe
from tests.support.etcd import Etcd
from tests.support.length import IS_NIGHTLY
from tests.support.patience import WITHIN_S
from tests.support.tenure_cluster import TenureCluster

IS_LONG = IS_NIGHTLY
"""Whether this is the long form of each test."""

PARTITIONS = 6
SETTINGS: dict[str, str | int] = {"group.initial.rebalance.delay.ms": 500, "tenure.topics": f"{TOPIC}:{PARTITIONS}"}
SESSION_TIMEOUT_MS = 10_000
"""Of the probe's members: shorter than the longest fault, so a server that let them expire would be seen."""
REAL_SESSION_TIMEOUT_MS = 45_000
"""Clients' own default. librdkafka gives its partitions up by itself after so long without a heartbeat's answer."""
REBALANCE_TIMEOUT_MS = 120_000
"""A commit that waits for etcd keeps a client from polling: longer than any fault."""
REAL = ("confluent-kafka", "aiokafka", "kafka-clients-3", "confluent-kafka:consumer")
"""The clients of which a stage has a group each, and the group's protocol if that isn't the classic one."""


def installed(clients: Sequence[str]) -> list[str]:
    """Those of the clients whose programs are here."""
    return [each for each in clients if CLIENTS[each.partition(":")[0]].missing is None]


class RealGroup:
    """Two static members of one client. A thread may commit through the first one, again and again.

    client: as in REAL. acknowledged: the highest offset that was acknowledged; attempted: the highest that was sent.
    """

    def __init__(self, fleet: Fleet, client: str, name: str = "") -> None:
        self._client, _, self._protocol = client.partition(":")
        self.name = name or f"real-{client.replace(':', '-')}"
        self.acknowledged = self.attempted = 0
        self._fleet = fleet
        self._over = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._commit, daemon=True)
        self.members = [self._start(seat) for seat in ("a", "b")]

    def _start(self, seat: str) -> ConsumerProcess:
        return self._fleet.start(
            self._client,
            self.name,
            group_instance_id=f"{self.name}-{seat}",
            session_timeout_ms=REAL_SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol=self._protocol or "classic",
        )

    def settle(self) -> None:
        """Wait until both share the topic."""
        self.generation = self._fleet.wait_until_shared(self.members)
        self.memberships = [member.membership for member in self.members]
        self.settled_at = time.monotonic()

    def start_commits(self) -> None:
        """Let the thread commit until `stop`."""
        self._thread.start()

    def commit(self) -> None:
        """Commit the next offset, and wait for the answer."""
        partition = self.memberships[0].partitions[0]
        with self._turn:
            self.attempted += 1
            answer = self._fleet.commit(self.members[0], {partition: (self.attempted, "")})
            if answer["event"] == "committed":
                self.acknowledged = self.attempted

    def _commit(self) -> None:
        while not self._over.is_set():
            self.commit()
            self._over.wait(0.1)

    def wait_for_commit(self) -> None:
        """Wait until an offset is acknowledged that is sent from now on."""
        attempted = self.attempted
        self._fleet.wait(f"{self.name} commits", lambda: self.acknowledged > attempted)

    def stop(self) -> None:
        """Commit no more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(WITHIN_S)

    def problems(self) -> list[str]:
        """A line for each membership that changed, each callback since the start, and each lost commit."""
        with self._turn:
            return self._problems()

    def _problems(self) -> list[str]:
        found = []
        for member, membership in zip(self.members, self.memberships, strict=True):
            if member.membership != membership:
                found.append(f"{membership} became {member.membership}: {member.describe()}")
            told = [
                event
                for name in ("assigned", "revoked", "lost", "fatal")
                for event in member.named(name, self.settled_at)
            ]
            found += [f"{self.name} was told {event}" for event in told]
        partition = self.memberships[0].partitions[0]
        value = self._fleet.read_committed(self.members[0], [partition])[partition]
        offset = -1 if value is None else value[0]
        if not self.acknowledged <= offset <= self.attempted:
            found.append(f"{self.name}: {self.acknowledged} was acknowledged, {offset} is there")
        return found


class Stage:
    """See the module. groups, members, restarts, seed: of the probe. real: the clients with a group each.

    before: the state of the probe at the start. seats: those of its members. is_sound: whether the last fault was
    followed by a `check` that passed. A test on a stage that others use too sets it to False first.
    """

    def __init__(
        self,
        *,
        groups: int = 12,
        members: int = 2,
        pause_s: float = 0.1,
        proxied: bool = False,
        etcd_arguments: Sequence[str] = (),
        settings: Mapping[str, str | int] | None = None,
        real: Sequence[str] = REAL,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        restarts: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.etcd = Etcd(members=3, arguments=etcd_arguments)
        self.cluster = TenureCluster(self.etcd, settings={**SETTINGS, **(settings or {})}, proxied=proxied)
        self._clients = installed(real)
        self._groups, self._members, self._pause_s = groups, members, pause_s
        self._session_timeout_ms, self._restarts, self._seed = session_timeout_ms, restarts, seed
        self._stack = ExitStack()
        self.real: list[RealGroup] = []
        self.is_sound = True

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.etcd)
            stack.enter_context(self.cluster)
            fleet = stack.enter_context(Fleet(",".join(self.cluster.bootstraps), TOPIC, PARTITIONS))
            self.real = [RealGroup(fleet, client) for client in self._clients]
            self.probe = stack.enter_context(
                Probe(
                    self.cluster.bootstraps,
                    groups=self._groups,
                    members=self._members,
                    pause_s=self._pause_s,
                    session_timeout_ms=self._session_timeout_ms,
                    restarts=self._restarts,
                    seed=self._seed,
                )
            )
            for group in self.real:
                group.settle()
                group.start_commits()
                stack.callback(group.stop)
            self.probe.wait_for_commits(self.probe.now())
            self.before, self.seats = self.probe.state(), self.probe.seats()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.cluster.tails())
        self._stack.close()

    def recover(self) -> None:
        """Wait until every group has had a commit acknowledged that is sent from now on."""
        self.probe.wait_for_commits(self.probe.now())
        for group in self.real:
            group.wait_for_commit()

    def history(self) -> list[Asked]:
        """What the probe has noted so far, and when nodes stood still."""
        return [*self.probe.history, *self.cluster.stills()]

    def check(self) -> None:
        """See the module."""
        self.recover()
        if self._restarts:  # a program that restarts gets another member id
            assert self.probe.seats() == self.seats
        else:
            assert self.probe.rebalances(self.before) == []
        assert self.probe.lost() == []
        history = self.history()
        wrong, violated = wrongs(history), violations(history)
        assert not wrong, "\n".join(map(str, wrong))
        assert not violated, "\n".join(map(str, violated))
        assert [problem for group in self.real for problem in group.problems()] == []
        self.is_sound = True
