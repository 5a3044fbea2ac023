"""ConsumerGroupHeartbeat: a member joins, stays or leaves (Kafka 4.4: GroupMetadataManager.consumerGroupHeartbeat).

This module reads the request and makes the answer; `step` does what the request asks for. A heartbeat takes over the
member that it names, whichever protocol that spoke before (KIP-848).

House rule: a heartbeat that changes nothing writes no record.
"""

from __future__ import annotations

from uuid import UUID

from coordinator.config import GroupConfig
from coordinator.group import notes
from coordinator.group.client import Client
from coordinator.group.consumer import expected, leave
from coordinator.group.consumer.group import AWAY, JOINING, LEFT, ConsumerGroup, ConsumerMember
from coordinator.group.consumer.reconcile import Owned, is_within
from coordinator.group.consumer.step import (
    ABANDON,
    Change,
    given_id,
    has_room,
    known,
    known_or_noted,
    plan_step,
    take_step,
)
from coordinator.group.consumer.target import Found
from coordinator.group.events import ConsumerHeartbeat
from coordinator.group.refusal import RefusedRequest
from coordinator.group.turn import Turn
from protocol.consumer import CONSUMER
from protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from schemas.errors import ErrorCode

NONE = ErrorCode.NONE

MEMBER_ID_REQUIRED_SINCE = 1
"""The first version whose clients make their member id themselves (KIP-1082)."""

TOPICS_MAX = 10_000
"""Topics that a member may subscribe to by name: their hash is made in one go. Expressions may match more."""

SAME_TIMEOUT = -1
"""rebalance_timeout_ms of a request that leaves the timeout as it is."""


def validate(event: ConsumerHeartbeat, config: GroupConfig) -> RefusedRequest | None:
    """The refusal of a request that no group takes; None if it is in order (Kafka: GroupCoordinatorService)."""
    body, assignors = event.body, config.group_consumer_assignors
    if CONSUMER not in config.group_coordinator_rebalance_protocols:
        return RefusedRequest(ErrorCode.UNSUPPORTED_VERSION)
    if len(body.subscribed_topic_names or ()) > TOPICS_MAX:
        return RefusedRequest(ErrorCode.INVALID_REQUEST, f"A member may subscribe to {TOPICS_MAX} topics by name.")
    epoch = body.member_epoch
    wrong: str | None = None
    if (event.version >= MEMBER_ID_REQUIRED_SINCE or epoch > 0 or epoch == LEFT) and not body.member_id.strip():
        wrong = "MemberId can't be empty."
    elif not body.group_id.strip():
        wrong = "GroupId can't be empty."
    elif body.instance_id is not None and not body.instance_id.strip():
        wrong = "InstanceId can't be empty."
    elif body.rack_id is not None and not body.rack_id.strip():
        wrong = "RackId can't be empty."
    elif epoch == JOINING:
        if body.rebalance_timeout_ms == SAME_TIMEOUT:
            wrong = "RebalanceTimeoutMs must be provided in first request."
        elif body.topic_partitions is None or body.topic_partitions:
            wrong = "TopicPartitions must be empty when (re-)joining."
        elif body.subscribed_topic_names is None and body.subscribed_topic_regex is None:
            wrong = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == AWAY and body.instance_id is None:
        wrong = "InstanceId can't be null."
    elif epoch < AWAY:
        wrong = "MemberEpoch is invalid."
    if wrong is not None:
        return RefusedRequest(ErrorCode.INVALID_REQUEST, wrong)
    if body.server_assignor is not None and body.server_assignor not in assignors:
        names = ", ".join(assignors)
        words = f"ServerAssignor {body.server_assignor[:100]} is not supported. Supported assignors: {names}."
        return RefusedRequest(ErrorCode.UNSUPPORTED_ASSIGNOR, words)
    return None


def heartbeat(turn: Turn, group: ConsumerGroup, event: ConsumerHeartbeat) -> None:
    """Handle a heartbeat that `validate` let pass. Raises RefusedRequest before it changes the group."""
    handle = leave_by_heartbeat if event.body.member_epoch in (LEFT, AWAY) else stay
    turn.answer(event.request, handle(turn, group, event))


def leave_by_heartbeat(turn: Turn, group: ConsumerGroup, event: ConsumerHeartbeat) -> ConsumerGroupHeartbeatResponse:
    """The member leaves for good, or keeps its seat and is away."""
    body = event.body
    member = known(group, body.member_id, body.instance_id)
    if body.member_epoch == AWAY:
        leave.be_away(turn, group, member)
    else:
        leave.remove(turn, group, [member], "the consumer is being closed")
    return ConsumerGroupHeartbeatResponse(member_id=body.member_id, member_epoch=body.member_epoch)


