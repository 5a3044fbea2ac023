"""How many connections there may be, and how fast they may come."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.server.wire import admission
from coordinator.server.wire.authentication import AUTHENTICATE_WITHIN_MS
from protocol.messages import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.server.harness import Peer, Serving, serving
from tests.server.requests.test_quotas import alter, entry
from tests.support.patience import WITHIN_S
from tests.support.requests import configs_request


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


@pytest.mark.parametrize("setting", ["max.connections", "listener.name.plaintext.max.connections"])
async def test_connections_above_a_number_wait_for_a_place(setting: str) -> None:
    """As on Kafka: each is let in when another one closes, the first first. One that goes meanwhile holds up nobody."""
    async with serving(f"{setting}=1", "socket.listen.backlog.size=3") as server:
        first = await server.peer()
        assert await speaks(first)
        second, gone, third = [await server.peer() for _ in range(3)]
        await server_has(server, first, 4)
        assert await (await server.peer()).is_closed()
        for peer in (second, gone, third):
            await peer.send(ApiVersionsRequest(), 0)
        gone.close()
        await server_has(server, first, 3)
        assert second.is_silent()
        first.close()
        assert (await second.receive()).api_keys
        assert third.is_silent()
        second.close()
        assert (await third.receive()).api_keys
        (line,) = server.events("connection_waits")
        assert f"{setting}, 1," in line["message"]
        assert delays(server) == {"max": 3}


async def server_has(server: Serving, speaker: Peer, count: int) -> None:
    """Wait until there are so many connections. speaker: lets the loop go round; another one would have to wait."""
    async with asyncio.timeout(WITHIN_S):
        while len(server.server.connections) != count:
            assert await speaks(speaker)


async def change(peer: Peer, name: str, value: str | None, *, node: str = "1") -> None:
    """Change a setting of a node, or of all nodes (""). None: take the change back."""
    answer = await peer.ask(configs_request(4, [node], {name: value}), 1)
    assert answer.responses[0].error_code == 0


async def test_a_number_that_falls_closes_the_most_silent_and_one_that_grows_lets_in() -> None:
    """Of connections that were silent for as long, the oldest one goes. One that asks for something stays."""
    async with serving("connections.max.idle.ms=100000") as server:
        speaker, silent, younger, later = [await server.peer() for _ in range(4)]
        await server_has(server, speaker, 4)
        assert await speaks(silent)
        server.clock.advance(10_000)
        for peer in (speaker, younger, later):
            assert await speaks(peer)
        await change(speaker, "max.connections", "3")
        assert await silent.is_closed()
        await change(younger, "max.connections", "2")
        assert await speaker.is_closed()
        waiting = await server.peer()
        await server_has(server, younger, 3)
        await waiting.send(ApiVersionsRequest(), 0)
        assert await speaks(younger)
        assert waiting.is_silent()
        await change(later, "max.connections", "3")
        assert (await waiting.receive()).api_keys
        assert [line["connections"] for line in server.events("connections_shed")] == [1, 1]


async def test_a_listeners_own_number_changes_while_the_server_runs() -> None:
    """For the node or for all, and back; a restart isn't needed, and another listener notices nothing."""
    listeners = "listeners=A://127.0.0.1:0,B://127.0.0.1:0", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    name = "listener.name.a.max.connections"
    async with serving(*listeners, f"{name}=1") as server:
        first, second = [await server.peer() for _ in range(2)]
        other = await server.peer(listener=1)
        await server_has(server, other, 3)
        await second.send(ApiVersionsRequest(), 0)
        assert await speaks(other)
        assert second.is_silent()
        await change(other, name, "2", node="")
        assert (await second.receive()).api_keys
        third = await server.peer()
        await server_has(server, other, 4)
        await third.send(ApiVersionsRequest(), 0)
        assert await speaks(other)
        assert third.is_silent()
        await change(first, name, "3")
        assert (await third.receive()).api_keys
        await change(first, name, None)
        await change(first, name, None, node="")
        assert await speaks(third)  # open connections stay
        fourth = await server.peer()
        await server_has(server, other, 5)
        await fourth.send(ApiVersionsRequest(), 0)
        assert await speaks(other)
        assert fourth.is_silent()


