"""The target assignment: what each member shall have (Kafka: updateSubscriptionMetadata, maybeUpdateTargetAssignment).

The group epoch grows when subscriptions change, topics that members subscribe to, or the assignor with most votes; a
hash tells whether topics did. A group may take over a target from a classic leader or from the log. If it leaves out a
member or a partition, the epoch grows too (KAFKA-21584): nothing else would ever give that partition to anybody. An
epoch without a target gets one with the next heartbeat, but no sooner than the assignment interval after the target
before. A target stays as it is where it can: assignors are given the former one.

A target of many members or partitions takes long. The heartbeat does PAUSES_AT_ONCE parts of the work; if that is not
all, the group keeps the work (`Making`), the effects ask for the other parts, and an event `TargetMade` brings the
result. Members go on towards the former target meanwhile. They may also leave, restart, or bump the epoch again: the
work has the members and topics of its start, and `made` leaves out what is no longer there.

The store of a cluster may not take the record of one member's target. Then `made` writes nothing: members keep the
former target, and the epoch gets none. Only a later epoch has other members, topics or subscriptions. So the next try
is for a later epoch, at the earliest RETRY_MS after the last one.

House rule: nothing here changes the group but `Plan.apply`, once the heartbeat can no longer be refused, and `made`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from coordinator.group.bounds import following
from coordinator.group.consumer import course, records
from coordinator.group.consumer.assignors import ASSIGNORS, Pauses, Subscriber
from coordinator.group.consumer.group import (
    NO_TARGET,
    ConsumerGroup,
    ConsumerMember,
    Made,
    Making,
    RefusedTarget,
    Resolved,
    Target,
    names_of,
)
from coordinator.group.events import TargetMade
from coordinator.group.notes import CHANGES_MAX, TargetAssigned, TargetChange
from coordinator.group.topics import Topics, metadata_hash
from coordinator.group.turn import Turn
from coordinator.group.vote import best_assignor
from protocol.records.batch import Record
from protocol.records.packing import OVERHEAD

PAUSES_AT_ONCE = 4
"""Parts of the work that one heartbeat does, about 1 ms each. That is all for groups of some hundred members."""

UNITS_PER_SUBSCRIBER, UNITS_PER_RECORD = 4, 25
"""Units of work (see `Pauses`) of a member that is handed to the assignor, and of a record."""

MEMBERS_AT_ONCE = 1_000
"""A heartbeat does no part of the work for more members: the first parts alone would take 10 ms."""

EMPTY_TARGET_EPOCH = 1
"""The epoch of the empty target that a group has while its first one is made in steps. A member can't be at epoch 0."""

RETRY_MS = 10_000
"""The least time between a target that was too large and the next try: to make one of 1,000,000 topic partitions takes
about 1 s, and each member that joins makes another epoch."""


class Found(NamedTuple):
    """The member that sent a request, as the group knew it; a newcomer has no subscription yet.

    replaces: the member whose static seat it takes, None if it takes none. is_new: the group did not know it.
    """

    member: ConsumerMember
    replaces: ConsumerMember | None = None
    is_new: bool = False


class Bump(NamedTuple):
    """The group epoch after a heartbeat; its record, if it grew. gaps: see `gaps_in`. fills: it grew for them alone."""

    epoch: int
    metadata_hash: int
    record: Record | None
    gaps: bool | None = False
    fills: bool = False


class Plan:
    """The target that a heartbeat works with.

    epoch, target: of the sender. topic_ids: of the topics that the sender subscribes to.
    note: of a new target; None if there is none. bumps: whether the group epoch grows. fills: see Bump.
    """

    def __init__(self, group: ConsumerGroup, bumped: Bump, topic_ids: frozenset[UUID], target: Target) -> None:
        self._group = group
        self._bumped = bumped
        self._made: tuple[Mapping[str, Target], int, int] | None = None
        self._making: Making | None = None
        self.epoch = group.target_epoch
        self.target = target
        self.topic_ids = topic_ids
        self.note: TargetAssigned | None = None
        self.bumps = bumped.record is not None
        self.fills = bumped.fills
        self.records: list[Record] = [] if bumped.record is None else [bumped.record]

    def take(self, made: Made, member_id: str, wall_ms: int) -> None:
        """Take a new target for all members."""
        self.records += [Record(key, value, wall_ms) for key, value in made.written.values()]
        self._set(made.targets, self._bumped.epoch, wall_ms)
        self.target = made.targets.get(member_id, NO_TARGET)
        self.note = made.note

    def go_on(self, making: Making) -> None:
        """Leave the rest of the work to further steps. A group's first target is an empty one until then."""
        self._making = making
        if not self._group.target_epoch:
            self._set({}, EMPTY_TARGET_EPOCH, 0)

    def _set(self, targets: Mapping[str, Target], epoch: int, wall_ms: int) -> None:
        self.records.append(records.target_epoch_record(self._group.group_id, epoch, wall_ms, wall_ms))
        self._made = targets, epoch, wall_ms
        self.epoch = epoch

    def apply(self, turn: Turn) -> None:
        """Put epoch and targets into the group."""
        group = self._group
        group.generation = self._bumped.epoch
        group.metadata_hash = self._bumped.metadata_hash
        group.gaps = self._bumped.gaps
        group.is_stale = group.gaps is None
        if self._made is not None:
            group.set_targets(*self._made)
        if self._making is not None:
            group.making = self._making
            turn.effects.assigning.append(group.group_id)


