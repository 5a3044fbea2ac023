"""TLS on a listener: what a client gets, when, and as whom; and what becomes of one that does it wrong."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import pytest

from coordinator.security import tls
from coordinator.server.process import allow_files
from coordinator.server.wire import handshakes as rules
from coordinator.server.wire.handshakes import STARTED_MAX, WITHIN_MS
from coordinator.server.wire.tls import FLIGHT_BYTES_MAX, OWN_BYTES_MAX, TlsTransport
from protocol.messages import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, heartbeat_request, seat, serving
from tests.server.requests.test_quotas import alter, entry
from tests.server.tls_peer import TlsPeer, greeted, tls_peer
from tests.support.certificates import Certificates, client_context, with_subject_in_ber
from tests.support.length import rounds


@asynccontextmanager
async def serving_tls(certificates: Certificates, *settings: str, stop: bool = True) -> AsyncIterator[Serving]:
    """A server with a plain listener, which the harness uses, and one with TLS behind it."""
    given = (
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.server}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates.ca}",
    )
    async with serving(*given, *settings, stop=stop) as server:
        yield server


@pytest.fixture
async def server(certificates: Certificates) -> AsyncIterator[Serving]:
    """Yield a server with both listeners."""
    async with serving_tls(certificates) as made:
        yield made


def failures(server: Serving) -> list[str]:
    """The reasons of the lines about failed handshakes."""
    return [line["reason"] for line in server.events("tls_handshake_failed")]


async def failed(server: Serving, count: int = 1) -> list[str]:
    """The reasons of failed handshakes, once there are so many."""
    await server.until(lambda: server.server.connections.handshakes.failed >= count)
    return failures(server)


# What works.


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_member_keeps_its_seat_over_tls(
    server: Serving, certificates: Certificates, newest: ssl.TLSVersion
) -> None:
    """Join, sync, and heartbeats that repeat; the handshake counts as completed, and no longer as under way."""
    context = client_context(certificates.ca)
    context.maximum_version = newest
    peer = await greeted(server, context)
    joined = await seat(peer, "g", "i")
    for _ in range(5):
        assert (await peer.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
    (connection,) = server.connections()
    assert (connection.principal, connection.listener) == ("User:ANONYMOUS", "SSL")
    assert connection.peer == f"127.0.0.1:{peer.socket.getsockname()[1]}"
    found = server.server.connections.handshakes
    assert (len(found), found.completed, found.failed) == (0, 1, 0)


@pytest.mark.long
async def test_large_answers_come_whole(certificates: Certificates) -> None:
    """Answers of many records, to a client that reads late; and requests that come in one piece."""
    async with serving_tls(certificates, "tenure.topics=big:2000") as server:
        peer = await greeted(server, client_context(certificates.ca))
        frames = [peer.frame(MetadataRequest(topics=None), 9) for _ in range(60)]
        await peer.send_bytes(b"".join(frames))
        await server.barrier()
        for _ in frames:
            answer = await peer.receive()
            assert max(len(topic.partitions) for topic in answer.topics) == 2000


async def test_a_request_may_come_with_the_end_of_the_handshake(server: Serving, certificates: Certificates) -> None:
    """A client that doesn't wait sends both in one piece; the request is answered."""
    peer = await tls_peer(server, client_context(certificates.ca))
    await peer.finish_with(peer.frame(ApiVersionsRequest(), 0))
    assert (await peer.receive()).api_keys


async def test_a_session_may_be_resumed(certificates: Certificates) -> None:
    """A client that comes back with a ticket is the user that its certificate says, as the first time."""
    async with serving_tls(certificates, "ssl.client.auth=required") as server:
        context = client_context(certificates.ca, certificates.client)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # where Python gives the session at once
        first = await greeted(server, context)
        second = await tls_peer(server, context)
        second.tls.session = first.tls.session
        await second.finish()
        assert second.tls.session_reused
        await second.ask(ApiVersionsRequest(), 0)
        assert [each.principal for each in server.connections()] == ["User:CN=alice,OU=Tests,O=Tenure,C=DE"] * 2