def stay(turn: Turn, group: ConsumerGroup, event: ConsumerHeartbeat) -> ConsumerGroupHeartbeatResponse:
    """The member joins, or goes on."""
    body = event.body
    has_room(turn, group, body.member_id, body.instance_id)
    owned = owned_by(body) if event.owned is None else event.owned
    found = find(turn, group, event, owned)
    change = Change(found, updated(found.member, event), owned, event.client, event.regex_error)
    step = plan_step(turn, group, change)
    take_step(turn, group, step)
    return answer(turn, group, found.member, step.member, body)


def answer(
    turn: Turn,
    group: ConsumerGroup,
    before: ConsumerMember,
    member: ConsumerMember,
    body: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse:
    """The answer; it has the assignment if the member may not know it."""
    says_all = (
        body.rebalance_timeout_ms != SAME_TIMEOUT
        and (body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None)
        and body.topic_partitions is not None
    )
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=turn.group_settings(group.group_id).heartbeat_interval_ms,
    )
    if body.member_epoch == JOINING or says_all or before.assigned != member.assigned:
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(held))
                for topic_id, held in member.assigned.items()
            ]
        )
    return response


def owned_by(body: ConsumerGroupHeartbeatRequest) -> Owned | None:
    """The partitions that a member says it owns; None if it does not say."""
    if body.topic_partitions is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    for each in body.topic_partitions:
        owned[each.topic_id] = owned.get(each.topic_id, frozenset()) | frozenset(each.partitions)
    return owned


def find(turn: Turn, group: ConsumerGroup, event: ConsumerHeartbeat, owned: Owned | None) -> Found:
    """The member of a heartbeat that joins or goes on. Raises RefusedRequest."""
    body = event.body
    if body.member_epoch != JOINING:
        operation = "consumer-group-heartbeat"
        member = known_or_noted(turn, group, body.member_id, body.instance_id, operation, event.client)
        check_epoch(member, body.member_epoch, owned)
        return Found(member)
    member_id = body.member_id or given_id(event.fresh_id)
    seat = group.seat(body.instance_id)
    if seat is not None:
        if seat.classic is None and seat.epoch != AWAY:
            note_unreleased(turn, group, seat, member_id, event.client)
            words = (
                f"Static member {member_id[:100]} with instance id {(body.instance_id or '')[:100]} cannot join the "
                f"group because the instance id is owned by {seat.member_id} member."
            )
            raise RefusedRequest(ErrorCode.UNRELEASED_INSTANCE_ID, words)
        return Found(seat._replace(member_id=member_id, epoch=0, previous_epoch=0), replaces=seat)
    existing = group.members.get(member_id)
    if existing is not None:
        return Found(existing)
    expected.admit(turn, group.group_id, group, member_id, body.instance_id)
    return Found(ConsumerMember(member_id), is_new=True)


def note_unreleased(turn: Turn, group: ConsumerGroup, seat: ConsumerMember, member_id: str, client: Client) -> None:
    """Note that a client wants the seat of an active member."""
    session = group.sessions[seat.member_id]
    heard_ms = session.deadline_ms - session.session_timeout_ms
    turn.note(
        notes.InstanceIdUnreleased(
            group.group_id,
            group.generation,
            member_id,
            seat.member_id,
            seat.instance_id or "",
            None if heard_ms == group.loaded_ms else turn.now.ms - heard_ms,
            client,
            Client(seat.client_id, seat.client_host),
        )
    )


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raises RefusedRequest unless the epoch is the member's, or its former one after an answer that was lost."""
    if epoch > member.epoch:
        size = "greater"
    elif epoch < member.epoch and (epoch != member.previous_epoch or not is_within(owned, member.assigned)):
        size = "smaller"
    else:
        return
    words = (
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). {ABANDON}"
    )
    raise RefusedRequest(ErrorCode.FENCED_MEMBER_EPOCH, words)


def updated(member: ConsumerMember, event: ConsumerHeartbeat) -> ConsumerMember:
    """The member with what its request says anew."""
    body = event.body
    names = body.subscribed_topic_names
    return member._replace(
        instance_id=member.instance_id if body.instance_id is None else body.instance_id,
        rack=member.rack if body.rack_id is None else body.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if body.rebalance_timeout_ms == SAME_TIMEOUT else body.rebalance_timeout_ms
        ),
        client_id=event.client.id,
        client_host=event.client.host,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if body.subscribed_topic_regex is None else body.subscribed_topic_regex,
        assignor=member.assignor if body.server_assignor is None else body.server_assignor,
        classic=None,
    )
