"""Requests that Kafka 3.9 doesn't know under every right, on Apache Kafka 4.3.1 and on Tenure: the same error codes.

Both servers have the properties file of test_acls.py. A super user has joined a group of the consumer protocol first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from coordinator.security.acls import CLUSTER_NAME, Kind, Operation
from protocol.messages import CreateTopicsRequest
from tests.oracle.acl_table import CONSUMERS, GROUP, HIDDEN, NEWER, TOPIC
from tests.oracle.test_acls import DENY, LISTENERS, PROPERTIES, Acl, Server, acl, led
from tests.support.apache import VERSION_43, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

ON_GROUPS = (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
NAMES = {Kind.TOPIC: TOPIC, Kind.GROUP: CONSUMERS, Kind.CLUSTER: CLUSTER_NAME}
SETS: dict[str, list[Acl]] = {
    "none": [],
    "all": [acl(kind, name, Operation.ALL) for kind, name in NAMES.items()],
    "a denial": [acl(kind, "*", Operation.ALL) for kind in (Kind.TOPIC, Kind.GROUP)]
    + [acl(Kind.GROUP, GROUP, Operation.DESCRIBE_CONFIGS, DENY), acl(Kind.TOPIC, TOPIC, Operation.READ, DENY)],
    **{f"{kind.name}": [acl(kind, NAMES[kind], Operation.ALL)] for kind in NAMES},
    **{f"GROUP {operation.name}": [acl(Kind.GROUP, CONSUMERS, operation)] for operation in ON_GROUPS},
    **{
        f"GROUP {operation.name}, TOPIC READ": [
            acl(Kind.GROUP, CONSUMERS, operation),
            acl(Kind.TOPIC, TOPIC, Operation.READ),
        ]
        for operation in ON_GROUPS
    },
}


@pytest.fixture(scope="module")
def servers(kafka_is_here: None) -> Iterator[tuple[Server, Server]]:
    """Kafka and Tenure, each with two topics and a group."""
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(version=VERSION_43, listeners=LISTENERS, properties=PROPERTIES))
        tenure = stack.enter_context(Tenure({"node.id": "1"}, listeners=LISTENERS, properties=PROPERTIES))
        found = Server(kafka.ports["SASL"], stack), Server(tenure.ports[0], stack)
        for server in found:
            topics = [
                CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in (TOPIC, HIDDEN)
            ]
            server.admin.ask(CreateTopicsRequest(topics=topics, timeout_ms=5_000), 5)
            server.topic_id = wait_until(partial(led, server), "the topic", WITHIN_S)
            assert server.shapes("admin", NEWER[:1]) == {"ConsumerGroupHeartbeat": 0}
        yield found


@pytest.mark.parametrize("name", SETS)
def test_each_api_answers_as_kafka(servers: tuple[Server, Server], name: str) -> None:
    """Under these rules, for alice: codes, silences and authorized operations."""
    kafka, tenure = servers
    for server in servers:
        server.set_rules(SETS[name])
    assert tenure.shapes("alice", NEWER) == kafka.shapes("alice", NEWER)
