"""The requests of a standby (`seats` says what a standby is).

    JoinGroup    without a member id, while all seats are taken: the client waits as a standby. With its own member id,
                 or as a static standby that restarts: it stays one. It gets no free seat by that.
    SyncGroup    it gets an assignment without partitions
    Heartbeat    it gets NONE (`heartbeat`)
    LeaveGroup   it goes
    OffsetCommit it gets REBALANCE_IN_PROGRESS: it holds no partitions (`offsets.admit`)

House rule: no request of a standby changes the group's record or starts a rebalance.
"""

from __future__ import annotations

from coordinator.group.answers import join_error, sync_error
from coordinator.group.causes import Cause, CauseKind
from coordinator.group.classic import rebalance, seats, static
from coordinator.group.events import JoinGroup, SyncGroup
from coordinator.group.group import Group, Member, Standby, Waiting
from coordinator.group.state import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from coordinator.group.turn import NONE, Turn, sync_answer
from protocol.consumer import NO_PARTITIONS
from schemas.errors import ErrorCode


def join(turn: Turn, group: Group, event: JoinGroup, member: Member, within_ms: int) -> None:
    """Let a new member wait as a standby. within_ms: how long its first JoinGroup may wait."""
    member.awaiting_join = Waiting(event.request, event.version)
    seats.add(turn, group, member)
    turn.expect(group, member, within_ms)
    seats.answer(turn, group, member)


def rejoin(turn: Turn, group: Group, event: JoinGroup) -> None:
    """A JoinGroup with the member id of a standby."""
    member = group.standbys[event.body.member_id].member
    if event.body.group_instance_id not in (None, member.group_instance_id):
        turn.answer(event.request, join_error(event.version, ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        return
    # The client sent the request again: answer the first one, so that it doesn't wait for ever (KAFKA-20938).
    seats.release(turn, member, ErrorCode.NOT_COORDINATOR)
    update(turn, group, member, event)


def replace(turn: Turn, group: Group, standby: Standby, member_id: str, event: JoinGroup) -> None:
    """A static standby restarts: it gets a new member id and keeps its turn. The old id is fenced."""
    member = standby.member
    before = static.FormerSeat(group, member)
    waited = member.awaiting_join is not None
    seats.release(turn, member, ErrorCode.FENCED_INSTANCE_ID)
    turn.forget(group, member)
    member.member_id = member_id
    group.standbys = {each.member.member_id: each for each in group.standbys.values()}
    static.note_replaced(turn, group, before, event, rebalances=False)
    update(turn, group, member, event)
    if waited:
        turn.note_fenced(group, before.member_id, member, "join-group", before.joined_by, waited=True)


def update(turn: Turn, group: Group, member: Member, event: JoinGroup) -> None:
    """Take over the data of a standby that joins again, and answer it as soon as there is a generation."""
    member.joined_by = event.client
    member.protocols = event.listed()
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    member.session_timeout_ms = event.body.session_timeout_ms
    member.changed()
    member.awaiting_join = Waiting(event.request, event.version)
    turn.renew_sessions(group, [member])
    seats.answer(turn, group, member)


def sync(turn: Turn, group: Group, event: SyncGroup) -> None:
    """A SyncGroup of a standby."""
    body = event.body
    member = group.standbys[body.member_id].member
    if body.group_instance_id not in (None, member.group_instance_id):
        turn.answer(event.request, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
    elif (
        body.generation_id != seats.STANDBY_GENERATION
        or group.protocol_name is None
        or body.protocol_name not in (None, group.protocol_name)
    ):
        # It was a member, or the group has another assignor by now: its next JoinGroup gets the right answer.
        turn.answer(event.request, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    else:
        turn.renew_sessions(group, [member])
        turn.answer(event.request, sync_answer(group, NO_PARTITIONS))


def leave(turn: Turn, group: Group, member: Member, instance_id: str | None) -> ErrorCode:
    """A standby leaves, or an operator removes it."""
    if instance_id not in (None, member.group_instance_id):
        return ErrorCode.UNKNOWN_MEMBER_ID
    seats.release(turn, member, ErrorCode.UNKNOWN_MEMBER_ID)
    seats.remove(turn, group, member, "left")
    return NONE


def expire(turn: Turn, group: Group, member: Member) -> None:
    """The timer of a standby fired: its deadline has passed, or a heartbeat moved it."""
    if turn.now.ms < member.deadline_ms:
        turn.watch(group, member)
    elif member.is_new or member.awaiting_join is None:
        seats.release(turn, member, ErrorCode.UNKNOWN_MEMBER_ID)
        seats.remove(turn, group, member, "expired")


def target_changed(turn: Turn, group: Group) -> None:
    """Give seats or take them away in one rebalance, because the setting may have changed or the group was loaded.

    An open rebalance does it at its end (`seats.settle`).
    """
    group.target_size = size = seats.target_size(turn, group.group_id)
    if group.state not in (STABLE, COMPLETING_REBALANCE):
        return
    members = len(group.members)
    has_seats = bool(group.standbys) and (size == 0 or members < size)
    demotes = 0 < size < members and seats.can_wait(group.protocol_type, next(iter(group.members.values())).protocols)
    if has_seats or demotes:
        rebalance.prepare(turn, group, Cause(CauseKind.TARGET_SIZE_CHANGED))
    assert group.state is not PREPARING_REBALANCE or group.members
