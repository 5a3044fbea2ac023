"""Records in a server's life: restarts, retention, workers' shares, folders."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from coordinator.group.partition import partition_for
from coordinator.log.embedded import journal
from coordinator.log.store import open_store
from coordinator.loop.pace import TURN_MAX_MS
from coordinator.server.nodes.topic_data import Budget
from protocol.messages import (
    InitProducerIdRequest,
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
)
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, serving
from tests.server.requests.test_records import (
    ONE,
    TWO,
    fetch_request,
    held,
    list_request,
    produce,
    produce_request,
    until,
)
from tests.support import requests
from tests.support.decoded import decode_from
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.requests import configs_request, topics_request
from tests.support.tenure import Tenure

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "100"}


async def test_a_server_that_nobody_asks_for_records_has_no_thread_for_them(peer: Peer, server: Serving) -> None:
    """Nor if clients ask about topics only."""
    await peer.ask(list_request(("absent", 0, -1)), 5)
    assert server.server.data is not None
    assert server.server.data._made is None
    await peer.ask(list_request(("orders", 0, -1)), 5)
    assert server.server.data._made is not None


async def test_records_of_a_server_without_a_folder_go_with_it() -> None:
    """They are in a temporary folder."""
    async with connected() as (server, peer):
        await produce(peer, ("orders", 0, ONE))
        assert server.server.data is not None
        folder = server.server.data.folder
        assert folder is not None
        assert (folder / "orders-0").is_dir()
    assert not folder.exists()


async def test_outcomes_leave_time_for_others(server: Serving) -> None:
    """A slow outcome is the last of its turn of the loop; an outcome that raises costs no other outcome."""
    data, loop, turns, seen = server.server.data, asyncio.get_running_loop(), 0, list[int]()
    assert data is not None
    done = asyncio.Event()

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 5:  # what was under way has its turn behind it
            data._arrived([(first, None), (second, None)])
        if not done.is_set():
            loop.call_soon(turn)

    def first(_: object) -> None:
        seen.append(turns)
        server.clock.advance(2 * TURN_MAX_MS)
        raise ValueError("a mistake of ours")

    def second(_: object) -> None:
        seen.append(turns)
        done.set()

    turn()
    await asyncio.wait_for(done.wait(), WITHIN_S)
    assert seen[0] < seen[1]
    (line,) = server.events("records_broke")
    assert "a mistake of ours" in line["message"]


def test_a_budget_is_shared() -> None:
    """`take` gives no more than is left; `give` of a negative size takes bytes that aren't there."""
    budget = Budget(10)
    assert [budget.take(7), budget.take(7), budget.take(7)] == [7, 3, 0]
    budget.give(-5)
    assert (budget.left, budget.take(1)) == (-5, 0)
    budget.give(15)
    assert budget.left == 10


async def test_old_records_go_when_their_time_is_over() -> None:
    """Every log.retention.check.interval.ms, by the topic's retention.ms; a log line has the number of segments."""
    async with connected("log.retention.ms=86400000", "log.retention.check.interval.ms=1000") as (server, peer):
        await produce(peer, ("orders", 0, ONE))
        await produce(peer, ("orders", 0, TWO))
        await server.advance(1_000)
        await server.until(lambda: bool(server.events("segments_removed")))
        answer = await peer.ask(list_request(("orders", 0, -2), ("orders", 0, -1)), 0)
        assert [each.partitions[0].old_style_offsets for each in answer.topics] == [[3], [3]]
        refused = await peer.ask(fetch_request(("orders", 0, 0)), 11)
        assert refused.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_settings_that_change_are_in_effect_at_once() -> None:
    """On the retention and the compaction of the logs that are there."""
    async with connected("log.retention.check.interval.ms=1000") as (server, peer):
        await produce(peer, ("orders", 0, ONE))
        for name, value in (
            ("log.segment.bytes", "100"),
            ("log.retention.ms", "86400000"),
            ("log.cleaner.backoff.ms", "500"),
            ("log.cleanup.policy", "compact,delete"),
        ):
            await set_config(peer, name, value)
        for _ in range(4):
            await produce(peer, ("orders", 0, ONE))
        await server.advance(500)
        await server.until(lambda: bool(server.events("compacted")))
        await server.advance(500)
        await server.until(lambda: bool(server.events("segments_removed")))
        changed = server.events("compacted") + server.events("segments_removed")
        assert {(line["topic"], line["partition"]) for line in changed} == {("orders", 0)}


