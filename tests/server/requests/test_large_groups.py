"""Large requests about groups: the loop gets its turns in between, and the answers are those of small requests.

Work is counted in calls of functions between two questions to the pace, so a busy machine changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

# A first request imports these, which is no work of a piece.
import coordinator.server.requests.consumer_groups
import coordinator.story.making  # noqa: F401
from coordinator.group.consumer import target
from coordinator.group.coordinator import PROTOCOLS_MAX
from coordinator.loop.pace import Pace
from protocol.header import decode_response
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    Message,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, join_request, serving, sync_request
from tests.server.requests.test_offsets import errors_of, offsets_of
from tests.support.requests import commit_request, delete_offsets_request, first_heartbeat, offsets_request

MANY = 6_000
PARTITIONS = 3_000
WORK_MAX = 15_000
"""Calls between two questions: an event of 1,000 topic partitions makes about 6,000."""
TURN = 300
"""Questions in a turn: then the rest of the work waits for the next one."""


class Work:
    """most: calls of functions between two questions to the pace. whole: all of them. turns: how often it said no."""

    def __init__(self) -> None:
        self.most = self.whole = self.turns = self._since = self._questions = 0

    def count(self, _frame: FrameType, event: str, _argument: object) -> None:
        """A profile function."""
        if event in ("call", "c_call"):
            self._since += 1
            self.whole += 1

    def asked(self) -> bool:
        """A question: whether this turn goes on."""
        self.most = max(self.most, self._since)
        self._since = 0
        self._questions += 1
        self.turns += self._questions % TURN == 0
        return self._questions % TURN != 0


@contextmanager
def counted() -> Iterator[Work]:
    """Count the work of this thread, and end turns."""
    work, has_time = Work(), Pace.has_time

    def asked(pace: Pace) -> bool:
        may_go_on = work.asked()  # each question counts, on a slow machine too
        return has_time(pace) and may_go_on

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pace, "has_time", asked)
        sys.setprofile(work.count)
        try:
            yield work
        finally:
            sys.setprofile(None)
    work.asked()


async def ask(peer: Peer, request: Message, version: int, *, takes_turns: bool = True) -> Any:
    """The answer to a large request, which never holds the loop. takes_turns: whether it needs several turns."""
    assert request.API_KEY is not None
    data = peer.frame(request, version)
    peer._due.pop()
    with counted() as work:
        await peer.send_bytes(data)
        frame = await peer.receive_frame()
    assert frame is not None
    assert work.most < WORK_MAX, f"{work.most} of {work.whole} calls in one piece"
    assert work.turns > 0 or not takes_turns
    return decode_response(request.API_KEY, version, frame)[1]


def identities(*member_ids: str) -> list[LeaveGroupRequest.MemberIdentity]:
    """Members that leave."""
    return [LeaveGroupRequest.MemberIdentity(member_id=each) for each in member_ids]


async def test_groups_are_described_once_and_answered_as_often_as_they_are_named(peer: Peer) -> None:
    """Repeated names get repeated answers, in the order of the request."""
    joined = await peer.join("g", version=3)
    ids = [name for n in range(MANY // 3) for name in ("g", "", f"absent-{n}")]
    answer = await ask(peer, DescribeGroupsRequest(groups=ids, include_authorized_operations=True), 5)
    assert [group.group_id for group in answer.groups] == ids
    first = answer.groups[0]
    assert [member.member_id for member in first.members] == [joined.member_id]
    assert first.authorized_operations > 0
    assert all(group == first for group in answer.groups[::3])
    assert {group.group_state for group in answer.groups[1::3]} == {"Dead"}


async def test_a_large_target_is_made_between_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat that needs a target of many partitions is answered before that is made; later ones bring it."""
    monkeypatch.setattr(target, "PAUSES_AT_ONCE", 0)
    async with connected("tenure.topics=orders:10000") as (_, peer):
        joined = await ask(peer, first_heartbeat("g", "m"), 1, takes_turns=False)
        assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 1)
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
        while (answer := await ask(peer, request, 1, takes_turns=False)).assignment is None:
            assert answer.member_epoch == 1
        assert answer.member_epoch == 2
        assert [len(each.partitions) for each in answer.assignment.topic_partitions] == [10_000]


