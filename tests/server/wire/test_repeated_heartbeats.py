"""Repeated heartbeats: the short cut answers the same as dispatch, and its tables stay small."""

from __future__ import annotations

import gc
import random
import struct
from collections.abc import Callable

import pytest

from coordinator.group.client import ANONYMOUS, Now
from coordinator.group.coordinator import Coordinator
from coordinator.group.effects import Effects
from coordinator.group.events import DescribeGroup, Event, Unload
from coordinator.group.group import Group
from coordinator.server.wire import repeated_heartbeats as heartbeats
from coordinator.server.wire.connection import Connection
from coordinator.server.wire.repeated_heartbeats import BYTES_MAX, ROTATE_MS
from protocol.header import encode_request, encode_response
from protocol.messages import API_KEYS, DeleteGroupsRequest, DescribeGroupsRequest, HeartbeatResponse, LeaveGroupRequest
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, heartbeat_request, join_request, seat, serving

SESSION_MS = 10_000
HEARTBEAT = API_KEYS["Heartbeat"]


def beats(server: Serving) -> Callable[[bytes], bytes | None]:
    """The look-up of a request among the kept heartbeats."""
    return server.server._api.heartbeats_of(ANONYMOUS).answer


@pytest.mark.parametrize("version", range(5))
async def test_a_heartbeats_answer_is_what_the_codec_would_write(peer: Peer, version: int) -> None:
    """The short cut puts a correlation id into kept bytes, which gives the same bytes as the codec."""
    joined = await seat(peer, "g", "i")
    for request, error in (
        (heartbeat_request("g", joined), ErrorCode.NONE),
        (heartbeat_request("absent", joined), ErrorCode.UNKNOWN_MEMBER_ID),
        (heartbeat_request("", joined), ErrorCode.INVALID_GROUP_ID),
    ):
        for correlation_id in (0, -1, 0x01020304):
            sent = bytearray(peer.frame(request, version))
            peer._due.clear()
            sent[8:12] = struct.pack(">i", correlation_id)
            await peer.send_bytes(bytes(sent))
            frame = await peer.receive_frame()
            expected = encode_response(12, version, correlation_id, HeartbeatResponse(error_code=error))
            assert frame == expected[4:]


async def test_each_heartbeat_counts_as_an_answer(peer: Peer, server: Serving) -> None:
    """First heartbeats and refused ones count under their error, repeated ones in a number of their own."""
    joined = await seat(peer, "g", "i")
    measures = server.server._api._services.measures
    for request in [heartbeat_request("g", joined)] * 3 + [heartbeat_request("absent", joined)] * 2:
        await peer.ask(request, 4)
    counted = {error: count for (api_key, error), count in measures.answers.items() if api_key == HEARTBEAT}
    assert counted == {ErrorCode.NONE: 1, ErrorCode.UNKNOWN_MEMBER_ID: 2}
    assert measures.repeated_heartbeats == 2


async def test_the_same_heartbeat_in_another_version_is_another_one(peer: Peer) -> None:
    """Versions 1 and 2 differ only in their number, version 0 also in its answer: each gets its own answer."""
    joined = await seat(peer, "g", "i")
    for version in (0, 1, 0, 2, 1, 0):
        assert (await peer.ask(heartbeat_request("g", joined), version)).error_code == ErrorCode.NONE


