"""Static members that restart (KIP-345; Kafka: GroupCoordinator.updateStaticMemberAndRebalance).

A JoinGroup without a member id, but with the instance id of a member, takes that member's seat. It gets a new member
id, and the old id is fenced from then on. In a Stable group the coordinator only writes the group's record with the new
id, and answers the join with the running generation. The other members never notice.

    Stable               the same selected protocol: no rebalance, unless its join reason asks for one (KIP-423);
                         another protocol: a rebalance
    CompletingRebalance  always a new rebalance: the leader may be assigning to the old id (KAFKA-9801)
    PreparingRebalance   waits with the others

Descriptions and records keep the client id and host of the first client in the seat, as in Kafka. Notes name the client
that has the seat at the time (`Member.client`).
"""

from __future__ import annotations

from coordinator.group import notes
from coordinator.group.causes import NO_JOIN_REASON, CauseKind, JoinReason
from coordinator.group.classic import course, rebalance
from coordinator.group.classic.reasons import by_join, join_reason_of, rejoined, wants_other_topics
from coordinator.group.effects import Response
from coordinator.group.events import JoinGroup
from coordinator.group.group import Group, Member, Waiting
from coordinator.group.state import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn
from protocol.messages import JoinGroupResponse
from protocol.speed import new
from schemas.errors import ErrorCode

SKIP_ASSIGNMENT_SINCE = 9
"""The first version that can ask a leader not to assign (KIP-814)."""


def seat_of(group: Group, event: JoinGroup) -> Member | None:
    """The member whose seat a join without a member id claims; None if it claims none."""
    instance_id = event.body.group_instance_id
    if event.body.member_id != UNKNOWN_MEMBER_ID or instance_id is None or instance_id not in group.static_members:
        return None
    return group.members[group.static_members[instance_id]]


def replace(turn: Turn, group: Group, member: Member, member_id: str, event: JoinGroup) -> None:
    """Give the seat of `member` to `member_id`."""
    assert group.state in (STABLE, COMPLETING_REBALANCE, PREPARING_REBALANCE)
    before = FormerSeat(group, member)
    # In a Stable group no request waits.
    fenced = None if group.state is STABLE else release_waiting(turn, group, member, event)
    turn.forget(group, member)
    group.rename(member, member_id)
    # The old session timeout counts until the next heartbeat, as in Kafka.
    turn.renew_sessions(group, [member])
    turn.update(group, member, event, None)
    kind = why_rebalance(turn, group, before, event)
    if kind is None and group.state is STABLE:
        if turn.write_group(group, group.state_since_ms):
            note_replaced(turn, group, before, event, rebalances=False)
            body = keep_seat(group, member, before.leader, event)
            turn.effects.responses.append(new(Response, (event.request, body)))
        else:
            before.restore(turn, group, member)
            turn.answer(event.request, too_large(group, member, event.version))
        return
    note_replaced(turn, group, before, event, rebalances=kind is not None)
    if fenced is not None:
        turn.note_fenced(group, before.member_id, member, fenced, before.joined_by, waited=True)
    turn.update(group, member, event, Waiting(event.request, event.version))
    if kind is not None:
        rebalance.prepare(turn, group, by_join(kind, member, event))
    else:
        course.arrived(turn, group, member_id)


def release_waiting(turn: Turn, group: Group, member: Member, event: JoinGroup) -> str | None:
    """Answer the waiting request of a member whose seat `event` takes (KAFKA-8500).

    Returns the request's name if the answer fences its client. The note of that fencing comes after the note that the
    seat was taken.
    """
    itself = turn.fixed("kafka-20985", group.group_id) and (member.client_id, member.client_host) == event.client[:2]
    fenced = None
    if member.awaiting_sync is not None or (member.awaiting_join is not None and not itself):
        fenced = "sync-group" if member.awaiting_join is None else "join-group"
    error = ErrorCode.NOT_COORDINATOR if itself else ErrorCode.FENCED_INSTANCE_ID
    turn.release_join(group, member, error, member.member_id)
    turn.release_sync(member, ErrorCode.FENCED_INSTANCE_ID)
    return fenced


