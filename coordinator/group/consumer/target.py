"""The target assignment: what each member shall have (Kafka: updateSubscriptionMetadata, maybeUpdateTargetAssignment).

The group epoch grows when subscriptions change, or topics that members subscribe to; a hash of these topics tells the
latter. An epoch without a target gets one with the next heartbeat, but no sooner than the assignment interval after the
target before. A target stays as it is where it can: assignors are given the former one.

House rule: nothing here changes the group; `Plan.apply` does, once the heartbeat can no longer be refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from coordinator.group.consumer import records
from coordinator.group.consumer.assignors import Subscriber, assign
from coordinator.group.consumer.group import NO_TARGET, ConsumerGroup, ConsumerMember, Target
from coordinator.group.topics import metadata_hash

if TYPE_CHECKING:
    from coordinator.group.turn import Turn
    from protocol.records.batch import Record


class Sender(Protocol):
    """The member that sent a heartbeat, as the group knew it."""

    @property
    def member(self) -> ConsumerMember:
        """As it was; a newcomer has no subscription yet."""

    @property
    def replaces(self) -> ConsumerMember | None:
        """The member whose static seat it takes."""


class Bump(NamedTuple):
    """The group epoch after a heartbeat; its record, if it grew."""

    epoch: int
    metadata_hash: int
    record: Record | None


class Plan:
    """The target that a heartbeat works with.

    epoch, target: of the sender. topic_ids: of the topics that the sender subscribes to.
    """

    def __init__(self, group: ConsumerGroup, bumped: Bump, topic_ids: frozenset[UUID], target: Target) -> None:
        self._group = group
        self._bumped = bumped
        self._made: tuple[Mapping[str, Target], int] | None = None
        self.epoch = group.target_epoch
        self.target = target
        self.topic_ids = topic_ids
        self.records: list[Record] = [] if bumped.record is None else [bumped.record]

    def make(self, targets: Mapping[str, Target], member_id: str, wall_ms: int) -> None:
        """Take a new target for all members."""
        former = self._group.targets
        for each, target in targets.items():
            if former.get(each) != target:
                self.records.append(records.target_record(self._group.group_id, each, target, wall_ms))
        self.records.append(records.target_epoch_record(self._group.group_id, self._bumped.epoch, wall_ms))
        self._made = (targets, wall_ms)
        self.epoch = self._bumped.epoch
        self.target = targets.get(member_id, NO_TARGET)

    def apply(self) -> None:
        """Put epoch and targets into the group."""
        group = self._group
        group.generation = self._bumped.epoch
        group.metadata_hash = self._bumped.metadata_hash
        group.is_stale = False
        if self._made is not None:
            targets, wall_ms = self._made
            group.set_targets(targets, self._bumped.epoch, wall_ms)


def bump(turn: Turn, group: ConsumerGroup, member: ConsumerMember, sender: Sender, *, changed: bool) -> Bump:
    """The group epoch, one higher if the sender's subscription or a topic changed.

    changed: whether the sender's subscription did.
    """
    if not changed and not group.is_stale:
        return Bump(group.generation, group.metadata_hash, None)
    hashed = metadata_hash(turn.topics, names_with(group, member, sender))
    if not changed and hashed == group.metadata_hash:
        return Bump(group.generation, hashed, None)
    epoch = group.generation + 1
    return Bump(epoch, hashed, records.epoch_record(group.group_id, epoch, hashed, turn.now.wall_ms))


def names_with(group: ConsumerGroup, member: ConsumerMember, sender: Sender) -> Iterable[str]:
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
    turn: Turn, group: ConsumerGroup, member: ConsumerMember, sender: Sender, bumped: Bump, *, may_assign: bool
) -> Plan:
    """The target for a heartbeat: the group's, or a new one if the epoch has none and it is time for one.

    may_assign: whether there may be a new one.
    """
    ids = Ids(turn, group)
    former_id = member.member_id if sender.replaces is None else sender.replaces.member_id
    plan = Plan(group, bumped, ids.of(member), group.targets.get(former_id, NO_TARGET))
    if not may_assign or group.target_epoch >= bumped.epoch or not is_due(turn, group):
        return plan
    former = group.members.get(former_id)
    members = {each.member_id: each for each in group.members.values() if each is not former}
    members[member.member_id] = member
    subscribers = {
        member_id: Subscriber(
            each.instance_id,
            each.rack,
            ids.of(each),
            group.targets.get(former_id if each is member else member_id, NO_TARGET),
        )
        for member_id, each in members.items()
    }
    name = preferred_assignor(group, member, former) or turn.config.group_consumer_assignors[0]
    targets: Mapping[str, Target] = {}
    for step in assign(name, subscribers, ids.partitions):
        targets = step or targets
    plan.make(targets, member.member_id, turn.now.wall_ms)
    return plan


def is_due(turn: Turn, group: ConsumerGroup) -> bool:
    """Whether enough time has passed since the last target (KIP-1263)."""
    interval_ms = turn.consumer_settings(group.group_id).assignment_interval_ms
    return not group.target_ms or not interval_ms or turn.now.wall_ms >= group.target_ms + interval_ms


def preferred_assignor(group: ConsumerGroup, member: ConsumerMember, former: ConsumerMember | None) -> str | None:
    """The assignor with most votes once the sender has voted; None without votes."""
    votes = dict(group.assignors)
    if former is not None and former.assignor is not None:
        votes[former.assignor] -= 1
    if member.assignor is not None:
        votes[member.assignor] = votes.get(member.assignor, 0) + 1
    best = max(votes, key=lambda name: votes[name], default=None)
    return best if best is not None and votes[best] else None


class Ids:
    """The ids of subscribed topics. Members with the same subscription share the set.

    partitions: how many partitions each topic has that was asked for.
    """

    def __init__(self, turn: Turn, group: ConsumerGroup) -> None:
        self._topics = turn.topics
        self._group = group
        self._known: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
        self.partitions: dict[UUID, int] = {}

    def of(self, member: ConsumerMember) -> frozenset[UUID]:
        """The ids of the topics that a member subscribes to and that exist."""
        key = (member.topics, member.regex)
        found = self._known.get(key)
        if found is None:
            partitions = {topic.topic_id: topic.partitions for topic in self._topics.find(self._group.names_of(member))}
            self.partitions |= partitions
            found = self._known[key] = frozenset(partitions)
        return found