async def test_a_listeners_own_rate_changes_while_the_server_runs() -> None:
    """From the next connection on."""
    async with serving("quota.window.num=2") as server:
        await server.barrier()
        first = await server.peer()
        await change(first, "listener.name.plaintext.max.connection.creation.rate", "1")
        second, third = [await server.peer() for _ in range(2)]
        await server_has(server, first, 4)
        assert delays(server) == {"rate": 1}
        await third.send(ApiVersionsRequest(), 0)
        assert await speaks(second)
        assert third.is_silent()
        await server.advance(1_000)
        assert (await third.receive()).api_keys


async def test_with_a_rate_of_0_a_connection_waits_for_a_sample() -> None:
    """As in Kafka: it comes in after a second."""
    async with serving(
        "listeners=PLAINTEXT://127.0.0.1:0,CLOSED://127.0.0.1:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLOSED:PLAINTEXT",
        "listener.name.closed.max.connection.creation.rate=0",
        "quota.window.num=2",
    ) as server:
        late = await server.peer(listener=1)
        await late.send(ApiVersionsRequest(), 0)
        await server.until(lambda: delays(server) == {"rate": 1})
        await server.advance(999)
        assert late.is_silent()
        await server.advance(1)
        assert (await late.receive()).api_keys


@pytest.mark.parametrize("name", ["inter.broker.listener.name=ADMIN", "security.inter.broker.protocol=SSL"])
async def test_the_listener_of_brokers_is_excepted(name: str) -> None:
    """Its connections take the places of others, up to a number of its own. As the only listener it is as any."""
    admin = "SSL" if "SSL" in name else "ADMIN"
    listeners = (
        f"listeners=OPEN://127.0.0.1:0,{admin}://127.0.0.1:0",
        f"listener.security.protocol.map=OPEN:PLAINTEXT,{admin}:PLAINTEXT",
    )
    own = f"listener.name.{admin.lower()}.max.connections=2"
    async with serving(*listeners, name, own, "max.connections=2") as server:
        oldest, other = [await server.peer() for _ in range(2)]
        assert await speaks(oldest)
        assert await speaks(other)
        first = await server.peer(listener=1)
        assert await speaks(first)
        assert await oldest.is_closed()
        second = await server.peer(listener=1)
        assert await speaks(second)
        assert await other.is_closed()
        third = await server.peer(listener=1)
        await third.send(ApiVersionsRequest(), 0)
        await server_has(server, first, 3)
        assert third.is_silent()
        (line,) = server.events("connection_waits")
        assert f"listener.name.{admin.lower()}.max.connections, 2," in line["message"]
    async with serving(*listeners, name, "max.connections=1") as server:
        first, second = [await server.peer(listener=1) for _ in range(2)]
        await server_has(server, first, 2)
        await second.send(ApiVersionsRequest(), 0)
        assert await speaks(first)
        assert second.is_silent()
    async with serving("max.connections=1", "inter.broker.listener.name=PLAINTEXT") as server:
        first, second = [await server.peer() for _ in range(2)]
        await server_has(server, first, 2)
        await second.send(ApiVersionsRequest(), 0)
        assert await speaks(first)
        assert second.is_silent()


async def test_a_login_has_its_time_from_its_place_on() -> None:
    """A connection that waits is not closed because it hasn't authenticated."""
    listeners = "listeners=SASL://127.0.0.1:0", "listener.security.protocol.map=SASL:SASL_PLAINTEXT"
    user = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    jaas = f"listener.name.sasl.plain.sasl.jaas.config={user}"
    async with serving(*listeners, "sasl.enabled.mechanisms=PLAIN", jaas, "max.connections=1") as server:
        first = await server.peer()
        assert await logs_in(first)
        second = await server.peer()
        await server_has(server, first, 2)
        server.clock.advance(AUTHENTICATE_WITHIN_MS + 1)
        assert await speaks(first)
        first.close()
        assert await logs_in(second)


async def logs_in(peer: Peer) -> bool:
    """Whether alice can log in."""
    assert not (await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code
    return not (await peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)).error_code


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
