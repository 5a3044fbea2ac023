"""The settings of the servers that scripts are played on: Apache Kafka and Tenure.

open: every limit is out of the way. limited: small limits, for what is refused because of them. All take requests one
after the other, in the order in which they come. Each module of tests has servers of its own, since a script can be
played on a server only once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.apache import AT_ONCE, ApacheKafka, available
from tests.support.tenure import Tenure

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
    "transactions": {**AS_IN_TESTS, "transaction.state.log.num.partitions": "4"},
    "offsets_log": {**AS_IN_TESTS, "transaction.state.log.num.partitions": "4"},
    "expiring": {
        **AS_IN_TESTS,
        "transaction.state.log.num.partitions": "4",
        "transactional.id.expiration.ms": "3000",
        "offsets.retention.check.interval.ms": "100",
    },
}
"""The servers for the consumer protocol (KIP-848), which is compared with Kafka 4.4.0."""
NODES = {
    "open": {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1",
    },
    "limited": {
        "group.initial.rebalance.delay.ms": "500",
        "group.min.session.timeout.ms": "6000",
        "group.max.session.timeout.ms": "60000",
        "group.max.size": "2",
        "offset.metadata.max.bytes": "8",
        "auto.create.topics.enable": "false",
        "message.max.bytes": "5000",
    },
}
ONE_AFTER_THE_OTHER = {
    "num.network.threads": "1",
    "num.io.threads": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "log.initial.task.delay.ms": "86400000",  # the records are old: on a slow machine, Kafka deletes them meanwhile
}
SAME_NAME = {
    "node.id": "1",
    "offsets.topic.num.partitions": "4",
    # On a slow machine the tests of a module need more than the 10 minutes after which an empty group may be removed.
    "offsets.retention.check.interval.ms": "86400000",
}


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
def open_tenure() -> Iterator[Tenure]:
    """Tenure without limits."""
    with Tenure({**NODES["open"], **SAME_NAME}) as tenure:
        yield tenure
