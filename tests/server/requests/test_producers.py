"""Producers of partitions are described, and markers of administrators end their transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator.group.partition import partition_for
from coordinator.log.store import open_store
from coordinator.security.acls import Kind
from protocol.messages import DescribeProducersRequest, WriteTxnMarkersRequest
from schemas.errors import ErrorCode
from tests.server.harness import Peer, serving
from tests.server.requests.test_rights import Recording
from tests.server.requests.test_transactions import V2, Producer, offset_of, producing

OFFSETS = "__consumer_offsets"


async def described(peer: Peer, topic: str, number: int) -> list[tuple[int, int]]:
    """Each producer with the start of its open transaction."""
    topics = [DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[number])]
    answer = (await peer.ask(DescribeProducersRequest(topics=topics), 0)).topics[0].partitions[0]
    assert answer.error_code == 0
    return [(each.producer_id, each.current_txn_start_offset) for each in answer.active_producers]


async def mark(peer: Peer, topic: str, number: int, producer: Any, *, commit: bool) -> ErrorCode:
    """Write a marker; returns the error."""
    kinds = WriteTxnMarkersRequest
    marker = kinds.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        topics=[kinds.WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
    )
    answer = await peer.ask(kinds(markers=[marker]), 1)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


async def test_pending_offsets_are_found_and_settled(tmp_path: Path) -> None:
    """An administrator sees whose they are, and a marker makes them count though the transaction is open."""
    async with serving("tenure.topics=orders:1", f"log.dirs={tmp_path}", opened=open_store) as server:
        producer = Producer(await server.peer(), V2)
        await producer.init()
        peer = producer.peer
        await producer.commit_offset(7)
        number = partition_for("g", 50)
        ((producer_id, start),) = await described(peer, OFFSETS, number)
        assert (producer_id, start >= 0) == (producer.producer_id, True)
        assert await mark(peer, OFFSETS, number, producer, commit=True) is ErrorCode.NONE
        assert await offset_of(peer, stable=True) == 7
        assert await described(peer, OFFSETS, number) == [(producer.producer_id, -1)]


async def test_a_marker_needs_a_right() -> None:
    """Without ALTER or CLUSTER_ACTION on the cluster nothing is written."""
    async with producing(V2) as (server, producer):
        peer = producer.peer
        await producer.send(b"one")
        server.server._api._services.access = Recording(denied=frozenset({Kind.CLUSTER}))
        refused = await mark(peer, "orders", 0, producer, commit=False)
        assert refused is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await described(peer, "orders", 0) == [(producer.producer_id, 0)]


async def test_a_marker_without_a_partition_is_answered() -> None:
    """The answer has an element for each marker, as the request has."""
    kinds = WriteTxnMarkersRequest
    async with producing(V2) as (_, producer):
        markers = [kinds.WritableTxnMarker(producer_id=number, topics=[]) for number in (7, 8)]
        answer = await producer.peer.ask(kinds(markers=markers), 1)
        assert [each.producer_id for each in answer.markers] == [7, 8]