async def test_another_request_with_the_bytes_of_a_heartbeat_is_not_one(peer: Peer) -> None:
    """A kept heartbeat answers heartbeats only."""
    joined = await seat(peer, "g", "i")
    assert (await peer.ask(heartbeat_request("g", joined), 0)).error_code == ErrorCode.NONE
    # LeaveGroup v0 has a group id and a member id; a heartbeat has the generation between them.
    sent = bytearray(peer.frame(heartbeat_request("g", joined), 0))
    sent[4:6] = struct.pack(">h", API_KEYS["LeaveGroup"])
    await peer.send_bytes(bytes(sent))
    frame = await peer.receive_frame()
    assert frame is not None
    assert struct.unpack(">ih", frame)[1] == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_repeated_heartbeat_sees_what_has_changed(server: Serving) -> None:
    """A kept heartbeat does not keep its answer: when the group rebalances, the member learns it."""
    peer, other = await server.peer(), await server.peer()
    joined = await seat(peer, "g", "i")
    assert (await peer.ask(heartbeat_request("g", joined), 3)).error_code == ErrorCode.NONE
    await other.send(join_request("g", instance="j"), 5)
    await server.until(lambda: len(server.events("member_joined")) == 2)
    for _ in range(2):
        answer = await peer.ask(heartbeat_request("g", joined), 3)
        assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_each_member_is_remembered_whoever_shares_its_connection(server: Serving) -> None:
    """Heartbeats of members that share a connection all stay kept, and count for another connection too."""
    peer, other = await server.peer(), await server.peer()
    groups = ("g", "group", "h")
    joined = {group: await seat(peer, group, "i") for group in groups}
    sent = {}
    for group in groups:
        sent[group] = peer.frame(heartbeat_request(group, joined[group]), 3)
        assert beats(server)(sent[group]) is None
        await peer.send_bytes(sent[group])
        assert (await peer.receive()).error_code == ErrorCode.NONE
    gone = heartbeat_request("h", joined["g"])
    for each in (peer, other, peer):
        for group in groups:
            assert beats(server)(sent[group]) is not None
            assert (await each.ask(heartbeat_request(group, joined[group]), 3)).error_code == ErrorCode.NONE
        assert (await each.ask(gone, 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_is_remembered_while_it_is_heard_of(peer: Peer, server: Serving) -> None:
    """A heartbeat stays kept as long as it repeats, and alone renews the session."""
    request = heartbeat_request("g", await seat(peer, "g", "i"))
    assert (await peer.ask(request, 3)).error_code == ErrorCode.NONE
    for _ in range(5 * ROTATE_MS // SESSION_MS):
        await server.advance(SESSION_MS - 1)
        assert beats(server)(peer.frame(request, 3)) is not None


async def test_what_is_gone_is_forgotten(peer: Peer, server: Serving) -> None:
    """A kept heartbeat does not keep a deleted group in memory."""
    joined = await seat(peer, "g", "i")
    assert (await peer.ask(heartbeat_request("g", joined), 3)).error_code == ErrorCode.NONE
    await peer.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 0)
    assert (await peer.ask(heartbeat_request("g", joined), 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await peer.ask(DeleteGroupsRequest(groups_names=["g"]), 1)
    await server.advance(2 * ROTATE_MS)
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, Group) and each.group_id == "g"] == []


async def test_a_coordinator_that_was_thrown_away_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reload a heartbeat renews the session of the loaded member, not of the dropped one."""
    handle = Coordinator.handle

    def break_down(self: Coordinator, event: Event, now: Now) -> Effects:
        assert not isinstance(event, DescribeGroup | Unload), "it cannot be"
        return handle(self, event, now)

    monkeypatch.setattr(Coordinator, "handle", break_down)
    async with serving() as server:
        peer, admin = await server.peer(), await server.peer()
        request = heartbeat_request("g", await seat(peer, "g", "i"))
        assert (await peer.ask(request, 3)).error_code == ErrorCode.NONE
        await admin.ask(DescribeGroupsRequest(groups=["g"]), 0)
        await server.barrier()
        for _ in range(3):
            assert (await peer.ask(request, 3)).error_code == ErrorCode.NONE
            await server.advance(SESSION_MS - 1)
        monkeypatch.undo()
        assert (await admin.ask(DescribeGroupsRequest(groups=["g"]), 0)).groups[0].group_state == "Stable"


async def test_what_was_told_to_be_forgotten_is_remembered_anew(peer: Peer, server: Serving) -> None:
    """After `forget`, dispatch answers a heartbeat once and it is kept again, until the tables rotate."""
    request = heartbeat_request("g", await seat(peer, "g", "i"))
    kept = server.server._api.heartbeats_of(ANONYMOUS)
    for _ in range(2):
        assert (await peer.ask(request, 3)).error_code == ErrorCode.NONE
        assert kept._young
        kept.forget()
        assert not kept._young
    assert (await peer.ask(request, 3)).error_code == ErrorCode.NONE
    await server.advance(2 * ROTATE_MS)
    assert not kept._young
    assert not kept._old


async def test_what_no_longer_holds_is_forgotten_while_it_comes(peer: Peer, server: Serving) -> None:
    """A client that goes on with the heartbeats of a removed member keeps nothing of its group in memory."""
    joined = await seat(peer, "g", "i")
    request = heartbeat_request("g", joined)
    assert (await peer.ask(request, 3)).error_code == ErrorCode.NONE
    await peer.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 0)
    assert (await peer.ask(request, 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    kept = server.server._api.heartbeats_of(ANONYMOUS)
    assert not kept._young
    assert not kept._old


async def test_a_client_cannot_make_us_remember_ever_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables have limits for entries and bytes; a heartbeat that is not kept is answered all the same."""
    most = 3
    monkeypatch.setattr(heartbeats, "REMEMBERED_MAX", most)
    async with serving() as server:
        long = "g" * BYTES_MAX
        kept = server.server._api.heartbeats_of(ANONYMOUS)
        before: list[bytes] = []
        for number in range(12):
            peer = await server.peer(f"client-{number}")
            for data in before:
                beats(server)(data)
            for group in (long, f"group-{number}"):
                request = heartbeat_request(group, await seat(peer, group, "i"))
                for _ in range(3):
                    assert (await peer.ask(request, 3)).error_code == ErrorCode.NONE
                data = encode_request(request, 3, 1, f"client-{number}")
                assert (beats(server)(data) is None) == (group == long)
            before.append(data)
            assert len(kept._young) <= most
            assert len(kept._old) <= most
            assert max(map(len, (*kept._young, *kept._old))) < BYTES_MAX


async def test_a_member_has_one_remembered_heartbeat_however_many_client_ids_it_comes_under(
    peer: Peer, server: Serving
) -> None:
    """Each client id makes another request; the last one replaces the one before, before and after a rotation."""
    request = heartbeat_request("g", await seat(peer, "g", "i"))
    kept = server.server._api.heartbeats_of(ANONYMOUS)
    for number in range(200):
        if number == 100:
            kept._rotate()
            assert kept._old
        data = encode_request(request, 3, number, f"client-{number}")
        await peer.send_bytes(data)
        assert await peer.receive_frame() == encode_response(12, 3, number, HeartbeatResponse())[4:]
        assert beats(server)(data) is not None
        assert set(kept._young) | set(kept._old) == {data[:8] + data[12:]}


@pytest.mark.parametrize("version", range(5))
async def test_what_is_remembered_of_a_heartbeat_answers_as_dispatch_does(version: int) -> None:
    """The short cut answers only the same bytes with any correlation id, not changed, longer or shorter bytes."""
    chance = random.Random(version)
    async with connected() as (server, peer):
        joined = await seat(peer, "g", "i")
        request = heartbeat_request("g", joined, "i" if version >= 3 else None)
        assert (await peer.ask(request, version)).error_code == ErrorCode.NONE
        (connection,) = server.connections()
        sent = peer.frame(request, version)
        mutants = [sent[:at] + bytes([sent[at] ^ bit]) + sent[at + 1 :] for at in range(len(sent)) for bit in (1, 128)]
        others = [sent, sent[:-1], sent + b"\0", b"", *(chance.randbytes(len(sent)) for _ in range(100))]
        answered = {data: answer for data in (*mutants, *others) if (answer := beats(server)(data)) is not None}
        assert set(answered) == {sent, *mutants[2 * 8 : 2 * 12]}
        await server.advance(1)
        server.server._api.forget()
        for data, answer in answered.items():
            assert server.server.connections.dispatch(connection, data[4:]) == answer


async def test_a_short_cut_is_taken_where_dispatch_allowed_it(peer: Peer, server: Serving) -> None:
    """Dispatch must have answered on the connection, the switch must be on, and the principal must be the same."""
    request = heartbeat_request("g", await seat(peer, "g", "i"))
    assert (await peer.ask(request, 3)).error_code == ErrorCode.NONE
    other = await server.peer()
    await server.barrier()
    (new,) = [each for each in server.connections() if not each.may_short_cut]
    dispatch, seen = new._dispatch, list[bytes]()

    def watched(connection: Connection, frame: bytes) -> bytes | list[bytes] | None:
        seen.append(frame)
        return dispatch(connection, frame)

    new._dispatch = watched
    for heard in (1, 1, 1):
        assert (await other.ask(request, 3)).error_code == ErrorCode.NONE
        assert len(seen) == heard
    new.may_short_cut = False
    for heard in (2, 2):
        assert (await other.ask(request, 3)).error_code == ErrorCode.NONE
        assert len(seen) == heard
    new.principal, new.may_short_cut = "User:another", False
    remembered = server.server._api.heartbeats_of("User:another")
    assert remembered.answer(other.frame(request, 3)) is None
    other._due.clear()
    for heard in (3, 3):
        assert (await other.ask(request, 3)).error_code == ErrorCode.NONE
        assert len(seen) == heard
    assert remembered.answer(other.frame(request, 3)) is not None
