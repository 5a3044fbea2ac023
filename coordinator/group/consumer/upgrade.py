"""A classic group of consumers becomes one of the consumer protocol (KIP-848; Kafka: ConsumerGroup.fromClassicGroup).

That happens when the first member of the consumer protocol comes, at the earliest after the group's first rebalance:
before, there is no generation to go on with. Generation and assignments stay: the generation is the epoch of the group,
of its target and of all members, and each member's target is what the leader gave it. So nobody moves unless the
newcomer's subscription bumps the epoch, or the target has gaps. Members that wait in a rebalance get an error and join
again.

House rule: `upgraded` changes nothing, because the newcomer may still be refused; `give_way` ends the classic group.
"""

from __future__ import annotations

from coordinator.group import notes
from coordinator.group import records as classic_records
from coordinator.group.any_group import AnyGroup
from coordinator.group.classic import residence
from coordinator.group.consumer import records, sessions
from coordinator.group.consumer.embedded import Unreadable, read_assignment, read_subscription
from coordinator.group.consumer.group import Classic, ConsumerGroup, ConsumerMember, Target
from coordinator.group.consumer.step import has_room, has_room_for_names
from coordinator.group.course import Outcome
from coordinator.group.effects import PENDING, REBALANCE, SYNC
from coordinator.group.events import ConsumerHeartbeat
from coordinator.group.group import Group, Member, NoUpgrade
from coordinator.group.refusal import Refusal, RefusedRequest
from coordinator.group.topics import metadata_hash
from coordinator.group.turn import Turn
from protocol.consumer import CONSUMER
from schemas.errors import ErrorCode

POLICIES = frozenset({"bidirectional", "upgrade"})
"""The migration policies under which a group is upgraded."""

LARGE = 100
"""Members of a group that is not upgraded at once after a downgrade, or after it was found that it can't be."""

OTHER_ASSIGNMENTS = "a rebalance brings other assignments"
"""Until when a group stays classic whose assignments it can't take over."""

PAUSE_MS_PER_MEMBER = 1
"""How long such a group has to wait for an upgrade, for each of its members: about 25 times as long as it takes."""


def upgraded(turn: Turn, group: Group, event: ConsumerHeartbeat) -> ConsumerGroup:
    """The group of the consumer protocol that a classic group with members becomes. Raises RefusedRequest.

    turn: takes its records and timers. event: of the newcomer; what would be refused later is refused before the work.
    """
    never = why_not(turn, group)
    if never is not None:
        raise RefusedRequest(*refusal(group, *never))
    has_room(turn, group, event.body.member_id, event.body.instance_id)
    if event.body.subscribed_topic_regex and event.regex_error is not None:
        raise RefusedRequest(ErrorCode.INVALID_REGULAR_EXPRESSION, event.regex_error)
    kept = group.no_upgrade
    if kept is not None and turn.now.ms < kept.until_ms:
        raise RefusedRequest(*kept.refusal)
    if group.protocol_name is None or not group.all_support(group.protocol_name):
        # The first generation isn't there, or the next one has another protocol.
        words = f"Classic group {group.group_id[:100]} can become a consumer group after its rebalance."
        raise RefusedRequest(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, words, "the group can't be upgraded in this rebalance"
        )
    try:
        return converted(turn, group, frozenset(event.body.subscribed_topic_names or ()))
    except RefusedRequest as refused:
        group.no_upgrade = pause_of(turn, group.size, refused.refusal)
        raise


def is_waiting_again(group: AnyGroup | None, refusal: Refusal) -> bool:
    """Whether an upgrade is put off for a reason that the log has a line about: one line for each generation.

    Clients try again several times a second.
    """
    if refusal.error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return False
    assert isinstance(group, Group)
    is_again, group.waits_for_upgrade = group.waits_for_upgrade == group.generation, group.generation
    return is_again


def check_size(turn: Turn, group: Group) -> None:
    """Raises RefusedRequest if the store doesn't take the records of an upgrade at once. turn: has them."""
    if turn.store_takes(turn.effects.records):
        return
    words = "the group is larger than the store of this cluster takes at once"
    refused = refusal(group, words, "it has fewer members or subscriptions")
    group.no_upgrade = pause_of(turn, group.size, refused)
    raise RefusedRequest(*refused)


def pause_of(turn: Turn, size: int, refusal: Refusal) -> NoUpgrade | None:
    """How long a group of this size gets no further upgrade; None for a small group.

    An upgrade takes 0.04 ms of work for each member. Else a client could stop the server by asking again and again.
    """
    if size < LARGE:
        return None
    return NoUpgrade(turn.now.ms + size * PAUSE_MS_PER_MEMBER, refusal)


