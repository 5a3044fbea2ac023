"""A group and its members: the data of the core.

Methods here keep the group's own books: which instance id maps to which member id, how many members wait in JoinGroup,
which protocols they prefer, who leads. They decide, answer and write nothing; the rules do that.

House rule: only methods of `Group` change `members`, `blocks`, `static_members`, `preferences`, `support` and
`joined_count`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress, repeat
from operator import eq, itemgetter
from typing import ClassVar, NamedTuple

from coordinator.group.any_group import AnyGroup
from coordinator.group.client import ANONYMOUS, Client
from coordinator.group.course import Course, Pending
from coordinator.group.events import JoinGroup
from coordinator.group.refusal import Refusal
from coordinator.group.state import DEAD, EMPTY, NEXT, PREPARING_REBALANCE, Kind, State
from coordinator.group.vote import winner
from protocol.consumer import CONSUMER
from protocol.errors import ProtocolError
from protocol.messages import ConsumerProtocolSubscription, decode

NEVER = 2**63 - 1
"""A deadline that never comes."""

BLOCK_MEMBERS_MAX = 16
"""Members in a block. In a group of a thousand, a restart then joins about as many blocks as a block has members."""

METADATA_KEPT_MAX = 1024
METADATA_KEPT_BYTES_MAX = 1024
"""How many consumers' metadata the cache holds after decoding, and how long they may be: about a megabyte."""

TOPICS_READ_MAX = 100_000
"""How many subscribed topics a generation may have to be read: about 15 ms. Above, its subscriptions are unknown."""

TOPIC_BYTES_MIN = 2
"""The fewest bytes of a topic in metadata: the length of an empty name."""

NAME = itemgetter(0)
"""Takes the name of a protocol. In `map` it needs no line of Python per protocol."""


class Waiting(NamedTuple):
    """A request without an answer yet, and the version to answer it in."""

    request: Hashable
    version: int


class Block:
    """Neighbours among the members of a group, and so in its record.

    encoded: their bytes in the record (records.block_bytes), None if a change made them stale.
    """

    __slots__ = ("encoded", "members")

    def __init__(self) -> None:
        self.encoded: bytes | None = None
        self.members: list[Member] = []


@dataclass(slots=True, eq=False, repr=False)
class Member:
    """A member of a group (Kafka: MemberMetadata).

    protocols: (name, metadata) in the member's order of preference.
    assignment: for the group's generation; empty until the leader's assignments come.
    is_asked: got REBALANCE_IN_PROGRESS from a heartbeat or sync since its last join, so that it joins again.
    is_new: has not completed a first join yet; its timer then limits the wait itself.
    called_until_ms: until when a standby that got this seat may join and sync to take it; None for other members.
    may_lack_seat: a standby that got this seat has synced, and has sent no heartbeat since: its answer may be lost.
    beat: the last heartbeat that got NONE (heartbeat.remember). None after anything that may change the answer: the
    group rebalances or is Dead, or another member id has the seat.
    deadline_ms: when its session ends without another heartbeat, on the clock of `Now.ms`.
    timer_at_ms: when its timer looks at the deadline; NEVER if none is armed. A heartbeat moves the deadline only.
    encoded: its bytes in the group's record but for the assignment (records.member_bytes), None if a change made them
    stale.
    block: its block, once it is in a group.
    client_id, client_host: of the client that first took the seat, as Kafka describes and stores it.
    joined_by: the sender of its last JoinGroup, None if it was read from the log.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    is_asked: bool = False
    is_new: bool = False
    awaiting_join: Waiting | None = None
    awaiting_sync: Waiting | None = None
    beat: Hashable | None = None
    called_until_ms: int | None = None
    may_lack_seat: bool = False
    deadline_ms: int = NEVER
    timer_at_ms: int = NEVER
    encoded: bytes | None = None
    block: Block | None = None
    joined_by: Client | None = None

    def changed(self) -> None:
        """Mark its bytes in the group's record as stale."""
        self.encoded = None
        if self.block is not None:
            self.block.encoded = None

    @property
    def client(self) -> tuple[str, str]:
        """Client id and host of the client that has the seat; after a load, of the client that first took it."""
        by = self.joined_by
        return (self.client_id, self.client_host) if by is None else by[:2]

    @property
    def named(self) -> tuple[str, str | None, str, str]:
        """Its member id, instance id, client id and client host, in the order of the fields of notes."""
        return (self.member_id, self.group_instance_id, *self.client)

    @property
    def principal(self) -> str:
        """The principal of the client that has the seat; unknown after a load, as the log has none."""
        by = self.joined_by
        return ANONYMOUS if by is None else by.principal

    @property
    def is_static(self) -> bool:
        """Whether it has an instance id (KIP-345)."""
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str) -> bytes:
        """Its metadata for `protocol_name`, which it supports."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError((self.member_id, protocol_name))

    def __repr__(self) -> str:
        return f"Member({self.member_id!r}, group_instance_id={self.group_instance_id!r})"


class Standby(NamedTuple):
    """A member that waits for a seat (`classic.seats`). since_ms: since when, on the clock of `Now.ms`."""

    member: Member
    since_ms: int


class Held(NamedTuple):
    """A JoinGroup that waits outside the group (`classic.expected`).

    until_ms: when its client has to ask again, on the clock of `Now.ms`.
    """

    event: JoinGroup
    member_id: str
    until_ms: int

    @property
    def key(self) -> tuple[bool, str]:
        """The client's key, equal for all its joins: its instance id, else its member id."""
        name = self.event.body.group_instance_id
        return (False, self.member_id) if name is None else (True, name)


