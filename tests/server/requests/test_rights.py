"""Every API asks for the rights of its table."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.apis import APIS
from coordinator.group.client import ANONYMOUS
from coordinator.security.access import Access
from coordinator.security.acls import Kind, Operation
from protocol import messages
from tests.oracle.acl_table import CASES, NEWER, NO_ID
from tests.server.harness import connected
from tests.support.batches import batch

ORDERS = messages.AddPartitionsToTxnRequest.V3AndBelowTopic(name="orders", partitions=[0])
PRODUCED = messages.ProduceRequest.TopicProduceData(
    name="orders",
    partition_data=[messages.ProduceRequest.PartitionProduceData(records=batch([(b"k", b"v", 1)], attributes=0x10))],
)
COMMITTED = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
    name="orders", partitions=[messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition()]
)
IN_TRANSACTIONS: list[tuple[str, int, messages.Message]] = [
    ("FindCoordinator", 3, messages.FindCoordinatorRequest(key="t", key_type=1)),
    ("InitProducerId", 4, messages.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1_000)),
    (
        "AddPartitionsToTxn",
        3,
        messages.AddPartitionsToTxnRequest(v3_and_below_transactional_id="t", v3_and_below_topics=[ORDERS]),
    ),
    ("AddOffsetsToTxn", 3, messages.AddOffsetsToTxnRequest(transactional_id="t", group_id="g")),
    ("EndTxn", 3, messages.EndTxnRequest(transactional_id="t")),
    ("TxnOffsetCommit", 3, messages.TxnOffsetCommitRequest(transactional_id="t", group_id="g", topics=[COMMITTED])),
    ("Produce", 9, messages.ProduceRequest(transactional_id="t", acks=-1, topic_data=[PRODUCED])),
    ("WriteTxnMarkers", 1, messages.WriteTxnMarkersRequest()),
    (
        "DescribeProducers",
        0,
        messages.DescribeProducersRequest(topics=[messages.DescribeProducersRequest.TopicRequest(name="orders")]),
    ),
]
"""Requests of transactional producers. The table of Kafka's rights has none of them."""

AFTERWARDS = ("DescribeTransactions", "ListTransactions")


class Recording(Access):
    """Allows everything, or only what is not about the cluster, or nothing, and keeps what it was asked."""

    def __init__(self, *, denied: frozenset[Kind]) -> None:
        super().__init__(is_open=False)
        self._denied = denied
        self.asked: set[tuple[Operation, Kind]] = set()

    def allows(
        self, principal: str, host: str, operation: Operation, kind: Kind, name: str, *, is_logged: bool = True
    ) -> bool:
        """See Access."""
        assert (principal, host) == (ANONYMOUS, "127.0.0.1")
        self.asked.add((operation, kind))
        return kind not in self._denied

    def allows_somewhere(self, principal: str, host: str, operation: Operation, kind: Kind) -> bool:
        """See Access."""
        return self.allows(principal, host, operation, kind, "x")

    def operations(self, principal: str, host: str, kind: Kind, name: str, numbers: Iterable[int] = ()) -> int:
        """Asks for nothing here: a client may ask for its operations whatever its rights are."""
        return 0


async def test_each_api_asks_for_the_rights_of_its_table() -> None:
    """No more, and no less, whatever it is allowed."""
    asked: dict[str, set[tuple[Operation, Kind]]] = {}
    for denied in (frozenset[Kind](), frozenset({Kind.CLUSTER}), frozenset(Kind)):
        async with connected("auto.create.topics.enable=true", "tenure.topics=orders:1") as (server, peer):
            for case in (*CASES, *NEWER):
                access = server.server._api._services.access = Recording(denied=denied)
                await peer.ask(case.make(NO_ID), case.version)
                asked.setdefault(case.name.partition(" ")[0], set()).update(access.asked)
            for name, version, request in IN_TRANSACTIONS:
                access = server.server._api._services.access = Recording(denied=denied)
                await peer.ask(request, version)
                asked.setdefault(name, set()).update(access.asked)
    # They ask about what is there, after they have found it.
    asked |= {name: {(right.operation, right.kind) for right in APIS[name].rights} for name in AFTERWARDS}
    expected = {
        name: {(right.operation, right.kind) for right in api.rights} for name, api in APIS.items() if api.rights
    }
    assert asked == expected
