"""A broker with planned faults, for one test: Tenure in a thread of the test's process, or Apache Kafka behind a proxy.

Tenure carries a plan out by itself. Kafka has `FaultProxy` in front. Both read rebalances from the broker's own log, in
Tenure's words: `REASONS` has Kafka's. Kafka's line may come after the answer that it is about. So `settle` asks Kafka
for something that it logs: once that line is there, all earlier lines are.

House rule: a scenario uses only what both have.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from coordinator.config import Config
from coordinator.server.app import Server
from coordinator.server.faults.faults import Faults
from tests.support.apache import REASONS, ApacheKafka
from tests.support.fault_proxy import FaultProxy
from tests.support.raw import ask
from tests.support.requests import join_request, offsets_request
from tests.support.threaded import Threaded, until

TOPIC, PARTITION_COUNT = "orders", 3
GROUP_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "500"}

Found = TypeVar("Found")


class Faulty(Protocol):
    """A broker with faults, and a group that no other test uses. killed: set when a fault has killed the broker."""

    faults: Faults
    group: str
    killed: threading.Event

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for clients."""

    def call(self, function: Callable[..., Found], *arguments: Any) -> Found:
        """Call a function on the loop that carries out the faults."""

    def committed(self) -> int | None:
        """The committed offset of partition 0. Called on that loop."""

    def settle(self) -> None:
        """Wait until the broker's log has everything that has happened so far."""

    def causes(self) -> list[str]:
        """The causes of the group's rebalances, as far as the broker's log has them."""

    def replacements(self) -> int:
        """How often a static member of the group was replaced, as far as the broker's log says."""

    def restart(self) -> None:
        """Start the broker that a fault has killed again, on the same data and port."""


class FaultyTenure:
    """Tenure behind Faulty."""

    def __init__(self, server: Threaded, faults: Faults, killed: threading.Event) -> None:
        self.faults = faults
        self.group = "workers"
        self.killed = killed
        self._server = server
        self.call = server.call
        self.restart = server.restart

    @property
    def bootstrap(self) -> str:
        """HOST:PORT."""
        return self._server.bootstrap

    def committed(self) -> int | None:
        """See Faulty."""
        group = self._server.server.runtime.partition_of(self.group).coordinator.groups[self.group]
        found = group.offsets.get(TOPIC, {}).get(0)
        return None if found is None else found.offset

    def settle(self) -> None:
        """See Faulty; an answer comes behind its log lines."""

    def causes(self) -> list[str]:
        """See Faulty."""
        return [event["cause"]["kind"] for event in self._server.events("rebalance_started", group=self.group)]

    def replacements(self) -> int:
        """See Faulty."""
        return len(self._server.events("member_replaced", group=self.group))


@contextmanager
def faulty_tenure(folder: Path) -> Iterator[FaultyTenure]:
    """Tenure with its data in this folder."""
    killed = threading.Event()
    faults = Faults(on_kill=killed.set)
    settings = {
        "log.dirs": str(folder),
        "tenure.topics": f"{TOPIC}:{PARTITION_COUNT}",
        **GROUP_SETTINGS,
    }

    def make(config: Config, log: Any) -> Server:
        return Server(config, log=log, faults=faults)

    with Threaded(*(f"{name}={value}" for name, value in settings.items()), make=make) as server:
        yield FaultyTenure(server, faults, killed)


class FaultyKafka:
    """Apache Kafka behind Faulty."""

    def __init__(self, kafka: ApacheKafka, proxy: FaultProxy) -> None:
        self.killed = threading.Event()
        self.faults = Faults(on_kill=self._kill)
        self.group = f"workers-{uuid.uuid4().hex[:8]}"
        self.bootstrap = proxy.bootstrap
        self._kafka = kafka
        self.call = proxy.call
        proxy.attach(self.faults)

    def _kill(self) -> None:
        os.kill(self._kafka.pid, signal.SIGKILL)
        self.killed.set()

    def committed(self) -> int | None:
        """See Faulty."""
        answer = ask(self._kafka.port, offsets_request(self.group, {TOPIC: [0]}), 5)
        offset: int = answer.topics[0].partitions[0].committed_offset
        return None if offset < 0 else offset

    def settle(self) -> None:
        """See Faulty."""
        marker = f"marker-{uuid.uuid4().hex}"
        ask(self._kafka.port, join_request(marker, session_ms=1_000, rebalance_ms=1_000), 3)
        until(lambda: marker in self._log())

    def causes(self) -> list[str]:
        """See Faulty."""
        reasons = re.findall(rf"Preparing to rebalance group {self.group} .*\(reason: (.*)\) \(kafka\.", self._log())
        return [next((kind for told, kind in REASONS.items() if re.match(told, reason)), reason) for reason in reasons]

    def replacements(self) -> int:
        """See Faulty."""
        replaced = rf"joins group {self.group} in .* Replacing previously mapped member"
        return len(re.findall(replaced, self._log()))

    def restart(self) -> None:
        """See Faulty."""
        self._kafka.kill()
        self._kafka.start()

    def _log(self) -> str:
        return self._kafka.log_file.read_text()


@contextmanager
def kafka_behind_a_proxy() -> Iterator[tuple[ApacheKafka, FaultProxy]]:
    """One node of Apache Kafka, whose clients come through a proxy."""
    with FaultProxy() as proxy:
        settings = {**GROUP_SETTINGS, "advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}
        with ApacheKafka(settings) as kafka:
            proxy.serve(kafka.port)
            yield kafka, proxy