async def test_another_time_between_compactions_begins_with_a_compaction(peer: Peer, server: Serving) -> None:
    """The change is in effect at once, not when the former time is over."""
    await set_config(peer, "log.segment.bytes", "100")
    await set_config(peer, "log.cleanup.policy", "compact")
    for _ in range(4):
        await produce(peer, ("orders", 0, ONE))
    assert server.events("compacted") == []
    await set_config(peer, "log.cleaner.backoff.ms", "3600000")
    await server.until(lambda: bool(server.events("compacted")))


async def set_config(peer: Peer, name: str, value: str) -> None:
    """Change a setting of the node."""
    answer = await peer.ask(configs_request(4, ["1"], {name: value}), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE


async def test_a_compacted_topic_is_compacted(peer: Peer, server: Serving) -> None:
    """Every log.cleaner.backoff.ms, by the topic's settings; a log line says so, and a Fetch finds the last values."""
    await peer.ask(topics_request({"kept": 1}, COMPACTED), 5)
    for _ in range(4):
        await produce(peer, ("kept", 0, ONE))
    await server.advance(15_000)
    await server.until(lambda: bool(server.events("compacted")))
    (line,) = server.events("compacted")
    assert (line["topic"], line["partition"]) == ("kept", 0)
    assert line["size_after"] < line["size_before"]
    offset, found = 0, []
    while offset < 4:
        answer = await peer.ask(fetch_request(("kept", 0, offset)), 11)
        (read,) = decode_batches(answer.responses[0].partitions[0].records)
        found += read.offsets
        offset = read.header.next_offset
    assert found == [2, 3]
    last = await peer.ask(list_request(("kept", 0, -1), ("kept", 0, -2)), 0)
    assert [each.partitions[0].old_style_offsets for each in last.topics] == [[4], [0]]


def test_each_worker_compacts_what_it_leads() -> None:
    """And no other partition; the two workers don't disturb each other."""
    settings = {"log.cleaner.backoff.ms": "50", "offsets.topic.num.partitions": "2"}
    with Tenure(settings, arguments=["--workers", "2"]) as tenure:
        with Connection(tenure.ports[0]) as first, Connection(tenure.ports[1]) as second:
            first.ask(topics_request({"kept": 4}, COMPACTED), 5)
            for partition in range(4):
                for connection in (first, second):
                    for _ in range(4):
                        connection.ask(produce_request(("kept", partition, ONE)), 9)
        lines = tenure.wait_for_event("compacted", count=4)
        assert sorted(line["partition"] for line in lines) == [0, 1, 2, 3]
        assert len({(line["node"], line["partition"] % 2) for line in lines}) == 2


def commit_request(group: str, offset: int) -> OffsetCommitRequest:
    """A commit for the only partition of orders."""
    return requests.commit_request(group, {("orders", 0): offset})


def group_on(partition: int) -> str:
    """A group of one of four partitions."""
    return next(f"g{number}" for number in count() if partition_for(f"g{number}", 4) == partition)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("has_journal", ["true", "false"])
def test_a_commit_wakes_those_who_read_the_log_of_groups(has_journal: str, workers: int) -> None:
    """A Fetch that waits at the end of `__consumer_offsets` is answered when a commit is durable, on each worker."""
    settings = {"offsets.topic.num.partitions": "4", "tenure.journal.enable": has_journal, "tenure.topics": "orders:1"}
    with Tenure(settings, arguments=["--workers", str(workers)]) as tenure:
        for partition in range(4):
            port = tenure.ports[partition % workers]
            with Connection(port) as reader, Connection(port) as writer:
                for offset in range(3):
                    request = fetch_request(("__consumer_offsets", partition, offset), max_wait_ms=2**31 - 1)
                    reader.send(request, 11)
                    writer.ask(commit_request(group_on(partition), offset), 8)
                    found = reader.receive().responses[0].partitions[0]
                    assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, offset + 1)
                    assert len(list(decode_batches(found.records))) == 1


