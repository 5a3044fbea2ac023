"""A group of the consumer protocol and its members: the data (Kafka: ConsumerGroup, ModernGroup, ConsumerGroupMember).

A member is a value. A rule makes a new one and puts it into the group, which keeps the books: which member holds a
partition, who subscribes to what, who is not yet where the target wants it. So a rule that refuses its request half way
has changed nothing.

Three numbers tell how far a group is (KIP-848). The group epoch grows when something about members or topics changes.
The target epoch is the group epoch that the target assignment was made for. A member's epoch is the target epoch that
it has been brought to; the member then has given up what others shall have.

House rule: only methods of `ConsumerGroup` change its tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple
from uuid import UUID

from coordinator.group.any_group import AnyGroup
from coordinator.group.causes import Change
from coordinator.group.course import Course, Phase, Waited
from coordinator.group.group import NAME, NEVER
from coordinator.group.notes import TargetAssigned
from coordinator.group.state import ASSIGNING, DEAD, EMPTY, RECONCILING, STABLE, Kind, State
from coordinator.group.vote import best_assignor
from protocol.consumer import CONSUMER
from protocol.speed import HashedById

CHANGED_MAX = 1_000
"""Changed topics that a group remembers for its next cause: a cause names a few, and counts the others."""

JOINING = 0
"""The epoch of a request that joins, or joins again."""
LEFT = -1
"""The epoch of a request that leaves for good."""
AWAY = -2
"""The epoch of a static member that left for a while (KIP-848)."""

Held = Mapping[UUID, Mapping[int, int]]
"""Partitions that a member holds: topic id -> partition -> the epoch at which the member got it."""

Target = Mapping[UUID, frozenset[int]]
"""Partitions that a member shall have: topic id -> partitions."""

NOTHING: Held = {}
NO_TARGET: Target = {}


class MemberState(HashedById):
    """How far a member is on its way to the target; the numbers stand in the log (Kafka: MemberState)."""

    STABLE = 0
    UNREVOKED = 1
    """The coordinator asked it to give up partitions, and it has not said that it did."""
    UNRELEASED = 2
    """It waits for partitions that others still hold."""
    UNKNOWN = 127
    """A later version wrote this state."""


# Short names: see `speed`.
GROWN = Change.GROWN
SETTLED, UNREVOKED = MemberState.STABLE, MemberState.UNREVOKED
UNRELEASED, UNKNOWN = MemberState.UNRELEASED, MemberState.UNKNOWN


class Classic(NamedTuple):
    """The last JoinGroup of a member of the classic protocol.

    protocols: (name, metadata) in its order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol name that it is answered with: its first one."""
        return self.protocols[0][0]


class ConsumerMember(NamedTuple):
    """A member.

    topics: the names that it subscribes to. regex: its regular expression; "" for none, or None in a record.
    assignor: its vote for a server-side assignor, None for none.
    epoch, previous_epoch: AWAY while a static member is away; the previous one is what a lost answer may have left.
    assigned: the partitions that it may use. revoking: those that the coordinator wants back.
    classic: None for a member of the consumer protocol. A classic member's generation is its epoch.
    """

    member_id: str
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = SETTLED
    assigned: Held = NOTHING
    revoking: Held = NOTHING
    classic: Classic | None = None

    def moved_to(self, epoch: int) -> ConsumerMember:
        """The member at another epoch; its own becomes the previous one."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def is_at(self, target_epoch: int) -> bool:
        """Whether it has all that the target of this epoch gives it."""
        return self.state is SETTLED and self.epoch == target_epoch

    @property
    def named(self) -> tuple[str, str | None, str, str]:
        """Its member id, instance id, client id and client host, in the order of the fields of notes."""
        return (self.member_id, self.instance_id, self.client_id, self.client_host)


class Resolved(NamedTuple):
    """The topics that a regular expression matched.

    version: of `Topics`. since_ms: when the resolution began, Unix time in ms.
    """

    topics: frozenset[str]
    version: int
    since_ms: int


class Made(NamedTuple):
    """A new target for all members, by member id. written: key and value of the records of targets that changed."""

    targets: Mapping[str, Target]
    written: Mapping[str, tuple[bytes, bytes]]
    note: TargetAssigned


@dataclass(slots=True, eq=False, repr=False)
class Making:
    """A target that is made in steps, because it takes long; the group goes on with the former one until then.

    epoch: the group epoch that it is for. former: the targets at the start, by member id.
    steps: the work that is left: Nones, and the target at last.
    heirs: the member of the start whose static seat a member has taken, by the id of the latter.
    """

    epoch: int
    former: Mapping[str, Target]
    steps: Iterator[Made | None]
    heirs: dict[str, str] = field(default_factory=dict)

    def replace(self, former_id: str, member_id: str) -> None:
        """A static seat went from one member to another."""
        self.heirs[member_id] = self.heirs.pop(former_id, former_id)


