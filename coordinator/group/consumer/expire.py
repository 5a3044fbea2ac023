"""Time is up: a session ended, or a member did not give up its partitions, rejoin or sync in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group import notes
from coordinator.group.consumer import leave, sessions
from coordinator.group.consumer.group import UNREVOKED, ConsumerGroup, ConsumerMember
from coordinator.group.effects import SESSION, SYNC
from coordinator.group.group import NEVER

if TYPE_CHECKING:
    from coordinator.group.effects import TimerKey
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
        turn.note(
            notes.MemberExpired(
                group.group_id,
                group.generation,
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
            )
        )
        leave.drop(turn, group, [member])
    elif why := why_late(group, member, key):
        turn.note(notes.MembersDropped(group.group_id, group.generation, (member.member_id,), why))
        leave.drop(turn, group, [member])


def why_late(group: ConsumerGroup, member: ConsumerMember, key: TimerKey) -> str | None:
    """What a member did not do in time; None if it did."""
    if key.kind is SYNC:
        return "did not sync in time" if key.member_id in group.syncing else None
    if member.classic is not None:
        return "did not rejoin in time" if key.member_id in group.deadlines else None
    return "did not give up its partitions in time" if group.deadlines.get(key.member_id) == member.epoch else None


def load(turn: Turn, group: ConsumerGroup) -> None:
    """A group was read from the log: its sessions start in full, and its revocations too (Kafka: onLoaded).

    As in Kafka, a classic member's own session timeout counts from its next request on.
    """
    for member in group.members.values():
        sessions.restart(turn, group, member.member_id)
        if member.state is UNREVOKED:
            sessions.watch_revocation(turn, group, member)
