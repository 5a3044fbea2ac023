"""Requests that Kafka 3.9 doesn't know under every right, on Apache Kafka 4.4.0 and on Tenure: the same error codes.

Both servers have the properties of test_acls.py, and a long session timeout. A super user has joined a group of the
consumer protocol first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from coordinator.security.acls import CLUSTER_NAME, Kind, Operation
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    MetadataRequest,
)
from tests.oracle.acl_table import CONSUMERS, GROUP, NEWER, TOPIC
from tests.oracle.test_acls import DENY, LISTENERS, PROPERTIES, Acl, Server, acl, make_both_topics
from tests.support.apache import AT_ONCE, VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.requests import first_heartbeat
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

# The member of the group sends no heartbeats. A slow machine takes more than the default, 45 s, for all tests.
MEMBER_STAYS = "group.consumer.max.session.timeout.ms=3600000\ngroup.consumer.session.timeout.ms=3600000\n"
BY_REGEX = "by-regex"
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
        properties = PROPERTIES + MEMBER_STAYS
        kafka = stack.enter_context(
            ApacheKafka(AT_ONCE, version=VERSION_44, listeners=LISTENERS, properties=properties)
        )
        tenure = stack.enter_context(Tenure({"node.id": "1"}, listeners=LISTENERS, properties=properties))
        found = Server(kafka.ports["SASL"], stack), Server(tenure.ports[0], stack)
        for server in found:
            make_both_topics(server)
            wait_until(partial(_has_a_partition, server), "the member has a partition", WITHIN_S)
        yield found


def _has_a_partition(server: Server) -> bool:
    """Whether the member of the group has a partition: Kafka's coordinator hears of a topic after others do."""
    assert server.shapes("admin", NEWER[:1]) == {"ConsumerGroupHeartbeat": [0]}
    asked = ConsumerGroupDescribeRequest(group_ids=[CONSUMERS])
    answer: Any = server.admin.ask(asked, 0)
    (member,) = answer.groups[0].members
    return bool(member.target_assignment.topic_partitions)


@pytest.mark.parametrize("name", SETS)
def test_each_api_answers_as_kafka(servers: tuple[Server, Server], name: str) -> None:
    """Under these rules, for alice: codes, silences and authorized operations."""
    kafka, tenure = servers
    for server in servers:
        server.set_rules(SETS[name])
    assert tenure.shapes("alice", NEWER) == kafka.shapes("alice", NEWER)


def matched(server: Server) -> set[str]:
    """The topics that alice is assigned if she subscribes to all names, once she is assigned any."""
    alice, member_id = server.connect("alice"), str(uuid4())
    joins = first_heartbeat(BY_REGEX, member_id, [], subscribed_topic_regex=".*")
    answer: Any = alice.ask(joins, 1)
    assert answer.error_code == 0

    def assigned() -> list[UUID]:
        nonlocal answer
        beat = ConsumerGroupHeartbeatRequest(group_id=BY_REGEX, member_id=member_id, member_epoch=answer.member_epoch)
        answer = alice.ask(beat, 1)
        assert answer.error_code == 0
        return [] if answer.assignment is None else [each.topic_id for each in answer.assignment.topic_partitions]

    found = wait_until(lambda: assigned() or None, "an assignment", WITHIN_S)
    shown: Any = server.admin.ask(MetadataRequest(topics=None), 12)
    return {topic.name for topic in shown.topics if topic.topic_id in found}


def test_a_regular_expression_matches_what_its_member_may_describe(servers: tuple[Server, Server]) -> None:
    """The other topics are left out without an error. By their names they are refused."""
    for server in servers:
        server.set_rules([acl(Kind.GROUP, BY_REGEX, Operation.READ), acl(Kind.TOPIC, TOPIC, Operation.DESCRIBE)])
    assert [matched(server) for server in servers] == [{TOPIC}, {TOPIC}]
