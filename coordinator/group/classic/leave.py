"""LeaveGroup: members leave, or an operator removes them (Kafka: GroupCoordinator.handleLeaveGroup).

From v3 on a request names any number of members, and each gets an error of its own (KIP-345):

    instance id, empty member id   removes the member with that instance id
    member id                      removes it, static or not; an instance id beside it must be its own
    pending member id              gives it back

Up to v2 a request names one member; its error is the response's top-level error.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.group import notes
from coordinator.group.causes import CauseKind, Meaning, meaning_of
from coordinator.group.classic import course, rebalance, seats, standby
from coordinator.group.classic.reasons import by_member, by_members
from coordinator.group.effects import PENDING
from coordinator.group.events import LeaveGroup
from coordinator.group.group import Group, Member
from coordinator.group.state import DEAD, PREPARING_REBALANCE
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn
from protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from schemas.errors import ErrorCode


def leave(turn: Turn, group: Group, event: LeaveGroup) -> None:
    """Handle a LeaveGroup."""
    if group.state is DEAD:
        body = LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, members=[])
    else:
        body = event.answered([leave_one(turn, group, event, leaving) for leaving in event.leaving])
    turn.answer(event.request, body)


def leave_one(turn: Turn, group: Group, event: LeaveGroup, leaving: LeaveGroupRequest.MemberIdentity) -> ErrorCode:
    """Let one member go."""
    member_id = leaving.member_id
    if member_id == UNKNOWN_MEMBER_ID:
        holder = None if leaving.group_instance_id is None else group.holder_of(leaving.group_instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = holder.member_id
    elif member_id in group.pending:
        turn.arm(PENDING, group, None, member_id)
        remove_pending(turn, group, member_id, left=True)
        return ErrorCode.NONE
    elif member_id not in group.standbys:
        error = turn.validate_member(group, member_id, leaving.group_instance_id, "leave-group", event.client)
        if error is not ErrorCode.NONE:
            return error
    if member_id in group.standbys:
        return standby.leave(turn, group, group.standbys[member_id].member, leaving.group_instance_id)
    member = group.members[member_id]
    reason = leaving.reason or ""
    turn.note(notes.MemberLeft(group.group_id, group.generation, *member.named, reason, member.principal))
    # A member names itself by its member id. An instance id alone comes from an operator.
    removed = leaving.member_id == UNKNOWN_MEMBER_ID or meaning_of(reason) is Meaning.REMOVED_BY_ADMIN
    kind = CauseKind.MEMBER_REMOVED if removed else CauseKind.MEMBER_LEFT
    remove_member(turn, group, member, kind, reason, event.version)
    return ErrorCode.NONE


def remove_member(
    turn: Turn, group: Group, member: Member, kind: CauseKind, reason: str = "", api_version: int | None = None
) -> None:
    """Drop a member, then rebalance or go on without it (Kafka: removeMemberAndUpdateGroup).

    If a standby takes the seat, nothing else happens.
    """
    if drop(turn, group, member, kind):
        rebalance.maybe_prepare(turn, group, by_member(kind, member, reason, api_version))
        rebalance.maybe_complete(turn, group)


def drop(turn: Turn, group: Group, member: Member, kind: CauseKind) -> bool:
    """Drop a member. False if a standby takes its seat."""
    if group.standbys and seats.take_over(turn, group, member, kind):
        return False
    if member.awaiting_join is None:
        # Members that wait in a rebalance also waited for this one.
        course.arrived(turn, group, member.member_id)
    turn.drop(group, member)
    return True


def leave_expected(turn: Turn, group: Group, names: Collection[str]) -> None:
    """Remove members that the group stopped to expect. One rebalance starts for all whose seats no standby takes."""
    for name in names:
        waiting = group.standby_named(name)
        if waiting is not None:
            standby.leave(turn, group, waiting.member, None)
    members = [group.members[group.static_members[name]] for name in names if name in group.static_members]
    gone = []
    for member in members:
        turn.note(
            notes.MemberLeft(
                group.group_id, group.generation, *member.named, "not in expected.instance.ids", member.principal
            )
        )
        if drop(turn, group, member, CauseKind.MEMBER_REMOVED):
            gone.append(member)
    if gone:
        member_ids = tuple(member.member_id for member in gone)
        rebalance.maybe_prepare(turn, group, by_members(CauseKind.MEMBER_REMOVED, member_ids, gone))


def remove_pending(turn: Turn, group: Group, member_id: str, *, left: bool) -> None:
    """Take a pending member id back; an open rebalance stops waiting for it (KAFKA-7909)."""
    del group.pending[member_id]
    turn.note(notes.PendingExpired(group.group_id, group.generation, member_id, left))
    if group.state is PREPARING_REBALANCE:
        course.arrived(turn, group, member_id)
        course.opened(group).lapsed.append(member_id)
    rebalance.maybe_complete(turn, group)
