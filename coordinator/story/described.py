"""A group, and a log that fails, as their server describes them: values, their JSON, and the reading of answers.

House rule: pure. `coordinator.client` asks for the description. OpenAPI has the fields of the JSON classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from coordinator.group.consumer.group import AWAY
from coordinator.story.events import Pending, UnixMs, fields_of, one_of, says
from coordinator.story.schema import STREAMS
from protocol.consumer import CONSUMER, decode_assignment, decode_subscription

if TYPE_CHECKING:
    from protocol.messages import (
        ConsumerGroupDescribeResponse,
        DescribeGroupsResponse,
        ShareGroupDescribeResponse,
        StreamsGroupDescribeResponse,
    )

CLASSIC_MEMBER = 0
"""ConsumerGroupDescribe's type of a member that speaks the classic protocol (KIP-1099)."""

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


class Tasks(Struct, frozen=True):
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


class Subtopology(Struct, frozen=True):
    """A part of a streams application; each of its partitions is a task."""

    subtopology_id: str
    source_topics: list[str]
    repartition_topics: list[str]
    changelog_topics: list[str]


class Topology(Struct, frozen=True):
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
    def named(self) -> tuple[str, str | None, str, str]:
        """Its names, and those of its client, in the order of `Named`."""
        return self.member_id, self.group_instance_id, self.client_id, self.client_host

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


class Named(Struct):
    """The names of a member and of its client."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class Awaited(Named):
    """A member that a group waits for between two generations, with the client that holds its seat now.

    The group's description has the client that took it first.
    """

    session_timeout_ms: int | None
    silent_ms: int | None


class Waiting(Struct, omit_defaults=True):
    """The members that a group waits for between two generations. text: the same in words; only HTTP has it."""

    since_ms: UnixMs
    until_ms: Annotated[int, says("the latest end of the wait, Unix time in ms")]
    is_held_open: Annotated[bool, says("whether the group waits for further members: group.initial.rebalance.delay.ms")]
    leader: Annotated[str | None, says("the member whose assignments the group waits for; null while members join")]
    members: Annotated[
        list[Awaited], says("members that have not joined; if there is a leader, members that have not synced")
    ]
    pending: list[Pending]
    text: list[str] = []


class HeldUp(Named):
    """A member that a group of the consumer protocol waits for."""

    phase: Annotated[str, one_of(("revoking", "acknowledging", "away"))]
    partitions: Annotated[int, says("to give up; of a member that is away, those that it keeps")]
    since_ms: UnixMs | None
    until_ms: Annotated[int, says("when the member is removed, Unix time in ms")]


class Expects(Struct, omit_defaults=True):
    """The expected members of a group that are missing, by instance id, and how many joins are held.

    until_ms: when the group stops holding joins for them; None if it holds none for them. text: as in Waiting.
    """

    missing: Annotated[list[str], says("instance ids of expected members that are not there")]
    held: Annotated[int, says("joins that wait")]
    until_ms: Annotated[int | None, says("when the wait for the missing ones ends, Unix time in ms; null if it has")]
    text: list[str] = []


class ConsumerState(NamedTuple):
    """The part that only groups of the consumer protocol have.

    since_ms: of the group's state, Unix time in ms. awaited: the members that hold others up.
    regexes_without_topics: regular expressions that match no topic. The server may not say these three: None.
    """

    group_epoch: int
    target_epoch: int
    since_ms: int | None = None
    awaited: list[HeldUp] | None = None
    regexes_without_topics: list[str] | None = None


class CoordinatorNode(Struct, frozen=True):
    """The server that coordinates a group, and where it listens."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Group:
    """A group with its members, sorted by instance id and member id.

    protocol_name: "" unless the group is stable; the assignor in a group of the consumer protocol.
    waiting: None if the group waits for nobody, or if its server is not Tenure and doesn't say.
    consumer: what only groups of the consumer protocol have, and share and streams groups too.
    expects: None if nobody is missing that the group expects, and no join is held.
    target_size: how many seats it has; 0 for any number.
    kind: SHARE, STREAMS, or "" for a group of consumers. topology: of a streams group.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    coordinator: CoordinatorNode
    members: list[Member]
    waiting: Waiting | None = None
    consumer: ConsumerState | None = None
    expects: Expects | None = None
    target_size: int = 0
    kind: str = ""
    topology: Topology | None = None

    @property
    def group_type(self) -> str:
        """As a list of groups names it."""
        return self.kind or ("classic" if self.consumer is None else CONSUMER)


def seated(members: Iterable[Member]) -> list[Member]:
    """The members that have seats: all but the standbys."""
    return [member for member in members if not member.is_standby]


class FailingLog(NamedTuple):
    """A topic partition whose log its server can't write or read, since a time (Unix time in ms), and why."""

    name: str
    since_ms: int
    reason: str


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


