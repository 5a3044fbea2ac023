"""Three real nodes share topics, settings, ACLs and users, which any of them changes; none has records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import pytest
import typer

from coordinator.cli import explain
from protocol.messages import MetadataRequest
from schemas.errors import ErrorCode
from tests.cli.conftest import run_app
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection, ask
from tests.support.requests import fetch_request, list_offsets_request, offsets_request
from tests.support.tenure import wait_until
from tests.support.tenure_cluster import TenureCluster

pytestmark = pytest.mark.etcd

kafka: Any = confluent_kafka.admin
"""Its types are incomplete."""

SETTINGS = {
    "tenure.topics": "declared:2",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SECRET_TOPIC = "secret"


@pytest.fixture(scope="module")
def cluster() -> Iterator[TenureCluster]:
    """Three nodes on one member of etcd, with ACLs."""
    with Etcd(members=1) as etcd, TenureCluster(etcd, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def admins(cluster: TenureCluster) -> list[kafka.AdminClient]:
    """A client for each node."""
    return [kafka.AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0}) for node in cluster.nodes]


def results(futures: Any) -> list[Any]:
    """The results of an admin client's call."""
    return [future.result(WITHIN_S) for future in futures.values()]


def metadata(cluster: TenureCluster, name: str) -> list[tuple[int, str, int]]:
    """The error, the id and the number of partitions of a topic, as each node says."""
    found = []
    for node in cluster.nodes:
        with Connection(node.port) as connection:
            topics = [MetadataRequest.MetadataRequestTopic(name=name)]
            answer: Any = connection.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
        (topic,) = answer.topics
        found.append((topic.error_code, str(topic.topic_id), len(topic.partitions)))
    return found


def test_topics_are_those_of_all_nodes(cluster: TenureCluster, admins: list[kafka.AdminClient]) -> None:
    """Declared ones are made once; a topic that one node creates, others change and delete."""
    declared = metadata(cluster, "declared")
    assert len(set(declared)) == 1
    assert (declared[0][0], declared[0][2]) == (ErrorCode.NONE, 2)
    results(admins[0].create_topics([kafka.NewTopic("orders", 1, 1)]))
    results(admins[1].create_partitions([kafka.NewPartitions("orders", 4)]))
    wait_until(lambda: len(set(metadata(cluster, "orders"))) == 1, "all nodes have the topic", WITHIN_S)
    assert metadata(cluster, "orders")[0][2] == 4
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        results(admins[2].create_topics([kafka.NewTopic("orders", 1, 1)]))
    entry = kafka.ConfigEntry("retention.ms", "12345", incremental_operation=kafka.AlterConfigOpType.SET)
    results(admins[2].incremental_alter_configs([kafka.ConfigResource("topic", "orders", incremental_configs=[entry])]))

    def retention() -> str:
        (configs,) = results(admins[0].describe_configs([kafka.ConfigResource("topic", "orders")]))
        value: str = configs["retention.ms"].value
        return value

    wait_until(lambda: retention() == "12345", "another node has the setting", WITHIN_S)
    _commit(cluster, "orders")
    assert _committed(cluster, "orders") == 7
    results(admins[1].delete_topics(["orders"]))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: {each[0] for each in metadata(cluster, "orders")} == {unknown}, "the topic is gone", WITHIN_S)
    wait_until(lambda: _committed(cluster, "orders") == -1, "its offsets are gone at the owner", WITHIN_S)


def _commit(cluster: TenureCluster, topic: str) -> None:
    settings = {"bootstrap.servers": ",".join(cluster.bootstraps), "group.id": "g"}
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 3, 7)], asynchronous=False)


def _committed(cluster: TenureCluster, topic: str) -> int:
    """The committed offset, as the group's coordinator says; -1 if there is none."""
    for node in cluster.nodes:
        answer: Any = ask(node.port, offsets_request("g", {topic: [3]}), 5)
        if not answer.error_code:
            offset: int = answer.topics[0].partitions[0].committed_offset
            return offset
    return -2


