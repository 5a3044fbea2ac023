"""A connection: order of answers, waiting requests, invalid bytes, back-pressure."""

from __future__ import annotations

import gc
import struct
from typing import Any

import pytest

from coordinator.loop.pace import TURN_MAX_MS
from coordinator.loop.timers import LEFTOVERS_MIN
from coordinator.server.wire.call import Call
from coordinator.server.wire.connection import (
    QUEUED_BYTES_MAX,
    WRITE_BYTES,
    Connection,
    java_host,
    pieces,
    plain_address,
)
from protocol.connection import SIZE_BYTES
from protocol.header import encode_request, encode_response
from protocol.messages import (
    API_KEYS,
    ApiVersionsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    MetadataRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, heartbeat_request, join_request, seat, serving, sync_request
from tests.support.memory import ManualEngine
from tests.support.requests import fetch_request


def frame(content: bytes) -> bytes:
    """A frame of any content."""
    return struct.pack(">i", len(content)) + content


def header(api_key: int, version: int) -> bytes:
    """A request header of version 1 with a null client id."""
    return struct.pack(">hhih", api_key, version, 7, -1)


async def test_who_sends_ahead_has_one_request_a_turn_like_anybody(server: Serving) -> None:
    """If requests take long, a request of another connection does not wait for all requests sent ahead."""
    connections, order = server.server.connections, list[Connection]()
    dispatch = connections.dispatch

    def slow(connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
        order.append(connection)
        server.clock.advance(2 * TURN_MAX_MS)
        return dispatch(connection, frame)

    connections.dispatch = slow
    ahead, other = await server.peer(), await server.peer()
    await ahead.send_bytes(b"".join(ahead.frame(MetadataRequest(topics=[]), 4) for _ in range(50)))
    await other.ask(MetadataRequest(topics=[]), 4)
    for _ in range(50):
        await ahead.receive()
    (its,) = (connection for connection in server.connections() if order.count(connection) == 1)
    assert len(order) == 51
    assert order.index(its) < 25
    assert all(connection.queued_bytes == 0 for connection in server.connections())


def alive(kind: type) -> int:
    """The number of live objects of a class."""
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


HEARTBEAT, JOIN = 12, 11

BROKEN = {
    "a negative size": struct.pack(">i", -1),
    "an empty frame": struct.pack(">i", 0),
    "a frame over the limit": struct.pack(">i", 100_001),
    "an unknown API": frame(header(999, 0)),
    "a negative API key": frame(header(-1, 0)),
    "an API that is not spoken": frame(header(17, 1)),
    "an unsupported version": frame(header(JOIN, 99)),
    "a negative version": frame(header(JOIN, -1)),
    "a frame of one byte": frame(b"\0"),
    "a header cut short": frame(header(HEARTBEAT, 0)[:9]),
    "a client id longer than the frame": frame(struct.pack(">hhih", HEARTBEAT, 0, 7, 500)),
    "a client id that no string can hold": frame(struct.pack(">hhih", HEARTBEAT, 0, 7, 10_923) + b"\xff" * 10_923),
    "no body": frame(header(HEARTBEAT, 0)),
    "a body cut short": frame(header(HEARTBEAT, 0) + struct.pack(">h", 3) + b"ab"),
    "null where a string is mandatory": frame(header(HEARTBEAT, 0) + struct.pack(">hih", -1, 0, 0)),
    "a string with a negative length": frame(header(HEARTBEAT, 0) + struct.pack(">h", -2)),
    "an array of two billion": frame(header(3, 0) + struct.pack(">i", 2_000_000_000)),
    "a varint without an end": frame(header(HEARTBEAT, 4) + b"\0" + b"\xff" * 30),
    "no tags in a flexible header": frame(header(HEARTBEAT, 4)),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_bytes_cost_their_connection_and_one_line(name: str) -> None:
    """Earlier requests are answered, then the connection closes with one log line; other connections go on."""
    async with serving("socket.request.max.bytes=100000") as server:
        other, peer = await server.peer(), await server.peer()
        joined = await seat(other, "g", "i")
        before = len(server.events())
        good = peer.frame(ApiVersionsRequest(), 0)
        await peer.send_bytes(good + BROKEN[name] + good)
        assert (await peer.receive()).error_code == ErrorCode.NONE
        assert await peer.is_closed()
        assert [event["event"] for event in server.events()[before:]] == ["connection_closed"]
        assert (await other.ask(heartbeat_request("g", joined, "i"), 4)).error_code == ErrorCode.NONE
        assert len(server.connections()) == 1


async def test_requests_are_answered_whatever_the_pieces_they_come_in(peer: Peer) -> None:
    """Each request is answered, in order, if it comes byte by byte or with many others in one piece."""
    for byte in peer.frame(ApiVersionsRequest(), 0):
        await peer.send_bytes(bytes([byte]))
    assert (await peer.receive()).error_code == ErrorCode.NONE
    await peer.send_bytes(b"".join(peer.frame(ApiVersionsRequest(), index % 3) for index in range(500)))
    for _ in range(500):
        assert (await peer.receive()).error_code == ErrorCode.NONE


async def test_answers_larger_than_one_write_all_arrive() -> None:
    """Answers to one read that exceed one write go out in several writes."""
    async with connected("tenure.topics=big:2000") as (_, peer):
        await peer.send_bytes(b"".join(peer.frame(MetadataRequest(topics=None), 9) for _ in range(20)))
        answers = [await peer.receive() for _ in range(20)]
        assert all(len(answer.topics[1].partitions) == 2000 for answer in answers)
        assert WRITE_BYTES < 2000 * 20 * 20


async def test_a_stopped_connection_handles_no_further_request(server: Serving) -> None:
    """The request that waits still gets its answer. The one behind it is not handled."""
    first, second = await server.peer(), await server.peer()
    member = await seat(first, "g", "a")
    await second.send(join_request("g", instance="b"), 5)
    await second.send(ApiVersionsRequest(), 0)
    await server.until(lambda: any(each.waits and each.queued_bytes for each in server.connections()))
    (connection,) = [each for each in server.connections() if each.waits]
    connection.stop()
    await first.send(join_request("g", member.member_id, instance="a"), 5)
    assert (await second.receive()).error_code == ErrorCode.NONE
    await server.barrier()
    assert connection.queued_bytes > 0


async def test_a_closed_connection_removes_nobody_and_leaves_no_request_behind(server: Serving) -> None:
    """Its member stays, the answer of its waiting JoinGroup is dropped, and the connection's memory is freed."""
    first, second = await server.peer(), await server.peer()
    member = await seat(first, "g", "a")
    await second.send(join_request("g", instance="b"), 5)
    await server.until(lambda: len(server.events("member_joined")) == 2)
    second.close()
    await server.until(lambda: len(server.connections()) == 1)
    assert alive(Connection) == len(server.server.connections)
    assert alive(Call) == 1
    rejoined = await first.join("g", member.member_id, instance="a")
    assert len(rejoined.members) == 2
    described = await first.ask(DescribeGroupsRequest(groups=["g"]), 4)
    assert {each.group_instance_id for each in described.groups[0].members} == {"a", "b"}
    assert server.events("connection_failed") == []
    assert alive(Call) == 0


async def test_a_closed_connection_ends_its_fetch(server: Serving) -> None:
    """A Fetch that would wait for weeks ends with its connection; at most a few leftovers of its timer remain."""
    for _ in range(2 * LEFTOVERS_MIN):
        peer = await server.peer()
        await peer.send(fetch_request({("orders", 0): 0}, max_wait_ms=2**31 - 1), 11)
        await server.until(lambda: any(each.waits for each in server.connections()))
        assert peer.is_silent()
        peer.close()
        await server.until(lambda: len(server.connections()) == 0)
    assert alive(Connection) == 1
    assert alive(Call) <= LEFTOVERS_MIN + 1
    assert server.events("connection_failed") == []


async def test_nothing_more_is_read_than_may_be_queued(server: Serving) -> None:
    """Requests behind a waiting one fill the client's buffers, not the server's memory; all are answered later."""
    first, second = await server.peer(), await server.peer()
    member = await seat(first, "g", "a")
    await second.send(join_request("g", instance="b"), 5)
    await server.until(lambda: len(server.events("member_joined")) == 2)
    (connection,) = [each for each in server.connections() if each.waits]
    request = encode_request(HeartbeatRequest(group_id="x" * 1000, generation_id=0, member_id=""), 0, 0, "c")
    sent = 0

    def is_reading() -> bool:
        return connection.is_reading

    while is_reading():
        await second.send_bytes(request * 16)
        sent += 16
        await server.barrier()
    assert QUEUED_BYTES_MAX < connection.queued_bytes < QUEUED_BYTES_MAX + 1024 * 1024
    await first.send(join_request("g", member.member_id, instance="a"), 5)
    assert (await second.receive()).error_code == ErrorCode.NONE
    for _ in range(sent):
        assert await second.receive_frame() is not None
    assert is_reading()
    assert connection.queued_bytes == 0


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    """While a client does not read its answers, the server reads no more of its requests."""
    async with connected("tenure.topics=big:2000") as (server, peer):
        count = 150
        requests = b"".join(peer.frame(MetadataRequest(topics=None), 9) for _ in range(count))
        await peer.send_bytes(requests)
        await server.barrier()
        (connection,) = server.connections()
        assert connection.queued_bytes > 0
        assert not connection.waits
        for _ in range(count):
            assert await peer.receive_frame() is not None
        assert connection.queued_bytes == 0


# Large answers.


def test_parts_become_pieces() -> None:
    """Small parts are joined, a larger part is cut without a copy, and the bytes are the same in the same order."""
    large = bytes(range(256)) * 1_000
    parts = [b"ab", b"", b"cd", large, b"ef", b"x" * WRITE_BYTES, b"y" * (WRITE_BYTES - 1), b"z", b"end"]
    found = list(pieces(parts))
    assert b"".join(found) == b"".join(parts)
    assert all(0 < len(piece) < 2 * WRITE_BYTES for piece in found)
    assert found[0] == b"abcd"
    views = [piece for piece in found if isinstance(piece, memoryview)]
    assert {id(view.obj) for view in views} == {id(large)}
    assert list(pieces([])) == []


class LargeAnswers:
    """A dispatch that answers each Metadata in many parts, as `pieces` gets them."""

    def __init__(self, server: Serving) -> None:
        self.parts = [struct.pack(">i", 4 + 2_000 * 30_000), b"part", *([b"p" * 30_000] * 2_000)]
        self.calls = 0
        self._dispatch = server.server.connections.dispatch
        server.server.connections.dispatch = self.answer

    def answer(self, connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
        if frame.startswith(struct.pack(">h", API_KEYS["Metadata"])):
            self.calls += 1
            return list(self.parts)
        return self._dispatch(connection, frame)


async def beating(server: Serving) -> tuple[Peer, HeartbeatRequest]:
    """The connection of a member, and its heartbeat, which was answered once."""
    peer = await server.peer()
    beat = heartbeat_request("g", await seat(peer, "g", "i"), "i")
    assert (await peer.ask(beat, 4)).error_code == ErrorCode.NONE
    return peer, beat


async def test_a_large_answer_is_written_as_the_client_takes_it(server: Serving) -> None:
    """The rest of the answer waits here, and so do further requests; all answers arrive, in order and whole."""
    large = LargeAnswers(server)
    peer, beat = await beating(server)
    await peer.send(MetadataRequest(topics=[]), 4)
    await server.until(lambda: large.calls == 1)
    (connection,) = server.connections()
    await server.until(lambda: not connection._writable)
    assert connection._rest is not None
    transport = connection._transport
    assert transport is not None
    assert transport.get_write_buffer_size() < 4 * WRITE_BYTES
    await peer.send(beat, 4)  # a repeated one, which would be answered before dispatch
    await peer.send(MetadataRequest(topics=[]), 4)
    await server.barrier()
    assert large.calls == 1
    for expected in (b"".join(large.parts)[SIZE_BYTES:], None, b"".join(large.parts)[SIZE_BYTES:]):
        frame = await peer.receive_frame()
        assert frame is not None
        assert len(frame) < 100 if expected is None else frame == expected
    assert large.calls == 2
    await server.until(lambda: connection._rest is None and connection.queued_bytes == 0)


async def test_a_large_answer_is_cut_by_the_turn(server: Serving) -> None:
    """If the client takes all, the answer still takes many turns, and no heartbeat's answer comes into its middle."""
    large = LargeAnswers(server)
    peer, beat = await beating(server)
    (connection,) = server.connections()
    transport = Taking(server)
    connection._transport = transport  # type: ignore[assignment]
    connection.data_received(peer.frame(MetadataRequest(topics=[]), 4))
    assert connection._rest is not None
    assert connection._writable
    at_once = len(transport.written)
    connection.data_received(peer.frame(beat, 4))
    assert len(transport.written) == at_once < 10
    await server.until(lambda: connection._rest is None and not connection.queued_bytes)
    whole = b"".join(transport.written)
    assert whole[: len(whole) - 16].startswith(b"".join(large.parts))
    assert len(whole) - len(b"".join(large.parts)) < 100


class Taking:
    """A transport that takes all at once; each write takes half a turn."""

    def __init__(self, server: Serving) -> None:
        self.written: list[bytes] = []
        self._clock = server.clock

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))
        self._clock.advance(TURN_MAX_MS // 2)

    def abort(self) -> None:
        """Nothing is open."""

    close = abort


async def test_a_client_that_leaves_in_the_middle_of_a_large_answer_leaves_nothing_behind(server: Serving) -> None:
    """The rest of the answer is dropped with the connection, without a log line."""
    LargeAnswers(server)
    peer = await server.peer()
    await peer.send(MetadataRequest(topics=[]), 4)
    await server.until(lambda: bool(server.connections()) and not server.connections()[0]._writable)
    (connection,) = server.connections()
    before = len(server.events())
    peer.close()
    await server.until(lambda: len(server.connections()) == 0)
    assert connection._rest is None
    assert server.events()[before:] == []


async def test_a_server_that_stops_finishes_a_large_answer(server: Serving) -> None:
    """`close` hands the rest to the transport, which closes behind it."""
    large = LargeAnswers(server)
    peer = await server.peer()
    await peer.send(MetadataRequest(topics=[]), 4)
    await server.until(lambda: bool(server.connections()) and not server.connections()[0]._writable)
    server.connections()[0].close()
    assert await peer.receive_frame() == b"".join(large.parts)[SIZE_BYTES:]
    assert await peer.is_closed()


async def test_a_mistake_of_ours_costs_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that fails is logged with its trace, its connection is closed, and the server goes on."""
    monkeypatch.setattr("coordinator.server.wire.api.api_versions", lambda *_: 1 / 0)
    async with serving() as server:
        peer, other = await server.peer(), await server.peer()
        await peer.send(ApiVersionsRequest(), 0)
        assert await peer.is_closed()
        (line,) = server.events("connection_failed")
        assert "ZeroDivisionError" in line["reason"]
        assert line["level"] == "error"
        assert (await other.ask(MetadataRequest(topics=None), 1)).topics


async def test_an_answer_that_breaks_down_later_costs_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a later answer fails, the code that delivers it goes on."""
    engine = ManualEngine(4, 1)
    async with serving(engine=engine) as server:
        first = await server.peer()
        joined = await first.join("g", instance="a")
        engine.hold = True
        await first.send(sync_request("g", joined, "a"), 3)
        await server.barrier()

        def break_down(api_key: int, *rest: Any) -> bytes:
            assert api_key != API_KEYS["SyncGroup"]
            return encode_response(api_key, *rest)

        monkeypatch.setattr("coordinator.server.wire.call.encode_response", break_down)
        engine.flush()
        await server.until(lambda: bool(server.events("connection_failed")))
        assert await first.is_closed()
        second = await server.peer()
        described = await second.ask(DescribeGroupsRequest(groups=["g"]), 4)
        assert described.groups[0].group_state == "Stable"


@pytest.mark.parametrize(
    "address, host",
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("fe80::a:b%eth0", "/fe80:0:0:0:0:0:a:b%eth0"),
        ("2001:db8::ff00:42:8329", "/2001:db8:0:0:0:ff00:42:8329"),
    ],
)
def test_addresses_are_written_as_java_does(address: str, host: str) -> None:
    """The client's host has Kafka's form."""
    assert java_host(address) == host


def test_an_ipv4_client_is_one_on_a_socket_of_both_families() -> None:
    """::ffff:10.0.0.1 is shown as 10.0.0.1."""
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_address("::1") == "::1"


async def test_a_client_that_names_its_program_is_known_by_it(peer: Peer, server: Serving) -> None:
    """Also if it has sent another request before."""
    await peer.ask(ApiVersionsRequest(), 0)
    (connection,) = server.connections()
    assert connection.client("c").software == ""
    await peer.ask(ApiVersionsRequest(client_software_name="app", client_software_version="1"), 3)
    assert connection.client("c").software == "app 1"


async def test_a_client_that_authenticates_is_somebody_else_from_then_on(peer: Peer, server: Serving) -> None:
    """Nothing that was kept of the connection names its former principal."""
    await peer.ask(ApiVersionsRequest(), 0)
    (connection,) = server.connections()
    before = connection.client("c")
    connection.authenticated("User:alice")
    assert connection.client("c").principal == "User:alice"
    assert not connection.knows(before)


async def test_the_end_of_a_muted_connection_is_told_once() -> None:
    """To its own part in the server, and to the one that muted it, which waits for nothing more."""
    told: list[str] = []
    async with connected() as (server, peer):
        await peer.ask(ApiVersionsRequest(), 0)
        (connection,) = server.connections()
        connection.mute(lambda: told.append("lost"))
        peer.close()
        await server.until(lambda: not server.connections())
    assert told == ["lost"]
