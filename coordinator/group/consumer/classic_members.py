"""Members of the classic protocol in a group of the consumer protocol (KIP-848; Kafka: classicGroup...ToConsumerGroup).

While a group goes from one protocol to the other, both kinds of members share its partitions. Nothing waits here as it
does in a classic group: the coordinator assigns, so a JoinGroup is answered at once.

    JoinGroup   a step like that of a heartbeat: the subscription in its metadata counts, and the partitions that it
                owns. The generation in the answer is the member's epoch. There is no leader.
    SyncGroup   gets the partitions that the member may use; assignments in the request are ignored
    Heartbeat   REBALANCE_IN_PROGRESS as long as another JoinGroup would get the member further, else NONE

House rule: `heartbeat` takes no turn, because most heartbeats need none; it returns None for one that does.
"""

from __future__ import annotations

from coordinator.group.answers import join_error, protocol_name_in, sync_error
from coordinator.group.classic import rebalance
from coordinator.group.classic.join import MEMBER_ID_REQUIRED_SINCE
from coordinator.group.consumer import downgrade, expected, records, sessions
from coordinator.group.consumer.embedded import Unreadable, assignment_bytes, ids_of, read_subscription
from coordinator.group.consumer.group import UNRELEASED, UNREVOKED, Classic, ConsumerGroup, ConsumerMember
from coordinator.group.consumer.step import (
    Change,
    cause_of,
    given_id,
    has_room,
    known_or_noted,
    plan_step,
    take_step,
)
from coordinator.group.consumer.target import Found
from coordinator.group.events import Heartbeat, JoinGroup, SyncGroup
from coordinator.group.group import NAME
from coordinator.group.refusal import RefusedRequest
from coordinator.group.turn import UNKNOWN_MEMBER_ID, Turn
from protocol.consumer import CONSUMER
from protocol.messages import JoinGroupResponse, SyncGroupResponse
from schemas.errors import ErrorCode

NONE = ErrorCode.NONE

NEVER_WELCOME = "disabled"
"""The migration policy under which no classic member may join."""


# JoinGroup.


def join(turn: Turn, group: ConsumerGroup, event: JoinGroup) -> None:
    """Handle a JoinGroup."""
    try:
        answer = join_as(turn, group, event)
    except RefusedRequest as refused:
        turn.note_refused(group, event, refused.refusal)
        # As in Kafka, these answers don't repeat the member id.
        answer = join_error(event.version, refused.refusal.error, UNKNOWN_MEMBER_ID)
    turn.answer(event.request, answer)