# A group as JSON, of whose classes OpenAPI is made.


ByTopic = Annotated[dict[str, list[int]], says("partitions by topic")]


class MemberJson(Named, kw_only=True):
    """A member as JSON: see Member. The last fields are only of members that have such a thing."""

    assignment: ByTopic | None
    member_epoch: Annotated[int, says("this and the next are of the consumer protocol")] | UnsetType = UNSET
    is_away: bool | UnsetType = UNSET
    target_assignment: ByTopic | UnsetType = UNSET
    subscribed_topics: list[str] | UnsetType = UNSET
    subscribed_regex: str | UnsetType | None = UNSET
    member_type: Annotated[str, one_of(("classic", CONSUMER, STREAMS))] | UnsetType = UNSET
    process_id: Annotated[str, says("this and the next three are of streams groups")] | UnsetType = UNSET
    topology_epoch: int | UnsetType = UNSET
    tasks: Annotated[Tasks, says("partition numbers by subtopology")] | UnsetType = UNSET
    target_tasks: Tasks | UnsetType = UNSET
    standby_ms: Annotated[int, says("of a standby: for how long it has waited for a seat")] | UnsetType = UNSET


class PresentJson(Struct, kw_only=True):
    """The waits and the epochs of a group, as JSON; `tenure explain` has them beside a timeline.

    held_up_text: `held_up_by` in words; only HTTP has it.
    """

    waiting: Annotated[Waiting | None, says("null while the group waits for nobody")] = None
    expects: Annotated[Expects, says("missing if every expected member is there")] | UnsetType = UNSET
    group_type: (
        Annotated[str, one_of((CONSUMER, SHARE, STREAMS), "the protocol; missing in classic groups")] | UnsetType
    ) = UNSET
    group_epoch: Annotated[int, says("this and the next are of the consumer protocol")] | UnsetType = UNSET
    assignment_epoch: Annotated[int, says("the epoch of the target")] | UnsetType = UNSET
    state_since_ms: UnixMs | UnsetType | None = UNSET
    held_up_by: list[HeldUp] | UnsetType | None = UNSET
    regexes_without_topics: list[str] | UnsetType | None = UNSET
    held_up_text: list[str] | UnsetType = UNSET


