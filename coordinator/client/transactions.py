"""Transactions of a cluster: those that its coordinators know, and those that are open in topic partitions (KIP-664).

A transaction hangs if it is open in a topic partition and no coordinator has it open there: nobody would ever end it.
It holds up readers of committed records, and in `__consumer_offsets` readers of stable offsets.

House rule: a partition that doesn't answer is an error, so that "no transaction hangs" is true of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby, islice
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.client.client import Client, Node
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import unstable_offsets
from coordinator.client.topics import GROUPS_TOPIC, Leaders, Owners, TopicPartition, log_end_offsets
from coordinator.group.partition import partition_for
from coordinator.story.described import Group
from coordinator.story.offsets import BlockingTransaction, HoldingTransaction
from protocol.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    WriteTxnMarkersRequest,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
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

HELD_MAX = 200
"""Topic partitions of one question about producers; the others get none named."""


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


def list_transactions(client: Client, states: Iterable[str] = ()) -> list[Transaction]:
    """All transactional ids, or those in some states, sorted. Raises `Refused`."""
    found: list[Transaction] = []
    asked = ListTransactionsRequest(state_filters=sorted(states))
    for node in client.nodes():
        listed: ListTransactionsResponse = client.request(asked, node)
        if listed.error_code:
            what = f"the transactions of node {node.node_id}"
            raise client.refused(listed.error_code, what, ListTransactionsRequest)
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
            what = f"transactional id {each.transactional_id!r}"
            raise client.refused(each.error_code, what, DescribeTransactionsRequest, each.transactional_id)
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
            raise client.refused(topic.error_code, f"topic {topic.name!r}", MetadataRequest, topic.name or "")
    wanted = {(topic.name or "", each.partition_index) for topic in metadata.topics for each in topic.partitions}
    found: list[OpenTransaction] = []
    for node, led in Leaders().of(client, wanted).items():
        for where, answered in _producers(client, node, led):
            if answered.error_code:
                what = "{}-{}".format(*where)
                raise client.refused(answered.error_code, what, DescribeProducersRequest, where[0])
            found += _open(where, answered)
    return sorted(found)


def _producers(client: Client, node: Node, led: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, Any]]:
    """The answer of a node about the producers of each topic partition that it leads."""
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[index for _, index in some])
            for name, some in groupby(sorted(led), itemgetter(0))
        ]
    )
    response: DescribeProducersResponse = client.request(request, node)
    for topic in response.topics:
        for partition in topic.partitions:
            yield (topic.name, partition.partition_index), partition


def _open(where: TopicPartition, answered: Any) -> Iterator[OpenTransaction]:
    """The transactions that are open in a topic partition."""
    for each in answered.active_producers:
        if each.current_txn_start_offset != NO_OFFSET:
            yield OpenTransaction(
                *where,
                each.producer_id,
                each.producer_epoch,
                each.coordinator_epoch,
                each.current_txn_start_offset,
                each.last_timestamp,
            )


def hanging_transactions(client: Client, topics: Iterable[str] | None = None) -> list[OpenTransaction]:
    """Those that no coordinator has open. Raises `Refused`."""
    # In this order: what ends in between is then in neither list.
    found = open_transactions(client, topics)
    known = {(each.producer_id, *where) for each in list_transactions(client, OPEN) for where in each.partitions}
    still = set(open_transactions(client, {each.topic for each in found})) if found else set()
    return [each for each in found if each in still and (each.producer_id, each.topic, each.partition) not in known]


def blocking_transactions(
    client: Client, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, BlockingTransaction]:
    """The transactions at which readers of committed records must wait, by topic partition. ends: of the logs.

    One request to each leader shows that nobody waits.
    """
    with suppress(Refused):
        stable = log_end_offsets(client, ends, only_committed=True)
        held = {where: offset for where, offset in stable.items() if offset < ends[where]}
        return holders_at(client, held) if held else {}
    return {}


def holders_at(
    client: Client, stable: Mapping[TopicPartition, int], leaders: Leaders | None = None
) -> dict[TopicPartition, BlockingTransaction]:
    """The open transactions that begin at these offsets. leaders: as far as known.

    A user who may not ask for producers gets none named; so does one whose cluster doesn't answer.
    """
    found = {where: BlockingTransaction(offset) for where, offset in stable.items()}
    with suppress(Refused, Unreachable):  # Kafka before 2.8 doesn't know DescribeProducers
        asked = set(islice(stable, HELD_MAX))
        opened = [
            each
            for node, led in (leaders or Leaders()).of(client, asked).items()
            for where, answered in _producers(client, node, led)
            for each in _open(where, answered)
            if each.start_offset == stable[where]
        ]
        for each in opened:
            found[each.topic, each.partition] = BlockingTransaction(
                each.start_offset, None, each.producer_id, each.last_ms
            )
        known = list_transactions(client, OPEN) if opened else []
        ids = {(each.producer_id, *where): each for each in known for where in each.partitions}
        for each in opened:
            own = ids.get((each.producer_id, each.topic, each.partition))
            if own is not None:
                named = own.transactional_id, own.producer_id, own.start_ms, own.start_ms + own.timeout_ms
                found[each.topic, each.partition] = BlockingTransaction(each.start_offset, *named)
    return found


def holding_transactions(
    client: Client, groups: Mapping[str, Group], owners: Owners, before_ms: float = inf
) -> dict[str, list[HoldingTransaction]]:
    """The transactions that hold back offsets of groups, by group. before_ms: only of producers that wrote no later.

    One request to each coordinator shows that there is none. A client without Read on `__consumer_offsets` gets those
    that it may describe. If something doesn't answer, there may be more.
    """
    count = sum(map(len, owners.nodes.values())) + len(owners.nobody)
    by_partition: dict[int, list[Group]] = {}
    for name, group in groups.items() if count else ():
        by_partition.setdefault(partition_for(name, count), []).append(group)
    opened: list[OpenTransaction] = []
    is_denied = False
    try:
        for node, partitions in owners.nodes.items():
            if led := [(GROUPS_TOPIC, index) for index in partitions if index in by_partition]:
                for where, answered in _producers(client, node, led):
                    is_denied |= answered.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    opened += (each for each in _open(where, answered) if each.last_ms <= before_ms)
        if not opened and not is_denied:
            return {}
        known = [each for each in list_transactions(client, OPEN) if not is_denied or each.start_ms <= before_ms]
        holding = _with_ids(opened, known, is_denied=is_denied)
        # The groups come last: what ended in between holds nothing back.
        asked = [group for index in holding for group in by_partition.get(index, ())]
        unstable = unstable_offsets(client, asked)
    except (Refused, Unreachable):  # Kafka before 2.8 doesn't know DescribeProducers
        return {}
    return {
        name: [each._replace(offsets=offsets) for each in holding[partition_for(name, count)]]
        for name, offsets in unstable.items()
    }


def _with_ids(
    opened: Iterable[OpenTransaction], known: Iterable[Transaction], *, is_denied: bool
) -> dict[int, list[HoldingTransaction]]:
    """Transactions with their ids, by partition of `__consumer_offsets`. is_denied: coordinators alone know them."""
    ids = {(each.producer_id, *where): each for each in known for where in each.partitions}
    if is_denied:
        opened = [
            OpenTransaction(topic, index, producer_id, each.producer_epoch, NO_OFFSET, NO_OFFSET, each.start_ms)
            for (producer_id, topic, index), each in ids.items()
            if topic == GROUPS_TOPIC
        ]
    found: dict[int, list[HoldingTransaction]] = {}
    for each in opened:
        own = ids.get((each.producer_id, each.topic, each.partition))
        holding = HoldingTransaction(
            own and own.transactional_id,
            each.producer_id,
            each.partition,
            each.start_offset,
            each.last_ms,
            own and own.start_ms + own.timeout_ms,
        )
        found.setdefault(each.partition, []).append(holding)
    return found


def abort(client: Client, transaction: OpenTransaction) -> Refused | None:
    """End a transaction in its topic partition; returns the error, if there is one."""
    where = transaction.topic, transaction.partition
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=where[0], partition_indexes=[where[1]])],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    for node in Leaders().of(client, {where}):
        response: WriteTxnMarkersResponse = client.request(WriteTxnMarkersRequest(markers=[marker]), node)
        code = next(
            each.error_code for result in response.markers for topic in result.topics for each in topic.partitions
        )
        return client.refused(code, "{}-{}".format(*where), WriteTxnMarkersRequest) if code else None
    return Refused(ErrorCode.LEADER_NOT_AVAILABLE, "{}-{}".format(*where))
