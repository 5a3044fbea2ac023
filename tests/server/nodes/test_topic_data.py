"""Records in a server's life: restarts, retention, workers' shares, folders."""

from __future__ import annotations

import asyncio

from coordinator.server.nodes.topic_data import Budget
from coordinator.server.runtime.pace import TURN_MAX_MS
from protocol.messages import (
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
    decode_from,
)
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.server.harness import Peer, serving
from tests.server.requests.test_records import ONE, TWO, fetch_request, list_request, produce, produce_request
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.tenure import Tenure

NEW = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)


async def test_a_server_that_nobody_asks_for_records_has_no_thread_for_them() -> None:
    """Nor if clients ask about topics only."""
    async with serving() as server:
        peer = await server.peer()
        await peer.ask(list_request(("absent", 0, -1)), 5)
        assert server.server.data is not None
        assert not server.server.data.is_working()
        await peer.ask(list_request(("orders", 0, -1)), 5)
        assert server.server.data.is_working()


async def test_records_of_a_server_without_a_folder_go_with_it() -> None:
    """They are in a temporary folder."""
    async with serving() as server:
        peer = await server.peer()
        await produce(peer, ("orders", 0, ONE))
        assert server.server.data is not None
        folder = server.server.data.folder
        assert folder is not None
        assert (folder / "orders-0").is_dir()
    assert not folder.exists()


async def test_outcomes_leave_time_for_others() -> None:
    """A slow outcome is the last of its turn of the loop; an outcome that raises costs no other outcome."""
    async with serving() as server:
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
    async with serving("log.retention.ms=86400000", "log.retention.check.interval.ms=1000") as server:
        peer = await server.peer()
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
    async with serving("log.retention.check.interval.ms=1000") as server:
        peer = await server.peer()
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


async def test_another_time_between_compactions_begins_with_a_compaction() -> None:
    """The change is in effect at once, not when the former time is over."""
    async with serving() as server:
        peer = await server.peer()
        await set_config(peer, "log.segment.bytes", "100")
        await set_config(peer, "log.cleanup.policy", "compact")
        for _ in range(4):
            await produce(peer, ("orders", 0, ONE))
        assert server.events("compacted") == []
        await set_config(peer, "log.cleaner.backoff.ms", "3600000")
        await server.until(lambda: bool(server.events("compacted")))


async def set_config(peer: Peer, name: str, value: str) -> None:
    """Change a setting of the node."""
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    answer = await peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE


async def test_a_compacted_topic_is_compacted() -> None:
    """Every log.cleaner.backoff.ms, by the topic's settings; a log line says so, and a Fetch finds the last values."""
    async with serving() as server:
        peer = await server.peer()
        configs = [
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
            for name, value in (("cleanup.policy", "compact"), ("segment.bytes", "100"))
        ]
        topic = CreateTopicsRequest.CreatableTopic(name="kept", num_partitions=1, replication_factor=1, configs=configs)
        await peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 5)
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
        configs = [
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
            for name, value in (("cleanup.policy", "compact"), ("segment.bytes", "100"))
        ]
        topic = CreateTopicsRequest.CreatableTopic(name="kept", num_partitions=4, replication_factor=1, configs=configs)
        with Connection(tenure.ports[0]) as first, Connection(tenure.ports[1]) as second:
            first.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
            for partition in range(4):
                for connection in (first, second):
                    for _ in range(4):
                        connection.ask(produce_request(("kept", partition, ONE)), 9)
        lines = tenure.wait_for_event("compacted", count=4)
        assert sorted(line["partition"] for line in lines) == [0, 1, 2, 3]
        assert len({(line["node"], line["partition"] % 2) for line in lines}) == 2


def test_committed_offsets_can_be_read_where_they_are_kept() -> None:
    """By Fetch, from the group's partition of `__consumer_offsets`, any number of times; no client can write there."""
    with Tenure({"offsets.topic.num.partitions": "1"}) as tenure, Connection(tenure.port) as connection:
        for offset in (5, 6):
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[partition])
            connection.ask(CreateTopicsRequest(topics=[NEW], timeout_ms=1_000), 5)
            connection.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
            fetched = connection.ask(fetch_request(("__consumer_offsets", 0, offset - 5)), 11)
            found = fetched.responses[0].partitions[0]  # type: ignore[attr-defined]
            assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, offset - 4)
            (batch,) = decode_batches(found.records)
            (record,) = batch.records
            assert decode_from(OffsetCommitKey, record.key[2:], 1)[0].topic == "orders"
            assert record.value is not None
            assert decode_from(OffsetCommitValue, record.value[2:], 3)[0].offset == offset