async def test_a_session_ends_with_its_certificate(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each resumed session has new tickets, so a certificate would last for ever. A client without one is let in."""

    class InAYear(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(days=365)

    async with serving_tls(certificates, "ssl.client.auth=requested") as server:
        for context, is_let_in in (
            (client_context(certificates.ca, certificates.client), False),
            (client_context(certificates.ca), True),
        ):
            context.maximum_version = ssl.TLSVersion.TLSv1_2  # where Python gives the session at once
            first = await greeted(server, context)
            second = await tls_peer(server, context)
            second.tls.session = first.tls.session
            with monkeypatch.context() as patch:
                patch.setattr(tls, "datetime", InAYear)
                await second.finish()
                assert second.tls.session_reused
                if is_let_in:
                    await second.ask(ApiVersionsRequest(), 0)
                else:
                    assert await second.is_closed()
        assert failures(server) == ["the client resumed a session whose certificate has expired"]


@pytest.mark.parametrize(
    ("settings", "principal"),
    [
        (["ssl.client.auth=required"], "User:CN=alice,OU=Tests,O=Tenure,C=DE"),
        (["ssl.client.auth=requested", "ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/U"], "User:ALICE"),
        (["ssl.client.auth=none"], "User:ANONYMOUS"),
    ],
)
async def test_a_certificate_makes_the_principal(
    certificates: Certificates, settings: list[str], principal: str
) -> None:
    """Its name, as the rules map it; without a certificate asked for, nobody is known."""
    async with serving_tls(certificates, *settings) as server:
        peer = await greeted(server, client_context(certificates.ca, certificates.client))
        await peer.ask(ApiVersionsRequest(), 0)
        (connection,) = server.connections()
        assert connection.principal == principal
        assert connection.client("x").principal == principal


async def test_listeners_with_settings_of_their_own_stand_side_by_side(certificates: Certificates) -> None:
    """Each has its certificate and its rules; Metadata and FindCoordinator name the address of the listener asked."""
    async with serving(
        "listeners=IN://127.0.0.1:0,OUT://127.0.0.1:0,FAR://127.0.0.1:0",
        "advertised.listeners=IN://in:1,OUT://out:2,FAR://far:3",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:SSL,FAR:SSL",
        "ssl.keystore.type=PEM",
        "ssl.truststore.type=PEM",
        f"ssl.keystore.location={certificates.server}",
        f"listener.name.far.ssl.keystore.location={certificates.foreign}",
        "listener.name.out.ssl.client.auth=required",
        f"listener.name.out.ssl.truststore.location={certificates.ca}",
    ) as server:
        out = await greeted(server, client_context(certificates.ca, certificates.client), listener=1)
        far = await greeted(server, client_context(certificates.foreign_ca), listener=2)
        plain = await server.peer()
        for peer, host in ((plain, "in"), (out, "out"), (far, "far")):
            answer = await peer.ask(MetadataRequest(topics=[]), 9)
            assert [broker.host for broker in answer.brokers] == [host]
            found = await peer.ask(FindCoordinatorRequest(key="g"), 2)
            assert found.host == host
        wrong = await tls_peer(server, client_context(certificates.ca), listener=2)
        with pytest.raises(ssl.SSLError, match="unable to get local issuer"):
            await wrong.finish()


async def test_sasl_says_who_a_client_is_where_there_is_both(certificates: Certificates) -> None:
    """On SASL_SSL nothing but authentication is possible behind the handshake, and a certificate makes no user."""
    async with serving(
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.server}",
        "listener.name.sasl_ssl.ssl.client.auth=required",
        "listener.name.sasl_ssl.ssl.truststore.type=PEM",
        f"listener.name.sasl_ssl.ssl.truststore.location={certificates.ca}",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="secret";',
    ) as server:
        context = client_context(certificates.ca, certificates.client)
        hasty = await greeted(server, context)
        await hasty.send(MetadataRequest(topics=[]), 9)
        await server.advance(server.server._config.connection_failed_authentication_delay_ms)
        assert await hasty.is_closed()
        peer = await greeted(server, context)
        assert (await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == ErrorCode.NONE
        assert [each.principal for each in server.connections()] == ["User:ANONYMOUS"]
        answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0secret"), 2)
        assert answer.error_code == ErrorCode.NONE
        assert [each.principal for each in server.connections()] == ["User:bob"]
        assert (await seat(peer, "g", "i")).error_code == ErrorCode.NONE


# What is refused.


@pytest.mark.parametrize(
    ("trusted", "own", "settings", "alert", "words"),
    [
        ("foreign_ca", None, [], None, "the client refused this server: unknown ca"),
        ("ca", None, ["ssl.client.auth=required"], "CERTIFICATE_REQUIRED", "did not return a certificate"),
        ("ca", "expired_client", ["ssl.client.auth=required"], "CERTIFICATE_EXPIRED", "has expired"),
        ("ca", "foreign_client", ["ssl.client.auth=requested"], "UNKNOWN_CA", "unable to get local issuer"),
        ("ca", "client", ["ssl.client.auth=required", "ssl.principal.mapping.rules=RULE:x/y/"], "", "no rule of ssl"),
    ],
)
async def test_a_client_learns_why_it_is_refused(
    certificates: Certificates, trusted: str, own: str | None, settings: list[str], alert: str | None, words: str
) -> None:
    """By an alert, as from Kafka; the log has peer and reason, and the metric counts it."""
    async with serving_tls(certificates, *settings) as server:
        peer = await tls_peer(
            server, client_context(getattr(certificates, trusted), getattr(certificates, own) if own else None)
        )
        if alert is None:
            with pytest.raises(ssl.SSLError):
                await peer.finish()
        else:
            await peer.finish()
            assert (await peer.said()).endswith(alert)
        (why,) = await failed(server)
        assert words in why
        await server.until(lambda: not server.connections())


async def test_a_client_whose_name_cannot_be_read_is_nobody(certificates: Certificates, tmp_path: Path) -> None:
    """OpenSSL trusts its certificate, but the subject is no DER: the client isn't let in under another name."""
    own, identity = tmp_path / "ber.pem", certificates.authority.issue("alice")
    made = with_subject_in_ber(certificates.authority, identity)
    own.write_text(identity.key_pem() + ssl.DER_cert_to_PEM_cert(made))
    async with serving_tls(certificates, "ssl.client.auth=required") as server:
        peer = await tls_peer(server, client_context(certificates.ca, own))
        await peer.finish()
        await peer.said()
        (why,) = await failed(server)
        assert why == "its certificate's name can't be read: an element has an indefinite length, which DER forbids"
        await server.until(lambda: not server.connections())


async def test_a_client_without_tls_is_told_apart(server: Serving, certificates: Certificates) -> None:
    """Its first bytes stand in the line, and it is closed at once."""
    plain = await server.peer(listener=-1)
    await plain.send(ApiVersionsRequest(), 0)
    assert await plain.is_closed()
    (why,) = await failed(server)
    assert "speaks no TLS" in why


async def test_what_comes_behind_a_failed_handshake_is_not_read(server: Serving) -> None:
    """Bytes that the loop has read already are dropped when the handshake fails."""
    await server.peer(listener=-1)
    await server.until(lambda: bool(server.connections()))
    (connection,) = server.connections()
    transport = connection._transport
    assert isinstance(transport, TlsTransport)
    for _ in range(2):
        transport.data_received(b"no TLS")
    (why,) = await failed(server)
    assert "speaks no TLS" in why


async def test_too_much_before_its_turn_is_refused(server: Serving, certificates: Certificates) -> None:
    """A first message can't be larger than any ClientHello."""
    peer = await server.peer(listener=-1)
    await peer.send_bytes(b"\x16\x03\x01" + bytes(2 * FLIGHT_BYTES_MAX))
    assert await peer.is_closed()
    (why,) = await failed(server)
    assert "first message" in why or "record" in why or "length" in why


async def test_a_damaged_record_ends_its_connection_alone(server: Serving, certificates: Certificates) -> None:
    """One bit of a record is wrong: a line says so, and others go on."""
    victim, other = [await greeted(server, client_context(certificates.ca)) for _ in range(2)]
    data = bytearray(victim.encrypted(victim.frame(ApiVersionsRequest(), 0)))
    data[-1] ^= 1
    await asyncio.get_running_loop().sock_sendall(victim.socket, bytes(data))
    assert "BAD_RECORD_MAC" in await victim.said()
    (line,) = server.events("connection_closed")
    assert "mac" in line["reason"]
    await server.until(lambda: len(server.connections()) == 1)
    assert (await other.ask(ApiVersionsRequest(), 0)).api_keys


async def test_both_sides_say_goodbye(certificates: Certificates) -> None:
    """A client that closes in order is let go; a server that stops closes in order."""
    async with serving_tls(certificates, stop=False) as server:
        leaving, staying = [await greeted(server, client_context(certificates.ca)) for _ in range(2)]
        with pytest.raises(ssl.SSLWantReadError):
            leaving.tls.unwrap()
        await leaving.flush()
        assert await leaving.receive_frame() is None
        await server.until(lambda: len(server.connections()) == 1)
        stopping = asyncio.ensure_future(server.server.stop())
        assert await staying.receive_frame() is None
        await stopping


async def test_what_comes_behind_a_goodbye_is_not_read(server: Serving, certificates: Certificates) -> None:
    """The server lets the client go, and others are served."""
    leaving, other = [await greeted(server, client_context(certificates.ca)) for _ in range(2)]
    with pytest.raises(ssl.SSLWantReadError):
        leaving.tls.unwrap()
    goodbye = leaving._outgoing.read()
    await Peer.send_bytes(leaving, goodbye + goodbye)
    assert await leaving.receive_frame() is None
    assert (await other.ask(ApiVersionsRequest(), 0)).api_keys


async def greeted_alone(server: Serving, certificates: Certificates) -> tuple[TlsPeer, TlsTransport]:
    """The only client of a server, which has answered it, and the server's end of its connection."""
    peer = await greeted(server, client_context(certificates.ca))
    await peer.ask(ApiVersionsRequest(), 0)
    (connection,) = server.connections()
    assert isinstance(connection._transport, TlsTransport)
    return peer, connection._transport


async def test_nothing_is_written_behind_a_goodbye(server: Serving, certificates: Certificates) -> None:
    """A second close does nothing, and what is written afterwards goes nowhere."""
    peer, transport = await greeted_alone(server, certificates)
    transport.close()
    assert transport.is_closing()
    transport.write(b"late")
    transport.close()
    assert await peer.receive_frame() is None
    assert await peer.said() == ""


# Handshakes that don't end.


async def test_a_connection_counts_before_its_handshake(certificates: Certificates) -> None:
    """max.connections holds from the accept on."""
    async with serving_tls(certificates, "max.connections=2") as server:
        await server.barrier()
        silent, waiting = [await tls_peer(server, client_context(certificates.ca)) for _ in range(2)]
        await server.until(lambda: len(server.server.connections) == 3)
        await Peer.send_bytes(waiting, waiting.hello())
        await silent.finish()
        assert (await silent.ask(ApiVersionsRequest(), 0)).api_keys
        assert waiting.is_silent()
        silent.close()
        await waiting.finish()
        assert (await waiting.ask(ApiVersionsRequest(), 0)).api_keys


async def test_a_handshake_has_its_time_in_all(server: Serving, certificates: Certificates) -> None:
    """Silent, half open or dribbling: each is closed when the time is over, though another byte comes now and then."""
    silent, half, dribbling = [await tls_peer(server, client_context(certificates.ca)) for _ in range(3)]
    await asyncio.get_running_loop().sock_sendall(half.socket, half.hello())
    hello = dribbling.hello()
    steps = 10
    for index in range(steps):
        await asyncio.get_running_loop().sock_sendall(dribbling.socket, hello[index : index + 1])
        await server.until(lambda: len(server.connections()) == 3)
        assert not failures(server)
        await server.advance(WITHIN_MS // steps)
    for peer in (silent, half, dribbling):
        while await asyncio.get_running_loop().sock_recv(peer.socket, 65_536):
            pass
    assert len(await failed(server, 3)) == 3
    assert all("not done within 30 s" in why for why in failures(server))


async def test_one_handshake_more_than_may_wait_ends_the_oldest(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-open ones make room for a client that goes on; those that have sent nothing don't count."""
    monkeypatch.setattr(rules, "STARTED_MAX", 3)
    async with serving_tls(certificates) as server:
        silent = await tls_peer(server, client_context(certificates.ca))
        half = []
        for _ in range(4):
            half.append(await tls_peer(server, client_context(certificates.ca)))
            await asyncio.get_running_loop().sock_sendall(half[-1].socket, half[-1].hello())
            assert await half[-1]._receive()
        assert "others wait as well" in (await failed(server))[0]
        await half[0].flush()
        assert not await half[0]._receive()
        assert len(await failed(server)) == 1
        for peer in (half[3], silent):
            await peer.finish()
            assert (await peer.ask(ApiVersionsRequest(), 0)).api_keys


async def test_a_connection_that_sent_nothing_ends_in_silence(server: Serving, certificates: Certificates) -> None:
    """A load balancer that looks whether the port is open causes no line; a client that gives up half way does.

    Neither keeps its place among the handshakes.
    """
    (await server.peer(listener=-1)).close()
    half = await tls_peer(server, client_context(certificates.ca))
    await asyncio.get_running_loop().sock_sendall(half.socket, half.hello()[:20])
    await server.until(lambda: any(each.listener == "SSL" for each in server.connections()))
    half.close()
    assert await failed(server) == ["the client closed the connection"]
    await server.until(lambda: len(server.server.connections.handshakes) == 0)


@pytest.mark.rounds
async def test_a_hello_may_be_cut_anywhere(server: Serving, certificates: Certificates) -> None:
    """In two pieces, cut at each byte: the handshake succeeds. Ended at each byte: nothing is left of it."""
    loop = asyncio.get_running_loop()
    size = len((await tls_peer(server, client_context(certificates.ca))).hello())
    cuts = range(1, size, rounds(7, 1, 1))
    for cut in cuts:
        peer = await tls_peer(server, client_context(certificates.ca))
        hello = peer.hello()
        await loop.sock_sendall(peer.socket, hello[:cut])
        await server.barrier()
        await loop.sock_sendall(peer.socket, hello[cut:])
        await peer.finish()
        peer.close()
        ended = await tls_peer(server, client_context(certificates.ca))
        await loop.sock_sendall(ended.socket, ended.hello()[:cut])
        ended.close()
    found = server.server.connections.handshakes
    # The one that the size was taken from stays.
    await server.until(lambda: len(server.connections()) == len(found) == 1)
    assert (found.completed, found.failed) == (len(cuts), len(cuts))


@pytest.mark.rounds
async def test_a_damaged_hello_costs_its_connection_alone(server: Serving, certificates: Certificates) -> None:
    """One byte is wrong, each time another: no mistake of ours, and a client that does it right gets in afterwards."""
    loop = asyncio.get_running_loop()
    first = await tls_peer(server, client_context(certificates.ca))
    hello = first.hello()
    for position in range(0, len(hello), rounds(3, 1, 1)):
        peer = await server.peer(listener=-1)
        damaged = hello[:position] + bytes([hello[position] ^ 0xFF]) + hello[position + 1 :]
        await loop.sock_sendall(peer.socket, damaged)
        await server.barrier()
        peer.close()
    await server.until(lambda: len(server.connections()) == 1)
    assert not server.events("connection_failed")
    await loop.sock_sendall(first.socket, hello)
    await first.finish()
    assert (await first.ask(ApiVersionsRequest(), 0)).api_keys


class Sink(asyncio.Transport):
    """A socket whose client takes nothing. waiting: bytes that were written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


async def test_what_tls_says_by_itself_does_not_pile_up(server: Serving, certificates: Certificates) -> None:
    """A client that has the server answer, again and again, and reads nothing, is closed at OWN_BYTES_MAX."""
    peer, transport = await greeted_alone(server, certificates)
    raw, transport._raw = transport._raw, Sink()
    answer, request = bytes(1_000), peer.frame(ApiVersionsRequest(), 0)
    for _ in range(OWN_BYTES_MAX // len(answer)):
        transport._outgoing.write(answer)
        transport.data_received(peer.encrypted(request))
    assert not server.events("connection_closed")
    transport._outgoing.write(answer)
    transport.data_received(peer.encrypted(request))
    (line,) = server.events("connection_closed")
    assert "new keys" in line["reason"]
    transport._raw = raw
    raw.abort()


async def test_a_request_that_comes_with_new_keys_is_answered(server: Serving, certificates: Certificates) -> None:
    """The answer to the new keys goes out, and the connection goes on."""
    peer, transport = await greeted_alone(server, certificates)
    raw, sink = transport._raw, Sink()
    transport._raw = sink
    transport._outgoing.write(b"new keys")
    transport.data_received(peer.encrypted(peer.frame(ApiVersionsRequest(), 0)))
    await server.barrier()
    assert sink.waiting > len(b"new keys")
    transport._raw = raw
    raw.abort()


HALF_OPEN = rounds(1_000, 1_000, 10_000)


async def test_half_open_handshakes_hold_nobody_up(certificates: Certificates, tmp_path: Path) -> None:
    """Beside 1,000 of them (nightly: 10,000) a member keeps its seat, and a new client gets in.

    Every second one has sent a part of its hello, or all of it; of these no more than STARTED_MAX stay.
    """
    ended = max(HALF_OPEN // 2 - STARTED_MAX, 0)
    allow_files()
    async with serving_tls(certificates) as server:
        victim = await greeted(server, client_context(certificates.ca))
        joined = await seat(victim, "g", "i")
        context = client_context(certificates.ca)
        sockets = []
        for index in range(HALF_OPEN):
            peer = await tls_peer(server, context)
            if index % 2:
                await asyncio.get_running_loop().sock_sendall(peer.socket, peer.hello()[: 1 + index % 600])
            sockets.append(peer.socket)
            if index % 100 == 0:
                assert (await victim.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        await server.until(lambda: len(server.server.connections.handshakes) == HALF_OPEN - ended)
        newcomer = await greeted(server, context)
        assert (await newcomer.ask(ApiVersionsRequest(), 0)).api_keys
        assert (await victim.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        await server.advance(8_000)
        assert (await victim.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert server.server.connections.handshakes.failed == (ended and ended + 1)
        for sock in sockets:
            sock.close()


# Connections that come too fast.


async def test_a_connection_that_is_held_has_its_handshake_when_its_time_has_come(certificates: Certificates) -> None:
    """Before, the server spends nothing on it; its 30 s begin with the handshake."""
    rate = "listener.name.ssl.max.connection.creation.rate=1"
    async with serving_tls(certificates, rate, "quota.window.num=2") as server:
        context = client_context(certificates.ca)
        await greeted(server, context)
        handshakes = server.server.connections.handshakes
        held = await tls_peer(server, context)
        await Peer.send_bytes(held, held.hello())
        await server.until(lambda: len(server.connections()) == 2)
        await server.advance(999)
        assert held.is_silent()
        assert len(handshakes) == 0
        await server.advance(1)
        assert len(handshakes) == 1
        await held.finish()
        assert (await held.ask(ApiVersionsRequest(), 0)).api_keys


async def test_a_held_connection_that_goes_is_no_failed_handshake(certificates: Certificates) -> None:
    """Nor does what it sent hold up the next one."""
    rate = "listener.name.ssl.max.connection.creation.rate=1"
    async with serving_tls(certificates, rate, "quota.window.num=2") as server:
        context = client_context(certificates.ca)
        await greeted(server, context)
        gone = await tls_peer(server, context)
        await Peer.send_bytes(gone, gone.hello())
        await server.until(lambda: len(server.connections()) == 2)
        gone.close()
        await server.until(lambda: len(server.connections()) == 1)
        assert server.server.connections.handshakes.failed == 0


async def test_a_connection_above_the_rate_of_its_address_gets_no_handshake(certificates: Certificates) -> None:
    """A quota of connections bounds the handshakes, too: they are what a connection costs the server most."""
    async with serving_tls(certificates, "quota.window.num=2") as server:
        context = client_context(certificates.ca)
        assert await alter(server, entry({"ip": "127.0.0.1"}, connection_creation_rate=2.0)) == [0]
        await server.barrier()
        first = await greeted(server, context)
        handshakes, delays = server.server.connections.handshakes, server.server._api._services.measures.delays
        slow = [await tls_peer(server, context) for _ in range(3)]
        for peer in slow:
            await Peer.send_bytes(peer, peer.hello())
        await server.until(lambda: delays["ip"] == 3)
        for _ in range(3):
            assert (await first.ask(ApiVersionsRequest(), 0)).api_keys
        assert all(peer.is_silent() for peer in slow)
        assert (len(handshakes), handshakes.completed, handshakes.failed) == (0, 1, 0)
        server.clock.advance(1_000)
        for peer in slow:
            assert await Peer.is_closed(peer)
