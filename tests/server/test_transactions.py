"""Markers are written, whatever comes between the end of a transaction and them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.any_group import CommittedOffset
from coordinator.group.partition import partition_for
from coordinator.group.records import offset_record
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.loads import Loads
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, list_segments, partition_folder
from coordinator.log.store import open_store
from coordinator.server.app import Server, StartFailed
from coordinator.server.runtime.trouble import BACKOFF_MIN_MS
from coordinator.server.telemetry.measures import Measures
from coordinator.server.transactions import RETRY_MS
from protocol.messages import EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest
from schemas.errors import ErrorCode
from tests.server.harness import config_of, connected, serving
from tests.server.requests.test_transactions import V1, V2, Producer, fetch, latest, offset_of, producing
from tests.server.runtime.calls import FULL
from tests.support.memory import ManualEngine, ManualLog
from tests.support.patience import WITHIN_S
from tests.support.requests import commit_request, fetch_request

TOPICS = "tenure.topics=orders:2"


async def test_a_start_finishes_what_was_answered() -> None:
    """The server dies between the answer of EndTxn and the markers (fact 57): the next start writes them."""
    engine = ManualEngine(50, 1)
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
    async with connected(TOPICS, engine=engine) as (server, peer):
        again = Producer(peer, V1)
        while (await again.describe()).transaction_state != "CompleteCommit":
            await server.advance(100)
        assert await offset_of(peer, stable=True) == 7
    for write in lost:  # another owner has the partition by now
        write()
    await first.stop()


async def test_a_marker_is_not_tried_again_after_its_transaction() -> None:
    """Both logs fail, so two loads ask for one marker. The later try must not settle the next transaction."""
    engine = ManualEngine(50, 1)
    async with serving(TOPICS, engine=engine) as server:
        producer = Producer(await server.peer(), V1)
        await producer.init()
        assert await producer.commit_offset(7) == 0
        engine.fail_next(FULL)
        end = EndTxnRequest(
            transactional_id="t", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
        )
        assert (await producer.peer.ask(end, 4)).error_code == 0
        await server.advance(BACKOFF_MIN_MS - RETRY_MS // 2)
        engine.other(TRANSACTIONS_TOPIC, 50).fail_next(FULL)
        other = next(each for each in map(str, range(1_000)) if partition_for(each, 50) == partition_for("t", 50))
        init = InitProducerIdRequest(transactional_id=other, transaction_timeout_ms=1)
        assert (await producer.peer.ask(init, 5)).error_code
        while (await producer.describe()).transaction_state != "CompleteCommit":
            await server.advance(RETRY_MS // 2)
        assert await producer.commit_offset(9) == 0
        await server.advance(RETRY_MS)
        assert await offset_of(producer.peer, stable=True) == "UNSTABLE_OFFSET_COMMIT"
        assert await offset_of(producer.peer, stable=False) == 7


async def seen(producer: Producer) -> tuple[Any, ...]:
    """What clients see of records and offsets, and what an administrator sees of the transaction."""
    peer = producer.peer
    while (state := await producer.describe()).error_code:  # it is being loaded
        pass
    ends = [await latest(peer, level) for level in (0, 1)]
    read = [await fetch(peer, offset, level) for level in (0, 1) for offset in range(ends[0])]
    offsets = [await offset_of(peer, stable=stable) for stable in (False, True)]
    return state, read, ends, offsets


@pytest.mark.parametrize("version", [V1, V2])
async def test_transactions_outlive_a_server(tmp_path: Path, version: int) -> None:
    """After a restart clients see the same, whatever is open: a later plain commit counts, and markers settle it."""
    folder = f"log.dirs={tmp_path}"
    before: tuple[Any, ...] | None = None
    producer: Producer | None = None

    async def commit(offset: int) -> None:
        assert producer is not None
        answer = await producer.peer.ask(commit_request("g", {("orders", 0): offset}), 7)
        assert answer.topics[0].partitions[0].error_code == 0

    unstable = "UNSTABLE_OFFSET_COMMIT"
    steps: list[tuple[str, list[int | str], int]] = [
        ("plain 5, pending 7, plain 20", [20, unstable], 0),
        ("commit", [20, 20], 2),
        ("pending 30", [20, unstable], 2),
        ("abort", [20, 20], 4),
        ("pending 40, plain 41, pending 42", [41, unstable], 4),
        ("commit", [42, 42], 6),
    ]
    for step, offsets, stable in steps:
        async with connected(TOPICS, folder, opened=open_store) as (server, peer):
            if producer is None:
                producer = Producer(peer, version)
                await producer.init()
                where = partition_folder(tmp_path, partition_for("t", 50), TRANSACTIONS_TOPIC)
                assert list_segments(Disk(), where)
            producer.peer = peer
            await server.loaded()  # or no coordinator of groups answers
            if before is not None:
                assert await seen(producer) == before, step
            if step in {"commit", "abort"}:
                await producer.end(commit=step == "commit")
            else:
                for each in step.split(", "):
                    kind, offset = each.split()
                    if kind == "plain":
                        await commit(int(offset))
                    else:
                        assert await producer.commit_offset(int(offset)) == 0
                await producer.send(step.encode())
            before = await seen(producer)
            assert (before[3], before[2][1]) == (offsets, stable), step
    assert before is not None
    aborted = [each.first_offset for _, answer in before[1] for each in answer.aborted_transactions or ()]
    assert set(aborted) == {2}


async def test_nodes_that_share_a_log_refuse_transactions() -> None:
    """Clients end at once, and the text says what to do."""
    async with connected(TOPICS, shared=ManualLog([1] * 50)) as (_, peer):
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await peer.ask(request, 5)).error_code == refused
        (found,) = (await peer.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)).coordinators
        assert found.error_code == refused
        assert "tenure.store" in found.error_message


async def test_a_start_aborts_what_nobody_has_open() -> None:
    """Pending offsets of a broker's producer, in a folder that was taken over, hold up no consumer for ever."""
    engine = ManualEngine(50, 1)
    log, number = engine._log, partition_for("g", 50)
    stored = offset_record("g", "orders", 0, CommittedOffset(7, -1, "", 1, None), 1)
    log.transactions[number].add(680, [0], [stored])
    async with serving(TOPICS, engine=engine) as server:
        await server.server.loaded.wait()
        assert await offset_of(await server.peer(), stable=True) == -1
    assert log.transactions[number].open_count == 0


