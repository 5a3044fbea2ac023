"""Repeated heartbeats of the consumer protocol on a server: the same answers as dispatch gives, without it."""

from __future__ import annotations

import pytest

from coordinator.server.wire.repeated_beats import BYTES_MAX
from protocol.header import encode_request
from protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, serving
from tests.support.requests import first_heartbeat, topics_request

TOPICS = "tenure.topics=orders:2"


async def join(peer: Peer, member_id: str = "m", group: str = "g") -> ConsumerGroupHeartbeatRequest:
    """Join a group; the heartbeat that the member sends from then on."""
    answer = await peer.ask(first_heartbeat(group, member_id), 1)
    assert answer.error_code == ErrorCode.NONE
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=answer.member_epoch)


async def beat(peer: Peer, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
    """Send a heartbeat."""
    answer: ConsumerGroupHeartbeatResponse = await peer.ask(request, version)
    return answer


def repeated(server: Serving) -> int:
    """How many heartbeats were answered without dispatch."""
    return server.server._api._services.measures.repeated_beats


@pytest.mark.parametrize("version", [0, 1])
async def test_the_second_of_equal_heartbeats_is_repeated(version: int) -> None:
    """Its answer is that of the first, but for the correlation id; a heartbeat that differs is handled."""
    async with connected(TOPICS) as (server, peer):
        request = await join(peer)
        answers = [await beat(peer, request, version) for _ in range(3)]
        assert repeated(server) == 2
        assert answers[0].error_code == ErrorCode.NONE
        assert answers[0].member_epoch == request.member_epoch
        assert answers[0] == answers[1] == answers[2]
        request.member_epoch += 1
        assert (await beat(peer, request, version)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert repeated(server) == 2


async def test_several_in_one_read_are_repeated_too() -> None:
    """A client may send its heartbeats without waiting for answers."""
    async with connected(TOPICS) as (server, peer):
        request = await join(peer)
        await beat(peer, request)
        await peer.send_bytes(peer.frame(request, 1) + peer.frame(request, 1))
        assert (await peer.receive()) == (await peer.receive())
        assert repeated(server) == 2


async def test_a_change_is_heard_at_once() -> None:
    """Another member joins: the next heartbeat is told to give up a partition."""
    async with serving(TOPICS, "group.consumer.assignment.interval.ms=0") as server:
        peer, other = await server.peer(), await server.peer()
        request = await join(peer)
        assert (await beat(peer, request)) == (await beat(peer, request))
        await join(other, "n")
        answer = await beat(peer, request)
        assert answer.assignment is not None
        assert [len(each.partitions) for each in answer.assignment.topic_partitions] == [1]


async def test_a_new_topic_is_looked_at() -> None:
    """The heartbeat behind the creation of a topic is handled, and may find that nothing changes."""
    async with serving(TOPICS) as server:
        peer, other = await server.peer(), await server.peer()
        request = await join(peer)
        await beat(peer, request)
        await other.ask(topics_request({"new": 1}), 5)
        assert (await beat(peer, request)).error_code == ErrorCode.NONE
        assert repeated(server) == 0
        assert (await beat(peer, request)).error_code == ErrorCode.NONE
        assert repeated(server) == 1


async def test_members_that_share_a_connection_get_their_own_answers() -> None:
    """A connection keeps one heartbeat; those of its other members are handled."""
    async with connected(TOPICS) as (_, peer):
        requests = [await join(peer, "m", "g"), await join(peer, "n", "h")]
        for request in requests * 2:
            assert (await beat(peer, request)).member_id == request.member_id


async def test_a_long_heartbeat_is_not_kept() -> None:
    """A client chooses its member id."""
    async with connected(TOPICS) as (server, peer):
        request = await join(peer, "m" * BYTES_MAX)
        assert (await beat(peer, request)) == (await beat(peer, request))
        assert repeated(server) == 0


@pytest.mark.parametrize("more", [0, 1])
async def test_the_longest_heartbeat_that_is_kept(more: int) -> None:
    """It has BYTES_MAX bytes on the wire, with those of its size."""
    async with connected(TOPICS) as (server, peer):
        size = len(encode_request(await join(peer, "m" * 200, "o"), 1, 7, peer._client_id))
        request = await join(peer, "m" * (200 + BYTES_MAX + more - size))
        assert len(encode_request(request, 1, 7, peer._client_id)) == BYTES_MAX + more
        assert (await beat(peer, request)) == (await beat(peer, request))
        assert repeated(server) == 1 - more


async def test_repeated_heartbeats_keep_a_member_and_silence_ends_it() -> None:
    """The session counts from the last heartbeat, whatever way it was answered."""
    async with connected(TOPICS) as (server, peer):
        request = await join(peer)
        for _ in range(4):
            await server.advance(44_000)
            assert (await beat(peer, request)).error_code == ErrorCode.NONE
        assert repeated(server) == 3
        await server.advance(45_001)
        assert (await beat(peer, request)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