class GroupJson(PresentJson, kw_only=True):
    """A group as JSON: see Group."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    coordinator: CoordinatorNode
    members: list[MemberJson]
    target_size: Annotated[int, says("seats (target.group.size); missing if there may be any number")] | UnsetType = (
        UNSET
    )
    topology: Annotated[Topology, says("of a streams group")] | UnsetType = UNSET


def group_json(group: Group, held_up_text: Iterable[str] = ()) -> dict[str, Any]:
    """A group as JSON; a person reads it too, so its id comes first. held_up_text: as in PresentJson."""
    told = fields_of(
        GroupJson(
            group_id=group.group_id,
            state=group.state,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            coordinator=group.coordinator,
            members=[_member(member) for member in group.members],
            target_size=group.target_size or UNSET,
            topology=group.topology or UNSET,
            held_up_text=list(held_up_text) or UNSET,
            **_present(group),
        )
    )
    return dict(sorted(told.items(), key=lambda field: field[0] in PresentJson.__struct_fields__))


def present_json(group: Group) -> dict[str, Any]:
    """The waits and the epochs of a group, as JSON."""
    return fields_of(PresentJson(**_present(group)))


def member_json(member: Member) -> dict[str, Any]:
    """A member as JSON."""
    return fields_of(_member(member))


def _present(group: Group) -> dict[str, Any]:
    state = group.consumer
    fields: dict[str, Any] = {"waiting": group.waiting, "expects": group.expects or UNSET}
    if state is not None:
        fields |= {
            "group_type": group.kind or CONSUMER,
            "group_epoch": state.group_epoch,
            "assignment_epoch": state.target_epoch,
            "state_since_ms": state.since_ms,
            "held_up_by": state.awaited,
            "regexes_without_topics": state.regexes_without_topics,
        }
    return fields


def _member(member: Member) -> MemberJson:
    told = MemberJson(*member.named, assignment=member.assignment)
    seat, streams = member.seat, member.streams
    if seat is None:
        told.standby_ms = UNSET if member.standby_ms is None else member.standby_ms
        return told
    told.member_epoch, told.is_away = seat.epoch, seat.epoch == AWAY
    told.target_assignment = seat.target
    told.subscribed_topics, told.subscribed_regex = sorted(member.subscription or ()), seat.regex
    told.member_type = "classic" if seat.is_classic else CONSUMER if streams is None else STREAMS
    if streams is not None:
        told.process_id, told.topology_epoch = streams.process_id, streams.topology_epoch
        told.tasks, told.target_tasks = streams.tasks, streams.target_tasks
    return told


# A group as its coordinator's answer has it.


def group_of(described: DescribeGroupsResponse.DescribedGroup, coordinator: CoordinatorNode) -> Group:
    """A description as a plain value."""
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            decode_assignment(described.protocol_type, member.member_assignment),
            decode_subscription(described.protocol_type, member.member_metadata),
            session_timeout_ms=_told(member.session_timeout_ms),
            silent_ms=_told(member.silent_ms),
            standby_ms=_told(member.standby_ms),
        )
        for member in described.members
    ]
    members.sort(key=lambda member: (member.group_instance_id or "", member.member_id))
    told = described.expects
    return Group(
        described.group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        coordinator,
        members,
        _waiting(described.waiting, members),
        expects=Expects(told.missing, told.held, _told(told.until_ms)) if told.missing or told.held else None,
        target_size=described.target_size,
    )


def consumer_group_of(described: ConsumerGroupDescribeResponse.DescribedGroup, coordinator: CoordinatorNode) -> Group:
    """A description of a group of the consumer protocol as a plain value."""
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _by_topic(member.assignment),
            frozenset(member.subscribed_topic_names),
            ConsumerSeat(
                member.member_epoch,
                _by_topic(member.target_assignment),
                member.subscribed_topic_regex or None,
                member.member_type == CLASSIC_MEMBER,
            ),
            session_timeout_ms=_told(member.session_timeout_ms),
            silent_ms=_told(member.silent_ms),
        )
        for member in described.members
    ]
    members.sort(key=lambda member: (member.group_instance_id or "", member.member_id))
    state = ConsumerState(described.group_epoch, described.assignment_epoch)
    told = described.waiting
    if told.since_ms >= 0:
        by_id = {member.member_id: member for member in members}
        awaited = [
            HeldUp(
                *by_id[each.member_id].named,
                each.phase,
                each.partitions,
                _told(each.since_ms),
                each.until_ms,
            )
            for each in told.members
            if each.member_id in by_id
        ]
        awaited.sort(key=lambda each: (each.since_ms is None, each.since_ms or 0))
        state = state._replace(
            since_ms=told.since_ms, awaited=awaited, regexes_without_topics=told.regexes_without_topics
        )
    return Group(
        described.group_id,
        described.group_state,
        CONSUMER,
        described.assignor_name,
        coordinator,
        members,
        consumer=state,
        expects=Expects(described.expects.missing, 0, None) if described.expects.missing else None,
    )


def sources_of(part: StreamsGroupDescribeResponse.Subtopology) -> list[str]:
    """The topics that a subtopology reads."""
    return sorted({*part.source_topics, *(topic.name for topic in part.repartition_source_topics)})


def streams_group_of(
    described: StreamsGroupDescribeResponse.DescribedGroup, coordinator: CoordinatorNode, counts: Mapping[str, int]
) -> Group:
    """A description of a streams group as a plain value. counts: partitions of topics that a task reads beside others.

    The topic partitions of a member are those that its active tasks read.
    """
    topology = described.topology
    parts = [] if topology is None else topology.subtopologies or []
    sources = {part.subtopology_id: sources_of(part) for part in parts}

    def read(tasks: Iterable[StreamsGroupDescribeResponse.TaskIds]) -> dict[str, list[int]]:
        return {
            topic: sorted(index for index in each.partitions if index < counts.get(topic, index + 1))
            for each in tasks
            for topic in sources.get(each.subtopology_id, ())
        }

    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            read(member.assignment.active_tasks),
            frozenset(topic for topics in sources.values() for topic in topics) if parts else None,
            ConsumerSeat(
                member.member_epoch, read(member.target_assignment.active_tasks), None, is_classic=member.is_classic
            ),
            streams=StreamsSeat(
                member.process_id,
                member.topology_epoch,
                _tasks(member.assignment),
                _tasks(member.target_assignment),
            ),
        )
        for member in described.members
    ]
    members.sort(key=lambda member: (member.group_instance_id or "", member.client_id, member.member_id))
    return Group(
        described.group_id,
        described.group_state,
        STREAMS,
        "",
        coordinator,
        members,
        consumer=ConsumerState(described.group_epoch, described.assignment_epoch),
        kind=STREAMS,
        topology=None
        if topology is None
        else Topology(
            topology.epoch,
            [
                Subtopology(
                    part.subtopology_id,
                    sources[part.subtopology_id],
                    sorted(part.repartition_sink_topics),
                    sorted(topic.name for topic in part.state_changelog_topics),
                )
                for part in parts
            ],
        ),
    )


def _tasks(assignment: StreamsGroupDescribeResponse.Assignment) -> Tasks:
    def by_part(tasks: Iterable[StreamsGroupDescribeResponse.TaskIds]) -> dict[str, list[int]]:
        return {each.subtopology_id: sorted(each.partitions) for each in tasks}

    return Tasks(by_part(assignment.active_tasks), by_part(assignment.standby_tasks), by_part(assignment.warmup_tasks))


def share_group_of(described: ShareGroupDescribeResponse.DescribedGroup, coordinator: CoordinatorNode) -> Group:
    """A description of a share group as a plain value."""
    members = [
        Member(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            _by_topic(member.assignment),
            frozenset(member.subscribed_topic_names),
        )
        for member in described.members
    ]
    members.sort(key=lambda member: (member.client_id, member.member_id))
    return Group(
        described.group_id,
        described.group_state,
        SHARE,
        described.assignor_name,
        coordinator,
        members,
        consumer=ConsumerState(described.group_epoch, described.assignment_epoch),
        kind=SHARE,
    )


def _told(number: int) -> int | None:
    """A number that the server may not know; None for -1."""
    return None if number < 0 else number


def _by_topic(assignment: Any) -> dict[str, list[int]]:
    """The topic partitions of a member; two messages have assignments of this form."""
    return {
        topic.topic_name: sorted(topic.partitions)
        for topic in sorted(assignment.topic_partitions, key=lambda topic: topic.topic_name)
    }


def _waiting(told: DescribeGroupsResponse.GroupWaiting, members: list[Member]) -> Waiting | None:
    """The wait that a server described; None if it described none (since_ms is -1)."""
    if told.since_ms < 0:
        return None
    awaited = {each.member_id: each for each in told.members}
    return Waiting(
        told.since_ms,
        told.until_ms,
        told.is_held_open,
        told.leader or None,
        [
            Awaited(
                member.member_id,
                member.group_instance_id,
                seat.client_id,
                seat.client_host,
                member.session_timeout_ms,
                member.silent_ms,
            )
            for member in members
            if (seat := awaited.get(member.member_id)) is not None
        ],
        [Pending(each.member_id, each.client_id, each.client_host, each.lapses_ms) for each in told.pending],
    )
