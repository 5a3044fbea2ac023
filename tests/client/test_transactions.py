"""What a client learns of transactions, from a server with an open one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import describe_groups
from coordinator.client.properties import read_file
from coordinator.client.security import Security
from coordinator.client.topics import Owners, partition_owners
from coordinator.client.transactions import (
    abort,
    blocking_transactions,
    hanging_transactions,
    holders_at,
    holding_transactions,
    list_transactions,
    open_transactions,
)
from coordinator.story.described import CoordinatorNode, Group
from coordinator.story.offsets import BlockingTransaction, HoldingTransaction
from schemas.errors import ErrorCode
from tests.client.scripted import served
from tests.observe.test_rights import PLAIN, SECURED
from tests.oracle.producer import producer
from tests.oracle.stage import Stage
from tests.support.apache import AUTHORIZER
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure


def test_an_open_transaction_is_no_hanging_one() -> None:
    """Both its coordinator and its partitions have it, offsets too. An older epoch can't end it."""
    with Tenure({"tenure.topics": "orders:1"}) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        stage = Stage(tenure, "client")
        a = producer(stage, "a", version=2)
        a.init(transaction_timeout_ms=900_000)
        a.init(transaction_timeout_ms=900_000)
        a.send("orders", b"one")
        a.commit("orders", 1)
        stage.close()
        (own,) = [each for each in list_transactions(client) if each.transactional_id == "client.a"]
        assert [topic for topic, _ in own.partitions] == ["__consumer_offsets", "orders"]
        offsets, records = open_transactions(client)
        assert (offsets.topic, records.topic) == ("__consumer_offsets", "orders")
        assert {offsets.producer_id, records.producer_id} == {own.producer_id}
        assert hanging_transactions(client) == []
        fenced = abort(client, records._replace(producer_epoch=0))
        assert (fenced and fenced.error_code) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert abort(client, records) is None
        assert open_transactions(client, ["orders"]) == []
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            open_transactions(client, ["nobody-made-this"])


def test_the_transaction_for_which_readers_wait_is_named() -> None:
    """By its coordinator and the leader together; a place where nothing begins has none."""
    with Tenure({"tenure.topics": "orders:2"}) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        stage = Stage(tenure, "holder")
        a = producer(stage, "a", version=2)
        a.init(transaction_timeout_ms=900_000)
        a.send("orders", b"one")
        (own,) = list_transactions(client, ["Ongoing"])
        stage.close()
        ((pair, found),) = blocking_transactions(client, {("orders", 0): 1, ("orders", 1): 0}).items()
        assert pair == ("orders", 0)
        assert found == BlockingTransaction(0, "holder.a", own.producer_id, own.start_ms, own.start_ms + 900_000)
        assert found.producer_text == "transactional id holder.a"
        assert holders_at(client, {("orders", 1): 5}) == {("orders", 1): BlockingTransaction(5)}


def test_who_may_not_ask_gets_no_name() -> None:
    """The answer says where readers wait, so nobody asks again."""
    refused = {"partition_index": 0, "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    topics = [{"name": "orders", "partitions": [refused]}]
    with served({"DescribeProducers": [{"topics": topics}]}) as (server, client):
        assert holders_at(client, {("orders", 0): 5}) == {("orders", 0): BlockingTransaction(5)}
        assert [name for name, _, _ in server.requests].count("ListTransactions") == 0


def test_offsets_are_held_back_by_a_transaction() -> None:
    """Of two groups in one partition, the one with pending offsets has a finding, with what ends them."""
    settings = {"tenure.topics": "orders:1", "offsets.topic.num.partitions": "1"}
    with Tenure(settings) as tenure, Client(tenure.bootstrap, WITHIN_S) as client:
        stage = Stage(tenure, "held")
        a = producer(stage, "a", version=2)
        a.init(transaction_timeout_ms=900_000)
        for group in ("held", "free"):
            a.commit("orders", 1, group_id=group)
        a.end()
        a.settle()
        groups = {
            name: each for name, each in describe_groups(client, ["held", "free"]).items() if isinstance(each, Group)
        }
        a.commit("orders", 2)
        ((name, (found,)),) = holding_transactions(client, groups, partition_owners(client)).items()
        (own,) = list_transactions(client, ["Ongoing"])
        stage.close()
    assert name == "held"
    assert found == HoldingTransaction(
        "held.a", own.producer_id, 0, found.start_offset, found.since_ms, own.start_ms + 900_000, [("orders", 0)]
    )


def test_one_request_finds_out_that_nothing_is_open() -> None:
    """The groups are not asked then."""
    with served({"DescribeProducers": [{}]}) as (server, client):
        (node,) = client.nodes()
        there = CoordinatorNode(node.node_id, *node.address)
        groups = {name: Group(name, "Empty", "consumer", "", there, []) for name in ("a", "b")}
        before = len(server.requests)
        assert holding_transactions(client, groups, Owners({node: [0]}, [])) == {}
        assert [name for name, _, _ in server.requests[before:]] == ["DescribeProducers"]


def test_describe_alone_names_a_transaction_that_a_coordinator_has(tmp_path: Path) -> None:
    """A client that may not read `__consumer_offsets` has the time of the transaction's begin."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    properties = SECURED.format(module=PLAIN, authorizer=AUTHORIZER) + "tenure.topics=orders:1\n"
    eve = tmp_path / "eve.properties"
    jaas = f'sasl.jaas.config={PLAIN} required username="eve" password="secret";'
    eve.write_text("\n".join([*(f"{name}={value}" for name, value in login.items()), jaas]))
    with Tenure(listeners={"SASL": "SASL_PLAINTEXT"}, properties=properties) as tenure:
        bootstrap = tenure.bootstrap_of("SASL")
        own: dict[str, Any] = login | {
            "bootstrap.servers": bootstrap,
            "sasl.username": "admin",
            "sasl.password": "secret",
        }
        allowed = [
            AclBinding(
                kind, "*", ResourcePatternType.LITERAL, "User:eve", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW
            )
            for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        ]
        admin = AdminClient(own)
        for future in admin.create_acls(allowed).values():
            future.result(WITHIN_S)
        consumer = Consumer({**own, "group.id": "held"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        mover = Producer({**own, "transactional.id": "mover", "transaction.timeout.ms": 60_000})
        mover.init_transactions(WITHIN_S)
        mover.begin_transaction()
        positions = [TopicPartition("orders", 0, 2)]
        mover.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WITHIN_S)
        with Client(bootstrap, WITHIN_S, security=Security(read_file(eve))) as client:
            group = describe_groups(client, ["held"])["held"]
            assert isinstance(group, Group)
            ((found,),) = holding_transactions(client, {"held": group}, partition_owners(client)).values()
            (known,) = list_transactions(client)
        consumer.close()
    begun = found.since_ms, found.until_ms
    assert (found.transactional_id, found.start_offset, found.offsets) == ("mover", -1, [("orders", 0)])
    assert begun == (known.start_ms, known.start_ms + 60_000)
