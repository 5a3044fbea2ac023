"""A group of the consumer protocol becomes a classic one again (KIP-848; Kafka: ClassicGroup.fromConsumerGroup).

That happens when only classic members are left: the last member of the consumer protocol leaves, expires, is removed or
does not give up its partitions, or a static classic member takes its seat. A member that is away (-2) still counts. The
epoch becomes the generation, and targets become assignments. If somebody went, the members rebalance; after the
takeover of a seat the classic group is Stable at once, unless the epoch had no target yet.

A takeover with another subscription makes an epoch that no member has heard of. So the epoch before it becomes the
generation: the members repeat it in heartbeats and commits, and hear that they have to rejoin (KAFKA-19546).

House rule: the coordinator puts the classic group in the place of the other after the event (`Turn.successor`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from coordinator.group import notes
from coordinator.group import records as classic_records
from coordinator.group.consumer import course, records, sessions
from coordinator.group.consumer.embedded import assignment_bytes
from coordinator.group.consumer.group import NO_TARGET, ConsumerGroup, ConsumerMember
from coordinator.group.consumer.upgrade import PAUSE_MS_PER_MEMBER, pause_of
from coordinator.group.course import Outcome
from coordinator.group.group import Group, Member
from coordinator.group.refusal import Refusal
from coordinator.group.state import DEAD, STABLE
from coordinator.group.turn import Turn
from protocol.consumer import CONSUMER
from protocol.records.batch import Record
from protocol.records.packing import stored_bytes
from schemas.errors import ErrorCode

POLICIES = frozenset({"bidirectional", "downgrade"})
"""The migration policies under which a group is downgraded."""


def is_due(turn: Turn, group: ConsumerGroup, going: Collection[ConsumerMember]) -> bool:
    """Whether a group becomes a classic one once these members are gone."""
    left = group.size - len(going)
    classic = group.classic_size - sum(member.classic is not None for member in going)
    return 0 < left == classic and may_downgrade(turn, left) and fits(turn, group)


def may_downgrade(turn: Turn, left: int) -> bool:
    """Whether a group may become a classic one of `left` members."""
    return turn.config.group_consumer_migration_policy in POLICIES and left <= turn.config.group_max_size


def fits(turn: Turn, group: ConsumerGroup, further: Sequence[Record] = ()) -> bool:
    """Whether the store takes the records of a downgrade at once, with further ones of the same turn."""
    config, group_id, wall_ms = turn.config, group.group_id, turn.now.wall_ms
    if not config.stored_max_bytes:
        return True
    gone = list(records.group_tombstones(group, wall_ms))
    # One record of the classic group has what these have, with a name for each topic of a target. A subscription names
    # its topics twice: in the member's metadata, and beside it.
    kept = [
        *(records.member_record(group_id, member, wall_ms) for member in group.members.values()),
        *(records.target_record(group_id, *each, wall_ms) for each in group.targets.items()),
    ]
    unnamed = sum(
        len(topic.name)
        for member_id, target in group.targets.items()
        for topic in filter(None, map(turn.topics.by_id, target))
        if topic.name not in group.members[member_id].topics
    )
    size = stored_bytes([*gone, *kept, *further]) + unnamed
    return len(gone) + len(further) < config.stored_max_records and size <= config.stored_max_bytes


def downgrade(turn: Turn, group: ConsumerGroup, generation: int, going: Collection[ConsumerMember] = ()) -> Group:
    """Make the classic group of a generation. going: members that it does not get."""
    if group.course is not None and group.course.causes:
        course.end(turn, group, Outcome.SUPERSEDED)
    turn.append(*records.group_tombstones(group, turn.now.wall_ms))
    classic = classic_group(turn, group, generation, {member.member_id for member in going})
    turn.append(classic_records.group_record(classic, classic.state_since_ms, turn.now.wall_ms))
    for member_id in group.members:
        sessions.forget(turn, group, member_id)
    turn.renew_sessions(classic, classic.members.values())
    turn.note(notes.GroupConverted(classic.group_id, classic.generation, classic.kind.value, classic.size))
    group.state = DEAD
    turn.successor = classic
    return classic


def classic_group(turn: Turn, group: ConsumerGroup, generation: int, without: Collection[str]) -> Group:
    """The classic group: Stable, with the targets as assignments."""
    classic = Group(group.group_id, turn.now.wall_ms)
    classic.protocol_type = CONSUMER
    classic.generation = generation
    classic.offsets, classic.pending_offsets = group.offsets, group.pending_offsets
    for member in group.members.values():
        if member.member_id not in without:
            classic.add(classic_member(member))
    classic.protocol_name = name = classic.select_protocol()
    for each in classic.members.values():
        target = group.targets.get(each.member_id, NO_TARGET)
        each.assignment = assignment_bytes(turn.topics, target, each.metadata(name))
    classic.subscribed_topics = classic.find_subscribed_topics()
    # Clients try again after this error: one that joins and leaves all the time must not stop the server.
    why = "the group can't be upgraded again at once: it is large, and was downgraded a moment ago"
    refusal = Refusal(
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None, why, f"{classic.size * PAUSE_MS_PER_MEMBER} ms later"
    )
    classic.no_upgrade = pause_of(turn, classic.size, refusal)
    # This sets the state that the record has; it is no transition.
    classic.state = STABLE
    return classic


def classic_member(member: ConsumerMember) -> Member:
    """A member as it goes on."""
    assert member.classic is not None
    return Member(
        *member.named,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        list(member.classic.protocols),
    )
