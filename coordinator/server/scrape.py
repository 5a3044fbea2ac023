"""The metrics of a server, with their values of one moment; those that are not about groups have their names here.

The server imports this module only for --http or tenure.statsd.

House rule: a scrape changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import nan

from prometheus_client.core import HistogramMetricFamily, Metric

from coordinator.log.cluster import Cluster
from coordinator.server.nodes.events_topic import Events
from coordinator.server.runtime.runtime import Runtime
from coordinator.server.telemetry.measures import Measures, census, open_since_ms
from coordinator.server.telemetry.metrics import (
    KAFKA_COORDINATOR,
    buckets,
    cluster_families,
    counter,
    families,
    gauge,
    gauges,
    log_families,
    login_families,
    quota_families,
    transaction_families,
)
from coordinator.server.transactions import Transactions
from coordinator.server.wire.listener import Connections


def server_families(runtime: Runtime, connections: Connections, events: Events) -> Iterator[Metric]:
    """The metrics of the server that are not about groups."""
    handshakes = connections.handshakes
    yield gauge("tenure_connections", "Connections that are open.", len(connections))
    under_way = "TLS handshakes that have begun and not ended."
    yield gauge("tenure_tls_handshakes_under_way", under_way, len(handshakes))
    yield counter("tenure_tls_handshakes", "TLS handshakes that succeeded.", handshakes.completed)
    yield counter("tenure_tls_handshake_failures", "TLS handshakes that failed.", handshakes.failed)
    partitions = Counter(sorted(partition.standing.value for partition in runtime.partitions))
    yield gauges("tenure_partitions", "Partitions of the log, by standing.", "standing", partitions)
    yield counter("tenure_events_dropped", "Events that could not be kept.", events.dropped)
    loads = runtime.loads.recent(runtime.ms())
    for name, took_ms in (("max", max(loads, default=nan)), ("avg", sum(loads) / len(loads) if loads else nan)):
        text = "Milliseconds that a partition took to load, of those loaded in the last 30 s."
        yield gauge(f"{KAFKA_COORDINATOR}partition_load_time_{name}", text, took_ms)
    seconds, text = runtime.loads.seconds, "How long partitions took to load."
    yield HistogramMetricFamily("tenure_partition_load_seconds", text, buckets(seconds), seconds.total)


async def server_metrics(
    runtime: Runtime,
    connections: Connections,
    events: Events,
    cluster: Cluster | None,
    transactions: Transactions,
    measures: Measures,
) -> list[Metric]:
    """All metrics of a server with their values of this moment. measures: its counts."""
    coordinators = [partition.coordinator for partition in runtime.served()]
    found = await census(coordinators, measures.by_group, runtime.ms())
    own = *families(measures, found), *server_families(runtime, connections, events)
    rest = [*login_families(measures), *quota_families(measures)]
    if cluster is not None:
        owners = map(cluster.owner, range(len(runtime.partitions)))
        rest += cluster_families(len(cluster.nodes()), owners, cluster.numbers())
    since_ms = await open_since_ms(each.coordinator for each in transactions.partitions())
    of_transactions = transaction_families(transactions.ended, since_ms, runtime.clock.wall_ms())
    return [*own, *log_families(measures.logs), *of_transactions, *rest]
