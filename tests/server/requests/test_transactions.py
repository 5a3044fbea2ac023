"""Transactions over the wire are as on Apache Kafka. The numbers are those of the measured facts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.partition import partition_for
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC
from coordinator.log.store import open_store
from coordinator.loop.pace import Pace
from coordinator.server.nodes.topic_data import TopicData
from coordinator.server.requests import records
from coordinator.server.wire.call import Call
from coordinator.server.wire.long_calls import LongCalls
from protocol.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataRequest,
    WriteTxnMarkersRequest,
)
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.server.harness import Peer, connected, serving
from tests.server.requests.test_records import produce, produce_request
from tests.server.wire.test_authentication import SASL, SETTINGS, log_in
from tests.support.batches import batch
from tests.support.requests import fetch_request, group_offsets_request, list_offsets_request, request

V1, V2 = 1, 2
PRODUCE, COMMIT, END = {V1: 11, V2: 12}, {V1: 4, V2: 5}, {V1: 4, V2: 5}
"""The version of each API that a producer of either version speaks."""
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Producer:
    """A transactional producer, as clients are."""

    def __init__(self, peer: Peer, version: int, transactional_id: str = "t") -> None:
        self.peer = peer
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequence = 0

    async def init(self) -> None:
        """InitProducerId, until there is no older transaction under way."""
        assert await self.error_of_init() == ErrorCode.NONE

    async def error_of_init(self) -> int:
        """The same; its error."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        answer = await self.peer.ask(request, 5)
        while answer.error_code in {LOADING, ErrorCode.CONCURRENT_TRANSACTIONS}:
            answer = await self.peer.ask(request, 5)
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return int(answer.error_code)

    async def add(self, topic: str = "orders", *partitions: int, version: int = 3) -> list[int]:
        """AddPartitionsToTxn; returns the errors."""
        topics = [AddPartitionsToTxnRequest.V3AndBelowTopic(name=topic, partitions=list(partitions or (0,)))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = await self.peer.ask(request, version)
        return [
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]

    async def send(self, value: bytes, *, adds: bool = True, **fields: Any) -> Any:
        """Produce a record; returns the answer of its partition. adds: let version 1 add the partition."""
        if self.version == V1 and adds:
            assert await self.add() == [0]
        data = batch(
            [(b"k", value, 1_000)],
            producer_id=self.producer_id,
            producer_epoch=fields.pop("epoch", self.epoch),
            sequence=self.sequence,
            attributes=0x10,
        )
        version = fields.pop("version", PRODUCE[self.version])
        fields.setdefault("transactional_id", self.transactional_id)
        (answer,) = await produce(self.peer, ("orders", 0, data), version=version, **fields)
        if not answer.error_code:
            self.sequence += 1
        return answer

    async def commit_offset(
        self, offset: int, *, partition: int = 0, adds: bool = True, version: int | None = None
    ) -> int:
        """TxnOffsetCommit for the group "g", without a claim."""
        producer = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        own = {"transactional_id": self.transactional_id, "group_id": "g", **producer}
        if self.version == V1 and adds:
            assert (await self.peer.ask(request("AddOffsetsToTxn", **own), 4)).error_code == 0
        committed = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        commit = request("TxnOffsetCommit", **own, topics=[{"name": "orders", "partitions": [committed]}])
        answer = await self.peer.ask(commit, COMMIT[self.version] if version is None else version)
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool = True) -> int:
        """EndTxn, then wait until all markers are written."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.peer.ask(request, END[self.version])
        if not answer.error_code:
            if self.version == V2:
                assert (answer.producer_id, answer.producer_epoch) == (self.producer_id, self.epoch + 1)
                self.epoch, self.sequence = answer.producer_epoch, 0
            while (await self.describe()).transaction_state.startswith("Prepare"):
                pass
        return int(answer.error_code)

    async def describe(self) -> Any:
        """What DescribeTransactions says."""
        (state,) = (
            await self.peer.ask(DescribeTransactionsRequest(transactional_ids=[self.transactional_id]), 0)
        ).transaction_states
        return state


@asynccontextmanager
async def producing(version: int, *settings: str) -> AsyncIterator[tuple[Any, Producer]]:
    """A server, and a producer that has its id."""
    async with serving("tenure.topics=orders:2", *settings) as server:
        producer = Producer(await server.peer(), version)
        await producer.init()
        yield server, producer


async def fetch(peer: Peer, offset: int, level: int) -> tuple[list[bytes | None], Any]:
    """The values from an offset on at an isolation level, and the answer of the partition."""
    request = fetch_request({("orders", 0): offset}, 10_000, isolation_level=level)
    answer = (await peer.ask(request, 11)).responses[0].partitions[0]
    values = [
        record.value for each in decode_batches(answer.records) if not each.header.is_control for record in each.records
    ]
    return values, answer


async def latest(peer: Peer, level: int, timestamp: int = -1, *, partition: int = 0) -> int:
    """ListOffsets at an isolation level."""
    answer = await peer.ask(list_offsets_request({("orders", partition): timestamp}, isolation_level=level), 5)
    return int(answer.topics[0].partitions[0].offset)


async def offset_of(peer: Peer, *, stable: bool) -> int | str:
    """The committed offset of the group "g"; the name of the error, if there is one."""
    answer = await peer.ask(group_offsets_request("g", partitions={"orders": [0]}, stable=stable), 8)
    if answer.groups[0].error_code:
        return ErrorCode(answer.groups[0].error_code).name
    found = answer.groups[0].topics[0].partitions[0]
    return ErrorCode(found.error_code).name if found.error_code else int(found.committed_offset)


BOTH = pytest.mark.parametrize("version", [V1, V2])


@BOTH
async def test_the_marker_is_kafkas(version: int) -> None:
    """Fact 56: attributes 0x30, base sequence -1, one offset; the epoch is that of the data, in v2 one more."""
    async with producing(version) as (_, producer):
        epoch = producer.epoch
        await producer.send(b"one")
        await producer.end()
        _, answer = await fetch(producer.peer, 1, 0)
        (control,) = decode_batches(answer.records)
        assert control.header.attributes == 0x30
        assert (control.header.base_sequence, control.header.producer_epoch) == (-1, epoch + version - 1)
        (record,) = control.records
        assert record.key == b"\0\0\0\1"
        assert record.value is not None
        assert (len(record.value), record.value[:2]) == (6, b"\0\0")


async def test_clients_find_the_coordinator_and_the_version(peer: Peer) -> None:
    """FindCoordinator names this node, and ApiVersions the feature transaction.version 2."""
    found = await peer.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t", ""]), 4)
    assert [each.error_code for each in found.coordinators] == [0, 0]
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    (feature,) = (await peer.ask(request, 3)).finalized_features
    assert (feature.name, feature.max_version_level) == ("transaction.version", 2)


async def test_version_0_is_not_listed() -> None:
    """With transaction.version=0 producers stay at version 1, as on Kafka 3.9."""
    async with serving("transaction.version=0") as server:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        assert (await (await server.peer()).ask(request, 3)).finalized_features == []


@contextmanager
def stopped_behind_the_first_append(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """The turn of the loop ends behind the first append of a Produce. Yields what is left of it."""
    left: list[Callable[[], None]] = []
    append = TopicData.append
    with monkeypatch.context() as patch:

        def first(*args: Any, **options: Any) -> None:
            append(*args, **options)
            patch.setattr(Pace, "has_time", lambda _: False)

        def later(_long: LongCalls, _call: Call, work: Callable[[], None]) -> None:
            left.append(work)
            patch.undo()

        patch.setattr(TopicData, "append", first)
        patch.setattr(LongCalls, "later", later)
        yield left


@BOTH
async def test_no_batch_follows_the_marker(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large Produce may take several turns. A batch whose transaction has ended meanwhile is refused.

    Otherwise it would begin one that no coordinator ends, and hold up readers of committed records.
    """
    monkeypatch.setattr(records, "PLAIN_MAX", 1)
    async with producing(version) as (server, producer):
        await producer.add("orders", 0, 1)
        sender = Producer(await server.peer(), version)
        ids: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "sequence": 0}
        data = batch([(b"k", b"v", 1_000)], attributes=0x10, **ids)
        request = produce_request(("orders", 0, data), ("orders", 1, data), transactional_id="t")
        with stopped_behind_the_first_append(monkeypatch) as left:
            await sender.peer.send(request, PRODUCE[version])
            while not left:
                await server.barrier()
        assert await producer.end() == 0
        left.pop()()
        answers = [each for topic in (await sender.peer.receive()).responses for each in topic.partition_responses]
        assert [each.error_code for each in answers] == [0, ErrorCode.INVALID_TXN_STATE]
        assert [await latest(producer.peer, level, partition=1) for level in (0, 1)] == [1, 1]


