"""The one way in: which APIs are spoken, in which versions, and the short cut of heartbeats."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest

from coordinator.server.api import HANDLERS, handler
from protocol.header import decode_response, encode_response
from protocol.messages import API_KEYS, ApiVersionsRequest, ApiVersionsResponse, HeartbeatResponse, api_schema
from schemas.errors import ErrorCode
from tests.server.harness import heartbeat_request, join_request, seat, serving


def test_every_api_that_has_a_schema_has_a_handler() -> None:
    """What can be decoded is answered, by a function that exists."""
    assert sorted(HANDLERS) == sorted(API_KEYS.values())
    for api_key in HANDLERS:
        assert asyncio.iscoroutinefunction(handler(api_key)) is False
        assert callable(handler(api_key))


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_lists_what_is_spoken(version: int) -> None:
    """Every API with the versions of its schema, in each version of the answer."""
    async with serving() as server:
        peer = await server.peer()
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        answer = await peer.ask(request, version)
        assert answer.error_code == ErrorCode.NONE
        listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert listed == {key: api_schema(key).VERSIONS for key in HANDLERS}


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
async def test_api_versions_in_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    """KIP-511: UNSUPPORTED_VERSION, with ApiVersions as the only API listed, and the connection goes on."""
    async with serving() as server:
        peer = await server.peer()
        content = struct.pack(">hhih", 18, version, 77, 1) + b"c" + b"\0whatever comes then"
        await peer.send_bytes(struct.pack(">i", len(content)) + content)
        frame = await peer.receive_frame()
        assert frame is not None
        correlation_id, answer = decode_response(18, 0, frame)
        assert isinstance(answer, ApiVersionsResponse)
        assert correlation_id == 77
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 4)]
        assert (await peer.ask(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "name, version, valid",
    [
        ("apache-kafka-java", "3.9.1", True),
        ("a", "1", True),
        ("", "1", False),
        ("a", "", False),
        ("-a", "1", False),
        ("a-", "1", False),
        ("a b", "1", False),
        ("a\n", "1", False),
    ],
)
async def test_a_clients_program_has_a_proper_name(name: str, version: str, valid: bool) -> None:
    """From version 3 on, name and version of the client's program have to match Kafka's pattern."""
    async with serving() as server:
        peer = await server.peer()
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        answer = await peer.ask(request, 3)
        assert answer.error_code == (ErrorCode.NONE if valid else ErrorCode.INVALID_REQUEST)
        assert bool(answer.api_keys) == valid
        (connection,) = server.connections()
        assert connection.client("c").software == (f"{name} {version}" if valid else "")


@pytest.mark.parametrize("version", range(5))
async def test_a_heartbeats_answer_is_what_the_codec_would_write(version: int) -> None:
    """The short cut puts a correlation id into a template; byte for byte the same as encoded."""
    async with serving() as server:
        peer = await server.peer()
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


async def test_the_same_heartbeat_in_another_version_is_another_one() -> None:
    """Versions 1 and 2 differ in nothing but their number, 0 in its answer too: each gets its own."""
    async with serving() as server:
        peer = await server.peer()
        joined = await seat(peer, "g", "i")
        for version in (0, 1, 0, 2, 1, 0):
            assert (await peer.ask(heartbeat_request("g", joined), version)).error_code == ErrorCode.NONE


async def test_another_request_with_the_bytes_of_a_heartbeat_is_not_one() -> None:
    """What is remembered of a heartbeat answers heartbeats only."""
    async with serving() as server:
        peer = await server.peer()
        joined = await seat(peer, "g", "i")
        assert (await peer.ask(heartbeat_request("g", joined), 0)).error_code == ErrorCode.NONE
        # LeaveGroup v0 reads a group id and a member id; a heartbeat has the generation in between.
        sent = bytearray(peer.frame(heartbeat_request("g", joined), 0))
        sent[4:6] = struct.pack(">h", API_KEYS["LeaveGroup"])
        await peer.send_bytes(bytes(sent))
        frame = await peer.receive_frame()
        assert frame is not None
        assert struct.unpack(">ih", frame)[1] == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_repeated_heartbeat_sees_what_has_changed() -> None:
    """Remembering its bytes is not remembering its answer."""
    async with serving() as server:
        peer, other = await server.peer(), await server.peer()
        joined = await seat(peer, "g", "i")
        assert (await peer.ask(heartbeat_request("g", joined), 3)).error_code == ErrorCode.NONE
        await other.send(join_request("g", instance="j"), 5)
        await server.until(lambda: len(server.events("member_joined")) == 2)
        for _ in range(2):
            answer = await peer.ask(heartbeat_request("g", joined), 3)
            assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_members_that_share_a_connection_are_looked_up_and_one_alone_is_remembered() -> None:
    """Heartbeats in turn don't push each other out; who goes on alone is the one that is remembered, soon."""
    async with serving() as server:
        peer = await server.peer()
        groups = ("g", "group", "h")
        joined = {group: await seat(peer, group, "i") for group in groups}
        for _ in range(3):
            for group in groups:
                assert (await peer.ask(heartbeat_request(group, joined[group]), 3)).error_code == ErrorCode.NONE
            gone = heartbeat_request("h", joined["g"])
            assert (await peer.ask(gone, 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        (connection,) = server.connections()
        first = connection.heartbeat
        assert first is not None
        for _ in range(3):
            assert (await peer.ask(heartbeat_request("h", joined["h"]), 3)).error_code == ErrorCode.NONE
        assert connection.heartbeat not in {None, first}


@pytest.mark.parametrize("version", range(5))
async def test_what_is_remembered_of_a_heartbeat_answers_as_dispatch_does(version: int) -> None:
    """Each byte of a heartbeat changed, bytes added, cut off or of no sense: the short cut agrees, or says nothing."""
    chance = random.Random(version)
    async with serving() as server:
        peer = await server.peer()
        joined = await seat(peer, "g", "i")
        request = heartbeat_request("g", joined, "i" if version >= 3 else None)
        assert (await peer.ask(request, version)).error_code == ErrorCode.NONE
        (connection,) = server.connections()
        remembered, sent = connection.heartbeat, peer.frame(request, version)
        assert remembered is not None
        mutants = [sent[:at] + bytes([sent[at] ^ bit]) + sent[at + 1 :] for at in range(len(sent)) for bit in (1, 128)]
        mutants += [sent, sent[:-1], sent + b"\0", b"", *(chance.randbytes(len(sent)) for _ in range(100))]
        answered = {data: answer for data in mutants if (answer := remembered.answer(data)) is not None}
        header, body = mutants[: 2 * remembered._body_at], mutants[2 * remembered._body_at : 2 * len(sent)]
        assert {sent, *header} & set(answered) == {sent, *mutants[2 * 8 : 2 * 12]}, "the correlation id may differ"
        assert set(body) & set(answered), "heartbeats of others that are refused"
        for data, answer in answered.items():
            connection.heartbeat = None
            assert server.server.connections.dispatch(connection, data[4:]) == answer
