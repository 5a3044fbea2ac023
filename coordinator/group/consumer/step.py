"""One step of a member: what a request of it changes in the group (Kafka: GroupMetadataManager.consumerGroupHeartbeat).

A heartbeat does up to four things, in this order: it adds or changes its member, bumps the group epoch if subscriptions
or topics changed, makes a new target if that epoch has none, and brings the member one step towards its target. A
JoinGroup of a classic member does the same.

`plan_step` gathers records and the new member, and may refuse. `take_step` puts them into the group.

House rule: `plan_step` changes nothing, and `take_step` refuses nothing.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import NamedTuple

from coordinator.group import notes
from coordinator.group.any_group import AnyGroup
from coordinator.group.causes import Cause, CauseKind
from coordinator.group.client import Client
from coordinator.group.consumer import course, reasons, records, sessions
from coordinator.group.consumer.group import NO_TARGET, ConsumerGroup, ConsumerMember, names_of
from coordinator.group.consumer.reconcile import Aim, Owned, reconcile
from coordinator.group.consumer.regex import RegexChange, update_regex
from coordinator.group.consumer.target import Found, Plan, bump, make_target, votes_otherwise
from coordinator.group.refusal import RefusedRequest
from coordinator.group.state import STABLE
from coordinator.group.turn import Turn
from protocol.records.batch import Record
from schemas.errors import ErrorCode

ABANDON = "The member must abandon all its partitions and rejoin."
"""How Kafka ends its words to a fenced member."""

NAMES_MAX = 20_000
"""Topics that the members of a group subscribe to by name, together: the server goes through all of them when a member
comes, goes or changes its subscription. A member has at most half as many (`heartbeat.TOPICS_MAX`). Kafka has no
limit.
"""

TOO_LARGE = "The change of the group is larger than the store of this cluster takes at once; the group stays as it was."


class Change(NamedTuple):
    """The content of a member's request.

    found: the member as it was. member: with what the request says anew. owned: None if it does not say.
    regex_error: what is wrong with its regular expression.
    """

    found: Found
    member: ConsumerMember
    owned: Owned | None
    client: Client
    regex_error: str | None = None


class Step(NamedTuple):
    """A planned step. member: as it will be. votes: whether its vote makes another assignor win."""

    change: Change
    member: ConsumerMember
    regex: RegexChange
    votes: bool
    plan: Plan
    records: list[Record]


def has_room(turn: Turn, group: AnyGroup, member_id: str, instance_id: str | None) -> None:
    """Raises RefusedRequest if the group is full; its members may go on, and static ones may come back."""
    limit = turn.config.group_consumer_max_size
    if group.size >= limit and member_id not in group.members and instance_id not in group.static_members:
        words = f"The consumer group has reached its maximum capacity of {limit} members."
        raise RefusedRequest(ErrorCode.GROUP_MAX_SIZE_REACHED, words)


def has_room_for_names(group: ConsumerGroup, names: frozenset[str]) -> None:
    """Raises RefusedRequest if a member subscribes to names that are too many together with those of others."""
    if len(group.topic_members) + len(names.difference(group.topic_members)) > NAMES_MAX:
        raise RefusedRequest(
            ErrorCode.INVALID_REQUEST, f"The members of a group may subscribe to {NAMES_MAX} topics by name."
        )


def known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member that a request names. Raises RefusedRequest. The instance id comes first, as in Kafka."""
    member = group.members.get(member_id) if instance_id is None else group.seat(instance_id)
    if member is None:
        words = f"Member {member_id[:100]} is not a member of group {group.group_id[:100]}."
        if instance_id is not None:
            words = f"Instance id {instance_id[:100]} is unknown."
        raise RefusedRequest(ErrorCode.UNKNOWN_MEMBER_ID, words)
    if member.member_id != member_id:
        words = (
            f"Static member {member_id[:100]} with instance id {(instance_id or '')[:100]} "
            f"was fenced by member {member.member_id}."
        )
        raise RefusedRequest(ErrorCode.FENCED_INSTANCE_ID, words)
    return member


def known_or_noted(
    turn: Turn, group: ConsumerGroup, member_id: str, instance_id: str | None, operation: str, client: Client
) -> ConsumerMember:
    """See `known`. Notes a fenced member."""
    try:
        return known(group, member_id, instance_id)
    except RefusedRequest as refused:
        if refused.refusal.error is ErrorCode.FENCED_INSTANCE_ID and instance_id is not None:
            holder = group.static_members[instance_id]
            turn.note(
                notes.MemberFenced(group.group_id, group.generation, member_id, holder, instance_id, operation, client)
            )
        raise


def given_id(fresh_id: str) -> str:
    """The id that a newcomer gets, from the text of a UUID: its bytes as Kafka writes them, without a client's name."""
    return urlsafe_b64encode(bytes.fromhex(fresh_id.replace("-", ""))).rstrip(b"=").decode()


