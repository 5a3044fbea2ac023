"""Several `tenure serve` processes on one etcd cluster, which a test may kill, freeze, stop and cut off from etcd.

    with Etcd(members=3) as etcd, TenureCluster(etcd) as cluster:
        cluster.nodes[0].freeze()

A node is a `Tenure` with `freeze`, `thaw`, and with `cut` and `heal` if the cluster is `proxied`: then every node
reaches each member of etcd through a proxy of its own.

House rule: tenure.py's.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from coordinator.log.cluster.keys import best_node
from tests.support.apache_cluster import wait_for_coordinators
from tests.support.cluster_history import Asked, stood_still
from tests.support.etcd import Etcd, stands_still
from tests.support.patience import WITHIN_S
from tests.support.started import Started
from tests.support.tcp_proxy import TcpProxy
from tests.support.tenure import Tenure, wait_until

LEASE_MS = 3_000
"""The default of tenure.store.lease.ms."""


class ClusterNode(Tenure):
    """One node. number: its node id. stills: when it stood still, on the monotonic clock."""

    def __init__(
        self, number: int, endpoints: Sequence[str], cluster: str, settings: Mapping[str, str | int], *, proxied: bool
    ) -> None:
        self.proxies = [TcpProxy(int(each.rpartition(":")[2])) for each in endpoints] if proxied else []
        reached = [proxy.address for proxy in self.proxies] or list(endpoints)
        store = f"etcd://{','.join(reached)}"
        super().__init__(settings, arguments=["--store", store, "--cluster", cluster, "--node-id", str(number)])
        self.number = number
        self.stills: list[tuple[float, float]] = []
        self._still_since: float | None = None

    def freeze(self) -> None:
        """SIGSTOP. Returns when no thread of it runs."""
        self.send_signal(signal.SIGSTOP)
        wait_until(lambda: stands_still(self.pid), f"node {self.number} stands still", WITHIN_S)
        if self._still_since is None:
            self._still_since = time.monotonic()

    def thaw(self) -> None:
        """SIGCONT."""
        self._goes_on()
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As of any server, frozen or not."""
        self._goes_on()
        super().kill()

    def _goes_on(self) -> None:
        if self._still_since is not None:
            self.stills.append((self._still_since, time.monotonic()))
            self._still_since = None

    def cut(self) -> None:
        """Let nothing pass between this node and etcd; its clients stay connected."""
        for proxy in self.proxies:
            proxy.cut()

    def heal(self) -> None:
        """End the cut."""
        for proxy in self.proxies:
            proxy.heal()

    def close(self) -> None:
        """End the process, and remove what it had."""
        super().close()
        for proxy in self.proxies:
            proxy.close()

    def _wait_until_loaded(self, log_start: int, within_s: float) -> None:
        """The cluster waits: each group is loaded by one of its nodes."""


class TenureCluster(Started):
    """See the module."""

    def __init__(
        self, etcd: Etcd, nodes: int = 3, settings: Mapping[str, str | int] | None = None, *, proxied: bool = False
    ) -> None:
        self.etcd = etcd
        self.name = f"c{uuid.uuid4().hex[:8]}"
        self.nodes = [
            ClusterNode(number, etcd.endpoints, self.name, settings or {}, proxied=proxied)
            for number in range(1, nodes + 1)
        ]

    @property
    def bootstraps(self) -> list[str]:
        """HOST:PORT of each node."""
        return [node.bootstrap for node in self.nodes]

    def start(self) -> Self:
        """Start all nodes at once, and wait until each group has a coordinator that has loaded it."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(ClusterNode.start, self.nodes))
        wait_for_coordinators([node.port for node in self.nodes])
        return self

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()

    def stills(self) -> list[Asked]:
        """When its nodes stood still, for the history of a probe that has their `bootstraps`."""
        return [stood_still(place, *still) for place, node in enumerate(self.nodes) for still in node.stills]

    def wait_until_settled(self) -> None:
        """Wait until each partition that was ever claimed has the node that should have it while all nodes run."""
        wait_until(self._is_settled, "each partition has the node that should have it", WITHIN_S)

    def _is_settled(self) -> bool:
        owners = self.etcd.values(f"/{self.name}/own/")
        heads = self.etcd.values(f"/{self.name}/head/")
        numbers = [node.number for node in self.nodes]
        return len(owners) == len(heads) and all(
            int(value) == best_node(int(name.rpartition("/")[2]), numbers) for name, value in owners.items()
        )

    def tails(self) -> str:
        """The end of each node's log, for a failure's message."""
        return "\n\n".join(f"node {node.number}\n{node.tail(15)}" for node in self.nodes)
