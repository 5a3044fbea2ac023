"""SASL on a connection: what comes before a client has authenticated, the end of a session, and its renewal."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest

from coordinator.security.sasl.offer import FRAME_MAX_BYTES
from coordinator.server.telemetry.measures import Login
from coordinator.server.wire.authentication import AUTHENTICATE_WITHIN_MS, REAUTHENTICATION_PAUSE_MS, VERSIONS_MAX
from protocol.messages import (
    ApiVersionsRequest,
    HeartbeatRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, heartbeat_request, seat, serving
from tests.server.wire.test_connection import frame

SESSION_MS = 60_000
SETTINGS = (
    "listeners=OPEN://127.0.0.1:0,SASL://127.0.0.1:0,TIMED://127.0.0.1:0",
    "listener.security.protocol.map=OPEN:PLAINTEXT,SASL:SASL_PLAINTEXT,TIMED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    *(
        f"listener.name.{listener}.plain.sasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob="other";'
        for listener in ("sasl", "timed")
    ),
    f"listener.name.timed.plain.connections.max.reauth.ms={SESSION_MS}",
)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SASL, TIMED = 1, 2
"""The listeners: of sessions without an end, and of those with one."""
DELAY_MS = 100

HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")
METADATA = MetadataRequest(topics=[])


def token(text: str) -> SaslAuthenticateRequest:
    """A token of PLAIN."""
    return SaslAuthenticateRequest(auth_bytes=text.encode())


RIGHT = token("\0alice\0secret")
WRONG = token("\0alice\0wrong")


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    """A server with the three listeners."""
    async with serving(*SETTINGS) as made:
        yield made


async def log_in(peer: Peer, text: str = "\0alice\0secret", version: int = 2) -> int:
    """Authenticate; returns how long the session lasts."""
    assert (await peer.ask(HANDSHAKE, 1)).error_code == ErrorCode.NONE
    answer = await peer.ask(token(text), version)
    assert answer.error_code == ErrorCode.NONE
    return int(answer.session_lifetime_ms)


async def refused_silently(server: Serving, peer: Peer) -> None:
    """The connection closes without an answer, and not before the pause."""
    await server.at_rest()
    assert peer.is_silent()
    await server.advance(DELAY_MS - 1)
    assert peer.is_silent()
    await server.advance(1)
    assert await peer.is_closed()


async def test_a_client_that_authenticates_is_a_user(server: Serving) -> None:
    """Behind the right password all requests are answered, for the user of that name."""
    peer = await server.peer(listener=SASL)
    assert (await peer.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
    answer = await peer.ask(HANDSHAKE, 1)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.NONE, ["PLAIN"])
    assert (await peer.ask(RIGHT, 2)).session_lifetime_ms == 0
    assert (await peer.ask(METADATA, 4)).brokers
    assert [connection.principal for connection in server.connections()] == ["User:alice"]


async def test_bare_tokens_behind_a_handshake_of_version_0(server: Serving) -> None:
    """Old clients send the token without a header, and get its answer without one."""
    peer = await server.peer(listener=SASL)
    assert (await peer.ask(HANDSHAKE, 0)).error_code == ErrorCode.NONE
    await peer.send_bytes(frame(b"\0alice\0secret"))
    await server.at_rest()
    assert peer.socket.recv(100) == bytes(4)
    assert (await peer.ask(METADATA, 4)).brokers


async def test_requests_sent_ahead_of_the_answer_to_the_token(server: Serving) -> None:
    """A client may send its first requests without waiting for its authentication to end."""
    peer = await server.peer(listener=SASL)
    requests = ((HANDSHAKE, 1), (RIGHT, 2), (METADATA, 4), (ApiVersionsRequest(), 0))
    await peer.send_bytes(b"".join(peer.frame(request, version) for request, version in requests))
    for _ in requests:
        assert getattr(await peer.receive(), "error_code", 0) == ErrorCode.NONE


@pytest.mark.parametrize("text", ["\0alice\0wrong", "\0mallory\0secret"])
async def test_a_wrong_password_and_an_unknown_user_get_the_same_at_the_same_time(server: Serving, text: str) -> None:
    """The answer comes behind the pause, and with it the end of the connection."""
    peer = await server.peer(listener=SASL)
    await peer.ask(HANDSHAKE, 1)
    await peer.send(token(text), 2)
    await server.at_rest()
    assert peer.is_silent()
    await server.advance(DELAY_MS - 1)
    assert peer.is_silent()
    await server.advance(1)
    answer = await peer.receive()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert await peer.is_closed()
    (line,) = server.events("authentication_failed")
    assert line["reason"] == "wrong name or password"


async def test_an_unknown_mechanism_gets_the_list(server: Serving) -> None:
    """The answer has the mechanisms that there are; then the connection closes."""
    peer = await server.peer(listener=SASL)
    await peer.send(SaslHandshakeRequest(mechanism="SCRAM-SHA-1"), 1)
    await server.advance(DELAY_MS)
    answer = await peer.receive()
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    assert await peer.is_closed()


@pytest.mark.parametrize("before", [(), ((ApiVersionsRequest(), 0),)], ids=["first", "behind ApiVersions"])
@pytest.mark.parametrize("request_", [(METADATA, 4), (RIGHT, 2), (HeartbeatRequest(), 4)], ids=["12", "36", "3"])
async def test_other_requests_before_the_handshake_are_refused(
    server: Serving, before: tuple[tuple[ApiVersionsRequest, int], ...], request_: tuple[MetadataRequest, int]
) -> None:
    """They get no answer, and nothing that comes behind them is handled."""
    peer = await server.peer(listener=SASL)
    for each in before:
        await peer.ask(*each)
    await peer.send(*request_)
    await peer.send(HANDSHAKE, 1)
    await refused_silently(server, peer)
    assert server.events("authentication_failed")


async def test_other_requests_in_place_of_a_token_are_refused(server: Serving) -> None:
    """ApiVersions and SaslHandshake get ILLEGAL_SASL_STATE, other requests get nothing; then the connection closes."""
    for request, version in ((ApiVersionsRequest(), 0), (HANDSHAKE, 1)):
        peer = await server.peer(listener=SASL)
        await peer.ask(HANDSHAKE, 1)
        await peer.send(request, version)
        await server.advance(DELAY_MS)
        assert (await peer.receive()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await peer.is_closed()
    peer = await server.peer(listener=SASL)
    await peer.ask(HANDSHAKE, 1)
    await peer.send(METADATA, 4)
    await refused_silently(server, peer)


async def test_versions_of_api_versions_may_be_tried(server: Serving) -> None:
    """A client whose version is unknown, or whose name is wrong, may ask again; not without end."""
    peer = await server.peer(listener=SASL)
    for _ in range(VERSIONS_MAX):
        answer = await peer.ask(ApiVersionsRequest(client_software_name="-", client_software_version="1"), 3)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    await peer.send(ApiVersionsRequest(), 0)
    await refused_silently(server, peer)


async def test_api_versions_is_asked_once(server: Serving) -> None:
    """Once a client has got the versions, a handshake has to come."""
    peer = await server.peer(listener=SASL)
    assert (await peer.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE
    await peer.send(ApiVersionsRequest(), 0)
    await refused_silently(server, peer)
    assert server.events("authentication_failed")


async def test_frames_are_small_before_authentication(server: Serving) -> None:
    """A larger frame ends the connection as soon as its size has come; afterwards frames have the general limit."""
    peer = await server.peer(listener=SASL)
    await peer.send_bytes(struct.pack(">i", FRAME_MAX_BYTES + 1))
    assert await peer.is_closed()
    peer = await server.peer(listener=SASL)
    await log_in(peer)
    wide = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="x" * FRAME_MAX_BYTES)])
    assert (await peer.ask(wide, 4)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_client_that_does_not_authenticate_is_closed(server: Serving) -> None:
    """A connection has a time to authenticate, however busy it is, and none when it has authenticated."""
    silent, slow, done = [await server.peer(listener=SASL) for _ in range(3)]
    await slow.ask(HANDSHAKE, 1)
    await log_in(done)
    await server.advance(AUTHENTICATE_WITHIN_MS - 1)
    assert silent.is_silent()
    assert slow.is_silent()
    await server.advance(1)
    assert await silent.is_closed()
    assert await slow.is_closed()
    assert (await done.ask(METADATA, 4)).brokers


async def test_lines_about_failures_are_limited(server: Serving) -> None:
    """However many clients fail, a log has some lines about them, and later one with the number."""
    for number in range(40):
        peer = await server.peer(listener=SASL)
        await peer.send(METADATA, 4)
        await server.advance(DELAY_MS)
        assert await peer.is_closed(), number
    assert len(server.events("authentication_failed")) == 20
    await server.advance(10_000)
    peer = await server.peer(listener=SASL)
    await peer.send(METADATA, 4)
    await refused_silently(server, peer)
    assert server.events("authentication_failed")[-1]["left_out"] == 20


async def test_sasl_where_none_is_due(server: Serving) -> None:
    """On a listener without SASL, and when the client has authenticated for good: refused, but the connection stays."""
    done = await server.peer(listener=SASL)
    await log_in(done)
    for peer in (await server.peer(), done):
        answer = await peer.ask(HANDSHAKE, 1)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert (await peer.ask(RIGHT, 2)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.ask(METADATA, 4)).brokers


# Sessions with an end (KIP-368).


async def test_a_session_is_renewed(server: Serving) -> None:
    """The client knows when its session ends, and may authenticate again at any time."""
    peer = await server.peer(listener=TIMED)
    assert await log_in(peer) == SESSION_MS
    await server.advance(SESSION_MS - 1)
    assert await log_in(peer) == SESSION_MS
    await server.advance(SESSION_MS - 1)
    assert (await peer.ask(METADATA, 4)).brokers


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_an_ended_session_is_closed_by_its_next_request(server: Serving, version: int) -> None:
    """Also if the client couldn't be told of the end; a handshake is let through."""
    late, idle = [await server.peer(listener=TIMED) for _ in range(2)]
    for peer in (late, idle):
        assert await log_in(peer, version=version) == (SESSION_MS if version else 0)
    await server.advance(SESSION_MS)
    assert late.is_silent()
    await log_in(late)
    assert (await late.ask(METADATA, 4)).brokers
    await idle.send(ApiVersionsRequest(), 0)
    assert await idle.is_closed()


