"""JoinGroup: a client becomes a member, or a member joins again (Kafka: GroupCoordinator.handleJoinGroup).

Without a member id:
    dynamic, v4+     gets a member id with MEMBER_ID_REQUIRED and has to join again with it (KIP-394)
    dynamic, v0-3    joins at once
    static           joins, or takes the seat of the member that holds its instance id (`static`)
With a member id:
    pending          joins with it
    of a member      PreparingRebalance: waits.
                     CompletingRebalance: the same metadata gets the generation again; other metadata start a rebalance.
                     Stable: a leader, or other metadata, start a rebalance; a follower with the same metadata gets the
                     generation again.
                     A join reason (KIP-423) can ask for a rebalance with the same metadata; and a leader of a Stable
                     group that says it was restarted gets the generation again.
    unknown          UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id

In a group that expects members, the join of a new one may be held (`expected`). In a group with target.group.size a new
member may become a standby (`standby`), and a standby that got a seat joins to take it (`take_seat`).

Checks come in Kafka's order: group id, session timeout, known group, group.max.size, protocols, then the ids.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group import notes
from coordinator.group.answers import join_error
from coordinator.group.causes import Cause, CauseKind, JoinReason
from coordinator.group.classic import course, expected, rebalance, seats, standby, static
from coordinator.group.classic.reasons import by_join, join_reason_of, rejoined, says_why, wants_other
from coordinator.group.course import Pending
from coordinator.group.effects import PENDING
from coordinator.group.events import JoinGroup
from coordinator.group.group import Group, Held, Member, Waiting
from coordinator.group.refusal import Refusal
from coordinator.group.state import DEAD, EMPTY, PREPARING_REBALANCE, STABLE
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn
from protocol.primitives import STRING_SIZE_MAX
from protocol.speed import new
from schemas.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1_000
"""How long a new member's JoinGroup may wait (Kafka: NewMemberJoinTimeoutMs; KAFKA-7610). The client can't send
heartbeats yet; if it gave up and joined again, its first member must not stay for ever.
"""

MEMBER_ID_REQUIRED_SINCE = 4
"""The first version whose clients understand MEMBER_ID_REQUIRED (KIP-394)."""


def join(turn: Turn, group: Group, event: JoinGroup) -> None:
    """Handle a JoinGroup. A join without a member id may have created `group`."""
    member_id = event.body.member_id
    if group.state is DEAD:
        refuse(turn, group, event, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    elif not has_room(turn, group, event):
        turn_away(turn, group, event)
    elif not group.supports(event.body.protocol_type, event.listed()):
        refuse(turn, group, event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id == UNKNOWN_MEMBER_ID:
        join_as_new(turn, group, event)
    elif member_id in group.standbys:
        standby.rejoin(turn, group, event)
    elif member_id in group.pending or (group.arrivals is not None and (False, member_id) in group.arrivals.held):
        join_as_pending(turn, group, event)
    else:
        rejoin(turn, group, event)
    if group.state is PREPARING_REBALANCE:
        rebalance.maybe_complete(turn, group)


def member_id_fits(event: JoinGroup) -> bool:
    """Whether the member id for this join fits into a string."""
    name = event.client.id if event.body.group_instance_id is None else event.body.group_instance_id
    return event.body.member_id != UNKNOWN_MEMBER_ID or len(f"{name}-{event.fresh_id}".encode()) <= STRING_SIZE_MAX


def has_room(turn: Turn, group: Group, event: JoinGroup) -> bool:
    """Whether the group may take this join (KIP-389; Kafka: acceptJoiningMember).

    While the group prepares, only waiting members count, so that after group.max.size was lowered the last to rejoin
    are turned away (KAFKA-9885).
    """
    member = group.members.get(event.body.member_id)
    limit = turn.config.group_max_size - len(group.standbys)
    if group.state is EMPTY:
        # Several held joins that come in at once are members before the group leaves the state Empty.
        return not group.members or len(group.members) < limit
    if event.body.member_id in group.standbys:
        return True
    if group.state is PREPARING_REBALANCE:
        return (member is not None and member.awaiting_join is not None) or group.joined_count < limit
    if member is not None or len(group.members) < limit:
        return True
    return turn.fixed("kafka-20601", group.group_id) and static.seat_of(group, event) is not None


def turn_away(turn: Turn, group: Group, event: JoinGroup) -> None:
    """Refuse a join because the group is full. The member or the pending id that asked is removed."""
    member = group.members.get(event.body.member_id)
    if member is not None:
        turn.drop(group, member)
        turn.note(notes.MembersDropped(group.group_id, group.generation, (member.member_id,), "the group is full"))
    elif event.body.member_id in group.pending:
        del group.pending[event.body.member_id]
        turn.arm(PENDING, group, None, event.body.member_id)
    refuse(turn, group, event, ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)


def join_as_new(turn: Turn, group: Group, event: JoinGroup) -> None:
    """A join without a member id."""
    instance_id = event.body.group_instance_id
    if instance_id is not None:
        member = static.seat_of(group, event)
        waiting = group.standby_named(instance_id) if group.standbys else None
        member_id = f"{instance_id}-{event.fresh_id}"
        if waiting is not None:
            standby.replace(turn, group, waiting, member_id, event)
        elif member is None:
            arrive(turn, group, event, member_id)
        else:
            static.replace(turn, group, member, member_id, event)
        return
    if expected.turns_away(turn, group, event):
        return
    member_id = f"{event.client.id}-{event.fresh_id}"
    if event.version >= MEMBER_ID_REQUIRED_SINCE:
        within_ms = min(event.body.session_timeout_ms, turn.config.group_pending_timeout_ms)
        lapses_ms = turn.now.wall_ms + within_ms
        group.pending[member_id] = Pending(member_id, event.client.id, event.client.host, lapses_ms)
        turn.arm(PENDING, group, turn.now.ms + within_ms, member_id)
        turn.note(
            new(
                notes.MemberPending,
                (group.group_id, group.generation, member_id, *event.client[:2], lapses_ms, event.client.principal),
            )
        )
        refuse(turn, group, event, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    else:
        arrive(turn, group, event, member_id)


def join_as_pending(turn: Turn, group: Group, event: JoinGroup) -> None:
    """A join with a member id that the coordinator gave out for it."""
    member_id = event.body.member_id
    if event.body.group_instance_id is not None:
        # Static members are never pending, so no correct client gets here. Kafka fails on it as well.
        detail = f"JoinGroup of a pending member with the instance id {event.body.group_instance_id}"
        turn.note(notes.UnexpectedRequest(group.group_id, group.generation, member_id, detail))
        turn.answer(event.request, join_error(event.version, ErrorCode.UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID))
        return
    if member_id in group.pending:
        turn.arm(PENDING, group, None, member_id)
        del group.pending[member_id]
    arrive(turn, group, event, member_id)


def arrive(turn: Turn, group: Group, event: JoinGroup, member_id: str) -> None:
    """Add a new member and rebalance, unless the group holds its join for expected members."""
    if turn.own_settings(group.group_id) is None:
        cause = add_member(turn, group, event, member_id)
        if cause is not None:
            rebalance.maybe_prepare(turn, group, cause)
    elif not expected.turns_away(turn, group, event):
        let_in(turn, group, expected.arrive(turn, group, event, member_id))


def let_in(turn: Turn, group: Group, joins: Iterable[Held]) -> None:
    """Make members of the clients whose joins come in, and rebalance once for all of them.

    A group that has waited for expected members needs no initial delay on top.
    """
    causes: list[Cause] = []
    for held in joins:
        if not has_room(turn, group, held.event):
            turn_away(turn, group, held.event)
        elif not group.supports(held.event.body.protocol_type, held.event.listed()):
            refuse(turn, group, held.event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID)
        else:
            cause = add_member(turn, group, held.event, held.member_id)
            if cause is not None:
                causes.append(cause)
    for cause in causes:
        if cause is causes[0] or group.state is PREPARING_REBALANCE:
            rebalance.maybe_prepare(turn, group, cause)
    if causes and turn.expecting(group.group_id) is not None:
        rebalance.hold_no_longer(turn, group)


def add_member(turn: Turn, group: Group, event: JoinGroup, member_id: str) -> Cause | None:
    """Add a member (Kafka: addMemberAndRebalance). Returns the cause of a rebalance; None if it is a standby."""
    member = Member(
        member_id,
        event.body.group_instance_id,
        event.client.id,
        event.client.host,
        event.rebalance_timeout_ms,
        event.body.session_timeout_ms,
        event.listed(),
    )
    member.is_new = True
    member.joined_by = event.client
    if seats.is_full(turn, group, event.body.protocol_type, member.protocols):
        standby.join(turn, group, event, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return None
    course.arrived(turn, group, member_id)
    if group.state is PREPARING_REBALANCE and group.generation == 0:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = event.body.protocol_type
    group.add(member, new(Waiting, (event.request, event.version)))
    turn.expect(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    turn.note(
        new(
            notes.MemberJoined,
            (group.group_id, group.generation, member_id, member.group_instance_id, *event.client[:3]),
        )
    )
    return by_join(CauseKind.MEMBER_JOINED, member, event)


def rejoin(turn: Turn, group: Group, event: JoinGroup) -> None:
    """A join with a member id that is not pending (Kafka: doCurrentMemberJoinGroup)."""
    member_id, instance_id = event.body.member_id, event.body.group_instance_id
    member = group.members.get(member_id)
    renamed = instance_id is not None and member is not None and member.group_instance_id != instance_id
    if renamed and any(turn.fixed(ticket, group.group_id) for ticket in ("kafka-20747", "kafka-20754")):
        # A member can't change its instance id.
        refuse(turn, group, event, ErrorCode.INVALID_REQUEST, member_id)
        return
    error = turn.validate_member(group, member_id, instance_id, "join-group", event.client)
    if error is not ErrorCode.NONE:
        refuse(turn, group, event, error, member_id)
        return
    assert member is not None
    assert group.state is not EMPTY
    leads = group.leader == member_id
    protocols = event.listed()
    is_changed = member.protocols != protocols
    differs = is_changed and wants_other(group.protocol_type, member, protocols)
    kind = CauseKind.METADATA_CHANGED if differs else rejoined(leads=leads)
    reason = join_reason_of(event, leads=leads)
    if group.state is PREPARING_REBALANCE:
        # Nearly all members join because the group rebalances. Such a join is no cause of its own.
        own = CauseKind.MEMBER_REJOINED if says_why(event, is_asked=member.is_asked) else None
        update_and_wait(turn, group, member, event, kind if differs else own)
    elif not differs and reason in (None, JoinReason.RESTART) and seats.is_due(turn, group, member, protocols):
        take_seat(turn, group, member, event)
    elif group.state is STABLE and leads and (is_changed or reason is not JoinReason.RESTART):
        # The leader rejoins when topics changed; its metadata need not show that.
        update_and_wait(turn, group, member, event, kind)
    elif is_changed or reason not in (None, JoinReason.RESTART):
        update_and_wait(turn, group, member, event, kind)
    else:
        # The member missed the answer, wants to sync again, or was restarted and knows its id (KIP-423).
        member.joined_by = event.client
        answer = rebalance.join_answer(group, member, event.version)
        if group.state is STABLE and event.version >= static.SKIP_ASSIGNMENT_SINCE:
            answer.skip_assignment = leads
        turn.answer(event.request, answer)


def take_seat(turn: Turn, group: Group, member: Member, event: JoinGroup) -> None:
    """Answer the JoinGroup of a standby that got the seat of a member: it gets the running generation.

    A leader gets the list of members, so that it watches their topics, and assigns: the coordinator ignores that. It is
    not asked to skip the assignment (KIP-814). franz-go would then compare its own assignment with the seat's, and ask
    for a rebalance if they differ. The group keeps the metadata of the standby's first join, which owned no partitions:
    the standby still owns none.
    """
    assert member.called_until_ms is not None
    member.joined_by = event.client
    turn.renew_sessions(group, [member])
    turn.answer(event.request, rebalance.join_answer(group, member, event.version))


def update_and_wait(turn: Turn, group: Group, member: Member, event: JoinGroup, kind: CauseKind | None) -> None:
    """Take over a member's new data, let it wait, and rebalance.

    kind: of the cause that the join is; None if it is none.
    """
    course.arrived(turn, group, member.member_id)
    # The client sent the request again: answer the first one, so that it doesn't wait for ever (KAFKA-20938).
    turn.release_join(group, member, ErrorCode.NOT_COORDINATOR, member.member_id)
    turn.update(group, member, event, Waiting(event.request, event.version))
    if kind is not None:
        rebalance.maybe_prepare(turn, group, by_join(kind, member, event))


def refuse(turn: Turn, group: Group, event: JoinGroup, error: ErrorCode, member_id: str) -> None:
    """Answer a JoinGroup with an error, and note one that ends the client."""
    turn.note_refused(group, event, Refusal(error))
    turn.answer(event.request, join_error(event.version, error, member_id))
