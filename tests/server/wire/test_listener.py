"""Limits on connections, and listening sockets."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest

from coordinator.config import Listener
from coordinator.loop.lines import SPARED_ABOVE
from coordinator.server.wire.listener import bind
from protocol.messages import ApiVersionsRequest, MetadataRequest
from schemas.errors import ErrorCode
from tests.server.harness import Serving, connected, join_request, seat, serving
from tests.support.patience import WITHIN_S

CROWD = 100
"""Clients that connect at once: more than Kafka's backlog, and fewer than old kernels keep at most (128)."""


async def test_too_many_connections_are_turned_away() -> None:
    """One line says so until the number falls below the limit; then the next connection is accepted."""
    async with serving("max.connections.per.ip=2") as server:
        first, second = await server.peer(), await server.peer()
        for peer in (first, second):
            assert (await peer.ask(ApiVersionsRequest(), 0)).api_keys
        for _ in range(3):
            assert await (await server.peer()).is_closed()
        (line,) = server.events("connection_refused")
        assert "max.connections.per.ip" in line["message"]
        assert len(server.server.connections) == 2
        first.close()
        async with asyncio.timeout(WITHIN_S):
            while len(server.server.connections) == 2:
                assert (await second.ask(ApiVersionsRequest(), 0)).api_keys
        third = await server.peer()
        assert (await third.ask(ApiVersionsRequest(), 0)).api_keys
        assert await (await server.peer()).is_closed()
        assert len(server.events("connection_refused")) == 2


async def test_a_limit_that_is_reached_again_and_again_costs_few_lines() -> None:
    """One client can close a connection and open two others at will, and each time the limit is reached anew."""
    async with serving("max.connections.per.ip=2") as server:
        stays = await server.peer()
        for _ in range(SPARED_ABOVE + 5):
            comes = await server.peer()
            assert (await comes.ask(ApiVersionsRequest(), 0)).api_keys
            assert await (await server.peer()).is_closed()
            comes.close()
            async with asyncio.timeout(WITHIN_S):
                while len(server.server.connections) == 2:
                    assert (await stays.ask(ApiVersionsRequest(), 0)).api_keys
        assert len(server.events("connection_refused")) == SPARED_ABOVE


async def test_a_crowd_is_connected_though_the_loop_is_busy(server: Serving) -> None:
    """The kernel takes them at the first try. Each further try is seconds later, and may end in a reset."""
    with ExitStack() as stack:
        for _ in range(CROWD):  # the loop accepts nothing meanwhile
            stack.enter_context(socket.create_connection(server.server.address, WITHIN_S))
        await server.until(lambda: len(server.connections()) == CROWD)
    assert server.events("connection_refused") == []


async def test_a_silent_connection_is_closed() -> None:
    """It is closed after connections.max.idle.ms, or up to a tenth later; a connection with requests stays."""
    async with serving("connections.max.idle.ms=10000") as server:
        silent, speaking = await server.peer(), await server.peer()
        await silent.ask(ApiVersionsRequest(), 0)
        for _ in range(10):
            assert silent.is_silent()
            await server.advance(1_000)
            await speaking.ask(ApiVersionsRequest(), 0)
        await server.advance(1_000)
        assert await silent.is_closed()
        await speaking.ask(ApiVersionsRequest(), 0)


async def test_a_client_that_takes_nothing_of_its_answers_is_cut_off() -> None:
    """After connections.max.idle.ms, and its answers go; until then, each part that it takes is a sign of life."""
    async with connected("connections.max.idle.ms=10000", "tenure.topics=big:2000") as (server, peer):
        (connection,) = server.connections()
        await peer.send_bytes(b"".join(peer.frame(MetadataRequest(topics=None), 9) for _ in range(150)))
        await server.barrier()
        assert connection.queued_bytes > 0
        for _ in range(10):
            await server.advance(1_000)
        for _ in range(50):
            assert await peer.receive_frame() is not None
        await server.barrier()
        assert connection.queued_bytes > 0
        assert connection.silent_sweeps == 0
        for _ in range(11):
            await server.advance(1_000)
        await server.until(lambda: not server.connections())


async def test_a_request_under_way_keeps_its_connection() -> None:
    """A waiting JoinGroup is answered however long it waits; the idle time begins after the answer."""
    async with serving("connections.max.idle.ms=5000") as server:
        first, second = await server.peer(), await server.peer()
        member = await seat(first, "g", "a")
        await second.send(join_request("g", instance="b"), 5)
        for _ in range(8):
            await server.advance(1_000)
            await first.ask(MetadataRequest(topics=[]), 1)
        await first.send(join_request("g", member.member_id, instance="a"), 5)
        assert (await second.receive()).generation_id == 2
        for _ in range(7):
            await server.advance(1_000)
        assert await second.is_closed()


async def test_nobody_is_closed_if_the_limit_is_off() -> None:
    """With connections.max.idle.ms=-1 an idle connection stays open."""
    async with connected("connections.max.idle.ms=-1") as (server, peer):
        await peer.ask(ApiVersionsRequest(), 0)
        await server.advance(1_000_000_000)
        assert peer.is_silent()
        await peer.ask(ApiVersionsRequest(), 0)


async def test_no_idle_time_at_all_closes_a_silent_connection() -> None:
    """Only a negative number switches the limit off: 0 is a time like any other."""
    async with connected("connections.max.idle.ms=0") as (server, peer):
        await peer.ask(ApiVersionsRequest(), 0)
        for _ in range(100):
            await server.advance(1)
        assert await peer.is_closed()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "", "::"])
def test_a_listener_can_be_reached_where_it_says(host: str) -> None:
    """IPv4 works in all of these cases; a listener without a host listens on every family."""
    listening = bind(Listener("PLAINTEXT", host, 0))
    try:
        listening.listen()
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            assert client.getpeername() == ("127.0.0.1", port)
    finally:
        listening.close()


def test_an_address_that_is_not_ours_is_an_error() -> None:
    """`bind` raises OSError and binds nothing."""
    with pytest.raises(OSError, match="assign"):
        bind(Listener("PLAINTEXT", "192.0.2.1", 9092))


async def test_no_more_connections_than_the_process_may_have_files() -> None:
    """The other files are for the log: one line says so, and accepted connections go on."""
    async with serving(files_max=64 + 2 * (4 + 50) + 16) as server:
        inside = [await server.peer() for _ in range(16)]
        outside = await server.peer()
        assert await outside.is_closed()
        assert "ulimit" in server.events("connection_refused")[0]["reason"]
        assert (await inside[0].join("g", instance="i")).error_code == ErrorCode.NONE
