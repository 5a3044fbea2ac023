"""Three nodes of Apache Kafka, each broker and controller, for comparisons of clusters.

    with ApacheCluster({}) as kafka:
        kafka.nodes[0].kill()

`__consumer_offsets` has 50 partitions with three replicas and min.insync.replicas=2; a broker session lasts 3 s. A node
has the methods of `ApacheKafka`, and `freeze` and `thaw`.

House rule: apache.py's.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

from tests.support.apache import (
    CLUSTER_ID,
    NODE_FLAGS,
    START_TIMEOUT_S,
    VERSION,
    ApacheKafka,
    ApacheKafkaError,
    _coordinator_is_found,
    _groups_are_loaded,
    _one_group_per_partition,
)
from tests.support.started import Started

NODES = 3
PARTITIONS = 50
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controlled.shutdown.enable": "true",
}


class ApacheNode(ApacheKafka):
    """One node of the cluster."""

    def __init__(self, number: int, settings: Mapping[str, str], jvm_flags: tuple[str, ...], version: str) -> None:
        super().__init__({**SETTINGS, **settings, "node.id": str(number)}, jvm_flags, version)
        (self.log_dir / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={number}\n")

    def freeze(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def _wait_for_coordinator(self, deadline: float) -> None:
        """Each group is loaded by one node of the cluster only: the cluster waits."""


class ApacheCluster(Started):
    """See the module."""

    def __init__(
        self,
        settings: Mapping[str, str],
        jvm_flags: tuple[str, ...] = NODE_FLAGS,
        version: str = VERSION,
        nodes: int = NODES,
    ) -> None:
        self.nodes = [ApacheNode(number, settings, jvm_flags, version) for number in range(1, nodes + 1)]
        voters = ",".join(f"{node.settings['node.id']}@127.0.0.1:{node.ports['CONTROLLER']}" for node in self.nodes)
        for node in self.nodes:
            node.settings["controller.quorum.voters"] = voters

    @property
    def bootstraps(self) -> list[str]:
        """HOST:PORT of each node."""
        return [node.bootstrap for node in self.nodes]

    def start(self) -> Self:
        """Start all nodes at once; wait until each group has a coordinator that has loaded it."""
        failed: list[BaseException] = []

        def start(node: ApacheNode) -> None:
            try:
                node.start()
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        starters = [threading.Thread(target=start, args=(node,)) for node in self.nodes]
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join()
        if failed:
            raise failed[0]
        wait_for_coordinators([node.port for node in self.nodes])
        return self

    def close(self) -> None:
        """End all nodes, and remove their data."""
        for node in self.nodes:
            node.kill()
            node.close()


def wait_for_coordinators(ports: Sequence[int], partitions: int = PARTITIONS) -> None:
    """Ask the nodes of a cluster about a group of each partition, until each group is loaded somewhere."""
    missing = set(_one_group_per_partition(partitions))
    deadline = time.monotonic() + START_TIMEOUT_S
    attempt = threading.Event()
    while missing:
        for port in ports:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                if _coordinator_is_found(connection):
                    missing -= {each for each in missing if _groups_are_loaded(connection, [each])}
        if time.monotonic() > deadline:
            raise ApacheKafkaError(f"no coordinator has loaded {sorted(missing)}")
        attempt.wait(0.05)
