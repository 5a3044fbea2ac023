"""Requests of the consumer protocol on a server."""

from __future__ import annotations

from uuid import UUID

import pytest

from coordinator.group.consumer.heartbeat import TOPICS_MAX
from coordinator.server.nodes.topic_view import re2_problem
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, connected, serving
from tests.server.requests.test_acls import STANDARD


async def join(peer: Peer, topics: list[str], **others: object) -> ConsumerGroupHeartbeatResponse:
    """Join group g as member m."""
    fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **others}
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=topics, **fields)  # type: ignore[arg-type]
    answer: ConsumerGroupHeartbeatResponse = await peer.ask(request, 1)
    return answer


async def test_a_member_joins_and_is_described() -> None:
    """The assignment has the topic's id, the description its name; other groups are not found."""
    async with connected("tenure.topics=orders:2") as (_, peer):
        joined = await join(peer, ["orders"])
        assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
        assert joined.assignment is not None
        (given,) = joined.assignment.topic_partitions
        assert given.partitions == [0, 1]
        asked = ConsumerGroupDescribeRequest(group_ids=["g", "nope", ""], include_authorized_operations=True)
        described = await peer.ask(asked, 1)
        group, absent, nameless = described.groups
        assert (group.group_state, group.group_epoch) == ("Stable", 2)
        assert group.authorized_operations > 0
        (topic,) = group.members[0].assignment.topic_partitions
        assert (topic.topic_name, topic.topic_id) == ("orders", given.topic_id)
        assert [absent.error_code, nameless.error_code] == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID]


async def test_subscription_by_regular_expression_finds_its_topics() -> None:
    """The topics come with one of the next heartbeats; an expression that can't be read is refused."""
    async with connected("tenure.topics=orders:1,other:1", "group.consumer.assignment.interval.ms=0") as (_, peer):
        wrong = await join(peer, [], subscribed_topic_regex="(")
        assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        epoch = (await join(peer, [], subscribed_topic_regex="ord.*")).member_epoch
        found: list[list[int]] = []
        while not found:
            beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
            answer = await peer.ask(beat, 1)
            epoch = answer.member_epoch
            if answer.assignment is not None:
                found = [each.partitions for each in answer.assignment.topic_partitions]
        assert found == [[0]]


async def test_a_target_that_the_store_of_a_cluster_does_not_take_is_not_written() -> None:
    """Its member goes on without partitions, with one log line; it gets them once it subscribes to fewer topics."""
    node = ("tenure.store=etcd://127.0.0.1:2379", "tenure.cluster=c", "node.id=1")
    names = [f"t{number}" for number in range(36)]
    topics = ",".join(f"{name}:10000" for name in names)
    async with connected(*node, f"tenure.topics={topics}") as (server, peer):
        assert (await join(peer, names)).member_epoch == 1
        await server.until(lambda: bool(server.events("group_too_large")))
        (line,) = server.events("group_too_large")
        assert (line["group"], line["size"] > line["limit"]) == ("g", True)
        beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
        for _ in range(3):
            await server.advance(10_000)
            answer = await peer.ask(beat, 1)
            assert (answer.error_code, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 1, None)
        assert len(server.events("group_too_large")) == 1
        assert (await join(peer, names[:1])).error_code == ErrorCode.NONE
        await server.at_rest()
        answer = await peer.ask(beat, 1)
        assert answer.member_epoch == 3


async def test_protocol_can_be_switched_off() -> None:
    """Without `consumer` among the protocols a member is refused."""
    async with serving("group.coordinator.rebalance.protocols=classic") as server:
        answer = await join(await server.peer(), ["t"])
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("group.coordinator.rebalance.protocols=classic", ErrorCode.UNSUPPORTED_VERSION),
        (STANDARD, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
async def test_no_regular_expression_of_a_client_without_the_right_is_read(setting: str, error: ErrorCode) -> None:
    """Reading one may take the loop 50 ms: nobody gets that for a request that is refused anyway."""
    read = re2_problem.cache_info().currsize
    async with serving(setting) as server:
        answer = await join(await server.peer(), [], subscribed_topic_regex=f"never-seen-before-{error.name}")
        assert answer.error_code == error
    assert re2_problem.cache_info().currsize == read


async def test_many_topics_are_taken_in_steps_and_too_many_refused() -> None:
    """Hundreds of names and owned topics are fine; more names than TOPICS_MAX are INVALID_REQUEST."""
    async with connected("tenure.topics=orders:1") as (_, peer):
        names = ["orders", *map(str, range(1_000))]
        joined = await join(peer, names)
        assert joined.error_code == ErrorCode.NONE
        owned = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=UUID(int=number), partitions=[0])
            for number in range(1_000)
        ]
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=joined.member_epoch, topic_partitions=owned
        )
        answer = await peer.ask(beat, 1)
        assert answer.error_code == ErrorCode.NONE
        refused = await join(peer, list(map(str, range(TOPICS_MAX + 1))))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
