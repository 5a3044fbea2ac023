"""A group, and a log that fails, as their server describes them now: the part that findings look at.

House rule: plain values. `coordinator.client` asks for the description.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

SHARE = "share"
"""The kind of a share group, which Apache Kafka has (KIP-932)."""


class ConsumerSeat(NamedTuple):
    """The part that only a member of a group of the consumer protocol has.

    target: topic -> partition indexes that it shall have. regex: its regular expression; None for none.
    is_classic: whether it speaks the classic protocol.
    """

    epoch: int
    target: dict[str, list[int]]
    regex: str | None
    is_classic: bool


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a member of a streams group: partition numbers by subtopology."""

    active: dict[str, list[int]]
    standby: dict[str, list[int]]
    warmup: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class StreamsSeat:
    """The part that only a member of a streams group has (KIP-1071). process_id: its threads' program."""

    process_id: str
    topology_epoch: int
    tasks: Tasks
    target_tasks: Tasks


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of a streams application; each of its partitions is a task."""

    subtopology_id: str
    source_topics: list[str]
    repartition_topics: list[str]
    changelog_topics: list[str]


@dataclass(frozen=True, slots=True)
class Topology:
    """A streams application. subtopologies: none while source topics are missing, or unfit."""

    epoch: int
    subtopologies: list[Subtopology]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group.

    client_host: as Kafka writes it, "/127.0.0.1".
    assignment: topic -> partition indexes; None where only the group's own clients can read it.
    subscription: the topics that it subscribes to; None likewise.
    seat: what only members of the consumer protocol have; None for others.
    session_timeout_ms, silent_ms: its session timeout, and how long ago its last request came; None where the server
    doesn't say (Apache Kafka). After a load of the group, silence counts from the load.
    standby_ms: for how long it has waited for a seat, as a standby (target.group.size); None if it is no standby.
    streams: what only members of streams groups have.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: dict[str, list[int]] | None
    subscription: frozenset[str] | None = None
    seat: ConsumerSeat | None = None
    session_timeout_ms: int | None = None
    silent_ms: int | None = None
    standby_ms: int | None = None
    streams: StreamsSeat | None = None

    @property
    def is_standby(self) -> bool:
        """Whether it waits for a seat (docs/run/seats.md)."""
        return self.standby_ms is not None

    @property
    def is_spare(self) -> bool:
        """Whether it has only standby or warm-up tasks of a streams group."""
        tasks = None if self.streams is None else self.streams.tasks
        return tasks is not None and not tasks.active and bool(tasks.standby or tasks.warmup)

    @property
    def topic_partitions(self) -> list[tuple[str, int]]:
        """The assigned topic partitions, in order."""
        return [(topic, index) for topic, indexes in (self.assignment or {}).items() for index in indexes]


class Expiry(NamedTuple):
    """The log keeps records before this offset for less than `within_ms`, by its retention.ms."""

    within_ms: int
    offset: int


class Ahead(NamedTuple):
    """Where the next record is for readers of committed records, as far as somebody looked from a committed offset on.

    is_record: whether a record is there, or was; else the look ended there. is_refused: whether the user may not look.
    made_ms: the newest timestamp of the record's batch, so the record is as old or older; None if nobody knows.
    """

    offset: int
    is_record: bool = False
    is_refused: bool = False
    made_ms: int | None = None


class BlockingTransaction(NamedTuple):
    """The open transaction at which readers of committed records wait. None stands for what the client may not know.

    start_offset: where they wait. transactional_id, until_ms: the id, and when its coordinator aborts it; None if no
    coordinator shows it as open. since_ms: when it began; without a coordinator when its producer last wrote.
    """

    start_offset: int
    transactional_id: str | None = None
    producer_id: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def producer_text(self) -> str:
        """The producer, by the best name that is known."""
        if self.transactional_id is not None:
            return f"transactional id {self.transactional_id}"
        return "a producer" if self.producer_id is None else f"producer id {self.producer_id}"


class OffsetLine(NamedTuple):
    """A topic partition of a group.

    member: None if the group only committed offsets for the topic partition. topic: None for a member that has no topic
    partition. current_offset: None if there is none, or if it is below 0. expiry: None if nobody knows. told_lag: where
    the server counts the records behind the end, because some before it are dealt with already (share groups).
    stable_offset: where readers of committed records stop, if a transaction keeps them from the end of the log. No
    request of a group tells its members' isolation.level, so both lags may be the one that counts. ahead: None if
    nobody looked for the next record. holder: the transaction at stable_offset; None if nobody asked for it.
    """

    topic: str | None
    partition: int | None
    current_offset: int | None
    log_end_offset: int | None
    member: Member | None
    log_start_offset: int | None = None
    expiry: Expiry | None = None
    told_lag: int | None = None
    stable_offset: int | None = None
    ahead: Ahead | None = None
    holder: BlockingTransaction | None = None

    @property
    def pair(self) -> tuple[str, int] | None:
        """The topic partition, if there is one."""
        return None if self.topic is None or self.partition is None else (self.topic, self.partition)

    @property
    def position(self) -> int:
        """The committed offset, or the offset up to which nothing behind it can be read."""
        return (self.current_offset or 0) if self.ahead is None else self.ahead.offset

    @property
    def is_held(self) -> bool:
        """Whether an open transaction keeps readers of committed records from reading on."""
        return self.stable_offset is not None and self.stable_offset <= self.position

    @property
    def has_all(self) -> bool:
        """Whether nothing between the committed offset and the end of the log can be read."""
        return self.ahead is not None and self.log_end_offset is not None and self.log_end_offset <= self.position

    @property
    def stable_lag(self) -> int | None:
        """The lag of readers of committed records: records of open transactions don't count."""
        if self.stable_offset is None or self.current_offset is None or self.told_lag is not None:
            return self.lag
        return max(self.stable_offset - self.position, 0)

    @property
    def lag(self) -> int | None:
        """Records behind the end; negative if the committed offset is beyond the end, as in Kafka's tool."""
        if self.told_lag is not None:
            return self.told_lag
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.position

    @property
    def has_no_end(self) -> bool:
        """Whether nobody says where the log ends."""
        return self.log_end_offset is None

    @property
    def is_beyond_end(self) -> bool:
        """Whether the committed offset lies beyond the end of the log: its records are elsewhere, or were deleted."""
        return self.lag is not None and self.lag < 0


