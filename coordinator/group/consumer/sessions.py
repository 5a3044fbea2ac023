"""Sessions and revocations: the two ways in which time removes a member (KIP-848).

A session ends if no heartbeat comes within the session timeout, which the group or the coordinator sets. A member that
the coordinator asks to give up partitions has its own rebalance timeout for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group.consumer.group import UNREVOKED, ConsumerGroup, ConsumerMember, Session
from coordinator.group.effects import REBALANCE

if TYPE_CHECKING:
    from coordinator.group.turn import Turn


def renew(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Restart the session of a member."""
    session = group.sessions.get(member_id)
    if session is None:
        session = group.sessions[member_id] = Session(member_id)
    session.session_timeout_ms = turn.consumer_settings(group.group_id).session_timeout_ms
    turn.expect(group, session, session.session_timeout_ms)


def watch_revocation(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Start the time that a member has to give up partitions, or end it if there is nothing to give up."""
    member_id = member.member_id
    if member.state is UNREVOKED:
        group.deadlines[member_id] = member.epoch
        turn.arm(REBALANCE, group, turn.now.ms + member.rebalance_timeout_ms, member_id)
    elif group.deadlines.pop(member_id, None) is not None:
        turn.arm(REBALANCE, group, None, member_id)


def forget(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Cancel the timers of a member that goes."""
    session = group.sessions.get(member_id)
    if session is not None:
        turn.forget(group, session)
    if group.deadlines.pop(member_id, None) is not None:
        turn.arm(REBALANCE, group, None, member_id)
