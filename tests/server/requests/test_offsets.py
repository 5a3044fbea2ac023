"""Requests about committed offsets: what handlers decide before the coordinator, and answers made of parts."""

from __future__ import annotations

import gc
import weakref
from typing import Any
from uuid import UUID

import pytest

from coordinator.server.requests.many import AT_ONCE
from coordinator.server.requests.offsets import fetch_offsets
from protocol.header import encode_request
from protocol.messages import (
    ListGroupsRequest,
    MetadataRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import ManualClock, Peer, Sender, connected, serving
from tests.server.requests.test_groups import two_groups
from tests.support.memory import ManualEngine
from tests.support.requests import commit_request, delete_offsets_request, offsets_request


def errors_of(answer: Any) -> dict[tuple[str, int], int]:
    """Error code by topic partition."""
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


def offsets_of(topics: Any) -> dict[tuple[str, int], int]:
    """Committed offset by topic partition."""
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in topics
        for partition in topic.partitions
    }


async def test_commits_of_what_does_not_exist_are_refused_one_by_one(peer: Peer) -> None:
    """Unknown topic partitions get UNKNOWN_TOPIC_OR_PARTITION, the others are committed; each has one answer."""
    request = commit_request("g", {("orders", 0): 5, ("orders", 3): 6, ("orders", -1): 7, ("absent", 0): 8})
    answer = await peer.ask(request, 8)
    assert errors_of(answer) == {
        ("orders", 0): ErrorCode.NONE,
        ("orders", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("orders", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [topic.name for topic in answer.topics] == ["orders", "absent"]
    fetched = await peer.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert offsets_of(fetched.topics) == {("orders", 0): 5}


async def test_a_commit_of_nothing_that_exists_does_not_reach_the_group(peer: Peer) -> None:
    """It doesn't create a group either."""
    answer = await peer.ask(commit_request("g", {("absent", 0): 1}), 8)
    assert errors_of(answer) == {("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (await peer.ask(ListGroupsRequest(), 2)).groups == []


async def id_of(peer: Peer, topic: str) -> UUID:
    """The id of a topic."""
    (found,) = (await peer.ask(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)]), 12)).topics
    assert isinstance(found.topic_id, UUID)
    return found.topic_id


@pytest.mark.parametrize("others", [0, AT_ONCE])
async def test_topics_are_named_by_their_ids(others: int) -> None:
    """From v10 on: an unknown id is UNKNOWN_TOPIC_ID, also beside topics that exist; all offsets come with ids."""
    async with connected("tenure.topics=orders:3,prices:1") as (_, peer):
        ids = {topic: await id_of(peer, topic) for topic in ("orders", "prices")}
        unknown = [UUID(int=7 + number) for number in range(1 + others)]
        request = commit_request("g", {("orders", 0): 5, ("orders", 3): 6, ("prices", 0): 7})
        for topic in request.topics:
            topic.topic_id = ids[topic.name]
        for topic_id in unknown:
            (topic,) = commit_request("g", {("", 0): 8}).topics
            topic.topic_id = topic_id
            request.topics.append(topic)
        answer = await peer.ask(request, 10)
        errors = {
            (topic.topic_id, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        assert errors == {
            (ids["orders"], 0): ErrorCode.NONE,
            (ids["orders"], 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (ids["prices"], 0): ErrorCode.NONE,
            **{(topic_id, 0): ErrorCode.UNKNOWN_TOPIC_ID for topic_id in unknown},
        }
        assert len(answer.topics) == 2 + len(unknown)

        asked = [
            OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 1])
            for topic_id in (*unknown, ids["prices"], ids["orders"])
        ]
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics) for topics in (asked, None)]
        some, whole = (await peer.ask(OffsetFetchRequest(groups=groups), 10)).groups
        found = {
            topic.topic_id: [(each.committed_offset, each.error_code) for each in topic.partitions]
            for topic in some.topics
        }
        assert found == {
            ids["prices"]: [(7, 0), (-1, 0)],
            ids["orders"]: [(5, 0), (-1, 0)],
            **{topic_id: [(-1, ErrorCode.UNKNOWN_TOPIC_ID)] * 2 for topic_id in unknown},
        }
        all_of_it = {topic.topic_id: [each.committed_offset for each in topic.partitions] for topic in whole.topics}
        assert all_of_it == {ids["orders"]: [5], ids["prices"]: [7]}


async def test_before_version_2_an_error_stands_at_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no error on top; without one, a consumer would take a group that isn't loaded for an empty one."""
    monkeypatch.setattr(ManualEngine, "load", lambda *_: None)
    async with connected() as (_, peer):
        asked = offsets_request("g", {"orders": [0, 2]})
        fetched = await peer.ask(asked, 1)
        expected = dict.fromkeys([("orders", 0), ("orders", 2)], ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert errors_of(fetched) == expected
        fetched = await peer.ask(asked, 2)
        assert (fetched.error_code, fetched.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


async def test_offsets_of_what_does_not_exist_can_not_be_deleted() -> None:
    """The others are deleted; an answer with an error on top has no topics."""

    def request(group: str) -> OffsetDeleteRequest:
        return delete_offsets_request(group, dict.fromkeys(("orders", "absent"), (0, 9)))

    async with connected() as (_, peer):
        await two_groups(peer)
        answer = await peer.ask(request("simple"), 0)
        assert answer.error_code == ErrorCode.NONE
        assert errors_of(answer) == {
            ("orders", 0): ErrorCode.NONE,
            ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        answer = await peer.ask(request("nowhere"), 0)
        assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


class BusyClock(ManualClock):
    """Each look at it takes a millisecond, so that a turn has few steps."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = 0

    def ms(self) -> int:
        """As Clock.ms."""
        self._looks += 1
        return super().ms() + self._looks


async def test_nothing_of_a_request_stays_when_its_client_goes() -> None:
    """A client goes while a large group is put together: the request is let go at once, without the collector."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=f"t{n}", partition_indexes=[0]) for n in range(1_000)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)])
    async with serving(clock=BusyClock()) as server:
        api = server.server._api
        call = api.call_of(Sender(), encode_request(request, 8, 1, "c")[4:])
        call.services, call.in_steps = api._services, True
        steps = fetch_offsets(call, request)
        kept = weakref.ref(steps)
        gc.disable()
        try:
            call.work(steps)
            del steps
            await server.barrier()
            assert kept() is not None
            call.close()
            await server.barrier()
            assert kept() is None
        finally:
            gc.enable()