def bump(turn: Turn, group: ConsumerGroup, member: ConsumerMember, sender: Found, *, changed: bool) -> Bump:
    """The group epoch, one higher if the sender or a topic changed, or the target has gaps.

    changed: whether the sender's subscription did, or its vote makes another assignor win.
    """
    if not changed and not group.is_stale:
        return Bump(group.generation, group.metadata_hash, None, group.gaps)
    hashed = metadata_hash(turn.topics, names_with(group, member, sender))
    gaps, is_same = gaps_in(turn, group), not changed and hashed == group.metadata_hash
    fills = is_same and bool(gaps) and group.target_epoch == group.generation
    if is_same and not (fills and turn.fixed("kafka-21584", group.group_id)):
        return Bump(group.generation, hashed, None, gaps)
    epoch = following(group.generation)
    return Bump(epoch, hashed, records.epoch_record(group.group_id, epoch, hashed, turn.now.wall_ms), gaps, is_same)


def votes_otherwise(turn: Turn, group: ConsumerGroup, member: ConsumerMember, sender: Found) -> bool:
    """Whether the sender's vote makes another assignor win (Kafka 4.4: hasPreferredServerAssignorChanged)."""
    former = sender.replaces or group.members.get(member.member_id)
    if member.assignor == (None if former is None else former.assignor):
        return False
    default = turn.config.group_consumer_assignors[0]
    return (preferred_assignor(group, member, former) or default) != (group.preferred_assignor() or default)


def gaps_in(turn: Turn, group: ConsumerGroup) -> bool | None:
    """Whether the target leaves out a member or a partition.

    None while that isn't known: members that are on their way to a target from the log may leave partitions without a
    holder for a moment.
    """
    if group.gaps is not None or group.unsettled:
        return group.gaps
    topics = turn.topics.find(set(group.subscribed_names()))
    return any(len(group.holders.get(topic.topic_id, ())) != topic.partitions for topic in topics)


def names_with(group: ConsumerGroup, member: ConsumerMember, sender: Found) -> Iterable[str]:
    """The topics that members subscribe to once the sender has its new subscription."""
    before = sender.replaces or group.members.get(member.member_id)
    names = set(group.topic_members)
    regexes = set(group.regex_members)
    if before is not None:
        names -= {name for name in before.topics if group.topic_members[name] == 1}
        if before.regex and group.regex_members[before.regex] == 1:
            regexes.discard(before.regex)
    names |= member.topics
    if member.regex:
        regexes.add(member.regex)
    for regex in regexes:
        resolved = group.regexes.get(regex)
        if resolved is not None:
            names |= resolved.topics
    return names


def make_target(
    turn: Turn, group: ConsumerGroup, member: ConsumerMember, sender: Found, bumped: Bump, *, may_assign: bool
) -> Plan:
    """The target for a heartbeat: the group's, or a new one if the epoch has none and it is time for one.

    may_assign: whether there may be a new one.
    """
    ids = Ids(turn.topics, dict(group.regexes))
    former_id = member.member_id if sender.replaces is None else sender.replaces.member_id
    plan = Plan(group, bumped, ids.of(member), group.targets.get(former_id, NO_TARGET))
    may_assign = may_assign and group.making is None
    if not may_assign or group.target_epoch >= bumped.epoch or not is_due(turn, group, bumped.epoch):
        return plan
    former = group.members.get(former_id)
    members, targets = dict(group.members), dict(group.targets)
    members.pop(former_id, None)
    members[member.member_id] = member
    name = preferred_assignor(group, member, former) or turn.config.group_consumer_assignors[0]
    owned = {**targets, member.member_id: plan.target}
    given = Given(group.group_id, bumped.epoch, members, owned, targets)
    making = Making(bumped.epoch, targets, steps_to(given, name, ids))
    for made in islice(making.steps, PAUSES_AT_ONCE + 1 if len(members) <= MEMBERS_AT_ONCE else 0):
        if made is not None and is_large(turn, made):
            making.steps = iter((made,))
            break
        if made is not None:
            plan.take(made, member.member_id, turn.now.wall_ms)
            return plan
    plan.go_on(making)
    return plan


def is_large(turn: Turn, made: Made) -> bool:
    """Whether a target is written alone, because the store may have no room for it beside the sender's records.

    Written alone it may be divided: see log.cluster.writer.
    """
    limit = turn.config.stored_max_bytes
    return 0 < limit < 2 * sum(OVERHEAD + len(key) + len(value) for key, value in made.written.values())