def why_rebalance(turn: Turn, group: Group, before: FormerSeat, event: JoinGroup) -> CauseKind | None:
    """The kind of cause if the restart starts a rebalance; None if it doesn't.

    In a Stable group Kafka looks at the selected protocol only. With tenure.fix.kafka-12759 the metadata count as well.
    After that the member's own reason counts (KIP-423).
    """
    if group.state is PREPARING_REBALANCE:
        return None
    if group.state is COMPLETING_REBALANCE:
        return CauseKind.STATIC_MEMBER_REPLACED
    name = group.select_protocol()
    if name != group.protocol_name:
        return CauseKind.PROTOCOL_CHANGED
    if (
        before.protocols is not before.member.protocols
        and turn.fixed("kafka-12759", group.group_id)
        and dict(before.protocols).get(name) != before.member.metadata(name)
    ):
        return CauseKind.METADATA_CHANGED
    leads = group.leader == before.member.member_id
    if event.body.join_reason == NO_JOIN_REASON or join_reason_of(event, leads=leads) in (None, JoinReason.RESTART):
        return None
    return rejoined(leads=leads)


def keep_seat(group: Group, member: Member, old_leader: str | None, event: JoinGroup) -> JoinGroupResponse:
    """The answer to a restart that starts no rebalance.

    From v9 on it says to a leader that it leads, lists all members, and asks to skip the assignment (KIP-814,
    KAFKA-13435). Before v9 it names the old leader's id, which doesn't exist any more, so that the client doesn't
    assign either.
    """
    leads = group.leader == member.member_id
    answer = rebalance.join_answer(group, member, event.version)
    if event.version >= SKIP_ASSIGNMENT_SINCE:
        answer.skip_assignment = leads
    else:
        answer.leader = old_leader or ""
        answer.members = []
    return answer


def too_large(group: Group, member: Member, version: int) -> JoinGroupResponse:
    """The answer to a restart whose group doesn't fit into a record: the restart changes nothing."""
    answer = rebalance.join_answer(group, member, version)
    answer.error_code, answer.member_id, answer.members = ErrorCode.UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID, []
    return answer


def note_replaced(turn: Turn, group: Group, before: FormerSeat, event: JoinGroup, *, rebalances: bool) -> None:
    """Note the restart: whether it starts a rebalance, and whether it should have (KAFKA-12759)."""
    member = before.member
    assert member.group_instance_id is not None
    is_kept = group.state is STABLE and not rebalances and member.member_id in group.members
    is_changed = before.protocols is not member.protocols
    turn.effects.notes.append(
        new(
            notes.MemberReplaced,
            (
                group.group_id,
                group.generation,
                member.member_id,
                before.member_id,
                member.group_instance_id,
                group.state.value,
                event.client.id,
                event.client.host,
                rebalances,
                is_kept and is_changed and wants_other_topics(group, before.protocols, member),
                before.is_unheard and join_reason_of(event, leads=False) is not JoinReason.RESTART,
                event.version,
                event.client.principal,
                None,
                None if before.is_unheard else max(turn.now.ms - before.heard_ms, 0),
            ),
        )
    )


class FormerSeat:
    """A seat before a restart took it: to compare with, and to restore.

    heard_ms: when its session was renewed last. is_unheard: no request of its member came since the group was loaded;
    each request would have renewed its session.
    """

    def __init__(self, group: Group, member: Member) -> None:
        self.member = member
        self.member_id = member.member_id
        self.leader = group.leader
        self.joined_by = member.joined_by
        self.called_until_ms = member.called_until_ms
        self.protocols = member.protocols
        self.rebalance_timeout_ms = member.rebalance_timeout_ms
        self.session_timeout_ms = member.session_timeout_ms
        self.heard_ms = member.deadline_ms - member.session_timeout_ms
        self.is_unheard = member.joined_by is None and self.heard_ms == group.served_ms

    def restore(self, turn: Turn, group: Group, member: Member) -> None:
        """Give the seat back to the old id (KAFKA-14009, KAFKA-10284)."""
        turn.forget(group, member)
        member.joined_by = self.joined_by
        group.update(member, self.protocols, self.rebalance_timeout_ms, self.session_timeout_ms, None)
        member.called_until_ms = self.called_until_ms
        group.rename(member, self.member_id)
        turn.renew_sessions(group, [member])