NO_OFFSET = -1
"""An offset that a column has no number for."""


class TopicOffsets(NamedTuple):
    """The topic partitions of a group that are of one topic, in columns: there may be 100,000 of them.

    indexes: in order. members, offsets, ends: of each, as those of a line; NO_OFFSET in place of None. lines: by index,
    of those that may have records to read. Of the others the columns say all.
    """

    indexes: Sequence[int]
    members: Sequence[Member | None]
    offsets: Sequence[int]
    ends: Sequence[int]
    lines: Mapping[int, OffsetLine]

    def all_lines(self, topic: str) -> Iterator[OffsetLine]:
        """A line for each topic partition."""
        for index, member, offset, end in zip(self.indexes, self.members, self.offsets, self.ends, strict=True):
            yield self.lines.get(index) or OffsetLine(topic, index, offset, end, member)


GroupOffsets = Mapping[str, TopicOffsets]
"""The offsets of a group, by topic."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A member id that no client has used yet. lapses_ms: when the coordinator takes it back, Unix time in ms."""

    member_id: str
    client_id: str
    client_host: str
    lapses_ms: Annotated[int, "Unix time in ms"]


class Waiting(NamedTuple):
    """The members that a group waits for between two generations.

    since_ms, until_ms: Unix time in ms; until_ms is the latest end.
    is_held_open: the group waits for any member that may come (group.initial.rebalance.delay.ms).
    leader: the member id whose assignments the group waits for; None while members join.
    members: members that have not joined; with a leader, members that have not synced. Each has the client that holds
    its seat now; the group's description has the client that took it first.
    """

    since_ms: int
    until_ms: int
    is_held_open: bool
    leader: str | None
    members: list[Member]
    pending: list[Pending]