async def test_ids_of_a_user_have_a_limit() -> None:
    """A user with too many gets no further one, keeps those that are there, and takes nothing from others."""
    async with serving(*SETTINGS, "tenure.transactional.ids.max=2") as server:
        users = {}
        for user, password in (("alice", "secret"), ("bob", "other")):
            users[user] = await server.peer(listener=SASL)
            await log_in(users[user], f"\0{user}\0{password}")
        tries = (("alice", name) for name in ("one", "two", "one", "three"))
        errors = [
            await Producer(users[user], V2, name).error_of_init()
            for user, name in (*tries, ("bob", "three"), ("alice", "three"))
        ]
        assert errors == [0, 0, 0, ErrorCode.POLICY_VIOLATION, 0, 0]


@BOTH
async def test_offsets_of_a_transaction_have_a_limit(version: int) -> None:
    """A further topic partition is refused until the end; other producers of the group have room of their own."""
    async with producing(version, "tenure.transaction.offsets.max=1") as (_, producer):
        other = Producer(producer.peer, version, "other")
        await other.init()
        assert await producer.commit_offset(7) == 0
        assert await producer.commit_offset(8) == 0
        assert await producer.commit_offset(7, partition=1) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert await other.commit_offset(7, partition=1) == 0
        await producer.end()
        assert await offset_of(producer.peer, stable=True) == 8
        assert await producer.commit_offset(7, partition=1) == 0