class RefusedTarget(NamedTuple):
    """A target that the store doesn't take.

    epoch: it was made for this one, which gets no other. until_ms: when a later epoch may get one, on the clock of
    `Now.ms`.
    """

    epoch: int
    until_ms: int


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """The session of a member; `Turn.watch` looks after it."""

    member_id: str
    session_timeout_ms: int = 0
    deadline_ms: int = NEVER
    timer_at_ms: int = NEVER


@dataclass(slots=True, eq=False, repr=False)
class ConsumerCourse(Course):
    """The course of a rebalance.

    members: those before. longest: the longest wait so far. freed_ms: when a member gave up partitions last, Unix time
    in ms; 0 before.
    """

    members: tuple[ConsumerMember, ...] = ()
    longest: Waited | None = None
    freed_ms: int = 0

    def waited_for(self, member: ConsumerMember, phase: Phase, ms: int) -> None:
        """A member did what the group waited for, after so many ms."""
        if ms > (0 if self.longest is None else self.longest.ms):
            self.longest = Waited(member.member_id, phase, ms, member.instance_id)


@dataclass(slots=True, eq=False, repr=False)
class ConsumerGroup(AnyGroup):
    """A group of the consumer protocol; see the head of this module.

    target_epoch: 0 before the first target. target_ms: when the target was made, Unix time in ms; 0 before.
    making: the next target, while it is being made in steps. refused_target: the last one that was too large, None if
    none was since the load.
    targets: by member id. holders: topic id -> partition -> the member that holds it.
    regexes: those that were resolved. resolving: whether a resolution is under way.
    metadata_hash: of the subscribed topics, as of the group epoch. is_stale: whether topics may have changed since, or
    the target may have gaps. gaps: whether it has some (`target.gaps_in`); False for one that this group made.
    deadlines: the epochs of members that must give up partitions within their rebalance timeout, by member id; classic
    ones that must rejoin count too. syncing: ids of classic members that joined and have not synced.
    classic_size: the number of classic members. classic_protocols: how many of them list a protocol name.
    course: of the open rebalance. assignor: that made the target; None before the first since the load.
    changed_topics: those that changed since the last epoch, CHANGED_MAX at most.
    topic_names: of topics that members held in this rebalance or at the end of the one before, by id.
    waits_since: when members were asked to give up partitions, or went away; by member id, Unix time in ms.
    loaded_ms: when the group was loaded, on the clock of `Now.ms`; NEVER for a new group.
    """

    kind: ClassVar = Kind.CONSUMER

    generation: int = 1
    protocol_type: str | None = CONSUMER
    subscribed_topics: frozenset[str] | None = frozenset()
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    target_epoch: int = 0
    target_ms: int = 0
    making: Making | None = None
    refused_target: RefusedTarget | None = None
    targets: dict[str, Target] = field(default_factory=dict)
    holders: dict[UUID, dict[int, str]] = field(default_factory=dict)
    topic_members: Counter[str] = field(default_factory=Counter)
    regex_members: Counter[str] = field(default_factory=Counter)
    regexes: dict[str, Resolved] = field(default_factory=dict)
    resolving: bool = False
    assignors: Counter[str] = field(default_factory=Counter)
    metadata_hash: int = 0
    is_stale: bool = True
    gaps: bool | None = False
    deadlines: dict[str, int] = field(default_factory=dict)
    syncing: set[str] = field(default_factory=set)
    classic_size: int = 0
    classic_protocols: Counter[str] = field(default_factory=Counter)
    unsettled: set[str] = field(default_factory=set)
    course: ConsumerCourse | None = None
    assignor: str | None = None
    changed_topics: dict[str, Change] = field(default_factory=dict)
    topic_names: dict[UUID, str] = field(default_factory=dict)
    waits_since: dict[str, int] = field(default_factory=dict)
    loaded_ms: int = NEVER

    def close(self) -> None:
        """Let go of the members."""
        self.members.clear()
        self.holders.clear()
        self.targets.clear()
        self.making = None

    # Members.

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or put it in the place of the one with its id.

        Members mostly subscribe to the same topics, perhaps to thousands: one set serves those that follow each other.
        """
        former = self.members.get(member.member_id)
        like = next(reversed(self.members.values()), None) if former is None else former
        if like is not None and member.topics is not like.topics and member.topics == like.topics:
            member = member._replace(topics=like.topics)
        if former is not None:
            self._uncount(former)
            self._free_seat(former)  # it may come back with another instance id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                holders = self.holders.setdefault(topic_id, {})
                assert holders.keys().isdisjoint(partitions), (self.group_id, topic_id)
                holders.update(dict.fromkeys(partitions, member.member_id))
        self.topic_members.update(member.topics)
        if member.regex:
            self.regex_members[member.regex] += 1
        if member.assignor is not None:
            self.assignors[member.assignor] += 1
        if member.classic is not None:
            self.classic_size += 1
            self.classic_protocols.update(set(map(NAME, member.classic.protocols)))
        if member.is_at(self.target_epoch):
            self.unsettled.discard(member.member_id)
        else:
            self.unsettled.add(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member with its target; its static seat too, unless another member has it."""
        member = self.members.pop(member_id)
        self._uncount(member)
        self.targets.pop(member_id, None)
        self.sessions.pop(member_id, None)
        self.deadlines.pop(member_id, None)
        self.syncing.discard(member_id)
        self.waits_since.pop(member_id, None)
        self.unsettled.discard(member_id)
        self._free_seat(member)

    def _free_seat(self, member: ConsumerMember) -> None:
        """Take a member's static seat from it, unless another member has it."""
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _uncount(self, member: ConsumerMember) -> None:
        """Take a member out of the books that `put` wrote it into."""
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                holders = self.holders.get(topic_id, {})
                for partition in partitions:
                    if holders.get(partition) == member.member_id:
                        del holders[partition]
                if not holders:
                    self.holders.pop(topic_id, None)
        subtract(self.topic_members, member.topics)
        if member.regex:
            subtract(self.regex_members, (member.regex,))
        if member.assignor is not None:
            subtract(self.assignors, (member.assignor,))
        if member.classic is not None:
            self.classic_size -= 1
            subtract(self.classic_protocols, frozenset(map(NAME, member.classic.protocols)))

    def supports(self, protocols: Iterable[str]) -> bool:
        """Whether all classic members list one of these protocol names."""
        return any(self.classic_protocols[name] == self.classic_size for name in protocols)

    def seat(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that has a static seat."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    # Targets and state.

    def is_blocked(self, member: ConsumerMember) -> bool:
        """Whether another member holds a partition that the target gives to this one."""
        for topic_id, wanted in self.targets.get(member.member_id, NO_TARGET).items():
            holders = self.holders.get(topic_id, {})
            if any(holders.get(partition, member.member_id) != member.member_id for partition in wanted):
                return True
        return False

    def set_targets(
        self, targets: Mapping[str, Target], epoch: int, wall_ms: int, *, gaps: bool | None = False
    ) -> None:
        """Take a new target assignment. gaps: see ConsumerGroup."""
        self.targets = dict(targets)
        self.gaps = gaps
        self.target_epoch = epoch
        self.target_ms = wall_ms
        self.unsettled = {member_id for member_id, member in self.members.items() if not member.is_at(epoch)}

    def note_topic(self, name: str, change: Change) -> None:
        """Remember that a topic changed; one that grew after it was created counts as created."""
        if name in self.changed_topics:
            if change is not GROWN:
                self.changed_topics[name] = change
        elif len(self.changed_topics) < CHANGED_MAX:
            self.changed_topics[name] = change

    def settle(self, wall_ms: int) -> None:
        """Bring state and subscribed topics in line with the tables (`course.settled`)."""
        state = self.current_state()
        if state is not self.state:
            self.state = state
            self.state_since_ms = wall_ms
        self.subscribed_topics = frozenset(self.subscribed_names())

    def current_state(self) -> State:
        """Its state (Kafka: ConsumerGroup.maybeUpdateGroupState)."""
        if self.state is DEAD:
            return DEAD
        if not self.members:
            return EMPTY
        if self.generation > self.target_epoch:
            return ASSIGNING
        return RECONCILING if self.unsettled else STABLE

    # Subscriptions.

    def subscribed_names(self) -> Iterator[str]:
        """The names of all topics that members subscribe to, by name or by regular expression."""
        yield from self.topic_members
        for regex in self.regex_members:
            resolved = self.regexes.get(regex)
            if resolved is not None:
                yield from resolved.topics

    def preferred_assignor(self) -> str | None:
        """The assignor with most votes; None without votes."""
        return best_assignor(self.assignors)

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state.value}, epoch={self.generation}, members={self.size})"


def names_of(member: ConsumerMember, regexes: Mapping[str, Resolved]) -> frozenset[str]:
    """The names of the topics that a member subscribes to."""
    resolved = regexes.get(member.regex) if member.regex else None
    return member.topics if resolved is None else member.topics | resolved.topics


def subtract(counts: Counter[str], names: frozenset[str] | tuple[str, ...]) -> None:
    """Count each of these names once less; a name that nobody has goes."""
    for name in names:
        if counts[name] == 1:
            del counts[name]
        else:
            counts[name] -= 1
