"""LeaveGroup requests, whatever the kind of their group: the members that leave, and the form of the answer."""

from __future__ import annotations

from coordinator.group.events import LeaveGroup
from protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from schemas.errors import ErrorCode

MEMBERS_SINCE = 3
"""The first version with a list of members."""


def leaving_members(event: LeaveGroup) -> list[LeaveGroupRequest.MemberIdentity]:
    """The members of a request, in the form of v3."""
    if event.version >= MEMBERS_SINCE:
        return event.body.members
    return [LeaveGroupRequest.MemberIdentity(member_id=event.body.member_id)]


def answer(event: LeaveGroup, errors: list[ErrorCode]) -> LeaveGroupResponse:
    """The answer, with an error per member. It echoes the ids of the request (KAFKA-18188)."""
    if event.version < MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=errors[0], members=[])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error_code=error
            )
            for leaving, error in zip(event.body.members, errors, strict=True)
        ],
    )
