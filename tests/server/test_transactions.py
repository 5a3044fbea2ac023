"""Markers are written, whatever comes between the end of a transaction and them."""

from __future__ import annotations

from pathlib import Path

from coordinator.group.any_group import CommittedOffset
from coordinator.group.partition import partition_for
from coordinator.group.records import offset_record
from coordinator.log.memory import MemoryEngine, MemoryLog
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, list_segments, partition_folder
from coordinator.log.store import open_store
from protocol.messages import EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest
from schemas.errors import ErrorCode
from tests.server.harness import serving
from tests.server.requests.test_transactions import V1, V2, Producer, fetch, offset_of

TOPICS = "tenure.topics=orders:2"


async def test_a_start_finishes_what_was_answered() -> None:
    """The server dies between the answer of EndTxn and the markers (fact 57): the next start writes them."""
    engine = MemoryEngine(50, 1)
    async with serving(TOPICS, engine=engine, stop=False) as server:
        producer = Producer(await server.peer(), V1)
        await producer.init()
        assert await producer.commit_offset(7) == 0
        engine.hold = True  # the groups' log takes no marker
        end = EndTxnRequest(
            transactional_id="t", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
        )
        await producer.peer.send(end, 4)
        assert (await producer.peer.receive()).error_code == 0
        assert (await producer.describe()).transaction_state == "PrepareCommit"
        first = server.server
    lost, engine.hold = list(engine._held), False
    engine._held.clear()
    async with serving(TOPICS, engine=engine) as server:
        peer = await server.peer()
        again = Producer(peer, V1)
        while (await again.describe()).transaction_state != "CompleteCommit":
            await server.advance(100)
        assert await offset_of(peer, stable=True) == 7
    for write in lost:  # another owner has the partition by now
        write()
    await first.stop()


async def test_transactions_outlive_a_server(tmp_path: Path) -> None:
    """An open transaction is open after a restart, and its end makes its records and offsets count."""
    folder = f"log.dirs={tmp_path}"
    async with serving(TOPICS, folder, opened=open_store) as server:
        producer = Producer(await server.peer(), V2)
        await producer.init()
        await producer.send(b"one")
        assert await producer.commit_offset(7) == 0
        where = partition_folder(tmp_path, partition_for("t", 50), TRANSACTIONS_TOPIC)
        assert list_segments(Disk(), where)
    async with serving(TOPICS, folder, opened=open_store) as server:
        producer.peer = peer = await server.peer()
        while (await producer.describe()).error_code:
            pass
        assert (await fetch(peer, 0, 1))[0] == []
        assert await offset_of(peer, stable=True) == "UNSTABLE_OFFSET_COMMIT"
        await producer.end()
        assert (await fetch(peer, 0, 1))[0] == [b"one"]
        assert await offset_of(peer, stable=True) == 7
        await producer.send(b"two")
        await producer.end(commit=False)
    async with serving(TOPICS, folder, opened=open_store) as server:
        _, answer = await fetch(await server.peer(), 1, 1)
        assert [each.first_offset for each in answer.aborted_transactions] == [2]


async def test_nodes_that_share_a_log_refuse_transactions() -> None:
    """Clients end at once, and the text says what to do."""
    async with serving(TOPICS, shared=MemoryLog([1] * 50)) as server:
        peer = await server.peer()
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await peer.ask(request, 5)).error_code == refused
        (found,) = (await peer.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)).coordinators
        assert found.error_code == refused
        assert "tenure.workers" in found.error_message


async def test_a_start_aborts_what_nobody_has_open() -> None:
    """Pending offsets of a broker's producer, in a folder that was taken over, hold up no consumer for ever."""
    engine = MemoryEngine(50, 1)
    log, number = engine._log, partition_for("g", 50)
    stored = offset_record("g", "orders", 0, CommittedOffset(7, -1, "", 1, None), 1)
    log.transactions[number].add(680, [0], [stored])
    async with serving(TOPICS, engine=engine) as server:
        await server.server.loaded.wait()
        assert await offset_of(await server.peer(), stable=True) == -1
    assert log.transactions[number].open_count == 0