class Given(NamedTuple):
    """The input of a new target. owned: the targets so far, with the sender's. former: those of the log."""

    group_id: str
    epoch: int
    members: Mapping[str, ConsumerMember]
    owned: Mapping[str, Target]
    former: Mapping[str, Target]


def steps_to(given: Given, assignor: str, ids: Ids) -> Iterator[Made | None]:
    """Make a target. Yields None where the caller may pause, and the target at last."""
    pauses = Pauses()
    subscribers = {}
    for member_id, member in given.members.items():
        owned = given.owned.get(member_id, NO_TARGET)
        subscribers[member_id] = Subscriber(member.instance_id, ids.of(member), owned)
        if pauses.due(UNITS_PER_SUBSCRIBER):
            yield None
    targets: Mapping[str, Target] = {}
    for step in ASSIGNORS[assignor](subscribers, ids.partitions):
        if step is None:
            yield None
        else:
            targets = step
    written = {}
    gained = lost = changed = 0
    changes: list[TargetChange] = []
    for member_id, target in targets.items():
        if given.former.get(member_id) != target:
            written[member_id] = records.target_bytes(given.group_id, member_id, target)
            change = change_of(given, member_id, target)
            gained, lost = gained + change.gains, lost + change.loses
            changed += bool(change.gains or change.loses)
            if (change.gains or change.loses) and len(changes) < CHANGES_MAX:
                changes.append(change)
        if pauses.due(UNITS_PER_RECORD):
            yield None
    further = changed - len(changes)
    note = TargetAssigned(
        given.group_id, given.epoch, assignor, len(given.members), gained, lost, tuple(changes), further
    )
    yield Made(targets, written, note)


def change_of(given: Given, member_id: str, target: Target) -> TargetChange:
    """The change that a new target is for a member."""
    had = given.owned.get(member_id, NO_TARGET)
    return TargetChange(
        member_id,
        given.members[member_id].instance_id,
        missing_in(had, target),
        missing_in(target, had),
        sum(map(len, target.values())),
    )


def missing_in(one: Target, other: Target) -> int:
    """How many partitions of `other` are not in `one`."""
    return sum(len(partitions - one.get(topic_id, frozenset())) for topic_id, partitions in other.items())


def made(turn: Turn, group: ConsumerGroup, event: TargetMade) -> None:
    """Take a target that was made in steps, for those that are members still. One that is too large changes nothing."""
    making, group.making = group.making, None
    assert making is not None
    if not group.members:
        return
    wall_ms = turn.now.wall_ms
    moved = set(making.heirs.values())
    targets, written = {}, []
    for member_id in group.members:
        start_id = making.heirs.get(member_id, None if member_id in moved else member_id)
        target = None if start_id is None else event.targets.get(start_id)
        if target is None:
            continue
        targets[member_id] = target
        has = group.targets.get(member_id)
        if has is not making.former.get(member_id):
            if has != target:
                written.append(records.target_record(group.group_id, member_id, target, wall_ms))
        elif member_id in event.written:
            written.append(Record(*event.written[member_id], wall_ms))
    if not turn.takes_each(group, written):
        group.refused_target = RefusedTarget(event.epoch, turn.now.ms + RETRY_MS)
        return
    turn.append(*written)
    turn.append(records.target_epoch_record(group.group_id, event.epoch, wall_ms, wall_ms))
    group.set_targets(targets, event.epoch, wall_ms)
    assert event.note is not None
    course.targeted(turn, group, event.note)
    course.settled(turn, group)


def is_due(turn: Turn, group: ConsumerGroup, epoch: int) -> bool:
    """Whether enough time has passed since the last target (KIP-1263), and the epoch's own was not too large."""
    refused = group.refused_target
    if refused is not None and (epoch <= refused.epoch or turn.now.ms < refused.until_ms):
        return False
    interval_ms = turn.group_settings(group.group_id).assignment_interval_ms
    return not group.target_ms or not interval_ms or turn.now.wall_ms >= group.target_ms + interval_ms


def preferred_assignor(group: ConsumerGroup, member: ConsumerMember, former: ConsumerMember | None) -> str | None:
    """The assignor with most votes once the sender has voted; None without votes. former: the sender as it was."""
    votes = dict(group.assignors)
    if former is not None and former.assignor is not None:
        votes[former.assignor] -= 1
    if member.assignor is not None:
        votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return best_assignor(votes)


class Ids:
    """The ids of subscribed topics. Members with the same subscription share the set.

    partitions: how many partitions each topic has that was asked for.
    """

    def __init__(self, topics: Topics, regexes: Mapping[str, Resolved]) -> None:
        self._topics = topics
        self._regexes = regexes
        self._known: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
        self.partitions: dict[UUID, int] = {}

    def of(self, member: ConsumerMember) -> frozenset[UUID]:
        """The ids of the topics that a member subscribes to and that exist."""
        key = (member.topics, member.regex)
        found = self._known.get(key)
        if found is None:
            names = names_of(member, self._regexes)
            partitions = {topic.topic_id: topic.partitions for topic in self._topics.find(names)}
            self.partitions |= partitions
            found = self._known[key] = frozenset(partitions)
        return found
