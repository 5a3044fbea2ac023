"""The entry of all requests: the APIs, their versions, and the names of client programs."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from coordinator.server.wire.api import HANDLERS, handler
from protocol.header import decode_response
from protocol.messages import ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest, api_schema, request_class
from schemas.api import SERVED
from schemas.api_keys import API_KEYS
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, serving


def test_every_api_that_is_served_has_a_handler() -> None:
    """Every request that a client may send has a handler function."""
    assert sorted(HANDLERS) == sorted(SERVED.values())
    for api_key in HANDLERS:
        assert asyncio.iscoroutinefunction(handler(api_key)) is False
        assert callable(handler(api_key))


@pytest.mark.parametrize("api", sorted(API_KEYS.keys() - SERVED.keys()))
async def test_what_only_our_commands_ask_closes_the_connection_as_any_unknown_api(server: Serving, api: str) -> None:
    """It is the client's mistake, not one of ours: as with an API that has no schema here, a line names the key."""
    peer = await server.peer()
    await peer.send_bytes(peer.frame(request_class(API_KEYS[api])(), api_schema(API_KEYS[api]).VERSIONS[1]))
    assert await peer.receive_frame() is None
    (line,) = [each for each in server.events() if "connection" in each["event"]]
    assert (line["level"], line["event"]) == ("warn", "connection_closed")
    assert line["reason"] == f"unknown API key {API_KEYS[api]}"


@pytest.mark.parametrize("version", range(6))
async def test_api_versions_lists_what_is_spoken(peer: Peer, version: int) -> None:
    """The answer lists every API with the versions of its schema, in each version of ApiVersions."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    answer = await peer.ask(request, version)
    assert answer.error_code == ErrorCode.NONE
    listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert listed == {key: api_schema(key).VERSIONS for key in HANDLERS}


@pytest.mark.parametrize("version", [6, 99, 32_767, -1])
async def test_api_versions_in_an_unknown_version_is_answered_in_version_0(peer: Peer, version: int) -> None:
    """The answer is UNSUPPORTED_VERSION and lists ApiVersions alone; the connection stays open (KIP-511)."""
    content = struct.pack(">hhih", 18, version, 77, 1) + b"c" + b"\0whatever comes then"
    await peer.send_bytes(struct.pack(">i", len(content)) + content)
    frame = await peer.receive_frame()
    assert frame is not None
    correlation_id, answer = decode_response(18, 0, frame)
    assert isinstance(answer, ApiVersionsResponse)
    assert correlation_id == 77
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 5)]
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
async def test_a_clients_program_has_a_proper_name(
    peer: Peer, server: Serving, name: str, version: str, valid: bool
) -> None:
    """From version 3 on, name and version of the client's program must match Kafka's pattern."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = await peer.ask(request, 3)
    assert answer.error_code == (ErrorCode.NONE if valid else ErrorCode.INVALID_REQUEST)
    assert bool(answer.api_keys) == valid
    (connection,) = server.connections()
    assert connection.client("c").software == (f"{name} {version}" if valid else "")


OWN = "own"
"""Stands for the cluster id of the server."""


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (OWN, 1, ErrorCode.NONE),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (OWN, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (OWN, -7, ErrorCode.REBOOTSTRAP_REQUIRED),
        (OWN, -1, ErrorCode.INVALID_REQUEST),
        ("another", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
        (None, -7, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_means_another_node_starts_over(
    peer: Peer, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    """As Kafka 4.4 answered (KIP-1242): cluster and node are named together or not at all."""
    own: Any = await peer.ask(DescribeClusterRequest(), 0)
    hello = ApiVersionsRequest(
        client_software_name="a",
        client_software_version="1",
        cluster_id=own.cluster_id if cluster_id is OWN else cluster_id,
        node_id=node_id,
    )
    answer = await peer.ask(hello, 5)
    assert (answer.error_code, bool(answer.api_keys)) == (error, error == ErrorCode.NONE)


async def test_heartbeats_are_kept_for_a_number_of_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one more begin anew with it: a client with many users costs no memory for good."""
    monkeypatch.setattr("coordinator.server.wire.api.OWNERS_MAX", 2)
    async with serving() as server:
        api = server.server._api
        kept = api.heartbeats_of("a")
        api.heartbeats_of("b")
        assert api.heartbeats_of("a") is kept
        api.heartbeats_of("c")
        assert api.heartbeats_of("a") is not kept