def test_acls_and_users_are_those_of_all_nodes(cluster: TenureCluster, admins: list[kafka.AdminClient]) -> None:
    """An ACL that one node makes is in force at the others, and gone when another one deletes it."""
    results(admins[0].create_topics([kafka.NewTopic(SECRET_TOPIC, 1, 1)]))
    acl = kafka.AclBinding(
        *(kafka.ResourceType.TOPIC, SECRET_TOPIC, kafka.ResourcePatternType.LITERAL),
        *("User:anna", "*", kafka.AclOperation.READ, kafka.AclPermissionType.ALLOW),
    )
    results(admins[0].create_acls([acl]))

    def errors() -> set[int]:
        return {each[0] for each in metadata(cluster, SECRET_TOPIC)}

    wait_until(lambda: errors() == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}, "it is in force everywhere", WITHIN_S)
    users = [
        kafka.UserScramCredentialUpsertion(
            "anna", kafka.ScramCredentialInfo(kafka.ScramMechanism.SCRAM_SHA_256, 4096), b"pw"
        ),
    ]
    results(admins[1].alter_user_scram_credentials(users))

    def known() -> bool:
        return "anna" in admins[2].describe_user_scram_credentials().result(WITHIN_S)

    wait_until(known, "another node knows the user", WITHIN_S)
    deleted = [future.result(WITHIN_S) for future in admins[2].delete_acls([_filter(acl)]).values()]
    assert deleted == [[acl]]
    wait_until(lambda: errors() == {ErrorCode.NONE}, "it is gone everywhere", WITHIN_S)


def _filter(acl: Any) -> Any:
    return kafka.AclBindingFilter(
        *(acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation),
        acl.permission_type,
    )


def test_a_produce_is_refused_and_the_client_says_why(cluster: TenureCluster) -> None:
    """librdkafka and aiokafka take the error as final, and show it."""
    delivered: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstraps[0], "log_level": 0})
    producer.produce("declared", b"x", on_delivery=lambda error, _message: delivered.append(error))
    assert producer.flush(WITHIN_S) == 0
    assert [error.name() for error in delivered] == ["POLICY_VIOLATION"]

    async def send() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstraps[0]) as aio:
            await aio.send_and_wait("declared", b"x")

    with pytest.raises(aiokafka.errors.PolicyViolationError):
        asyncio.run(send())


def test_explain_reads_the_events_of_all_nodes_that_live(cluster: TenureCluster) -> None:
    """All nodes are there, so no partition is missing: no node has the id 0, and its partition is not missed."""
    settings = {"bootstrap.servers": cluster.bootstraps[0], "group.id": "explained"}
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.subscribe(["declared"])

        def has_partitions() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        wait_until(has_partitions, "it has partitions", WITHIN_S)

    def explained() -> bool:
        ran = run_app(explain_app(), "explained", "--bootstrap-server", cluster.bootstraps[2])
        assert ran.code == 0
        assert not ran.err
        return "No events" not in ran.out

    wait_until(explained, "the events of another node are there", WITHIN_S)


def explain_app() -> typer.Typer:
    """`tenure explain` alone."""
    app = typer.Typer()
    app.command()(explain.command)
    return app


def test_a_consumer_lives_and_idles(cluster: TenureCluster) -> None:
    """Topics have leaders that live; their partitions are empty, at offsets that came from a broker too."""
    with Connection(cluster.nodes[0].port) as connection:
        topics = [MetadataRequest.MetadataRequestTopic(name="declared")]
        answer: Any = connection.ask(MetadataRequest(topics=topics), 12)
    (topic,) = answer.topics
    leaders = {each.partition_index: each.leader_id for each in topic.partitions}
    assert set(leaders.values()) <= {node.number for node in cluster.nodes}
    for partition, leader in leaders.items():
        (node,) = (each for each in cluster.nodes if each.number == leader)
        with Connection(node.port) as connection:
            offsets: Any = connection.ask(list_offsets_request({("declared", partition): -1}), 5)
            assert offsets.topics[0].partitions[0].offset == 0
            for offset in (0, 1_000):
                request = fetch_request({("declared", partition): offset}, max_wait_ms=10)
                fetched: Any = connection.ask(request, 11)
                assert fetched.responses[0].partitions[0].error_code == ErrorCode.NONE
                assert not fetched.responses[0].partitions[0].records