@dataclass(frozen=True, slots=True)
class Expects:
    """The expected members of a group that are missing, by instance id, and how many joins are held.

    until_ms: when the group stops holding joins for them, Unix time in ms; None if it holds none for them.
    """

    missing: Annotated[list[str], "instance ids of expected members that are not there"]
    held: Annotated[int, "joins that wait"]
    until_ms: Annotated[int | None, "when the wait for the missing ones ends, Unix time in ms; null if it has"]


class Awaited(NamedTuple):
    """A member that a group of the consumer protocol waits for.

    phase: revoking, acknowledging (course.Phase), or away. partitions: how many it must give up; those that it keeps
    while it is away. since_ms: Unix time in ms; None if nobody knows. until_ms: when it is removed.
    """

    member: Member
    phase: str
    partitions: int
    since_ms: int | None
    until_ms: int


class ConsumerState(NamedTuple):
    """The part that only groups of the consumer protocol have.

    since_ms: of the group's state, Unix time in ms. awaited: the members that hold others up.
    regexes_without_topics: regular expressions that match no topic. The server may not say these three: None.
    """

    group_epoch: int
    target_epoch: int
    since_ms: int | None = None
    awaited: list[Awaited] | None = None
    regexes_without_topics: list[str] | None = None


class FailingLog(NamedTuple):
    """A topic partition whose log its server can't write or read, since a time (Unix time in ms), and why."""

    name: str
    since_ms: int
    reason: str


class HoldingTransaction(NamedTuple):
    """A transaction in whose partition of `__consumer_offsets` offsets of a group are pending.

    transactional_id, until_ms: the id, and when its coordinator aborts it; None if no coordinator shows it as open.
    start_offset: where it begins there, -1 if the client may not know. since_ms: when its producer last wrote there.
    offsets: the group's topic partitions with pending offsets, of all producers.
    """

    transactional_id: str | None
    producer_id: int
    partition: int
    start_offset: int
    since_ms: int
    until_ms: int | None
    offsets: Sequence[tuple[str, int]] = ()


class StoreHealth(NamedTuple):
    """How the store that the nodes of a cluster share does, as a node sees it.

    calls, slow, lost, longest_ms: in the last minute: calls, those above 100 ms, those without an answer, the longest
    answer. used, quota: bytes of the store in use (0: not known yet), and the most that it may have.
    """

    calls: int
    slow: int
    lost: int
    longest_ms: int
    used: int
    quota: int


class DescribedGroup(Protocol):
    """A group with its members. waiting: None where it waits for nobody, or its server doesn't say."""

    @property
    def group_id(self) -> str:
        """Its id."""

    @property
    def state(self) -> str:
        """As Kafka names it: Stable, PreparingRebalance, ..."""

    @property
    def kind(self) -> str:
        """SHARE, or that of streams groups; empty for a group of consumers."""

    @property
    def members(self) -> list[Member]:
        """In the order of instance id and member id."""

    @property
    def waiting(self) -> Waiting | None:
        """The members that it waits for."""

    @property
    def expects(self) -> Expects | None:
        """The members that it expects and that are missing; None if none are."""

    @property
    def target_size(self) -> int:
        """How many seats it has (target.group.size); 0 for any number, or if its server doesn't say."""

    @property
    def consumer(self) -> ConsumerState | None:
        """The part that only groups of the consumer protocol have; None for others."""


def seated(members: Iterable[Member]) -> list[Member]:
    """The members that have seats: all but the standbys."""
    return [member for member in members if not member.is_standby]
