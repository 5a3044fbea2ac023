"""Heartbeat: a member is alive (Kafka: GroupCoordinator.handleHeartbeat).

More than 95 of 100 requests are heartbeats. The rule is one function of plain arguments: it moves a deadline and
returns an error code, without event, effects or timer (`Turn.watch` says why no timer is needed).

Nearly every heartbeat repeats an earlier one that got NONE. The member keeps that one's bytes (`remember`) until
something happens that may change the answer. Until then `again` answers from the member alone.
"""

from __future__ import annotations

from collections.abc import Hashable

from coordinator.group.classic.seats import STANDBY_GENERATION, is_called
from coordinator.group.events import Heartbeat
from coordinator.group.group import Group, Member
from coordinator.group.state import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from coordinator.group.turn import Turn
from schemas.errors import ErrorCode

# Short names: see `speed`. `State.DEAD` and its like would take as long as the rest of this rule.
NONE, REBALANCE_IN_PROGRESS = int(ErrorCode.NONE), int(ErrorCode.REBALANCE_IN_PROGRESS)


def heartbeat(group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> int:
    """The error code of a heartbeat. NONE and REBALANCE_IN_PROGRESS renew the member's session."""
    state = group.state
    if state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    member = group.members.get(member_id)
    # A correct heartbeat needs the member alone: with ten thousand members, each look-up waits for memory.
    if member is None or (instance_id is not None and member.group_instance_id != instance_id):
        return no_member(group, member_id, instance_id, generation, now_ms)
    if generation != group.generation:
        return called(group, member, generation, now_ms)
    member.deadline_ms = now_ms + member.session_timeout_ms
    member.may_lack_seat = False
    if state is not PREPARING_REBALANCE:
        return NONE
    member.is_asked = True
    return REBALANCE_IN_PROGRESS


def no_member(group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> int:
    """The error code of a heartbeat that no member can have sent: a standby did, or the client is fenced or unknown."""
    standby = group.standbys.get(member_id)
    if standby is not None and instance_id in (None, standby.member.group_instance_id):
        standby.member.deadline_ms = now_ms + standby.member.session_timeout_ms
        # A member that lost its seat, because the group has fewer, has to join again to hear that it is a standby.
        return NONE if generation == STANDBY_GENERATION else REBALANCE_IN_PROGRESS
    fenced = instance_id is not None and group.holder_of(instance_id) is not None
    return ErrorCode.FENCED_INSTANCE_ID if fenced else ErrorCode.UNKNOWN_MEMBER_ID


def called(group: Group, member: Member, generation: int, now_ms: int) -> int:
    """The error code of a heartbeat with another generation: a standby that got a seat has to join again."""
    if not is_called(group, member, generation, now_ms):
        return ErrorCode.ILLEGAL_GENERATION
    # The session timer ends this if the standby only sends heartbeats (`Member.called_until_ms`).
    member.deadline_ms = now_ms + member.session_timeout_ms
    return REBALANCE_IN_PROGRESS


def beat(turn: Turn, group: Group, event: Heartbeat) -> int:
    """The error code of a heartbeat. Notes who is fenced; `heartbeat` takes no notes."""
    body = event.body
    error = heartbeat(group, body.member_id, body.group_instance_id, body.generation_id, turn.now.ms)
    if error == ErrorCode.FENCED_INSTANCE_ID:
        turn.validate_member(group, body.member_id, body.group_instance_id, "heartbeat", event.client)
    return error


def remember(group: Group, member: Member, beat: Hashable) -> Hashable | None:
    """Keep the heartbeat of `member` that `heartbeat` has just answered with NONE; return the one kept before, if any.

    beat: identifies the heartbeat; equal heartbeats have equal ones.
    """
    assert group.state is COMPLETING_REBALANCE or group.state is STABLE
    assert group.members[member.member_id] is member
    former, member.beat = member.beat, beat
    return former


def again(member: Member, beat: Hashable, now_ms: int) -> bool:
    """Whether `member` keeps this heartbeat: then its answer is NONE again, and its session is renewed.

    If not, ask `heartbeat`. This looks up no group: with ten thousand members, each look-up waits for memory.
    """
    if member.beat != beat:
        return False
    member.deadline_ms = now_ms + member.session_timeout_ms
    return True
