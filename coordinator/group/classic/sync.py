"""SyncGroup: the leader brings the assignments, and each member gets its own (Kafka: GroupCoordinator.handleSyncGroup).

A follower's sync waits for the leader's. The leader's sync completes the generation: the coordinator writes the group,
and answers the syncs once the record is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.group import notes, records
from coordinator.group.answers import sync_error
from coordinator.group.causes import CauseKind
from coordinator.group.classic import course, rebalance, seats, standby
from coordinator.group.classic.reasons import by_member, by_members
from coordinator.group.course import Outcome
from coordinator.group.effects import Response
from coordinator.group.events import SyncGroup
from coordinator.group.group import Group, Waiting
from coordinator.group.state import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE
from coordinator.group.turn import NONE, Turn, member_error, sync_answer
from protocol.consumer import decode_assignment
from protocol.speed import new
from schemas.errors import ErrorCode


def sync(turn: Turn, group: Group, event: SyncGroup) -> None:
    """Handle a SyncGroup."""
    if event.body.member_id in group.standbys and group.state is not DEAD:
        standby.sync(turn, group, event)
        return
    error = validate(turn, group, event)
    if error is not NONE:
        turn.answer(event.request, sync_error(error))
        return
    member = group.members[event.body.member_id]
    if group.state is PREPARING_REBALANCE:
        member.is_asked = True
        turn.answer(event.request, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    # A standby that got a seat has it from now on.
    was_called, member.called_until_ms = member.called_until_ms is not None, None
    if group.state is COMPLETING_REBALANCE:
        # The client sent the request again: answer the first one, so that it doesn't wait for ever (KAFKA-20938).
        turn.release_sync(member, ErrorCode.NOT_COORDINATOR)
        member.awaiting_sync = new(Waiting, (event.request, event.version))
        rebalance.synced(turn, group, member)
        if group.leader == member.member_id:
            assign(turn, group, given_by(event))
        else:
            records.prepare(group, member)
    elif was_called and group.leader == member.member_id and finds_more(group, given_by(event)):
        rebalance.prepare(turn, group, by_member(CauseKind.LEADER_REJOINED, member, api_version=event.version))
        turn.answer(event.request, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    else:
        assert group.state is STABLE
        if was_called:
            member.may_lack_seat = True
            # Its next heartbeat has to be looked at.
            member.beat = None
        if group.pending_sync:
            rebalance.synced(turn, group, member)
        turn.effects.responses.append(new(Response, (event.request, sync_answer(group, member.assignment))))
        turn.renew_sessions(group, [member])


def validate(turn: Turn, group: Group, event: SyncGroup) -> ErrorCode:
    """Check instance id, member id, generation, then protocol."""
    body = event.body
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if member_error(group, body.member_id, body.group_instance_id) is not NONE:
        # Notes a fenced member too.
        return turn.validate_member(group, body.member_id, body.group_instance_id, "sync-group", event.client)
    if body.generation_id != group.generation:
        # A standby that got a seat meanwhile has to join again.
        is_called = seats.is_called(group, group.members[body.member_id], body.generation_id, turn.now.ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if is_called else ErrorCode.ILLEGAL_GENERATION
    if body.protocol_type not in (None, group.protocol_type) or body.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return NONE


def given_by(event: SyncGroup) -> Mapping[str, bytes]:
    """The leader's assignments, by member id."""
    if event.given is not None:
        return event.given
    return {assignment.member_id: assignment.assignment for assignment in event.body.assignments}


def finds_more(group: Group, given: Mapping[str, bytes]) -> bool:
    """Whether these assignments have topic partitions that no member has.

    Then a topic grew, and the lost leader had not seen it: only the standby that leads can tell. Fewer partitions don't
    count: the standby's view may be older than that of the lost leader.
    """
    found = partitions_in(group, given.values())
    held = partitions_in(group, [member.assignment for member in group.members.values()])
    return found is not None and held is not None and not found <= held


def partitions_in(group: Group, assignments: Iterable[bytes]) -> set[tuple[str, int]] | None:
    """The topic partitions in assignments; None if one can't be read."""
    found: set[tuple[str, int]] = set()
    for assignment in assignments:
        partitions = decode_assignment(group.protocol_type or "", assignment)
        if partitions is None:
            return None
        found.update((topic, each) for topic, some in partitions.items() for each in some)
    return found


def assign(turn: Turn, group: Group, given: Mapping[str, bytes]) -> None:
    """Hand out the leader's assignments. A member that the leader left out gets an empty one."""
    group.assign(given)
    if not turn.write_group(group, turn.now.wall_ms):
        refuse_assignments(turn, group)
        return
    group.transition_to(STABLE, turn.now.wall_ms)
    missing = tuple(member_id for member_id in group.members if member_id not in given)
    assert group.leader is not None
    turn.note(
        notes.RebalanceCompleted(
            group.group_id, group.generation, group.leader, len(group.members), len(group.static_members), missing
        )
    )
    course.end(turn, group, Outcome.COMPLETED)
    turn.release_syncs(group, NONE)


def refuse_assignments(turn: Turn, group: Group) -> None:
    """The generation can't be written: refuse the waiting syncs, and start another rebalance (KAFKA-19760).

    The log keeps the last synced generation. The rebalance waits for members that rejoin, so this is no loop.
    """
    turn.release_syncs(group, ErrorCode.UNKNOWN_SERVER_ERROR)
    leader = group.members[group.leader or ""]
    rebalance.prepare(turn, group, by_member(CauseKind.ASSIGNMENT_TOO_LARGE, leader))


def time_is_up(turn: Turn, group: Group) -> None:
    """The sync timer fired: drop the members that joined and did not sync, static or not (KAFKA-12890).

    A standby may take the seat of such a member. If standbys take all of them, no rebalance starts.
    """
    assert group.state in (COMPLETING_REBALANCE, STABLE)
    silent = tuple(sorted(group.pending_sync))
    members = [group.members[member_id] for member_id in silent if member_id in group.members]
    if members:
        dropped = tuple(member.member_id for member in members)
        turn.note(notes.MembersDropped(group.group_id, group.generation, dropped, "did not sync in time"))
    if group.standbys:
        members = [each for each in members if not seats.take_over(turn, group, each, CauseKind.SYNC_TIMED_OUT)]
        silent = tuple(sorted(group.pending_sync))
        if not silent:
            return
    course.opened(group)
    for member in members:
        turn.drop(group, member)
    rebalance.prepare(turn, group, by_members(CauseKind.SYNC_TIMED_OUT, silent, members))
