"""A group is loaded with its partition, and unloaded with it."""

from __future__ import annotations

from coordinator.group import notes, records
from coordinator.group.causes import Cause, CauseKind
from coordinator.group.classic import course, expected, join, rebalance, seats, standby
from coordinator.group.classic.leave import leave_expected
from coordinator.group.course import Outcome
from coordinator.group.effects import PENDING
from coordinator.group.events import GroupSettingsChanged
from coordinator.group.group import Group
from coordinator.group.state import DEAD
from coordinator.group.turn import Turn
from schemas.errors import ErrorCode


def load(turn: Turn, group: Group) -> None:
    """The group was read from the log. It is not served yet."""
    turn.renew_sessions(group, group.members.values())


def serve(turn: Turn, group: Group) -> None:
    """All groups of the partition are read: the group is served from now on."""
    # Sessions start now, because no heartbeat could arrive before. Timers that run already look at the new deadlines.
    turn.renew_sessions(group, group.members.values())
    group.served_ms = turn.now.ms
    if len(group.members) > turn.config.group_max_size:
        rebalance.prepare(turn, group, Cause(CauseKind.GROUP_OVER_CAPACITY))
    standby.target_changed(turn, group)


def resume(turn: Turn, group: Group) -> None:
    """Members can reach the coordinator again: whatever waits for a member waits in full."""
    now_ms = turn.now.ms
    for member in group.members.values():
        # A new member may wait for its generation for longer than its session timeout.
        turn.expect(group, member, max(member.deadline_ms - now_ms, member.session_timeout_ms))
        if member.called_until_ms is not None:
            member.called_until_ms = seats.called_until_ms(member, now_ms)
    for waiting in group.standbys.values():
        member = waiting.member
        turn.expect(group, member, max(member.deadline_ms - now_ms, member.session_timeout_ms))
    for member_id in group.pending:
        turn.arm(PENDING, group, now_ms + turn.config.group_pending_timeout_ms, member_id)
    rebalance.wait_in_full(turn, group)
    expected.wait_in_full(turn, group)


def settings_changed(turn: Turn, group: Group, event: GroupSettingsChanged) -> None:
    """The group may expect other members, and have more or fewer seats.

    Members that it stopped to expect go with one rebalance. Held joins that wait for nobody come in.
    """
    leave_expected(turn, group, event.dropped)
    join.let_in(turn, group, expected.settings_changed(turn, group))
    standby.target_changed(turn, group)
    rebalance.maybe_complete(turn, group)


def unload(turn: Turn, group: Group) -> None:
    """The partition goes: each request that waits gets NOT_COORDINATOR, and the group is Dead."""
    end(turn, group, ErrorCode.NOT_COORDINATOR, Outcome.UNLOADED)
    turn.note(notes.GroupUnloaded(group.group_id, group.generation))


def end(turn: Turn, group: Group, error: ErrorCode, outcome: Outcome) -> None:
    """End a group with members: requests that wait get `error`, and an open rebalance ends with `outcome`."""
    for member in group.members.values():
        turn.release_join(group, member, error, member.member_id)
        turn.release_sync(member, error)
    seats.release_all(turn, group, error)
    expected.release_all(turn, group)
    group.pending.clear()
    group.pending_sync.clear()
    group.initial_delay = None
    group.transition_to(DEAD, turn.now.wall_ms)
    if group.course is not None:
        course.end(turn, group, outcome)


def bury(turn: Turn, group: Group) -> None:
    """An empty group becomes Dead.

    The log has no record of a group of generation 0 itself, but it may have offsets. Apache Kafka 4 makes a group of
    them when it loads the log, although tombstones follow; only the group's own tombstone ends it.
    """
    assert not group.members
    expected.release_all(turn, group)
    for member_id in group.pending:
        turn.arm(PENDING, group, None, member_id)
    group.pending.clear()
    group.transition_to(DEAD, turn.now.wall_ms)
    turn.append(records.group_tombstone(group.group_id, turn.now.wall_ms))
