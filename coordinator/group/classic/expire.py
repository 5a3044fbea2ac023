"""Timers: silent members, waits that end, member ids that no client used.

A member's timer only looks at the deadline, because heartbeats move the deadline and not the timer. A member or a
rebalance that ends cancels its timers; a timer that fires all the same changes nothing (KAFKA-8896).
"""

from __future__ import annotations

from coordinator.group import notes
from coordinator.group.causes import CauseKind
from coordinator.group.classic import expected, join, rebalance, standby, sync
from coordinator.group.classic.leave import remove_member, remove_pending
from coordinator.group.effects import ARRIVALS, PENDING, REBALANCE, SESSION, TimerKey
from coordinator.group.group import NEVER, Group
from coordinator.group.state import PREPARING_REBALANCE
from coordinator.group.turn import Turn


def fired(turn: Turn, group: Group, key: TimerKey) -> None:
    """The timer of `key` went off."""
    if key.kind is SESSION:
        session(turn, group, key.member_id)
    elif key.kind is PENDING:
        if key.member_id in group.pending:
            remove_pending(turn, group, key.member_id, left=False)
    elif key.kind is REBALANCE:
        if group.state is PREPARING_REBALANCE:
            rebalance.time_is_up(turn, group)
    elif key.kind is ARRIVALS:
        join.let_in(turn, group, expected.fired(turn, group))
        rebalance.maybe_complete(turn, group)
    elif group.pending_sync:
        sync.time_is_up(turn, group)


def session(turn: Turn, group: Group, member_id: str) -> None:
    """Expire a member whose deadline has passed (Kafka: onExpireHeartbeat).

    A member that waits in JoinGroup or SyncGroup is alive; the answer renews its session. A new member's JoinGroup may
    not wait for ever (join.NEW_MEMBER_JOIN_TIMEOUT_MS).
    """
    member = group.members.get(member_id)
    if member is None:
        found = group.standbys.get(member_id)
        if found is not None:
            found.member.timer_at_ms = NEVER
            standby.expire(turn, group, found.member)
        return
    member.timer_at_ms = NEVER
    if member.called_until_ms is not None:
        # Heartbeats alone may not keep the seat from the next standby for ever.
        member.deadline_ms = min(member.deadline_ms, member.called_until_ms)
    if turn.now.ms < member.deadline_ms:
        turn.watch(group, member)
    elif member.is_new or (member.awaiting_join is None and member.awaiting_sync is None):
        turn.note(notes.MemberExpired(group.group_id, group.generation, *member.named, member.principal))
        remove_member(turn, group, member, CauseKind.MEMBER_EXPIRED)