@dataclass(slots=True, eq=False, repr=False)
class Arrivals:
    """The joins that a group holds, and the members that it holds them for; only `classic.expected` changes it.

    held: in the order of their first arrival.
    awaited: the expected members that are missing; None while nothing is held for them.
    until_ms: when the wait for them ends. given_up: expected members for whom an earlier wait ended in vain.
    timer_at_ms: when the timer fires; None if it doesn't run.
    """

    held: dict[tuple[bool, str], Held] = field(default_factory=dict)
    awaited: set[str] | None = None
    until_ms: int = 0
    given_up: set[str] = field(default_factory=set)
    timer_at_ms: int | None = None

    @property
    def names(self) -> set[str | None]:
        """The instance ids of the held joins; None for dynamic members."""
        return {each.event.body.group_instance_id for each in self.held.values()}


class NoUpgrade(NamedTuple):
    """A refusal of members of the consumer protocol that holds until a time on the clock of `Now.ms`."""

    until_ms: int
    refusal: Refusal


@dataclass(slots=True, eq=False, repr=False)
class Group(AnyGroup):
    """A group of the classic protocol (Kafka: GroupMetadata).

    protocol_name: None while there are no members.
    generation: 0 until the first rebalance completed.
    leader: a member id, None while there are no members.
    blocks: the members in their order, some at a time.
    pending: member ids that no client has used yet (KIP-394), and the clients that got them.
    pending_sync: member ids that joined this generation and have not synced.
    joined_count: how many members wait in JoinGroup.
    preferences: protocol names in a member's order -> number of such members.
    support: protocol name -> number of preferences that list it.
    subscribed_topics: as of the last generation.
    initial_delay: while an empty group holds its first rebalance open (KIP-134), else None.
    served_ms: when it was served first after a load, on the clock of `Now.ms`; None if it was never loaded.
    course: facts about the open rebalance, for notes; no rule reads it.
    arrivals: the joins that are held for expected members; None if the group has never held one.
    no_upgrade: while a large group does not become one of the consumer protocol. waits_for_upgrade: the last generation
    with a note that an upgrade is put off.
    target_size: how many seats it has (target.group.size), as of its last change or join; 0: any number.
    standbys: by member id, the one that waits longest first; they are no members.
    """

    kind: ClassVar = Kind.CLASSIC

    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    pending: dict[str, Pending] = field(default_factory=dict)
    pending_sync: set[str] = field(default_factory=set)
    joined_count: int = 0
    preferences: dict[tuple[str, ...], int] = field(default_factory=dict)
    support: dict[str, int] = field(default_factory=dict)
    initial_delay: InitialDelay | None = None
    new_member_added: bool = False
    course: Course | None = None
    served_ms: int | None = None
    no_upgrade: NoUpgrade | None = None
    waits_for_upgrade: int = -1
    target_size: int = 0
    standbys: dict[str, Standby] = field(default_factory=dict)
    arrivals: Arrivals | None = None

    @property
    def pending_size(self) -> int:
        """See AnyGroup."""
        return len(self.pending)

    @property
    def is_awaited(self) -> bool:
        """See AnyGroup."""
        return self.arrivals is not None and bool(self.arrivals.held)

    def transition_to(self, state: State, wall_ms: int) -> None:
        """Change the state. No other code does."""
        assert state in NEXT[self.state], (self.group_id, self.state, state)
        self.state = state
        self.state_since_ms = wall_ms
        if state is PREPARING_REBALANCE or state is DEAD:
            for member in self.members.values():
                member.beat = None

    # Members.

    def add(self, member: Member, waiting: Waiting | None = None) -> None:
        """Add a member that waits in JoinGroup, or one read from the log (`waiting` None)."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._place_last(member)
        self._count(member.protocols, +1)
        self._set_awaiting_join(member, waiting)
        self.pending.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        """Remove a member that waits for nothing. If it led, the member that joined first leads."""
        assert member.awaiting_join is None
        assert member.awaiting_sync is None
        del self.members[member.member_id]
        member.beat = None
        self._displace(member)
        self._count(member.protocols, -1)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self.pending_sync.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member's seat to `member_id`: same assignment, same lead, but last in order.

        `pending_sync` keeps the old id, as Kafka's does: the group still waits for a member that restarts in Stable
        before it ever synced.
        """
        assert member.group_instance_id is not None
        assert member_id not in self.members
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        member.beat = None
        self._displace(member)
        self.members[member_id] = member
        self._place_last(member)
        self.static_members[member.group_instance_id] = member_id

    def update(
        self,
        member: Member,
        protocols: list[tuple[str, bytes]],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        waiting: Waiting | None,
    ) -> None:
        """Take over the data of a member that joins again."""
        if (member.rebalance_timeout_ms, member.session_timeout_ms, member.protocols) != (
            rebalance_timeout_ms,
            session_timeout_ms,
            protocols,
        ):
            self._count(member.protocols, -1)
            member.protocols = protocols
            self._count(protocols, +1)
            member.rebalance_timeout_ms = rebalance_timeout_ms
            member.session_timeout_ms = session_timeout_ms
            member.changed()
        member.called_until_ms = None
        member.may_lack_seat = False
        member.is_asked = False
        if waiting is not member.awaiting_join:
            self._set_awaiting_join(member, waiting)

    def all_changed(self) -> None:
        """Mark every member's bytes in the record as stale."""
        for member in self.members.values():
            member.encoded = None
        for block in self.blocks:
            block.encoded = None

    def assign(self, given: Mapping[str, bytes]) -> None:
        """Give members their assignments, by member id; the others get an empty one."""
        for member in self.members.values():
            member.assignment = given.get(member.member_id, b"")
        for block in self.blocks:
            block.encoded = None

    def _place_last(self, member: Member) -> None:
        """Put a member that is last in `members` into the last block."""
        if not self.blocks or len(self.blocks[-1].members) == BLOCK_MEMBERS_MAX:
            self.blocks.append(Block())
        member.block = block = self.blocks[-1]
        block.members.append(member)
        block.encoded = None

    def _displace(self, member: Member) -> None:
        """Take a member out of its block."""
        block = member.block
        assert block is not None
        member.encoded = block.encoded = member.block = None
        block.members.remove(member)
        if not block.members:
            self.blocks.remove(block)

    def holder_of(self, instance_id: str) -> Member | None:
        """The member or the standby that has this instance id, if there is one."""
        if instance_id in self.static_members:
            return self.members[self.static_members[instance_id]]
        waiting = self.standby_named(instance_id)
        return None if waiting is None else waiting.member

    def standby_named(self, instance_id: str) -> Standby | None:
        """The standby that has this instance id, if there is one."""
        return next((each for each in self.standbys.values() if each.member.group_instance_id == instance_id), None)

    def close(self) -> None:
        """Cut the references between members and blocks, so that their memory is freed at once.

        Nobody may use the group after this.
        """
        for member in self.members.values():
            member.beat = member.block = None
        self.members.clear()
        self.blocks.clear()
        self.standbys.clear()

    def take_join(self, member: Member) -> Waiting | None:
        """Take the JoinGroup that `member` waits in, if there is one. The caller answers it."""
        waiting = member.awaiting_join
        self._set_awaiting_join(member, None)
        return waiting

    def take_joins(self) -> list[tuple[Member, Waiting]]:
        """Take every waiting JoinGroup, with its member. The caller answers them."""
        taken = []
        for member in self.members.values():
            waiting = member.awaiting_join
            if waiting is not None:
                member.awaiting_join = None
                taken.append((member, waiting))
        self.joined_count = 0
        return taken

    def _set_awaiting_join(self, member: Member, waiting: Waiting | None) -> None:
        self.joined_count += (waiting is not None) - (member.awaiting_join is not None)
        member.awaiting_join = waiting

    @property
    def all_joined(self) -> bool:
        """Whether every member waits in JoinGroup, and no member id is unused."""
        return self.joined_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of a member; a negative one counts as 0."""
        return max([0, *[member.rebalance_timeout_ms for member in self.members.values()]])

    # Protocols.

    def _count(self, protocols: Iterable[tuple[str, bytes]], step: int) -> None:
        names = tuple(map(NAME, protocols))
        count = self.preferences.get(names, 0) + step
        if count:
            self.preferences[names] = count
        else:
            del self.preferences[names]
        # Only a first or last member with these names changes their support: a client may list a thousand.
        support = self.support
        if not count:
            for name in dict.fromkeys(names):
                if support[name] == 1:
                    support.pop(name)
                else:
                    support[name] -= 1
        elif count == step:
            for name in dict.fromkeys(names):
                support[name] = support.get(name, 0) + 1

    def _candidates(self, names: Collection[str]) -> Iterator[str]:
        """The names among these that all members list."""
        # Without a line of Python per name: there may be a thousand for each member.
        return compress(names, map(eq, map(self.support.get, names), repeat(len(self.preferences))))

    def all_support(self, protocol_name: str) -> bool:
        """Whether every member lists `protocol_name`."""
        return self.support.get(protocol_name, 0) == len(self.preferences)

    def supports(self, protocol_type: str, protocols: list[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols fits: the group's type, and a name that all members list."""
        if self.state is EMPTY and not self.members:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        if len(self.preferences) == 1 and tuple(map(NAME, protocols)) in self.preferences:
            return bool(protocols)
        return next(self._candidates(list(map(NAME, protocols))), None) is not None

    def select_protocol(self) -> str:
        """The protocol name that the members vote for (`vote`)."""
        if len(self.preferences) == 1:
            ((name, *_),) = self.preferences
            return name
        votes: dict[str, int] = {}
        for names, count in self.preferences.items():
            choice = next(self._candidates(names))
            votes[choice] = votes.get(choice, 0) + count
        return next(iter(votes)) if len(votes) == 1 else winner(votes)

    def metadata(self) -> list[bytes]:
        """Each member's metadata for the group's protocol, in their order."""
        name = self.protocol_name
        assert name is not None
        if len(self.preferences) == 1:
            (names,) = self.preferences
            place = names.index(name)
            return [member.protocols[place][1] for member in self.members.values()]
        return [member.metadata(name) for member in self.members.values()]

    def find_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None if they are no consumers, or metadata can't be read."""
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        said = set(self.metadata())
        if not _can_read(said):
            return None
        if len(said) == 1:
            return subscribed_topics(said.pop())
        topics: set[str] = set()
        for metadata in said:
            subscribed = subscribed_topics(metadata)
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def __repr__(self) -> str:
        return (
            f"Group({self.group_id!r}, {self.state.value}, generation={self.generation}, members={len(self.members)})"
        )


