"""The metrics of a server, with their values of one moment: its parts are asked, telemetry.metrics names the numbers.

The server imports this module only for --http or tenure.statsd.

House rule: a scrape changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from coordinator.log.cluster import Cluster
from coordinator.server.runtime.runtime import Runtime
from coordinator.server.telemetry.event_queue import Events
from coordinator.server.telemetry.measures import Measures, census, open_since_ms
from coordinator.server.telemetry.metrics import (
    ServerNumbers,
    cluster_families,
    families,
    log_families,
    login_families,
    quota_families,
    server_families,
    transaction_families,
)
from coordinator.server.transactions import Transactions
from coordinator.server.wire.listener import Connections


class Metrics:
    """The metrics of a server. measures: its counts. transactions: None until the server has started."""

    def __init__(
        self,
        runtime: Runtime,
        connections: Connections,
        events: Events,
        cluster: Cluster | None,
        transactions: Callable[[], Transactions | None],
        measures: Measures,
    ) -> None:
        self._runtime = runtime
        self._connections = connections
        self._events = events
        self._cluster = cluster
        self._transactions = transactions
        self._measures = measures

    async def now(self) -> list[Metric]:
        """All metrics with their values of this moment."""
        runtime, handshakes = self._runtime, self._connections.handshakes
        coordinators = [partition.coordinator for partition in runtime.served()]
        found = await census(coordinators, self._measures.by_group, runtime.ms())
        numbers = ServerNumbers(
            connections=len(self._connections),
            handshakes=len(handshakes),
            handshakes_completed=handshakes.completed,
            handshakes_failed=handshakes.failed,
            events_dropped=self._events.dropped,
            partitions=Counter(partition.standing.value for partition in runtime.partitions),
            loads=runtime.loads.seconds,
            recent_loads_ms=runtime.loads.recent(runtime.ms()),
        )
        own = *families(self._measures, found), *server_families(numbers)
        rest = *login_families(self._measures), *quota_families(self._measures), *self._shared()
        return [*own, *log_families(self._measures.logs), *await self._of_transactions(), *rest]

    def _shared(self) -> Iterator[Metric]:
        cluster = self._cluster
        if cluster is not None:
            owners = map(cluster.owner, range(len(self._runtime.partitions)))
            yield from cluster_families(len(cluster.nodes()), owners, cluster.numbers())

    async def _of_transactions(self) -> Iterator[Metric]:
        transactions = self._transactions()
        if transactions is None:
            return transaction_families(Counter(), [], 0)
        since_ms = await open_since_ms(each.coordinator for each in transactions.partitions())
        return transaction_families(transactions.ended, since_ms, transactions.wall_ms())
