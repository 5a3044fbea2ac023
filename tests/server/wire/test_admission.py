"""How many connections there may be, and how fast they may come."""

from __future__ import annotations

import pytest

from coordinator.server.wire import admission
from protocol.messages import ApiVersionsRequest
from tests.server.harness import Peer, Serving, serving
from tests.server.requests.test_quotas import alter, entry


async def speaks(peer: Peer) -> bool:
    """Whether the server answers a peer."""
    return bool((await peer.ask(ApiVersionsRequest(), 0)).api_keys)


def delays(server: Serving) -> dict[str, int]:
    """The connections that had to wait, by the limit."""
    return dict(server.server._api._services.measures.delays)


async def test_an_address_can_have_a_number_of_its_own() -> None:
    """max.connections.per.ip.overrides wins over max.connections.per.ip, in both directions."""
    async with serving("max.connections.per.ip=1", "max.connections.per.ip.overrides=127.0.0.1:2") as server:
        first, second = await server.peer(), await server.peer()
        assert await speaks(first)
        assert await speaks(second)
        assert await (await server.peer()).is_closed()
        (line,) = server.events("connection_refused")
        assert "max.connections.per.ip, 2," in line["message"]


async def test_a_listener_can_have_a_number_of_its_own() -> None:
    """listener.name.X.max.connections closes further connections of that listener."""
    async with serving("listener.name.plaintext.max.connections=1") as server:
        first = await server.peer()
        assert await speaks(first)
        assert await (await server.peer()).is_closed()
        (line,) = server.events("connection_refused")
        assert "listener.name.plaintext.max.connections, 1," in line["message"]


@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
async def test_connections_that_come_too_fast_are_let_in_one_after_the_other(prefix: str) -> None:
    """They are held, not refused: what they sent is answered when their time has come."""
    rate = f"{prefix}max.connection.creation.rate=1"
    async with serving(rate, "quota.window.num=2", "socket.listen.backlog.size=2") as server:
        await server.barrier()  # the first connection, of the one that a second allows
        held = [await server.peer() for _ in range(2)]
        for peer in held:
            await peer.send(ApiVersionsRequest(), 0)
        await server.until(lambda: len(server.server.connections) == 3)
        assert await (await server.peer()).is_closed()
        (line,) = server.events("connection_refused")
        assert "socket.listen.backlog.size, 2, connections wait" in line["message"]
        for peer in held:
            await server.advance(999)
            assert peer.is_silent()
            await server.advance(1)
            assert (await peer.receive()).api_keys
        assert delays(server) == {"rate": 2}


async def test_a_held_connection_that_closes_holds_up_nobody() -> None:
    """The next one takes its place."""
    async with serving("max.connection.creation.rate=1", "quota.window.num=2") as server:
        await server.barrier()
        gone, stays = await server.peer(), await server.peer()
        await server.until(lambda: len(server.server.connections) == 3)
        gone.close()
        await server.until(lambda: len(server.server.connections) == 2)
        await stays.send(ApiVersionsRequest(), 0)
        await server.advance(1_000)
        assert stays.is_silent()  # its own wait begins where that of the other would have ended
        await server.advance(1_000)
        assert (await stays.receive()).api_keys


async def test_an_address_that_is_too_fast_is_slowed_down() -> None:
    """Its connection is never served, and closed when the wait is over; it counts nowhere. Then the next is let in."""
    async with serving("quota.window.num=2", "max.connections=3") as server:
        assert await alter(server, entry({"ip": "127.0.0.1"}, connection_creation_rate=2.0)) == [0]
        first = await server.peer()
        second = await server.peer()
        assert await speaks(first)
        assert await speaks(second)
        slow = [await server.peer() for _ in range(3)]
        for peer in slow:
            await peer.send(ApiVersionsRequest(), 0)
        while delays(server).get("ip", 0) < 3:
            assert await speaks(first)
        assert all(peer.is_silent() for peer in slow)
        assert len(server.server.connections) == 3  # with the one that set the quota
        rate = server.server.connections.admission._ips.get("127.0.0.1", 2.0, server.clock.ms())
        assert rate.per_second(server.clock.ms()) == 2
        server.clock.advance(1_000)
        for peer in slow:
            assert await peer.is_closed()
        server.clock.advance(2_000)
        first.close()
        while len(server.server.connections) == 3:
            assert await speaks(second)
        assert await speaks(await server.peer())


async def test_the_default_address_and_one_with_its_own_quota() -> None:
    """The address's own quota counts, in any way of writing it; other addresses have the default's."""
    async with serving("quota.window.num=2") as server:
        own, default = entry({"ip": "127.0.0.1"}, connection_creation_rate=50.0), {"ip": None}
        assert await alter(server, own, entry(default, connection_creation_rate=1.0)) == [0, 0]
        for _ in range(5):
            assert await speaks(await server.peer())
        assert await alter(server, entry({"ip": "127.0.0.1"}, connection_creation_rate=None)) == [0]
        served = await server.peer()
        while not delays(server):
            await server.peer()
        assert served.is_silent()


async def test_slowed_connections_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above it they are closed at once; a stop closes all."""
    monkeypatch.setattr(admission, "SLOWED_MAX", 2)
    async with serving("quota.window.num=2") as server:
        first = await server.peer()
        assert await alter(server, entry({"ip": None}, connection_creation_rate=1.0)) == [0]
        assert await speaks(await server.peer())
        slow = [await server.peer() for _ in range(2)]
        while delays(server).get("ip", 0) < 2:
            assert await speaks(first)
        assert await (await server.peer()).is_closed()
        assert all(peer.is_silent() for peer in slow)
