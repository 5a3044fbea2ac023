"""Answers without dispatch, on a node of a cluster: a node that isn't sure of its groups gives none of them.

The lease of the server and of its partitions is a switch here; the sessions of real nodes lapse in `tests/cluster`.
"""

from __future__ import annotations

import pytest

from coordinator.group.client import ANONYMOUS
from protocol.messages import HeartbeatResponse
from schemas.errors import ErrorCode
from tests.server.harness import Serving, heartbeat_request, seat, serving
from tests.server.wire.test_repeated_beats import TOPICS, beat, join, repeated
from tests.support.memory import Lapsing, ManualEngine


class Lease:
    """A switch in place of a lease, for a server that begins to be a node of a cluster."""

    def __init__(self, server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
        self.holds = True
        server.server.runtime.lease = lambda: self.holds
        monkeypatch.setattr(Lapsing, "valid", lambda _own: self.holds)


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


async def test_a_lapsed_node_repeats_no_heartbeat(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the classic protocol."""
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


async def test_a_node_with_a_new_lease_repeats_nothing_of_what_it_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has lost a partition, and has a new lease. The loop has not heard yet, and has the groups."""
    async with serving(TOPICS) as server:
        Lease(server, monkeypatch)
        classic, steady = await server.peer(), await server.peer()
        by_classic = heartbeat_request("g", await seat(classic, "g", "i"))
        by_steady = await join(steady, group="h")
        for _ in range(3):
            assert (await classic.ask(by_classic, 3)).error_code == ErrorCode.NONE
            assert (await beat(steady, by_steady)).error_code == ErrorCode.NONE
        (beats,) = [each.beat for each in server.server.connections if each.beat is not None]
        heartbeats = server.server._api.heartbeats_of(ANONYMOUS)
        first, second = classic.frame(by_classic, 3), steady.frame(by_steady, 1)
        assert heartbeats.answer(first) is not None
        assert beats.answer(second) is not None
        runtime = server.server.runtime
        engine = runtime.engine
        assert isinstance(engine, ManualEngine)
        for group in ("g", "h"):
            engine.shared.orphan(runtime.partition_of(group).index)
        assert heartbeats.answer(first) is None
        assert beats.answer(second) is None
        await classic.send_bytes(first)
        await steady.send_bytes(second)
        assert (await classic.receive()).error_code == ErrorCode.NOT_COORDINATOR
        assert (await steady.receive()).error_code == ErrorCode.NOT_COORDINATOR
        assert runtime.is_sure(), "the partitions have heard by now"