def plan_step(turn: Turn, group: ConsumerGroup, change: Change, *, may_assign: bool = True) -> Step:
    """Plan a step. Raises RefusedRequest.

    may_assign: whether an epoch without a target may get one. If not, such an epoch leaves the member where it is.
    """
    found, member = change.found, change.member
    names_changed = member.topics != found.member.topics
    if names_changed or found.is_new:
        has_room_for_names(group, member.topics)
    group_id, wall_ms = group.group_id, turn.now.wall_ms
    written = []
    if found.replaces is not None:
        written += records.member_tombstones(group_id, found.replaces.member_id, wall_ms)
        written.append(records.member_record(group_id, found.member, wall_ms))
        target = group.targets.get(found.replaces.member_id, NO_TARGET)
        written.append(records.target_record(group_id, found.member.member_id, target, wall_ms))
        written.append(records.current_record(group_id, found.member, wall_ms))
    if found.is_new or member != found.member:
        written.append(records.member_record(group_id, member, wall_ms))
    regex = update_regex(turn, group, found.member, member, change.client, change.regex_error)
    written += regex.records
    # A classic member has no regular expression that could be resolved later.
    regex_bumps = regex.bumps if member.classic is None else regex.changed
    votes = votes_otherwise(turn, group, member, found)
    bumped = bump(turn, group, member, found, changed=names_changed or regex_bumps or votes)
    plan = make_target(turn, group, member, found, bumped, may_assign=may_assign)
    written += plan.records
    moved = member
    if may_assign or plan.epoch >= bumped.epoch:
        aim = Aim(plan.epoch, plan.target, plan.topic_ids, group.holders, names_changed or regex.changed)
        stepped = reconcile(member, aim, change.owned)
        if stepped is None:
            words = "The consumer group member is in a unknown state."
            raise RefusedRequest(ErrorCode.FENCED_MEMBER_EPOCH, f"{words} {ABANDON}")
        moved = stepped
    if moved != member:
        written.append(records.current_record(group_id, moved, wall_ms))
    if not turn.store_takes(written):
        raise RefusedRequest(ErrorCode.UNKNOWN_SERVER_ERROR, TOO_LARGE)
    return Step(change, moved, regex, votes, plan, written)


def take_step(turn: Turn, group: ConsumerGroup, step: Step) -> None:
    """Put a step into the group."""
    change, member = step.change, step.member
    turn.append(*step.records)
    cause = None
    if step.plan.bumps:
        course.opened(turn, group)
        cause = cause_of(group, step)
    apply(turn, group, change, member, rebalances=step.plan.bumps)
    step.regex.apply(turn, group)
    step.plan.apply(turn)
    if cause is not None:
        course.bumped(turn, group, cause)
    if step.plan.note is not None:
        course.targeted(turn, group, step.plan.note)
    if member != change.member:
        course.moved(turn, group, change.found.member, member)
    course.settled(turn, group)
    if member.classic is None and (member != change.member or change.found.member.classic is not None):
        sessions.synced(turn, group, member.member_id)
        sessions.watch_revocation(turn, group, member)
    sessions.renew(turn, group, member)


def cause_of(group: ConsumerGroup, step: Step) -> Cause:
    """Why the epoch grows with this step."""
    found, member, client = step.change.found, step.change.member, step.change.client
    if found.is_new:
        return reasons.of_member(group, CauseKind.MEMBER_JOINED, member, client)
    if member.topics == found.member.topics and not step.regex.changed:
        if step.votes:
            return reasons.of_member(group, CauseKind.ASSIGNOR_CHANGED, member, client)
        if step.plan.fills:
            return Cause(CauseKind.TARGET_INCOMPLETE)
        return reasons.of_topics(CauseKind.TOPICS_CHANGED, reasons.topic_changes(group))
    topics = reasons.differences(names_of(found.member, group.regexes), names_of(member, group.regexes))
    return reasons.of_member(group, CauseKind.SUBSCRIPTION_CHANGED, member, client, topics)


def apply(turn: Turn, group: ConsumerGroup, change: Change, member: ConsumerMember, *, rebalances: bool) -> None:
    """Put a member into the group, in the place of the one whose seat it takes. rebalances: the epoch grows."""
    found, client = change.found, change.client
    if found.replaces is not None:
        former = found.replaces.member_id
        away_since_ms = group.waits_since.get(former)
        session = group.sessions[former]
        heard_ms = session.deadline_ms - session.session_timeout_ms
        sessions.forget(turn, group, former)
        target = group.targets.get(former, NO_TARGET)
        group.remove(former)
        group.targets[member.member_id] = target
        if group.making is not None:
            group.making.replace(former, member.member_id)
        turn.note(
            notes.MemberReplaced(
                group.group_id,
                group.generation,
                member.member_id,
                former,
                member.instance_id or "",
                (STABLE if group.course is None else group.state).value,
                client.id,
                client.host,
                rebalances,
                principal=client.principal,
                away_ms=None if away_since_ms is None else max(turn.now.wall_ms - away_since_ms, 0),
                silent_ms=None if heard_ms == group.loaded_ms else max(turn.now.ms - heard_ms, 0),
            )
        )
    elif found.is_new:
        turn.note(
            notes.MemberJoined(group.group_id, group.generation, member.member_id, member.instance_id, *client[:3])
        )
    group.put(member)
