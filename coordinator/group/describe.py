"""DescribeGroups, ListGroups and DeleteGroups: what an administrator sees and does.

Outside Stable a description has no protocol name, metadata or assignments, because the group decides them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any

from coordinator.group import notes, offsets
from coordinator.group.any_group import AnyGroup
from coordinator.group.client import Client
from coordinator.group.course import Course
from coordinator.group.events import Remainder
from coordinator.group.group import Group, Member
from coordinator.group.state import COMPLETING_REBALANCE, DEAD, EMPTY, STABLE
from coordinator.group.turn import Turn, Watched
from protocol.consumer import NO_PARTITIONS
from protocol.messages import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse, alike
from protocol.primitives import STRING_SIZE_MAX
from schemas.errors import ErrorCode

NOT_FOUND_SINCE = 6
"""The first DescribeGroups version that answers GROUP_ID_NOT_FOUND for an absent group (KIP-1043)."""

# There can be thousands of members and groups. Their parts of an answer share the other fields with these.
_described = alike(
    DescribeGroupsResponse.DescribedGroupMember,
    "member_id",
    "group_instance_id",
    "client_id",
    "client_host",
    "member_metadata",
    "member_assignment",
)
_MEMBER = DescribeGroupsResponse.DescribedGroupMember()
_NOBODY = DescribeGroupsResponse.GroupWaiting()
_listed = alike(ListGroupsResponse.ListedGroup, "group_id", "protocol_type", "group_state", "group_type")
_GROUP = ListGroupsResponse.ListedGroup()


def describe(group: Group) -> DescribeGroupsResponse.DescribedGroup:
    """A group as DescribeGroups shows it (Kafka: GroupMetadata.summary)."""
    stable = group.state is STABLE
    return DescribeGroupsResponse.DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            *[describe_member(group, member) for member in group.members.values()],
            *[describe_member(group, standby.member, is_standby=True) for standby in group.standbys.values()],
        ],
    )


def describe_member(
    group: Group, member: Member, *, is_standby: bool = False
) -> DescribeGroupsResponse.DescribedGroupMember:
    """A member as DescribeGroups shows it. A standby is a member without partitions, as Kafka has them too."""
    name = group.protocol_name if group.state is STABLE else None
    metadata: bytes | None = None
    if name is not None:
        metadata = dict(member.protocols).get(name) if is_standby else member.metadata(name)
    return _described(
        _MEMBER,
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        metadata or b"",
        b"" if metadata is None else NO_PARTITIONS if is_standby else member.assignment,
    )


def describe_sessions(group: Group, described: DescribeGroupsResponse.DescribedGroup, now_ms: int) -> None:
    """Add to each described member its session timeout and software, and for how long nothing was heard of it.

    A member that waits in JoinGroup or SyncGroup is there. After a load, silence counts from the load. A standby also
    has the time for which it has waited.
    """
    standbys = (standby.member for standby in group.standbys.values())
    for member, told in zip(chain(group.members.values(), standbys), described.members, strict=True):
        told.session_timeout_ms = member.session_timeout_ms
        told.client_software = "" if member.joined_by is None else member.joined_by.software
        waits = member.awaiting_join is not None or member.awaiting_sync is not None
        told.silent_ms = 0 if waits else silent_ms(member, now_ms)
    for standby, told in zip(group.standbys.values(), described.members[len(group.members) :], strict=True):
        told.standby_ms = max(now_ms - standby.since_ms, 0)


def silent_ms(member: Watched, now_ms: int) -> int:
    """How long ago the session of a member was renewed."""
    return max(now_ms - (member.deadline_ms - member.session_timeout_ms), 0)


def describe_waiting(group: Group, course: Course) -> DescribeGroupsResponse.GroupWaiting:
    """The members that a group waits for in its open rebalance.

    While it prepares: members that have not joined, and member ids that no client has used. A group that holds its
    first rebalance open waits for nobody in particular (KIP-134). Afterwards: members that have not synced, above all
    the leader.
    """
    completing = group.state is COMPLETING_REBALANCE
    is_held_open = group.initial_delay is not None
    began_ms = course.began_ms if course.joined_ms is None else course.joined_ms
    assert group.state_since_ms is not None
    return DescribeGroupsResponse.GroupWaiting(
        since_ms=group.state_since_ms,
        until_ms=group.state_since_ms + course.until_ms - began_ms,
        is_held_open=is_held_open,
        leader=(group.leader or "") if completing else "",
        members=[
            DescribeGroupsResponse.GroupAwaitedMember(
                member_id=member.member_id, client_id=member.client[0], client_host=member.client[1]
            )
            for member in group.members.values()
            if (member.member_id in group.pending_sync if completing else member.awaiting_join is None)
        ],
        pending=[
            DescribeGroupsResponse.GroupPendingMember(
                member_id=pending.member_id,
                client_id=pending.client_id,
                client_host=pending.client_host,
                lapses_ms=pending.lapses_ms,
            )
            for pending in ([] if completing or is_held_open else group.pending.values())
        ],
    )


def describe_absent(group_id: str, version: int, *, exists: bool) -> DescribeGroupsResponse.DescribedGroup:
    """A group that isn't there, or exists with another protocol: Dead, and an error from v6 on."""
    described = DescribeGroupsResponse.DescribedGroup(
        group_id=group_id, group_state=DEAD.value, members=[], waiting=_NOBODY
    )
    if version >= NOT_FOUND_SINCE:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        message = f"Group {group_id} is not a classic group." if exists else f"Group {group_id} not found."
        # A group id may be as long as any string, so the message around it may be too long.
        described.error_message = message if len(message.encode()) <= STRING_SIZE_MAX else "Group not found."
    return described


def list_groups(
    groups: Iterable[AnyGroup], states: list[str], types: list[str]
) -> list[ListGroupsResponse.ListedGroup]:
    """The groups that pass both filters, in any letter case; an empty filter lets all pass (KIP-518)."""
    kinds = {kind.lower() for kind in types}
    wanted = {state.lower() for state in states}
    return [
        _listed(_GROUP, group.group_id, group.protocol_type or "", group.state.value, group.kind.value)
        for group in groups
        if (not wanted or group.state.value.lower() in wanted) and (not kinds or group.kind.value in kinds)
    ]


def delete(
    turn: Turn, group: AnyGroup, client: Client, bury: Callable[[Turn, Any], None]
) -> DeleteGroupsResponse.DeletableGroupResult | Remainder:
    """Delete a group without members, with its offsets or some of them.

    client: the one that asks. bury: the rule of the group's kind that makes it Dead.
    """
    if group.state is DEAD:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif group.state is EMPTY:
        error = ErrorCode.NONE
        held = ((topic, index) for topic, partitions in group.offsets.items() for index in partitions)
        removed = list(islice(held, offsets.REMOVED_AT_ONCE))
        removed += [key for key in group.pending_offsets.by_partition if key[1] not in group.offsets.get(key[0], {})]
        offsets.remove(turn, group, removed, client)
        bury(turn, group)
        turn.note(notes.GroupDeleted(group.group_id, group.generation, len(removed), client=client))
        if group.offsets:
            remainder, group.offsets = Remainder(group.offsets), {}
            return remainder
    else:
        error = ErrorCode.NON_EMPTY_GROUP
    return DeleteGroupsResponse.DeletableGroupResult(group_id=group.group_id, error_code=error)
