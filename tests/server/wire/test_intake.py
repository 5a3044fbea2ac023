"""Large requests of all connections together have a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coordinator.config import Config
from coordinator.server.wire.intake import COUNTED_MAX_MS, STALLED_MAX_MS, Intake
from protocol.messages import ApiVersionsRequest
from tests.server.harness import ManualClock, Peer, Serving, connected, serving
from tests.server.requests.test_records import produce_request
from tests.support.batches import batch
from tests.support.patience import WITHIN_S

MAX = 1_000_000
LIMITS = f"socket.request.max.bytes={MAX}", f"queued.max.request.bytes={MAX}"


class Source:
    """A connection whose reading a test sees."""

    def __init__(self) -> None:
        self.is_paused = False

    def pause_intake(self) -> None:
        """As Source."""
        self.is_paused = True

    def resume_intake(self) -> None:
        """As Source."""
        self.is_paused = False


def intake_of(clock: ManualClock, given_up: list[Source]) -> Intake[Source]:
    """An intake of MAX bytes."""
    config = Config(socket_request_max_bytes=MAX, queued_max_request_bytes=MAX)
    return Intake(config, clock, lambda source, _: given_up.append(source))


def test_the_oldest_request_always_gets_on() -> None:
    """Above the bound all others are paused; they go on when there is room, the oldest first."""
    intake = intake_of(ManualClock(), [])
    first, second, third = Source(), Source(), Source()
    for source in (first, second, third):
        intake.take(source, 400_000)
    assert (first.is_paused, second.is_paused, third.is_paused) == (False, False, True)
    intake.take(second, 500_000)
    assert (first.is_paused, second.is_paused, third.is_paused) == (False, True, True)
    intake.take(first, 900_000)
    intake.is_whole(first)
    assert (second.is_paused, third.is_paused) == (False, True)
    intake.release(first)
    assert (second.is_paused, third.is_paused) == (False, False)
    intake.release(second)
    intake.release(third)
    assert intake.counted_bytes == 0


def test_a_request_that_stalls_others_is_given_up() -> None:
    """Only while others wait for it; then the next oldest has as long."""
    clock, given_up = ManualClock(), list[Source]()
    intake = intake_of(clock, given_up)
    first, second, third = Source(), Source(), Source()
    intake.take(first, 600_000)
    clock.advance(10 * STALLED_MAX_MS)
    assert not given_up
    for source in (second, third):
        intake.take(source, 600_000)
    clock.advance(STALLED_MAX_MS)
    assert given_up == [first]
    intake.release(first)
    clock.advance(STALLED_MAX_MS)
    assert given_up == [first, second]
    intake.release(second)
    clock.advance(10 * STALLED_MAX_MS)
    assert given_up == [first, second]


def test_an_intake_that_has_stopped_gives_nobody_up() -> None:
    """A server that ends closes all connections itself, with its own reason."""
    clock, given_up = ManualClock(), list[Source]()
    intake = intake_of(clock, given_up)
    for source in (Source(), Source()):
        intake.take(source, 600_000)
    intake.stop()
    clock.advance(STALLED_MAX_MS)
    assert given_up == []


@pytest.mark.parametrize("end", [Intake.is_whole, Intake.release], ids=["whole", "gone"])
def test_a_request_that_stalls_nobody_any_more_is_not_given_up(end: Callable[[Intake[Source], Source], None]) -> None:
    """It is whole, or its connection is gone; from then on the next oldest stalls the others."""
    clock, given_up = ManualClock(), list[Source]()
    intake = intake_of(clock, given_up)
    first, second, third = Source(), Source(), Source()
    for source in (first, second, third):
        intake.take(source, 600_000)
    clock.advance(1_000)
    end(intake, first)
    clock.advance(STALLED_MAX_MS - 1)
    assert not given_up
    clock.advance(1)
    assert given_up == [second]


def test_a_request_that_only_those_gone_waited_for_has_its_time() -> None:
    """Until it stalls others again; then its time begins anew."""
    clock, given_up = ManualClock(), list[Source]()
    intake = intake_of(clock, given_up)
    first, other = Source(), Source()
    for _ in range(2):
        intake.take(first, 600_000)
        intake.take(other, 600_000)
        clock.advance(STALLED_MAX_MS - 1)
        intake.release(other)
    clock.advance(STALLED_MAX_MS)
    assert given_up == []


def test_a_whole_request_counts_for_a_time_only() -> None:
    """A client can't keep the memory of others by requests that wait."""
    clock = ManualClock()
    intake = intake_of(clock, [])
    waiting, other = Source(), Source()
    intake.take(waiting, 900_000)
    intake.is_whole(waiting)
    clock.advance(COUNTED_MAX_MS)
    assert intake.counted_bytes == 0
    intake.take(other, 900_000)
    assert not other.is_paused


def test_without_a_bound_nothing_waits() -> None:
    """queued.max.request.bytes=-1, which is Kafka's default."""
    intake: Intake[Source] = Intake(Config(queued_max_request_bytes=-1), ManualClock(), lambda *_: None)
    sources = [Source() for _ in range(10)]
    for source in sources:
        intake.take(source, 10**9)
        intake.is_whole(source)
        intake.release(source)
    assert not any(source.is_paused for source in sources)


async def fill(peer: Peer, size: int) -> None:
    """Send the first bytes of a request of 990,000."""
    await peer.send_bytes((990_000).to_bytes(4) + bytes(size - 4))


def counted(server: Serving) -> int:
    """The bytes that count."""
    return server.server.connections.intake.counted_bytes


async def test_half_sent_requests_of_all_connections_are_bounded() -> None:
    """Ten of nearly 1 MB take little more than 1 MB together; a small request of another client is answered at once."""
    async with serving(*LIMITS) as server:
        small = await server.peer()
        peers = [await server.peer() for _ in range(10)]
        sending = [asyncio.create_task(fill(peer, 980_000)) for peer in peers]
        await server.until(lambda: counted(server) > MAX)
        for _ in range(50):
            assert (await small.ask(ApiVersionsRequest(), 0)).api_keys
        assert counted(server) <= MAX + len(peers) * 256 * 1024
        await server.advance(STALLED_MAX_MS)
        await server.until(lambda: bool(server.events("connection_closed")))
        (line,) = server.events("connection_closed")
        assert "queued.max.request.bytes is used up" in line["reason"]
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


async def test_large_requests_of_many_are_all_answered() -> None:
    """One after the other, if they don't have room together; then nothing counts any more."""
    async with serving(*LIMITS) as server:
        peers = [await server.peer() for _ in range(6)]
        large = produce_request(("orders", 0, batch([(b"k", bytes(800_000), 1_000)])))
        async with asyncio.timeout(WITHIN_S):
            answers = await asyncio.gather(*(peer.ask(large, 9) for peer in peers))
        assert [answer.responses[0].partition_responses[0].error_code for answer in answers] == [0] * 6
        assert counted(server) == 0


async def test_a_closed_connection_frees_what_it_holds() -> None:
    """At once."""
    async with connected(*LIMITS) as (server, peer):
        await fill(peer, 500_000)
        await server.until(lambda: counted(server) > 0)
        peer.close()
        await server.until(lambda: counted(server) == 0)
        assert (counted(server), server.connections()) == (0, [])