@pytest.fixture
def segments_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the journal has the appends that clients know of, until somebody asks for them."""
    monkeypatch.setattr(journal, "WRITE_S", 600.0)


ON_DISK = ("offsets.topic.num.partitions=1", "tenure.topics=orders:1")


async def end_of(reader: Peer, topic: str, offset: int) -> int:
    """The end of a topic: by ListOffsets if the offset is odd, else by a Fetch from there that would wait."""
    if offset % 2:
        listed = await reader.ask(list_request((topic, 0, -1)), 5)
        end: int = listed.topics[0].partitions[0].offset
    else:
        found = await reader.ask(fetch_request((topic, 0, offset), max_wait_ms=2**31 - 1), 11)
        end = found.responses[0].partitions[0].high_watermark
    return end


@pytest.mark.usefixtures("segments_lag")
async def test_a_reader_of_the_log_of_groups_sees_each_commit_that_was_answered(tmp_path: Path) -> None:
    """However short ago, by a Fetch that would wait, and as the end of the log."""
    async with serving(*ON_DISK, f"log.dirs={tmp_path}", opened=open_store) as server:
        await server.loaded()
        reader, writer = await server.peer(), await server.peer()
        for offset in range(4):
            await writer.ask(commit_request("g", offset), 8)
            assert await end_of(reader, "__consumer_offsets", offset) == offset + 1


@pytest.mark.usefixtures("segments_lag")
async def test_a_reader_of_the_log_of_ids_sees_each_of_them_that_was_answered(tmp_path: Path) -> None:
    """However short ago, by a Fetch that would wait, and as the end of the log."""
    settings = "transaction.state.log.num.partitions=1", f"log.dirs={tmp_path}"
    async with serving(*ON_DISK, *settings, opened=open_store) as server:
        await server.loaded()
        reader, writer = await server.peer(), await server.peer()

        async def begun() -> int:
            asked = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
            error: int = (await writer.ask(asked, 5)).error_code
            return error

        while await begun() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass  # it opens the log
        for offset in range(1, 5):
            assert await begun() == ErrorCode.NONE
            assert await end_of(reader, "__transaction_state", offset) == offset + 1


@pytest.mark.usefixtures("segments_lag")
async def test_a_commit_during_a_look_wakes_the_reader(tmp_path: Path) -> None:
    """A commit becomes durable after a Fetch has begun to look at the log, and before the Fetch waits."""
    async with serving(*ON_DISK, f"log.dirs={tmp_path}", opened=open_store) as server:
        await server.loaded()
        reader = await server.peer()
        await reader.ask(commit_request("g", 0), 8)
        let_go = held(server)
        await reader.send(fetch_request(("__consumer_offsets", 0, 1), max_wait_ms=2**31 - 1), 11)
        (connection,) = server.connections()
        await until(lambda: connection.waits)
        # When the engine calls back, the look is in the queue of the thread that is held.
        is_queued = asyncio.Event()
        store = server.server._store
        assert store is not None
        assert store.write_out is not None
        store.write_out([], partial(asyncio.get_running_loop().call_soon_threadsafe, is_queued.set))
        await is_queued.wait()
        writer = await server.peer()
        await writer.ask(commit_request("g", 1), 8)
        let_go.set()
        found = (await reader.receive()).responses[0].partitions[0]
        assert (found.high_watermark, len(list(decode_batches(found.records)))) == (2, 1)


def test_committed_offsets_can_be_read_where_they_are_kept() -> None:
    """By Fetch, from the group's partition of `__consumer_offsets`, any number of times; no client can write there."""
    with Tenure({"offsets.topic.num.partitions": "1"}) as tenure, Connection(tenure.port) as connection:
        for offset in (5, 6):
            connection.ask(topics_request({"orders": 1}), 5)
            connection.ask(commit_request("g", offset), 8)
            fetched = connection.ask(fetch_request(("__consumer_offsets", 0, offset - 5)), 11)
            found = fetched.responses[0].partitions[0]
            assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, offset - 4)
            (batch,) = decode_batches(found.records)
            (record,) = batch.records
            assert decode_from(OffsetCommitKey, record.key[2:], 1)[0].topic == "orders"
            assert record.value is not None
            assert decode_from(OffsetCommitValue, record.value[2:], 3)[0].offset == offset
