"""Transactions of a cluster: those that its coordinators know, and those that are open in topic partitions (KIP-664).

A transaction hangs if it is open in a topic partition and no coordinator has it open there: nobody would ever end it.
It holds up readers of committed records, and in `__consumer_offsets` readers of stable offsets.

House rule: a partition that doesn't answer is an error, so that "no transaction hangs" is true of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from coordinator.client.errors import Refused
from coordinator.client.topics import TopicPartition, leaders_of
from protocol.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    WriteTxnMarkersRequest,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.client.client import Client, Node
    from protocol.messages import (
        DescribeProducersResponse,
        DescribeTransactionsResponse,
        ListTransactionsResponse,
        MetadataResponse,
        WriteTxnMarkersResponse,
    )

OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""States in which a coordinator will still end the transaction."""

NO_OFFSET = -1


class Transaction(NamedTuple):
    """A transactional id as its coordinator has it. start_ms: -1 without a transaction."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: list[TopicPartition]


class OpenTransaction(NamedTuple):
    """A transaction that is open in a topic partition. last_ms: when its producer last wrote there."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


def list_transactions(client: Client) -> list[Transaction]:
    """All transactional ids, sorted. Raises `Refused`."""
    found: list[Transaction] = []
    for node in client.nodes():
        listed: ListTransactionsResponse = client.request(ListTransactionsRequest(), node)
        if listed.error_code:
            raise Refused(listed.error_code, f"the transactions of node {node.node_id}")
        found += _described(client, node, [each.transactional_id for each in listed.transaction_states])
    return sorted(found)


def _described(client: Client, node: Node, transactional_ids: list[str]) -> list[Transaction]:
    """The transactions of a node. An id that has expired meanwhile is left out. Raises `Refused`."""
    if not transactional_ids:
        return []
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    response: DescribeTransactionsResponse = client.request(request, node)
    found = []
    for each in response.transaction_states:
        if each.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        if each.error_code:
            raise Refused(each.error_code, f"transactional id {each.transactional_id!r}")
        partitions = [(topic.topic, index) for topic in each.topics for index in topic.partitions]
        found.append(
            Transaction(
                each.transactional_id,
                node.node_id,
                each.producer_id,
                each.producer_epoch,
                each.transaction_state,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms,
                sorted(partitions),
            )
        )
    return found


def open_transactions(client: Client, topics: Iterable[str] | None = None) -> list[OpenTransaction]:
    """The transactions that are open in topic partitions. topics: None for all, internal ones too. Raises `Refused`."""
    names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    metadata: MetadataResponse = client.request(MetadataRequest(topics=names, allow_auto_topic_creation=False))
    for topic in metadata.topics:
        if topic.error_code:
            raise Refused(topic.error_code, f"topic {topic.name!r}")
    wanted = {(topic.name or "", each.partition_index) for topic in metadata.topics for each in topic.partitions}
    found: list[OpenTransaction] = []
    for node, led in leaders_of(client, wanted).items():
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[index for _, index in some])
                for name, some in groupby(sorted(led), itemgetter(0))
            ]
        )
        response: DescribeProducersResponse = client.request(request, node)
        for answered in response.topics:
            for partition in answered.partitions:
                if partition.error_code:
                    raise Refused(partition.error_code, f"{answered.name}-{partition.partition_index}")
                found += [
                    OpenTransaction(
                        answered.name,
                        partition.partition_index,
                        each.producer_id,
                        each.producer_epoch,
                        each.coordinator_epoch,
                        each.current_txn_start_offset,
                        each.last_timestamp,
                    )
                    for each in partition.active_producers
                    if each.current_txn_start_offset != NO_OFFSET
                ]
    return sorted(found)


def hanging_transactions(client: Client, topics: Iterable[str] | None = None) -> list[OpenTransaction]:
    """Those that no coordinator has open. Raises `Refused`."""
    # In this order: what ends in between is then in neither list.
    found = open_transactions(client, topics)
    known = {
        (each.producer_id, *where)
        for each in list_transactions(client)
        if each.state in OPEN
        for where in each.partitions
    }
    still = set(open_transactions(client, {each.topic for each in found})) if found else set()
    return [each for each in found if each in still and (each.producer_id, each.topic, each.partition) not in known]


def abort(client: Client, transaction: OpenTransaction) -> ErrorCode | int:
    """End a transaction in its topic partition; returns the error code."""
    where = transaction.topic, transaction.partition
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=where[0], partition_indexes=[where[1]])],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    for node in leaders_of(client, {where}):
        response: WriteTxnMarkersResponse = client.request(WriteTxnMarkersRequest(markers=[marker]), node)
        return next(
            each.error_code for result in response.markers for topic in result.topics for each in topic.partitions
        )
    return ErrorCode.LEADER_NOT_AVAILABLE