def join_as(turn: Turn, group: ConsumerGroup, event: JoinGroup) -> JoinGroupResponse:
    """A member joins, perhaps again; checks are in Kafka's order. Raises RefusedRequest before it changes a group."""
    body = event.body
    if turn.config.group_consumer_migration_policy == NEVER_WELCOME:
        why = "the group has the consumer protocol, and group.consumer.migration.policy is disabled"
        raise RefusedRequest(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why=why)
    has_room(turn, group, body.member_id, body.group_instance_id)
    protocols = event.listed()
    if body.protocol_type != CONSUMER or not group.supports(map(NAME, protocols)):
        raise RefusedRequest(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    expected.admit(turn, group.group_id, group, body.member_id, body.group_instance_id)
    member_id = body.member_id or given_id(event.fresh_id)
    if not body.member_id and body.group_instance_id is None and event.version >= MEMBER_ID_REQUIRED_SINCE:
        # The group takes any id from a dynamic member, so it need not remember this one.
        return join_error(event.version, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    change = change_of(turn, event, find(turn, group, event, member_id))
    last = last_seat(turn, group, body.group_instance_id)
    step = plan_step(turn, group, change, may_assign=last is None)
    if last is not None:
        # The group's record repeats what the member says.
        repeated = records.member_record(group.group_id, step.member, turn.now.wall_ms)
        if not downgrade.fits(turn, group, [*step.records, repeated]):
            last, step = None, plan_step(turn, group, change)
    told = group.generation
    take_step(turn, group, step)
    if last is None:
        sessions.joined(turn, group, step.member)
    else:
        # Without a target for its epoch the group has nothing to go on with.
        is_behind = group.target_epoch < group.generation
        classic = downgrade.downgrade(turn, group, told)
        if is_behind:
            rebalance.prepare(turn, classic, cause_of(group, step))
    assert step.member.classic is not None
    return JoinGroupResponse(
        error_code=NONE,
        generation_id=step.member.epoch,
        protocol_type=CONSUMER,
        protocol_name=protocol_name_in(event.version, step.member.classic.protocol_name),
        leader="",
        member_id=member_id,
        members=[],
    )


def last_seat(turn: Turn, group: ConsumerGroup, instance_id: str | None) -> ConsumerMember | None:
    """The member that has a static seat, if it is the last one of the consumer protocol and the group may go back."""
    seat = group.seat(instance_id)
    if seat is None or seat.classic is not None or group.classic_size < group.size - 1:
        return None
    return seat if downgrade.may_downgrade(turn, group.size) else None


def find(turn: Turn, group: ConsumerGroup, event: JoinGroup, member_id: str) -> Found:
    """The member of a JoinGroup. Raises RefusedRequest.

    A static member that names no member id takes its seat, whichever protocol the one before it spoke.
    """
    body = event.body
    if body.group_instance_id is None or body.member_id:
        if body.group_instance_id is not None:
            return Found(known_or_noted(turn, group, member_id, body.group_instance_id, "join-group", event.client))
        member = group.members.get(member_id)
        return Found(ConsumerMember(member_id), is_new=True) if member is None else Found(member)
    seat = group.seat(body.group_instance_id)
    if seat is None:
        return Found(ConsumerMember(member_id), is_new=True)
    return Found(seat._replace(member_id=member_id, epoch=0, previous_epoch=0), replaces=seat)


def change_of(turn: Turn, event: JoinGroup, found: Found) -> Change:
    """A JoinGroup's content. Raises RefusedRequest if its metadata can't be read."""
    body, member = event.body, found.member
    protocols = event.listed()
    if sum(len(metadata) for _, metadata in protocols) > turn.config.message_max_bytes:
        # No record can have it.
        raise RefusedRequest(ErrorCode.UNKNOWN_SERVER_ERROR)
    try:
        said = read_subscription(protocols[0][1])
    except Unreadable:
        raise RefusedRequest(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None
    timeout_ms = event.rebalance_timeout_ms
    changed = member._replace(
        instance_id=member.instance_id if body.group_instance_id is None else body.group_instance_id,
        rack=said.rack or member.rack,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        client_id=event.client.id,
        client_host=event.client.host,
        topics=said.topics,
        # A classic client resolves its regular expression itself.
        regex="",
        classic=Classic(body.session_timeout_ms, tuple(protocols)),
    )
    return Change(found, changed, ids_of(turn.topics, said.owned), event.client)


# SyncGroup and Heartbeat.


def sync(turn: Turn, group: ConsumerGroup, event: SyncGroup) -> None:
    """Handle a SyncGroup."""
    try:
        answer = sync_as(turn, group, event)
    except RefusedRequest as refused:
        answer = sync_error(refused.refusal.error)
    turn.answer(event.request, answer)


def sync_as(turn: Turn, group: ConsumerGroup, event: SyncGroup) -> SyncGroupResponse:
    """A member gets its partitions. Raises RefusedRequest."""
    body = event.body
    member = known_or_noted(turn, group, body.member_id, body.group_instance_id, "sync-group", event.client)
    if member.classic is None:
        raise RefusedRequest(ErrorCode.UNKNOWN_MEMBER_ID)
    if body.generation_id != member.epoch:
        raise RefusedRequest(ErrorCode.ILLEGAL_GENERATION)
    if body.protocol_type not in (None, CONSUMER) or body.protocol_name not in (None, member.classic.protocol_name):
        raise RefusedRequest(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.epoch < group.target_epoch and member.state is not UNREVOKED:
        sessions.tell_to_rejoin(turn, group, member)
        raise RefusedRequest(ErrorCode.REBALANCE_IN_PROGRESS)
    sessions.synced(turn, group, member.member_id)
    sessions.renew(turn, group, member)
    return SyncGroupResponse(
        error_code=NONE,
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
        assignment=assignment_bytes(turn.topics, member.assigned, member.classic.protocols[0][1]),
    )


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> int | None:
    """The error code of a heartbeat; None if it needs `beat`, because it starts a timer or fences a member."""
    member = group.members.get(member_id)
    if instance_id is not None and (member is None or member.instance_id != instance_id):
        return ErrorCode.UNKNOWN_MEMBER_ID if instance_id not in group.static_members else None
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if generation != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    must_rejoin = gets_further(group, member)
    if must_rejoin and member_id not in group.deadlines:
        return None
    session = group.sessions[member_id]
    if session.session_timeout_ms != member.classic.session_timeout_ms:
        return None
    session.deadline_ms = now_ms + session.session_timeout_ms
    return ErrorCode.REBALANCE_IN_PROGRESS if must_rejoin else NONE


def beat(turn: Turn, group: ConsumerGroup, event: Heartbeat) -> int:
    """The error code of a heartbeat, with all that follows from it."""
    body = event.body
    try:
        member = known_or_noted(turn, group, body.member_id, body.group_instance_id, "heartbeat", event.client)
    except RefusedRequest as refused:
        return refused.refusal.error
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if body.generation_id != member.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    sessions.renew(turn, group, member)
    if not gets_further(group, member):
        return NONE
    sessions.tell_to_rejoin(turn, group, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def gets_further(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether another JoinGroup would bring a member nearer to its target, or is to confirm what it gave up."""
    if member.epoch < group.target_epoch or member.state is UNREVOKED:
        return True
    return member.state is UNRELEASED and not group.is_blocked(member)