async def test_a_group_with_many_members_is_described_between_other_requests() -> None:
    """Each member is in the description once, with its partitions."""
    async with connected("tenure.topics=orders:400", "group.consumer.assignment.interval.ms=0") as (_, peer):
        for number in range(400):
            assert (await peer.ask(first_heartbeat("g", f"m-{number}"), 1)).error_code == ErrorCode.NONE
        (group,) = (await ask(peer, ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
        assert {member.member_id for member in group.members} == {f"m-{number}" for number in range(400)}
        assert len(group.members) == 400
        first = next(member for member in group.members if member.member_id == "m-0")
        assert first.assignment.topic_partitions[0].topic_name == "orders"


async def test_many_groups_are_deleted(peer: Peer) -> None:
    """Each has one answer, however often it is named."""
    await peer.ask(commit_request("g", {("orders", 0): 5}), 8)
    ids = ["g", *(f"absent-{n}" for n in range(MANY)), "g"]
    answer = await ask(peer, DeleteGroupsRequest(groups_names=ids), 2)
    assert [each.group_id for each in answer.results] == ids[:-1]
    assert {each.error_code for each in answer.results[1:]} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert answer.results[0].error_code == ErrorCode.NONE


async def test_what_a_request_changes_is_changed_although_its_client_is_gone() -> None:
    """A DeleteGroups in several turns goes on when the connection closes, as in Kafka."""
    async with serving("tenure.request.max.elements=100000") as server:
        peer, other = await server.peer(), await server.peer()
        await other.ask(commit_request("last", {("orders", 0): 5}), 8)
        ids = [*(f"absent-{n}" for n in range(500)), "last"]
        with counted():
            await peer.send(DeleteGroupsRequest(groups_names=ids), 2)
            peer.close()
            await server.until(lambda: not any(part.coordinator.groups for part in server.server.runtime.partitions))
        fetched = await other.ask(OffsetFetchRequest(group_id="last", topics=None), 7)
        assert fetched.topics == []


@pytest.mark.parametrize("states", [["Stable", "x"], ["sTABLE"], ["x", "y"], []])
async def test_many_filters_and_groups_are_listed(states: list[str]) -> None:
    """Unknown states let no group pass, however many they are."""
    async with connected("offsets.topic.num.partitions=1") as (server, peer):
        await peer.join("member", version=3)
        for n in range(5):
            await peer.ask(commit_request(f"g{n}", {("orders", 0): 5}), 8)
        coordinator = server.server.runtime.partitions[0].coordinator
        for n in range(MANY):
            coordinator.groups[f"copy-{n}"] = coordinator.groups["g0"]
        listed = await ask(peer, ListGroupsRequest(states_filter=states * (MANY // (len(states) or 1))), 4)
        ids = [group.group_id for group in listed.groups]
        assert len(ids) == (0 if states else MANY + 6)
        listed = await ask(peer, ListGroupsRequest(states_filter=["CompletingRebalance", *(["z"] * MANY)]), 4)
        assert [group.group_id for group in listed.groups] == ["member"]


async def test_many_offsets_are_committed_fetched_and_deleted() -> None:
    """All versions answer as they do for few; the group goes with its last offset, and that is no error."""
    offsets = {("orders", n): n for n in range(PARTITIONS)}
    async with connected(f"tenure.topics=orders:{PARTITIONS},other:1") as (_, peer):
        commit = commit_request("g", offsets | {("other", 0): 7, ("orders", PARTITIONS): 1, ("none", 0): 1})
        commit.topics[0].partitions[3].committed_metadata = "x" * 5_000
        answer = await ask(peer, commit, 8)
        odd = {
            ("orders", 3): ErrorCode.OFFSET_METADATA_TOO_LARGE,
            ("orders", PARTITIONS): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert errors_of(answer) == {**dict.fromkeys(offsets, 0), ("other", 0): 0, **odd}
        assert [topic.name for topic in answer.topics] == ["orders", "other", "none"]

        stored = {key: n for key, n in offsets.items() if key != ("orders", 3)} | {("other", 0): 7}
        for version in (2, 7):
            answer = await ask(peer, OffsetFetchRequest(group_id="g", topics=None), version)
            assert offsets_of(answer.topics) == stored
            assert [topic.name for topic in answer.topics] == ["orders", "other"]
        for version in (1, 7):
            wanted = {"none": [], "orders": [*range(PARTITIONS), 3, 5], "other": [1, 0]}
            answer = await ask(peer, offsets_request("g", wanted), version)
            assert [
                (topic.name, [(each.partition_index, each.committed_offset) for each in topic.partitions])
                for topic in answer.topics
            ] == [
                ("orders", [(n, -1 if n == 3 else n) for n in (*range(PARTITIONS), 3, 5)]),
                ("other", [(1, -1), (0, 7)]),
            ]
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        asked = [group(group_id="g", topics=None), group(group_id="absent", topics=None)] * 20
        answer = await ask(peer, OffsetFetchRequest(groups=asked), 8)
        assert [each.group_id for each in answer.groups] == ["g", "absent"] * 20
        assert all(each == answer.groups[0] for each in answer.groups[::2])
        assert offsets_of(answer.groups[0].topics) == stored

        deleted = {"other": [0], "orders": [*range(PARTITIONS + 1), *range(PARTITIONS)]}
        answer = await ask(peer, delete_offsets_request("g", deleted), 0)
        assert answer.error_code == ErrorCode.NONE
        assert errors_of(answer) == {
            **dict.fromkeys(offsets, 0),
            ("other", 0): 0,
            ("orders", PARTITIONS): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [
            ("other", 1),
            ("orders", 2 * PARTITIONS + 1),
        ]
        # Each piece is answered at once: the stack must not grow with them.
        deleted["orders"] *= 8
        answer = await ask(peer, delete_offsets_request("g", deleted), 0)
        assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_a_group_with_many_offsets_is_deleted_in_pieces() -> None:
    """No step removes all, and the answer comes when all are gone."""
    offsets = {("orders", n): n for n in range(PARTITIONS)}
    async with connected(f"tenure.topics=orders:{PARTITIONS}") as (_, peer):
        await ask(peer, commit_request("g", offsets), 8)
        with counted() as work:
            answer = await peer.ask(DeleteGroupsRequest(groups_names=["g", "absent", "g"]), 2)
        assert work.most < WORK_MAX
        assert [(each.group_id, each.error_code) for each in answer.results] == [
            ("g", ErrorCode.NONE),
            ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        fetched = await peer.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        assert fetched.topics == []


async def test_a_large_commit_is_stored_whole_or_not_at_all() -> None:
    """A batch that would be too large, or a group that refuses, stores nothing; each topic partition has the error."""
    offsets = {("orders", n): n for n in range(PARTITIONS)}
    settings = (f"tenure.topics=orders:{PARTITIONS}", "message.max.bytes=150000")
    async with connected(*settings) as (_, peer):
        answer = await ask(peer, commit_request("g", offsets), 8)
        assert set(errors_of(answer).values()) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        answer = await ask(peer, commit_request("g" * 200, offsets), 8)
        assert set(errors_of(answer).values()) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        fetched = await peer.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        assert offsets_of(fetched.topics) == {}
        joined = await peer.join("members", version=3)
        commit = commit_request("members", offsets)
        answer = await ask(peer, commit, 8)
        assert set(errors_of(answer).values()) == {ErrorCode.UNKNOWN_MEMBER_ID}
        commit.generation_id_or_member_epoch, commit.member_id = joined.generation_id + 1, joined.member_id
        answer = await ask(peer, commit, 8)
        assert set(errors_of(answer).values()) == {ErrorCode.ILLEGAL_GENERATION}


async def test_many_members_leave(peer: Peer) -> None:
    """Each has its error, and a member among them is gone."""
    joined = await peer.join("g", version=3)
    ids = [f"ghost-{n}" for n in range(MANY)]
    ids[MANY // 2] = joined.member_id
    answer = await ask(peer, LeaveGroupRequest(group_id="g", members=identities(*ids)), 5)
    assert answer.error_code == ErrorCode.NONE
    assert [each.member_id for each in answer.members] == ids
    assert [each.member_id for each in answer.members if not each.error_code] == [joined.member_id]
    described = await peer.ask(DescribeGroupsRequest(groups=["g"]), 5)
    assert described.groups[0].group_state == "Empty"
    answer = await ask(peer, LeaveGroupRequest(group_id="", members=identities(*ids)), 5)
    assert (answer.error_code, answer.members) == (ErrorCode.INVALID_GROUP_ID, [])


@pytest.mark.parametrize("version", [0, 9])
async def test_too_many_protocols_are_refused(peer: Peer, version: int) -> None:
    """A member with one protocol more than PROTOCOLS_MAX joins no group, and leaves no trace of one."""
    request = join_request("g")
    request.protocols = [
        JoinGroupRequest.JoinGroupRequestProtocol(name=f"a{n}", metadata=b"") for n in range(PROTOCOLS_MAX + 1)
    ]
    answer = await ask(peer, request, version)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    described = await peer.ask(DescribeGroupsRequest(groups=["g"]), 6)
    assert described.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_many_protocols_and_assignments(server: Serving) -> None:
    """Members with PROTOCOLS_MAX protocols share a group; a leader may assign to members that don't exist."""
    peer, other = await server.peer(), await server.peer()
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    first, second = join_request("g"), join_request("g")
    others = PROTOCOLS_MAX - len(first.protocols)
    first.protocols = [*(protocol(name=f"a{n}", metadata=b"") for n in range(others)), *first.protocols]
    second.protocols = [*(protocol(name=f"b{n}", metadata=b"") for n in range(others)), *second.protocols]
    joined = await ask(peer, first, 3)
    assert joined.protocol_name == "a0"
    data = other.frame(second, 3)
    await other.send_bytes(data)
    await server.barrier()
    first.member_id = joined.member_id
    joined = await ask(peer, first, 3)
    follower = await other.receive()
    assert (joined.protocol_name, follower.protocol_name) == ("range", "range")
    sync = sync_request("g", joined)
    ghosts = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=f"ghost-{n}", assignment=b"x") for n in range(MANY)]
    sync.assignments = [*ghosts, *sync.assignments]
    answer = await ask(peer, sync, 3)
    assert answer.assignment == sync.assignments[MANY].assignment
