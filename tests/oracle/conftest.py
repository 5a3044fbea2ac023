"""The servers that scripts are played on: Apache Kafka and Tenure, each in two forms.

open: every limit is out of the way. limited: small limits, for what is refused because of them. Both take requests one
after the other, in the order in which they come. Each module of tests has servers of its own, since a script can be
played on a server only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from tests.oracle.scripts import (
    checks,
    configs,
    consumer_configs,
    consumer_epochs,
    consumer_migration,
    consumer_offsets,
    consumer_reconcile,
    consumer_regex,
    consumer_static,
    consumer_types,
    dynamic,
    limits,
    offsets,
    records,
    replicas,
    restart,
    static,
    topics,
    wire,
)
from tests.oracle.stage import SCRIPTS, Server, play_all
from tests.oracle.transcript import Line
from tests.support.apache import AT_ONCE, ApacheKafka, available
from tests.support.tenure import Tenure


class Restartable(Server, Protocol):
    """A server that can be killed and started on its data again, with other settings."""

    settings: dict[str, Any]

    def kill(self) -> None:
        """SIGKILL."""

    def start(self) -> object:
        """Start it again."""


SCRIPT_MODULES = (
    *(checks, configs, static, dynamic, offsets, topics, records, replicas, wire, limits, restart),
    *(consumer_epochs, consumer_reconcile, consumer_static, consumer_regex, consumer_offsets, consumer_types),
    *(consumer_migration, consumer_configs),
)
"""An import of this module registers all scripts in SCRIPTS."""

AS_IN_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.min.heartbeat.interval.ms": "1",
    **AT_ONCE,
}
CONSUMER_NODES = {
    "consumer": AS_IN_TESTS,
    "consumer_limited": {**AS_IN_TESTS, "group.consumer.max.size": "2"},
    **{
        policy: {**AS_IN_TESTS, "group.consumer.migration.policy": policy}
        for policy in ("upgrade", "downgrade", "disabled")
    },
}
"""The servers for the consumer protocol (KIP-848), which is compared with Kafka 4.3.1."""
CONSUMER_SCRIPTS = [script for node in CONSUMER_NODES for script in SCRIPTS.values() if script.node == node]

PLAYED_AT_ONCE = [script for script in SCRIPTS.values() if not script.restarts and script.node not in CONSUMER_NODES]
RESTART_SCRIPTS = [script for script in SCRIPTS.values() if script.restarts]


def play_restarts(server: Restartable) -> dict[str, list[Line]]:
    """Play all restart scripts on an open server: first those of the open ones, then it comes back with the limits."""
    played: dict[str, list[Line]] = {}
    for node in ("open", "limited"):
        scripts = [script for script in RESTART_SCRIPTS if script.node == node]

        def restart(node: str = node) -> None:
            server.kill()
            server.settings.update(NODES[node])
            server.start()

        for script, transcript in zip(scripts, play_all(scripts, server, restart), strict=True):
            played[script.name] = transcript.comparable()
    return played


NODES = {
    "open": {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1",
    },
    "limited": {
        "group.initial.rebalance.delay.ms": "500",
        "group.min.session.timeout.ms": "6000",
        "group.max.session.timeout.ms": "10000",
        "group.max.size": "2",
        "offset.metadata.max.bytes": "8",
        "auto.create.topics.enable": "false",
        "message.max.bytes": "5000",
    },
}
ONE_AFTER_THE_OTHER = {"num.network.threads": "1", "num.io.threads": "1"}
SAME_NAME = {"node.id": "1", "offsets.topic.num.partitions": "4"}


@pytest.fixture(scope="session")
def kafka_is_here() -> None:
    """Skips with the reason where Apache Kafka can't run."""
    reason = available()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def open_kafka(kafka_is_here: None) -> Iterator[ApacheKafka]:
    """Apache Kafka without limits."""
    with ApacheKafka({**NODES["open"], **SAME_NAME, **ONE_AFTER_THE_OTHER}) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def limited_kafka(kafka_is_here: None) -> Iterator[ApacheKafka]:
    """Apache Kafka with small limits."""
    with ApacheKafka({**NODES["limited"], **SAME_NAME, **ONE_AFTER_THE_OTHER}) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def open_tenure() -> Iterator[Tenure]:
    """Tenure without limits."""
    with Tenure({**NODES["open"], **SAME_NAME}) as tenure:
        yield tenure


@pytest.fixture(scope="module")
def limited_tenure() -> Iterator[Tenure]:
    """Tenure with small limits."""
    with Tenure({**NODES["limited"], **SAME_NAME}) as tenure:
        yield tenure
