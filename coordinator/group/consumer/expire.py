"""Time is up: a session ended, or a member did not give up its partitions in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group import notes
from coordinator.group.consumer import leave, sessions
from coordinator.group.consumer.group import UNREVOKED, ConsumerGroup
from coordinator.group.effects import SESSION
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
    elif group.deadlines.get(key.member_id) == member.epoch:
        why = "did not give up its partitions in time"
        turn.note(notes.MembersDropped(group.group_id, group.generation, (member.member_id,), why))
        leave.drop(turn, group, [member])


def load(turn: Turn, group: ConsumerGroup) -> None:
    """A group was read from the log: its sessions start in full, and its revocations too (Kafka: onLoaded)."""
    for member in group.members.values():
        sessions.renew(turn, group, member.member_id)
        if member.state is UNREVOKED:
            sessions.watch_revocation(turn, group, member)
