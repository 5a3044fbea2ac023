"""Heartbeat: a member is alive (Kafka: GroupCoordinator.handleHeartbeat).

More than 95 of 100 requests are heartbeats. The rule is written once, as a function of plain arguments that moves a
deadline and returns a number: no event, no effects, no timer (`Turn.watch` says why none is needed). Nearly all of them
repeat one that was answered with NONE. The member keeps what that one looked like (`remember`) until something happens
that may change the answer, so `again` has to ask nobody else.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from coordinator.group.state import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.group.group import Group, Member

# Before Python 3.12, to name an enum's member costs as much as all else that a heartbeat needs here.
NONE, REBALANCE_IN_PROGRESS = int(ErrorCode.NONE), int(ErrorCode.REBALANCE_IN_PROGRESS)


def heartbeat(group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> int:
    """The error code of a heartbeat; a member that may go on has its session started anew."""
    state = group.state
    if state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    member = group.members.get(member_id)
    # Whoever is in order is seen from the member alone: with ten thousand of them, each look-up waits for memory.
    if instance_id is not None and (member is None or member.group_instance_id != instance_id):
        fenced = group.static_members.get(instance_id) is not None
        return ErrorCode.FENCED_INSTANCE_ID if fenced else ErrorCode.UNKNOWN_MEMBER_ID
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    member.deadline_ms = now_ms + member.session_timeout_ms
    return REBALANCE_IN_PROGRESS if state is PREPARING_REBALANCE else NONE


def remember(group: Group, member: Member, beat: Hashable) -> None:
    """Keep what a heartbeat of `member` looked like, just after `heartbeat` has answered it with NONE.

    beat: the same for heartbeats that are the same, whatever that is to the caller.
    """
    assert group.state is COMPLETING_REBALANCE or group.state is STABLE
    assert group.members[member.member_id] is member
    member.beat = beat


def again(member: Member, beat: Hashable, now_ms: int) -> bool:
    """Whether a heartbeat is the one that `member` keeps, so that it is answered with NONE once more.

    If so, the session has started anew; if not, ask `heartbeat`. Nothing is looked up and no group asked: with ten
    thousand members, each look waits for memory.
    """
    if member.beat != beat:
        return False
    member.deadline_ms = now_ms + member.session_timeout_ms
    return True