async def test_a_repeated_heartbeat_is_not_answered_behind_the_end_of_its_session(server: Serving) -> None:
    """The short cut ends with the session."""
    await server.loaded()
    peer = await server.peer(listener=TIMED)
    await log_in(peer)
    joined = await seat(peer, "group", "a")
    beat = heartbeat_request("group", joined, "a")
    for _ in range(3):
        assert (await peer.ask(beat, 4)).error_code == ErrorCode.NONE
    (connection,) = server.connections()
    assert connection.may_short_cut
    await server.advance(SESSION_MS)
    await peer.send(beat, 4)
    assert await peer.is_closed()


async def test_another_user_or_mechanism_can_not_renew_a_session(server: Serving) -> None:
    """Another user gets an error, another mechanism nothing; then the connection closes."""
    peer = await server.peer(listener=TIMED)
    await log_in(peer)
    await peer.ask(HANDSHAKE, 1)
    await peer.send(token("\0bob\0other"), 2)
    await server.advance(DELAY_MS)
    answer = await peer.receive()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert await peer.is_closed()


async def test_a_renewal_with_another_mechanism_is_refused() -> None:
    """Nothing tells the client so; a line says why its connection closes."""
    scram = (
        "listener.name.timed.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        f"listener.name.timed.scram-sha-256.sasl.jaas.config={SCRAM} required;",
    )
    async with serving(*SETTINGS, *scram) as server:
        peer = await server.peer(listener=TIMED)
        await log_in(peer)
        await peer.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        await peer.send(WRONG, 2)
        await refused_silently(server, peer)
        (line,) = server.events("authentication_failed")
        assert "it authenticated by PLAIN, and asks for another mechanism" in line["message"]


