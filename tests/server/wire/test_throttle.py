"""Throttling: what counts against a quota, what the client is told, and what its connection does then."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.security.quotas import FETCHED, TIME
from coordinator.server.telemetry.measures import PRINCIPALS_MAX, Measures
from coordinator.server.wire.connection import QUEUED_BYTES_MAX
from coordinator.server.wire.throttle import Throttle
from protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    HeartbeatRequest,
    MetadataRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, heartbeat_request, seat, serving
from tests.server.requests.test_quotas import alter, entry
from tests.server.requests.test_records import fetch_request, produce_request
from tests.support.batches import batch
from tests.support.requests import grow_request, join_request

ME = {"client-id": "test"}
LARGE = batch([(b"k", bytes(10_000), 1_000)])


def throttle_of(server: Serving) -> Throttle:
    """The server's quotas."""
    return server.server._api._services.throttle


def fetched(answer: Any) -> int:
    """How many bytes of records the only topic partition of a Fetch's answer has."""
    return len(answer.responses[0].partitions[0].records)


class Work:
    """A processor whose time a test says."""

    def __init__(self, server: Serving) -> None:
        self.ns = 0
        self.step_ns = 0
        throttle_of(server).busy_ns = self.busy_ns

    def busy_ns(self) -> int:
        """As clock.busy_ns: each look costs a step."""
        self.ns += self.step_ns
        return self.ns