def _can_read(metadata: Collection[bytes]) -> bool:
    """Whether consumers' metadata name at most TOPICS_READ_MAX topics."""
    if sum(map(len, metadata)) <= TOPIC_BYTES_MIN * TOPICS_READ_MAX:
        return True
    # The number of topics stands behind a 16-bit version.
    return sum(int.from_bytes(each[2:6]) for each in metadata) <= TOPICS_READ_MAX


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a consumer's metadata; None if they can't be read, or are too many."""
    if not _can_read((metadata,)):
        return None
    # Most members have the same metadata as others, and share its decoded form.
    return _read_again(metadata) if len(metadata) <= METADATA_KEPT_BYTES_MAX else _read_topics(metadata)


def _read_topics(metadata: bytes) -> frozenset[str] | None:
    try:
        # Every later version of the subscription starts with version 0, behind a 16-bit version.
        return frozenset(decode(ConsumerProtocolSubscription, metadata, 0, 2).topics)
    except ProtocolError:
        return None


_read_again = lru_cache(METADATA_KEPT_MAX)(_read_topics)


class InitialDelay(NamedTuple):
    """How long the first rebalance stays open (Kafka: InitialDelayedJoin).

    delay_ms: of the current wait. remaining_ms: what later waits may still take.
    """

    delay_ms: int
    remaining_ms: int