async def test_other_requests_during_a_renewal_are_refused(server: Serving) -> None:
    """Between the handshake and the last token nothing else may come, not even a heartbeat that is remembered."""
    await server.loaded()
    peer = await server.peer(listener=TIMED)
    await log_in(peer)
    beat = heartbeat_request("group", await seat(peer, "group", "a"), "a")
    for _ in range(3):
        assert (await peer.ask(beat, 4)).error_code == ErrorCode.NONE
    await peer.ask(HANDSHAKE, 1)
    await peer.send(beat, 4)
    await refused_silently(server, peer)


async def test_a_wrong_password_in_a_renewal_closes(server: Serving) -> None:
    """The session is over at once."""
    peer = await server.peer(listener=TIMED)
    await log_in(peer)
    await peer.ask(HANDSHAKE, 1)
    await peer.send(WRONG, 2)
    await server.advance(DELAY_MS)
    assert (await peer.receive()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await peer.is_closed()


async def test_renewals_have_a_pause(server: Serving) -> None:
    """A session may be renewed at once, and then again after a second; an earlier handshake is refused."""
    peer = await server.peer(listener=TIMED)
    await log_in(peer)
    await log_in(peer)
    assert (await peer.ask(HANDSHAKE, 1)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    await server.advance(REAUTHENTICATION_PAUSE_MS)
    await log_in(peer)


async def test_logins_are_counted_by_listener_and_mechanism(server: Serving) -> None:
    """Each login counts once, first ones and renewals apart; names that a client makes up become no series."""
    assert server.server.connections.door is not None
    counts = server.server.connections.door.logins
    assert set(counts.values()) == {0}
    assert {key[:2] for key in counts} == {("SASL", "PLAIN"), ("TIMED", "PLAIN")}
    for text in ("\0alice\0secret", "\0alice\0wrong", "\0nobody\0wrong"):
        peer = await server.peer(listener=SASL)
        await peer.ask(HANDSHAKE, 1)
        await peer.send(token(text), 2)
        await server.at_rest()
    for number in range(3):
        peer = await server.peer(listener=SASL)
        await peer.send(SaslHandshakeRequest(mechanism=f"MADE-UP-{number}"), 1)
        await server.at_rest()
    peer = await server.peer(listener=TIMED)
    await log_in(peer)
    await log_in(peer)
    await server.advance(REAUTHENTICATION_PAUSE_MS)
    await peer.ask(HANDSHAKE, 1)
    await peer.send(WRONG, 2)
    await server.at_rest()
    assert {key: count for key, count in counts.items() if count} == {
        ("SASL", "PLAIN", Login.SUCCEEDED): 1,
        ("SASL", "PLAIN", Login.FAILED): 2,
        ("SASL", "", Login.FAILED): 3,
        ("TIMED", "PLAIN", Login.SUCCEEDED): 1,
        ("TIMED", "PLAIN", Login.SUCCEEDED_AGAIN): 1,
        ("TIMED", "PLAIN", Login.FAILED_AGAIN): 1,
    }


async def test_nothing_is_kept_of_connections_that_are_gone(server: Serving) -> None:
    """A client that leaves, whatever it had done, leaves no timer behind."""
    peers = [await server.peer(listener=listener) for listener in (SASL, SASL, TIMED)]
    await peers[0].send(METADATA, 4)
    await log_in(peers[2])
    await server.at_rest()
    door = server.server.connections.door
    assert door is not None
    assert len(door.alarm._timers) == len(peers)
    for peer in peers:
        peer.close()
    await server.advance(DELAY_MS)  # a client that is refused isn't read from, so its end is seen when ours comes
    await server.until(lambda: not server.connections())
    assert len(door.alarm._timers) == 0