def converted(turn: Turn, group: Group, names: frozenset[str]) -> ConsumerGroup:
    """A group of the consumer protocol with a classic one's members. names: the newcomer's. Raises RefusedRequest."""
    assert group.protocol_name is not None
    new = ConsumerGroup(group.group_id)
    new.generation = group.generation
    targets: dict[str, Target] = {}
    gaps = False
    try:
        for member in group.members.values():
            target = read_assignment(turn.topics, member.assignment)
            if any(not new.holders.get(topic_id, {}).keys().isdisjoint(held) for topic_id, held in target.items()):
                why = "the group can't be upgraded: its leader gave a topic partition to two members"
                raise RefusedRequest(ErrorCode.UNKNOWN_SERVER_ERROR, why=why, until=OTHER_ASSIGNMENTS)
            targets[member.member_id] = target
            goes_on = member_of(member, group.protocol_name, group.generation, target)
            new.put(goes_on)
            # It waits for its first assignment, or wants other topics than those that it was given.
            names_given = {topic.name for topic in map(turn.topics.by_id, target) if topic is not None}
            is_late = not member.assignment or not names_given <= goes_on.topics
            gaps = gaps or is_late
    except Unreadable as error:
        raise RefusedRequest(*refusal(group, str(error), OTHER_ASSIGNMENTS)) from None
    has_room_for_names(new, names)
    new.set_targets(targets, group.generation, 0, gaps=gaps or None)
    new.metadata_hash = metadata_hash(turn.topics, new.subscribed_names())
    new.settle(turn.now.wall_ms)
    write(turn, new)
    turn.note(notes.GroupConverted(new.group_id, new.generation, new.kind.value, new.size))
    for each in new.members.values():
        sessions.renew(turn, new, each)
    return new


def why_not(turn: Turn, group: Group) -> tuple[str, str] | None:
    """Why a group stays as it is, and until when, in words; None if it may become another."""
    if turn.config.group_consumer_migration_policy not in POLICIES:
        return "online upgrade is disabled", "group.consumer.migration.policy allows it, or the group is empty"
    if group.protocol_type != CONSUMER:
        return "the group does not use the consumer embedded protocol", "the group is empty"
    if group.size > turn.config.group_consumer_max_size:
        return "the group size exceeds the consumer group maximum size", "it is smaller, or the maximum larger"
    return None


def refusal(group: Group, words: str, until: str) -> Refusal:
    """The refusal of a group that stays as it is."""
    why = f"Cannot upgrade classic group {group.group_id[:100]} to consumer group because {words}"
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{why}.", why, until)


def member_of(member: Member, protocol_name: str, epoch: int, target: Target) -> ConsumerMember:
    """A member as it goes on; it has what it was assigned last. Raises Unreadable."""
    said = read_subscription(member.metadata(protocol_name))
    return ConsumerMember(
        member.member_id,
        member.group_instance_id,
        said.rack,
        member.rebalance_timeout_ms,
        member.client_id,
        member.client_host,
        said.topics,
        "",
        epoch=epoch,
        previous_epoch=epoch,
        assigned={topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()},
        classic=Classic(member.session_timeout_ms, tuple(member.protocols)),
    )


def write(turn: Turn, group: ConsumerGroup) -> None:
    """Write a group in the place of the classic one, in Kafka's order."""
    group_id, wall_ms = group.group_id, turn.now.wall_ms
    members = group.members.values()
    turn.append(classic_records.group_tombstone(group_id, wall_ms))
    turn.append(*(records.member_record(group_id, member, wall_ms) for member in members))
    turn.append(records.epoch_record(group_id, group.generation, group.metadata_hash, wall_ms))
    turn.append(*(records.target_record(group_id, *each, wall_ms) for each in group.targets.items()))
    turn.append(records.target_epoch_record(group_id, group.target_epoch, group.target_ms, wall_ms))
    turn.append(*(records.current_record(group_id, member, wall_ms) for member in members))


def give_way(turn: Turn, group: Group) -> None:
    """End a classic group that became another. Members that wait join again, or sync again after that."""
    pending = list(group.pending)
    residence.end(turn, group, ErrorCode.REBALANCE_IN_PROGRESS, Outcome.SUPERSEDED)
    for member_id in pending:
        turn.arm(PENDING, group, None, member_id)
    turn.arm(REBALANCE, group, None)
    turn.arm(SYNC, group, None)
