"""The topic of events, as consumers read it: its records, also after writes that failed; and no answer waits for it."""

from __future__ import annotations

import json
import threading
from typing import Any

from coordinator.log.engine import Unavailable
from coordinator.server.telemetry.event_queue import LINGER_MS
from coordinator.story.entries import Timeline
from protocol.messages import MetadataRequest
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, heartbeat_request, join_request, seat, serving, sync_request
from tests.support.batches import batch
from tests.support.memory import ManualEngine
from tests.support.patience import WITHIN_S
from tests.support.requests import fetch_request, produce_request
from tests.support.told import shown
from tests.support.told import told as told_of


async def records_of(peer: Peer, version: int = 12) -> list[dict[str, Any]]:
    """The records that a consumer reads from partition 0."""
    answer = await peer.ask(fetch_request({("__rebalance_events", 0): 0}), version)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == ErrorCode.NONE
    return [
        json.loads(record.value) | {"key": record.key.decode()}
        for found in decode_batches(partition.records or b"")
        for record in found.records
        if record.value is not None
    ]


async def test_any_consumer_reads_what_happened() -> None:
    """The internal topic exists before the first event; each record has the group's id as key."""
    async with connected("tenure.events.enable=true") as (server, peer):
        everything = await peer.ask(MetadataRequest(topics=None), 12)
        (topic,) = [each for each in everything.topics if each.name == "__rebalance_events"]
        assert (topic.is_internal, len(topic.partitions)) == (True, 1)
        assert await records_of(peer) == []
        await seat(peer, "g", "i")
        await server.advance(LINGER_MS)
        found = await records_of(peer)
        assert [(each["key"], each["type"]) for each in found] == [("g", "rebalance_ended")]
        assert [each["group_instance_id"] for each in found[-1]["after"]] == ["i"]


async def test_an_event_wakes_those_who_wait_for_it() -> None:
    """A Fetch that waits at the end of the topic is answered when an event is written."""
    async with serving("tenure.events.enable=true") as server:
        reader, peer = await server.peer(), await server.peer()
        await reader.send(fetch_request({("__rebalance_events", 0): 0}, max_wait_ms=2**31 - 1), 11)
        await server.barrier()
        assert reader.is_silent()
        await seat(peer, "g", "i")
        await server.advance(LINGER_MS)
        assert (await reader.receive()).responses[0].partitions[0].high_watermark == 1


async def told(server: Serving, peer: Peer) -> list[dict[str, Any]]:
    """The timeline of group g."""
    await server.advance(LINGER_MS)
    events = [told_of(each["type"], **each) for each in await records_of(peer)]
    return shown(Timeline("g").add_all(events))


async def test_a_rebalance_that_could_not_be_written_is_told_as_that() -> None:
    """Its members are refused, and the group is as in its log: the timeline has neither an end nor a new start."""
    engine = ManualEngine(4, 1)
    async with connected("tenure.events.enable=true", "offsets.topic.num.partitions=4", engine=engine) as (
        server,
        peer,
    ):
        joined = await seat(peer, "g", "i")
        await server.advance(10)
        again = await peer.ask(join_request("g", instance="i", member_id=joined.member_id), 5)
        engine.fail_next(Unavailable("No space left on device"))
        synced = await peer.ask(sync_request("g", again, "i"), 5)
        assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        entries = await told(server, peer)
        assert [(entry["type"], entry["generation"], entry.get("outcome")) for entry in entries] == [
            ("rebalance", 1, "completed"),
            ("rebalance", 1, "unloaded"),
            ("loaded", 1, None),
        ]
        assert entries[-1]["write_failed"]


async def test_a_restart_that_could_not_be_written_is_told_as_that() -> None:
    """The timeline has no restart but the one before."""
    engine = ManualEngine(4, 1)
    async with connected("tenure.events.enable=true", "offsets.topic.num.partitions=4", engine=engine) as (
        server,
        peer,
    ):
        await seat(peer, "g", "i")
        await server.advance(10)
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.NONE
        await server.advance(10)
        engine.fail_next(Unavailable("No space left on device"))
        assert (await peer.join("g", instance="i")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        entries = await told(server, peer)
        assert [entry["type"] for entry in entries] == ["rebalance", "static_restart", "loaded"]


async def test_a_disk_that_hangs_holds_up_nobody() -> None:
    """Heartbeats and joins are answered while the thread that writes events hangs; the events come later."""
    async with connected("tenure.events.enable=true") as (server, peer):
        joined = await seat(peer, "g", "i")
        stuck = threading.Event()
        assert server.server.data is not None
        server.server.data.write(lambda _: stuck.wait(WITHIN_S), lambda _: None)
        for _ in range(3):
            server.clock.advance(LINGER_MS)
            beat = await peer.ask(heartbeat_request("g", joined, "i"), 4)
            assert beat.error_code == ErrorCode.NONE
            joined = await peer.join("g", instance="i")
            assert joined.error_code == ErrorCode.NONE
        assert not stuck.is_set()
        stuck.set()
        await server.advance(LINGER_MS)
        found = await records_of(peer)
        assert [each["type"] for each in found] == ["rebalance_ended"] + ["member_replaced"] * 3


async def test_nobody_else_writes_to_it() -> None:
    """Clients can't write to it, create it or delete it."""
    async with connected("tenure.events.enable=true") as (_, peer):
        answer = await peer.ask(produce_request({("__rebalance_events", 0): batch([(b"g", b"{}", 0)])}), 9)
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
