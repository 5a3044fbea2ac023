"""Requests about groups: what handlers decide before the coordinator, and answers that are put together of parts."""

from __future__ import annotations

from protocol.messages import DeleteGroupsRequest, ListGroupsRequest
from schemas.errors import ErrorCode
from tests.server.harness import Peer, seat
from tests.support.requests import commit_request


async def two_groups(peer: Peer) -> None:
    """A Stable group of a static member, and a simple one."""
    await seat(peer, "stable", "i")
    await peer.ask(commit_request("simple", {("orders", 0): 1}), 8)


async def test_groups_of_all_partitions_are_listed(peer: Peer) -> None:
    """With filters for states and types."""
    await two_groups(peer)
    answer = await peer.ask(ListGroupsRequest(), 5)
    assert sorted((group.group_id, group.group_state, group.group_type) for group in answer.groups) == [
        ("simple", "Empty", "classic"),
        ("stable", "Stable", "classic"),
    ]
    answer = await peer.ask(ListGroupsRequest(states_filter=["stable"]), 4)
    assert [group.group_id for group in answer.groups] == ["stable"]
    for types in (["consumer"], ["share", "streams"]):
        answer = await peer.ask(ListGroupsRequest(types_filter=types), 5)
        assert (answer.error_code, answer.groups) == (ErrorCode.NONE, [])


async def test_each_group_is_deleted_by_itself_and_once(peer: Peer) -> None:
    """A group with members stays; a group that is named twice has one answer."""
    await two_groups(peer)
    names = ["stable", "simple", "absent", "simple"]
    answer = await peer.ask(DeleteGroupsRequest(groups_names=names), 2)
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("stable", ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert [group.group_id for group in (await peer.ask(ListGroupsRequest(), 2)).groups] == ["stable"]
