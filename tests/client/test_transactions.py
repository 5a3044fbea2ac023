"""What a client learns of transactions, from a server with an open one."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client.client import Client
from coordinator.client.errors import Refused
from coordinator.client.groups import Group, describe_groups
from coordinator.client.topics import GROUPS_TOPIC, Owners, partition_owners
from coordinator.client.transactions import (
    abort,
    hanging_transactions,
    holding_transactions,
    list_transactions,
    open_transactions,
)
from coordinator.story.described import HoldingTransaction
from protocol.messages import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
    OffsetFetchResponse,
)
from schemas.errors import ErrorCode
from tests.client.scripted import Scripted
from tests.oracle.producer import producer
from tests.oracle.stage import Stage
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
        assert abort(client, records._replace(producer_epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert abort(client, records) == ErrorCode.NONE
        assert open_transactions(client, ["orders"]) == []
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            open_transactions(client, ["nobody-made-this"])


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
    with (
        Scripted({"DescribeProducers": [DescribeProducersResponse()]}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
    ):
        (node,) = client.nodes()
        groups = {name: Group(name, "Empty", "consumer", "", node, []) for name in ("a", "b")}
        before = len(server.requests)
        assert holding_transactions(client, groups, Owners({node: [0]}, [])) == {}
        assert [name for name, _, _ in server.requests[before:]] == ["DescribeProducers"]


def test_a_client_may_not_read_the_groups_log() -> None:
    """Then it learns of the transactions that it may describe, with the time of their begin."""
    denied = DescribeProducersResponse.PartitionResponse(
        partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    state = DescribeTransactionsResponse.TransactionState(
        transactional_id="mover",
        producer_id=7,
        transaction_state="Ongoing",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=1_000,
        topics=[DescribeTransactionsResponse.TopicData(topic=GROUPS_TOPIC, partitions=[0])],
    )
    pending = OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=3, committed_offset=-1, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    topic = OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=[pending])
    answers: dict[str, list[Any]] = {
        "DescribeProducers": [
            DescribeProducersResponse(
                topics=[DescribeProducersResponse.TopicResponse(name=GROUPS_TOPIC, partitions=[denied])]
            )
        ],
        "ListTransactions": [
            ListTransactionsResponse(
                transaction_states=[ListTransactionsResponse.TransactionState(transactional_id="mover")]
            )
        ],
        "DescribeTransactions": [DescribeTransactionsResponse(transaction_states=[state])],
        "OffsetFetch": [
            OffsetFetchResponse(groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic])])
        ],
    }
    with Scripted(answers) as server, Client(server.bootstrap, WITHIN_S) as client:
        (node,) = client.nodes()
        group = Group("g", "Empty", "consumer", "", node, [])
        found = holding_transactions(client, {"g": group}, Owners({node: [0]}, []))
    assert found == {"g": [HoldingTransaction("mover", 7, 0, -1, 1_000, 61_000, [("t", 3)])]}