async def test_metrics_of_transactions() -> None:
    """A scrape has what is open and pending, and each way in which a transaction ends."""
    async with producing(V2) as (server, producer):

        async def scraped() -> dict[str, float]:
            families = await server.server.metrics(Measures())()
            return {
                each.labels.get("outcome", each.name.removeprefix("tenure_transactions_")): each.value
                for family in families
                for each in family.samples
                if family.name.startswith("tenure_transactions") or each.name == "tenure_pending_offsets"
            }

        ended = dict.fromkeys(("committed", "aborted", "timed_out", "fenced"), 0)
        assert await scraped() == ended | {"tenure_pending_offsets": 0, "open": 0, "oldest_seconds": 0}
        assert await producer.commit_offset(7) == 0
        await server.advance(2_000)
        assert await scraped() == ended | {"tenure_pending_offsets": 1, "open": 1, "oldest_seconds": 2}
        await producer.end()
        assert await producer.commit_offset(8) == 0
        await producer.end(commit=False)
        assert await producer.commit_offset(9) == 0
        await producer.init()
        assert await producer.commit_offset(9) == 0
        await server.advance(60_000)
        while (await producer.describe()).transaction_state != "CompleteAbort":
            pass
        ended = dict.fromkeys(ended, 1)
        assert await scraped() == ended | {"tenure_pending_offsets": 0, "open": 0, "oldest_seconds": 0}


async def test_a_start_that_fails_leaves_no_partition_to_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end takes partitions away that are still loading, and the runtime doesn't ask for them again.

    The engines share a thread, which ends with the groups' engine: then nothing may be owned any more.
    """
    folder = f"log.dirs={tmp_path}"
    async with serving(TOPICS, folder, opened=open_store) as server:
        await Producer(await server.peer(), V2).init()
    monkeypatch.setattr(Loads, "read_page", lambda _: None)  # no load ends
    no_keys = f"sasl.oauthbearer.jwks.endpoint.url=file://{tmp_path}/none"
    listener = "listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=OAUTHBEARER"
    config = config_of(folder, *listener, no_keys, "sasl.oauthbearer.expected.audience=kafka")
    ends = Server(config, log=io.StringIO())
    with pytest.raises(StartFailed, match="No such file"):
        await ends.start()
    assert not ends.failed.is_set()
    assert ends._store is not None
    assert isinstance(ends._store.engine, EmbeddedEngine)
    assert not ends._store.engine.writer.journal.owned


async def test_a_server_that_ends_opens_no_log_of_ids(tmp_path: Path) -> None:
    """A first InitProducerId that is handled behind the end of the groups' runtime gets an error to try again."""
    async with connected(TOPICS, f"log.dirs={tmp_path}", opened=open_store) as (server, peer):
        server.server.runtime.wind_down()
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
        assert (await peer.ask(request, 5)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert server.server.transactions is not None
        assert server.server.transactions.runtime is None


async def test_a_reader_of_the_log_of_ids_misses_no_record(tmp_path: Path) -> None:
    """A record becomes durable when the logs' thread has found nothing and the loop hasn't heard that yet: it wakes."""
    async with serving(TOPICS, f"log.dirs={tmp_path}", opened=open_store) as server:
        producer = Producer(await server.peer(), V2)
        await producer.init()
        reader = await server.peer()
        assert server.server.transactions is not None
        data = server.server.transactions._data
        asked = fetch_request({(TRANSACTIONS_TOPIC, partition_for("t", 50)): 1}, 10_000, max_wait_ms=500)
        held: list[Callable[[], None]] = []
        holds, loop = asyncio.Event(), asyncio.get_running_loop()

        def hold(call: Callable[[], None]) -> None:
            held.append(call)
            loop.call_soon_threadsafe(holds.set)

        hop, data._hop = data._hop, hold
        await reader.send(asked, 11)
        await asyncio.wait_for(holds.wait(), WITHIN_S)
        data._hop = hop
        assert await producer.commit_offset(7) == 0
        for each in held:
            each()
        answer = await reader.receive()
        assert answer.responses[0].partitions[0].records
