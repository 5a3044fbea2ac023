"""Answers without dispatch, on a node of a cluster: a node whose lease has lapsed gives none of them.

The lease of the server and of its partitions is a switch here; the sessions of real nodes lapse in `tests/cluster`.
"""

from __future__ import annotations

import pytest

from coordinator.log import memory
from protocol.messages import HeartbeatResponse
from schemas.errors import ErrorCode
from tests.server.harness import Serving, heartbeat_request, seat, serving
from tests.server.wire.test_repeated_beats import TOPICS, beat, join, repeated


class Lease:
    """A switch in place of a lease, for a server that begins to be a node of a cluster."""

    def __init__(self, server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
        self.holds = True
        server.server.runtime.lease = lambda: self.holds
        monkeypatch.setattr(memory._Owned, "valid", lambda _own: self.holds)


async def test_a_lapsed_node_repeats_no_heartbeat_of_the_consumer_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says NOT_COORDINATOR; with its lease again, the member is where it was."""
    async with serving(TOPICS) as server:
        lease = Lease(server, monkeypatch)
        peer = await server.peer()
        request = await join(peer)
        answers = [await beat(peer, request) for _ in range(3)]
        assert repeated(server) == 2
        lease.holds = False
        assert (await beat(peer, request)).error_code == ErrorCode.NOT_COORDINATOR
        assert repeated(server) == 2
        lease.holds = True
        assert await beat(peer, request) == answers[0]


async def test_a_lapsed_node_repeats_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the classic protocol."""
    async with serving() as server:
        lease = Lease(server, monkeypatch)
        peer = await server.peer()
        request = heartbeat_request("g", await seat(peer, "g", "i"))
        measures = server.server._api._services.measures

        async def error() -> int:
            answer: HeartbeatResponse = await peer.ask(request, 3)
            return answer.error_code

        assert [await error() for _ in range(3)] == [ErrorCode.NONE] * 3
        before = measures.repeated_heartbeats
        assert before > 0
        lease.holds = False
        assert await error() == ErrorCode.NOT_COORDINATOR
        assert measures.repeated_heartbeats == before
        lease.holds = True
        assert await error() == ErrorCode.NONE