async def test_unused_ids_expire() -> None:
    """Fact 23: one in a transaction stays, and each look is followed by the next one."""
    settings = ("transactional.id.expiration.ms=1000", "offsets.retention.check.interval.ms=100")
    async with producing(V2, *settings) as (server, producer):
        await producer.send(b"one")
        for name in ("idle", "later"):
            idle = Producer(producer.peer, V2, name)
            await idle.init()
            for _ in range(12):
                await server.advance(100)
            assert (await idle.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (await producer.describe()).transaction_state == "Ongoing"


async def test_the_log_of_ids_is_a_topic_once_somebody_asks(tmp_path: Path) -> None:
    """FindCoordinator brings it, as in Kafka, and so does a start. A waiting reader gets each new record."""
    topic = MetadataRequest.MetadataRequestTopic(name=TRANSACTIONS_TOPIC)
    metadata = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    find = FindCoordinatorRequest(key_type=1, key="t")
    waiting = fetch_request({(TRANSACTIONS_TOPIC, partition_for("t", 50)): 0}, 10_000, max_wait_ms=500)
    for error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE):
        async with connected(f"log.dirs={tmp_path}", opened=open_store) as (server, peer):
            (shown,) = (await peer.ask(metadata, 12)).topics
            assert (shown.error_code, shown.is_internal) == (error, True)
            assert (await peer.ask(find, 3)).error_code == 0
            (shown,) = (await peer.ask(metadata, 12)).topics
            assert (shown.error_code, len(shown.partitions)) == (0, 50)
            if error:
                await peer.send(waiting, 11)
                await server.at_rest()
                assert peer.is_silent()
                await Producer(await server.peer(), V2).init()
                assert (await peer.receive()).responses[0].partitions[0].high_watermark == 1


async def test_nobody_writes_markers_to_the_log_of_ids() -> None:
    """It has no transactions of producers, so nothing of it could end."""
    async with producing(V2) as (_, producer):
        kinds = WriteTxnMarkersRequest
        topics = [kinds.WritableTxnMarkerTopic(name=TRANSACTIONS_TOPIC, partition_indexes=[0])]
        marker = kinds.WritableTxnMarker(producer_id=producer.producer_id, producer_epoch=0, topics=topics)
        answer = await producer.peer.ask(kinds(markers=[marker]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
