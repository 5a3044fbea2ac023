"""Time is up: a session ended, or a member did not give up its partitions, rejoin or sync in time.

And the times of a group begin with its load, and end with its partition.
"""

from __future__ import annotations

from coordinator.group import notes
from coordinator.group.causes import CauseKind
from coordinator.group.consumer import course, leave, reasons, sessions
from coordinator.group.consumer.group import AWAY, UNREVOKED, ConsumerGroup, ConsumerMember
from coordinator.group.course import Outcome
from coordinator.group.effects import SESSION, SYNC, TimerKey
from coordinator.group.group import NEVER
from coordinator.group.state import DEAD
from coordinator.group.turn import Turn


def fired(turn: Turn, group: ConsumerGroup, key: TimerKey) -> None:
    """Handle a timer."""
    member = group.members.get(key.member_id)
    if member is None:
        return
    if key.kind is SESSION:
        session = group.sessions[key.member_id]
        session.timer_at_ms = NEVER
        if turn.now.ms < session.deadline_ms:
            turn.watch(group, session)
            return
        turn.note(notes.MemberExpired(group.group_id, group.generation, *member.named))
        leave.drop(turn, group, [member], reasons.of_member(group, CauseKind.MEMBER_EXPIRED, member))
    elif why := why_late(group, member, key):
        turn.note(notes.MembersDropped(group.group_id, group.generation, (member.member_id,), why))
        kind = CauseKind.SYNC_TIMED_OUT if key.kind is SYNC else CauseKind.REVOCATION_TIMED_OUT
        course.opened(turn, group).late += (member.member_id,)
        leave.drop(turn, group, [member], reasons.of_member(group, kind, member))


def why_late(group: ConsumerGroup, member: ConsumerMember, key: TimerKey) -> str | None:
    """The step that a member did not take in time; None if it took it."""
    if key.kind is SYNC:
        return "did not sync in time" if key.member_id in group.syncing else None
    if member.classic is not None:
        return "did not rejoin in time" if key.member_id in group.deadlines else None
    return "did not give up its partitions in time" if group.deadlines.get(key.member_id) == member.epoch else None


def load(turn: Turn, group: ConsumerGroup) -> None:
    """A group was read from the log: its sessions start in full, and its revocations too (Kafka: onLoaded).

    As in Kafka, a classic member's own session timeout counts from its next request on.
    """
    group.loaded_ms = turn.now.ms
    timeout_ms = turn.group_settings(group.group_id).session_timeout_ms
    for member in group.members.values():
        if member.state is UNREVOKED or member.epoch == AWAY:
            group.waits_since[member.member_id] = turn.now.wall_ms
        sessions.start(turn, group, member.member_id, timeout_ms)
        if member.state is UNREVOKED:
            sessions.watch_revocation(turn, group, member)


def unload(turn: Turn, group: ConsumerGroup) -> None:
    """The coordinator drops the partition. No request waits in a group of this kind."""
    if group.course is not None:
        course.end(turn, group, Outcome.UNLOADED)
    turn.note(notes.GroupUnloaded(group.group_id, group.generation))
    group.state = DEAD
