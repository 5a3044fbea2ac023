"""The metrics of a server, with their values of one moment: its parts are asked, telemetry.metrics names the numbers.

The server imports this module only for --http or tenure.statsd.

House rule: a scrape changes nothing.
"""

from __future__ import annotations

from collections import Counter

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


async def server_metrics(
    runtime: Runtime,
    connections: Connections,
    events: Events,
    cluster: Cluster | None,
    transactions: Transactions,
    measures: Measures,
) -> list[Metric]:
    """All metrics of a server with their values of this moment. measures: its counts."""
    handshakes = connections.handshakes
    coordinators = [partition.coordinator for partition in runtime.served()]
    found = await census(coordinators, measures.by_group, runtime.ms())
    numbers = ServerNumbers(
        connections=len(connections),
        handshakes=len(handshakes),
        handshakes_completed=handshakes.completed,
        handshakes_failed=handshakes.failed,
        events_dropped=events.dropped,
        partitions=Counter(partition.standing.value for partition in runtime.partitions),
        loads=runtime.loads.seconds,
        recent_loads_ms=runtime.loads.recent(runtime.ms()),
    )
    own = *families(measures, found), *server_families(numbers)
    rest = [*login_families(measures), *quota_families(measures)]
    if cluster is not None:
        owners = map(cluster.owner, range(len(runtime.partitions)))
        rest += cluster_families(len(cluster.nodes()), owners, cluster.numbers())
    since_ms = await open_since_ms(each.coordinator for each in transactions.partitions())
    of_transactions = transaction_families(transactions.ended, since_ms, transactions.wall_ms())
    return [*own, *log_families(measures.logs), *of_transactions, *rest]
