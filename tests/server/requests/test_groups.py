"""Requests about groups: what handlers decide before the coordinator, and answers that are put together of parts."""

from __future__ import annotations

from protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, seat, serving, sync_request
from tests.support.requests import commit_request


async def test_a_sync_without_protocol_type_or_name_is_refused_from_version_5_on() -> None:
    """Both are mandatory (KIP-559), whatever the group; earlier versions don't have them."""
    async with serving() as server:
        peer = await server.peer()
        joined = await peer.join("g", instance="i")
        for kind, name in (("consumer", None), (None, "range"), (None, None)):
            request = SyncGroupRequest(
                group_id="nowhere", generation_id=1, member_id="m", protocol_type=kind, protocol_name=name
            )
            assert (await peer.ask(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await peer.ask(sync_request("g", joined), 4)).error_code == ErrorCode.NONE


async def two_groups(peer: Peer) -> None:
    """A Stable group of a static member, and a simple one."""
    await seat(peer, "stable", "i")
    await peer.ask(commit_request("simple", {("orders", 0): 1}), 8)


async def test_groups_are_described_in_the_order_asked() -> None:
    """A group that doesn't exist is Dead. Operations are shown if asked for, and only of groups without an error.

    Kafka 4, which brought version 6, counts DESCRIBE_CONFIGS and ALTER_CONFIGS among them.
    """
    async with serving() as server:
        peer = await server.peer("client")
        await two_groups(peer)
        request = DescribeGroupsRequest(groups=["simple", "absent", "stable"], include_authorized_operations=True)
        answer = await peer.ask(request, 5)
        assert [(group.group_id, group.group_state) for group in answer.groups] == [
            ("simple", "Empty"),
            ("absent", "Dead"),
            ("stable", "Stable"),
        ]
        assert [group.authorized_operations for group in answer.groups] == [0b1_0100_1000] * 3
        (member,) = answer.groups[2].members
        assert (member.group_instance_id, member.client_id, member.client_host) == ("i", "client", "/127.0.0.1")
        answer = await peer.ask(request, 6)
        assert answer.groups[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        shown = [group.authorized_operations for group in answer.groups]
        assert shown == [0b1101_0100_1000, -(2**31), 0b1101_0100_1000]
        request.include_authorized_operations = False
        answer = await peer.ask(request, 5)
        assert {group.authorized_operations for group in answer.groups} == {-(2**31)}
        assert (await peer.ask(DescribeGroupsRequest(groups=[]), 5)).groups == []


async def test_groups_of_all_partitions_are_listed() -> None:
    """With filters for states and types."""
    async with serving() as server:
        peer = await server.peer()
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


async def test_each_group_is_deleted_by_itself_and_once() -> None:
    """A group with members stays; a group that is named twice has one answer."""
    async with serving() as server:
        peer = await server.peer()
        await two_groups(peer)
        names = ["stable", "simple", "absent", "simple"]
        answer = await peer.ask(DeleteGroupsRequest(groups_names=names), 2)
        assert [(result.group_id, result.error_code) for result in answer.results] == [
            ("stable", ErrorCode.NON_EMPTY_GROUP),
            ("simple", ErrorCode.NONE),
            ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert [group.group_id for group in (await peer.ask(ListGroupsRequest(), 2)).groups] == ["stable"]


async def test_a_member_leaves() -> None:
    """An instance id with an empty member id removes the member that has it (KIP-345)."""
    async with serving() as server:
        peer = await server.peer()
        await seat(peer, "g", "i")
        leaving = LeaveGroupRequest.MemberIdentity(member_id="", group_instance_id="i")
        answer = await peer.ask(LeaveGroupRequest(group_id="g", members=[leaving]), 5)
        assert [member.error_code for member in answer.members] == [ErrorCode.NONE]
        assert len(server.events("group_emptied")) == 1
