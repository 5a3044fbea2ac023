"""Sessions, revocations and rejoins: the ways in which time removes a member (KIP-848).

A session ends if no heartbeat comes within the session timeout. The group or the coordinator sets it for members of the
consumer protocol, the member itself for a classic one. A member of the consumer protocol that the coordinator asks to
give up partitions has its own rebalance timeout for that. A classic member has it too: from the answer
that makes it rejoin to its join, and from its join to its sync.
"""

from __future__ import annotations

from coordinator.group.consumer.group import UNREVOKED, ConsumerGroup, ConsumerMember, Session
from coordinator.group.effects import REBALANCE, SYNC
from coordinator.group.turn import Turn


def renew(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Restart the session of a member."""
    settings = turn.group_settings(group.group_id) if member.classic is None else member.classic
    start(turn, group, member.member_id, settings.session_timeout_ms)


def start(turn: Turn, group: ConsumerGroup, member_id: str, timeout_ms: int) -> None:
    """Start a session."""
    session = group.sessions.get(member_id)
    if session is None:
        session = group.sessions[member_id] = Session(member_id)
    session.session_timeout_ms = timeout_ms
    turn.expect(group, session, timeout_ms)


def watch_revocation(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Start the time that a member has to give up partitions, or end it if there is nothing to give up."""
    member_id = member.member_id
    if member.state is UNREVOKED:
        group.deadlines[member_id] = member.epoch
        turn.arm(REBALANCE, group, turn.now.ms + member.rebalance_timeout_ms, member_id)
    else:
        end_wait(turn, group, member_id)


def tell_to_rejoin(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Start the time that a classic member has to rejoin, unless it runs."""
    if member.member_id not in group.deadlines:
        group.deadlines[member.member_id] = member.epoch
        turn.arm(REBALANCE, group, turn.now.ms + max(member.rebalance_timeout_ms, 0), member.member_id)


def joined(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A classic member joined: start the time that it has to sync."""
    end_wait(turn, group, member.member_id)
    group.syncing.add(member.member_id)
    turn.arm(SYNC, group, turn.now.ms + max(member.rebalance_timeout_ms, 0), member.member_id)


def synced(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """A member need not sync any more."""
    if member_id in group.syncing:
        group.syncing.remove(member_id)
        turn.arm(SYNC, group, None, member_id)


def end_wait(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """A member need not give up partitions or rejoin any more."""
    if group.deadlines.pop(member_id, None) is not None:
        turn.arm(REBALANCE, group, None, member_id)


def resume(turn: Turn, group: ConsumerGroup) -> None:
    """Members can reach the coordinator again: whatever waits for a member waits in full."""
    for member_id, member in group.members.items():
        renew(turn, group, member)
        wait_ms = max(member.rebalance_timeout_ms, 0)
        if member_id in group.deadlines:
            turn.arm(REBALANCE, group, turn.now.ms + wait_ms, member_id)
        if member_id in group.syncing:
            turn.arm(SYNC, group, turn.now.ms + wait_ms, member_id)


def forget(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Cancel the timers of a member that goes."""
    session = group.sessions.get(member_id)
    if session is not None:
        turn.forget(group, session)
    end_wait(turn, group, member_id)
    synced(turn, group, member_id)