async def test_a_producer_over_its_rate_is_told_so_and_waits(server: Serving) -> None:
    """The answer comes at once with the wait; the next request is handled behind it. Others don't wait."""
    assert await alter(server, entry(ME, producer_byte_rate=100.0)) == [0]
    peer, other = await server.peer(), await server.peer("other")
    answer = await peer.ask(produce_request(("orders", 0, LARGE)), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    # About 10,100 bytes are 1,010 a second over ten seconds, 910 more than allowed: 91 s.
    assert 90_000 < answer.throttle_time_ms < 93_000
    await peer.send(ApiVersionsRequest(), 0)
    await server.advance(answer.throttle_time_ms - 1)
    assert peer.is_silent()
    answered = await other.ask(produce_request(("orders", 0, LARGE)), 9)
    assert answered.throttle_time_ms == 0
    await server.advance(1)
    assert (await peer.receive()).error_code == 0
    measures = server.server._api._services.measures
    key = "producer_byte_rate", "User:ANONYMOUS"
    assert measures.throttles == {key: 1}
    assert measures.throttled_ms == {key: answer.throttle_time_ms}


async def test_a_producer_without_answers_waits_too(server: Serving) -> None:
    """Its bytes count, its time doesn't."""
    work = Work(server)
    work.step_ns = 10**9
    await alter(server, entry(ME, producer_byte_rate=1_000_000.0))
    await alter(server, entry(ME, request_percentage=1.0))
    peer = await server.peer()
    await peer.send_bytes(peer.frame(produce_request(("orders", 0, LARGE), acks=0), 9))
    peer._due.clear()
    assert (await peer.ask(ApiVersionsRequest(), 0)).error_code == 0
    await alter(server, entry({"client-id": "slow"}, producer_byte_rate=100.0))
    slow = await server.peer("slow")
    await slow.send_bytes(slow.frame(produce_request(("orders", 0, LARGE), acks=0), 9))
    slow._due.clear()
    await slow.send(ApiVersionsRequest(), 0)
    await server.advance(89_000)
    assert slow.is_silent()
    await server.advance(4_000)
    assert (await slow.receive()).error_code == 0


async def test_a_throttled_connection_is_still_read_and_its_end_seen(server: Serving) -> None:
    """Early bytes are kept, up to a limit. A close takes effect at once. No heartbeat is answered by its bytes."""
    await alter(server, entry(ME, producer_byte_rate=10.0))
    peer = await server.peer()
    joined = await seat(peer, "g", "a")
    for _ in range(2):
        assert (await peer.ask(heartbeat_request("g", joined, "a"), 4)).error_code == 0
    (connection,) = [each for each in server.connections() if each.may_short_cut]
    assert (await peer.ask(produce_request(("orders", 0, LARGE)), 9)).throttle_time_ms > 0
    await peer.send(heartbeat_request("g", joined, "a"), 4)
    await server.barrier()
    assert peer.is_silent()
    many = b"".join(peer.frame(MetadataRequest(topics=[]), 4) for _ in range(20_000))
    await peer.send_bytes(many[: QUEUED_BYTES_MAX // 2])
    await server.until(lambda: connection.queued_bytes > QUEUED_BYTES_MAX // 2)
    peer.close()
    await server.until(lambda: connection not in server.connections())


async def test_a_consumer_over_its_rate_gets_nothing_until_it_waited(server: Serving) -> None:
    """It gets an empty answer and asks again, as in Kafka; what it was not sent doesn't count."""
    await alter(server, entry(ME, consumer_byte_rate=1_100.0))
    producer, peer = await server.peer("producer"), await server.peer()
    for _ in range(3):
        await producer.ask(produce_request(("orders", 0, LARGE)), 9)
    request = fetch_request(("orders", 0, 0), max_wait_ms=0)
    first = await peer.ask(request, 11)
    assert first.throttle_time_ms == 0
    assert fetched(first) == len(LARGE)  # the first batch is whole, however large
    second = await peer.ask(request, 11)
    assert (second.error_code, second.responses) == (0, [])
    assert second.throttle_time_ms > 0
    rate = throttle_of(server).rates[FETCHED].get((None, "test"), 1_100.0, server.clock.ms())
    assert rate.per_second(server.clock.ms()) * 10 == len(LARGE)
    await peer.send(request, 11)
    await server.advance(second.throttle_time_ms - 1)
    assert peer.is_silent()
    await server.advance(200_000)
    third = await peer.receive()
    assert (third.throttle_time_ms, fetched(third)) == (0, len(LARGE))


async def test_a_fetch_is_no_larger_than_the_window_allows() -> None:
    """More would be throttled whatever came before, and the consumer would never get on."""
    async with serving("quota.window.num=3", "quota.window.size.seconds=2") as server:
        await alter(server, entry(ME, consumer_byte_rate=300.0))
        producer, peer = await server.peer("producer"), await server.peer()
        for _ in range(9):
            await producer.ask(produce_request(("orders", 0, batch([(b"k", bytes(400), 1_000)]))), 9)
        request = fetch_request(("orders", 0, 0), max_wait_ms=0, min_bytes=1_000_000, max_bytes=1_000_000)
        request.topics[0].partitions[0].partition_max_bytes = 1_000_000
        answer = await peer.ask(request, 11)
        assert answer.throttle_time_ms == 0
        assert fetched(answer) == 300 * 2 * 2


@pytest.mark.parametrize("version", range(5))
async def test_time_counts_for_each_request(peer: Peer, server: Serving, version: int) -> None:
    """Half a second, 5 % of ten, is 5 times the quota; no wait is longer than a sample. Heartbeats count too."""
    joined = await seat(peer, "g", "a")
    work = Work(server)
    await alter(server, entry({"user": "ANONYMOUS", "client-id": "test"}, request_percentage=1.0))
    beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    assert (await peer.ask(beat, version)).error_code == 0
    work.step_ns = 500_000_000
    answer = await peer.ask(beat, version)
    assert answer.error_code == 0
    assert answer.throttle_time_ms == (1_000 if version >= 1 else 0)
    work.step_ns = 0
    await peer.send(beat, version)
    await server.advance(999)
    assert peer.is_silent()
    await server.advance(1)
    assert (await peer.receive()).error_code == 0


async def test_remembered_heartbeats_count_from_the_moment_of_a_quota(peer: Peer, server: Serving) -> None:
    """A connection that answers them by their bytes stops doing so, unless the quota can't be its client's."""
    joined = await seat(peer, "g", "a")
    for _ in range(3):
        await peer.ask(heartbeat_request("g", joined, "a"), 4)
    measures = server.server._api._services.measures
    before = measures.repeated_heartbeats
    assert before
    await alter(server, entry({"user": "somebody"}, request_percentage=1.0), entry(ME, producer_byte_rate=5.0))
    for _ in range(3):
        await peer.ask(heartbeat_request("g", joined, "a"), 4)
    assert measures.repeated_heartbeats > before
    await alter(server, entry({"user": None}, request_percentage=1_000_000.0))
    before = measures.repeated_heartbeats
    for _ in range(3):
        assert (await peer.ask(heartbeat_request("g", joined, "a"), 4)).error_code == 0
    assert measures.repeated_heartbeats == before
    assert not any(connection.may_short_cut for connection in server.connections())
    await alter(server, entry({"user": None}, request_percentage=None))
    for _ in range(3):
        await peer.ask(heartbeat_request("g", joined, "a"), 4)
    assert measures.repeated_heartbeats > before


async def test_a_request_counts_with_its_own_time_alone(peer: Peer, server: Serving) -> None:
    """The time that the server worked before it is no part of it."""
    joined = await seat(peer, "g", "a")
    Work(server).ns = 10**13
    await alter(server, entry(ME, request_percentage=5.0))
    assert (await peer.ask(heartbeat_request("g", joined, "a"), 4)).throttle_time_ms == 0


async def test_time_of_waiting_is_no_work() -> None:
    """A JoinGroup that waits for others, and a Fetch that waits for records, take the processor's time only."""
    async with serving("group.initial.rebalance.delay.ms=3000") as server:
        await alter(server, entry(ME, request_percentage=100.0))
        peer = await server.peer()
        await peer.send(join_request("g", instance="a"), 5)
        await server.advance(3_000)
        assert (await peer.receive()).throttle_time_ms == 0


def topic(name: str, partitions: int) -> CreateTopicsRequest.CreatableTopic:
    """A topic to create."""
    return CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)


async def codes(peer: Peer, request: Any, version: int) -> tuple[list[int], int]:
    """The error codes of a request about topics, and the wait."""
    answer = await peer.ask(request, version)
    results = getattr(answer, "topics", None) or getattr(answer, "responses", None) or answer.results
    return [each.error_code for each in results], answer.throttle_time_ms


async def test_mutations_above_the_quota_are_refused(server: Serving) -> None:
    """A bucket of 11 tokens is overdrawn once; then a new client is refused, and an old one waits (KIP-599)."""
    await alter(server, entry(ME, controller_mutation_rate=1.0))
    peer = await server.peer()
    three = CreateTopicsRequest(topics=[topic("a", 8), topic("b", 5), topic("c", 1)], timeout_ms=1_000)
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await codes(peer, three, 7) == ([0, 0, refused], 2_000)
    await server.advance(2_000)
    assert await codes(peer, CreateTopicsRequest(topics=[topic("c", 2)], timeout_ms=1_000), 5) == ([0], 2_000)
    await server.advance(2_000)
    assert await codes(peer, grow_request({"c": 6}), 3) == ([0], 0)
    names = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in ("a", "b")]
    assert await codes(peer, DeleteTopicsRequest(topics=names, timeout_ms=1_000), 6) == ([refused, refused], 4_000)
    await server.advance(4_000)
    assert await codes(peer, DeleteTopicsRequest(topics=names, timeout_ms=1_000), 6) == ([0, refused], 8_000)


async def test_a_removed_quota_ends_with_the_wait_under_way(server: Serving) -> None:
    """A client that waits goes on waiting, as in Kafka; its next request has none."""
    await alter(server, entry(ME, producer_byte_rate=100.0))
    peer = await server.peer()
    wait_ms = (await peer.ask(produce_request(("orders", 0, LARGE)), 9)).throttle_time_ms
    await server.advance(100)
    assert await alter(server, entry(ME, producer_byte_rate=None)) == [0]
    await peer.send(produce_request(("orders", 0, LARGE)), 9)
    await server.advance(wait_ms - 200)
    assert peer.is_silent()
    await server.advance(200)
    assert (await peer.receive()).throttle_time_ms == 0


def test_principals_with_series_of_their_own_are_bounded() -> None:
    """All others share one: whoever makes up names makes up no series."""
    measures = Measures()
    for number in range(PRINCIPALS_MAX + 10):
        measures.throttled(TIME, f"User:{number}", 5)
        measures.throttled(TIME, f"User:{number}", 5)
    assert len(measures.throttles) == PRINCIPALS_MAX + 1
    assert measures.throttles[TIME, ""] == 20
    assert measures.throttled_ms[TIME, "User:3"] == 10
