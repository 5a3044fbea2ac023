"""Groups, as an admin sees them: list, describe and delete them, remove members, fetch offsets.

Each function returns plain values; an error of one group or member is a value beside the results of the others.

House rule: this module hides the differences between servers and versions, above all how they report an unknown group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from coordinator.client.client import COORDINATOR_MOVED
from coordinator.client.errors import OtherKind, Refused
from coordinator.client.topics import partition_counts
from coordinator.group.consumer.group import AWAY
from coordinator.story.described import (
    NO_OFFSET,
    SHARE,
    Awaited,
    ConsumerSeat,
    ConsumerState,
    Expects,
    Member,
    Pending,
    StreamsSeat,
    Subtopology,
    Tasks,
    Topology,
    Waiting,
)
from coordinator.story.events import UnixMs, fields_of, one_of, says
from protocol.consumer import CONSUMER, decode_assignment, decode_subscription
from protocol.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.client.client import Client, Node
    from coordinator.client.topics import TopicPartition
    from protocol.messages import (
        ConsumerGroupDescribeResponse,
        DeleteGroupsResponse,
        DescribeGroupsResponse,
        DescribeShareGroupOffsetsResponse,
        LeaveGroupResponse,
        ListGroupsResponse,
        OffsetFetchResponse,
        ShareGroupDescribeResponse,
        StreamsGroupDescribeResponse,
    )

DEAD = "Dead"
STREAMS = "streams"
"""The kind of a streams group, which only Apache Kafka has (KIP-1071), as it alone has those of SHARE."""
CLASSIC_MEMBER = 0
"""ConsumerGroupDescribe's type of a member that speaks the classic protocol (KIP-1099)."""
LEAVE_REASON = "removed by an admin"
"""The reason that LeaveGroup sends from version 5 on (KIP-800)."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list. state and group_type are "" if the server is too old to send them.

    node_id: of its coordinator; None if there is none.
    """

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    node_id: int | None = None


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
    coordinator: Node
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


ByTopic = Annotated[dict[str, list[int]], says("partitions by topic")]


class ListedJson(Struct):
    """A group of a list, as JSON."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str


class SeatJson(Struct):
    """The names of a member and of its client, as JSON."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


class MemberJson(SeatJson, kw_only=True):
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


class AwaitedJson(SeatJson):
    """A member that a group waits for between two generations, as JSON."""

    session_timeout_ms: int | None
    silent_ms: int | None


class WaitingJson(Struct):
    """The members that a group waits for, as JSON: see Waiting."""

    since_ms: UnixMs
    until_ms: Annotated[int, says("the latest end of the wait, Unix time in ms")]
    is_held_open: Annotated[bool, says("whether the group waits for further members: group.initial.rebalance.delay.ms")]
    leader: Annotated[str | None, says("the member whose assignments the group waits for; null while members join")]
    members: Annotated[
        list[AwaitedJson], says("members that have not joined; if there is a leader, members that have not synced")
    ]
    pending: list[Pending]


class HeldUpJson(SeatJson):
    """A member that a group of the consumer protocol waits for, as JSON: see Awaited."""

    phase: Annotated[str, one_of(("revoking", "acknowledging", "away"))]
    partitions: Annotated[int, says("to give up; of a member that is away, those that it keeps")]
    since_ms: UnixMs | None
    until_ms: Annotated[int, says("when the member is removed, Unix time in ms")]


class PresentJson(Struct, kw_only=True):
    """The waits and the epochs of a group, as JSON; `tenure explain` has them beside a timeline."""

    waiting: Annotated[WaitingJson | None, says("null while the group waits for nobody")] = None
    expects: Annotated[Expects, says("missing if every expected member is there")] | UnsetType = UNSET
    group_type: (
        Annotated[str, one_of((CONSUMER, SHARE, STREAMS), "the protocol; missing in classic groups")] | UnsetType
    ) = UNSET
    group_epoch: Annotated[int, says("this and the next are of the consumer protocol")] | UnsetType = UNSET
    assignment_epoch: Annotated[int, says("the epoch of the target")] | UnsetType = UNSET
    state_since_ms: UnixMs | UnsetType | None = UNSET
    held_up_by: list[HeldUpJson] | UnsetType | None = UNSET
    regexes_without_topics: list[str] | UnsetType | None = UNSET


class CoordinatorJson(Struct):
    """A node as JSON."""

    node_id: int
    host: str
    port: int


class GroupJson(PresentJson, kw_only=True):
    """A group as JSON: see Group."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    coordinator: CoordinatorJson
    members: list[MemberJson]
    target_size: Annotated[int, says("seats (target.group.size); missing if there may be any number")] | UnsetType = (
        UNSET
    )
    topology: Annotated[Topology, says("of a streams group")] | UnsetType = UNSET


def listed_json(group: ListedGroup) -> dict[str, Any]:
    """A group of a list, as JSON."""
    return fields_of(ListedJson(group.group_id, group.group_type, group.protocol_type, group.state))


def group_json(group: Group) -> dict[str, Any]:
    """A group as JSON; a person reads it too, so its id comes first."""
    node = group.coordinator
    told = fields_of(
        GroupJson(
            group_id=group.group_id,
            state=group.state,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            coordinator=CoordinatorJson(node.node_id, node.address.host, node.address.port),
            members=[_member(member) for member in group.members],
            target_size=group.target_size or UNSET,
            topology=group.topology or UNSET,
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
    waiting, state = group.waiting, group.consumer
    fields: dict[str, Any] = {"expects": group.expects or UNSET}
    if waiting is not None:
        members = [AwaitedJson(*_seat(each), each.session_timeout_ms, each.silent_ms) for each in waiting.members]
        fields["waiting"] = WaitingJson(*waiting[:-2], members, waiting.pending)
    if state is not None:
        awaited = state.awaited
        fields |= {
            "group_type": group.kind or CONSUMER,
            "group_epoch": state.group_epoch,
            "assignment_epoch": state.target_epoch,
            "state_since_ms": state.since_ms,
            "held_up_by": None if awaited is None else [HeldUpJson(*_seat(each.member), *each[1:]) for each in awaited],
            "regexes_without_topics": state.regexes_without_topics,
        }
    return fields


def _seat(member: Member) -> tuple[str, str | None, str, str]:
    return member.member_id, member.group_instance_id, member.client_id, member.client_host


def _member(member: Member) -> MemberJson:
    told = MemberJson(*_seat(member), assignment=member.assignment)
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


def topics_of(groups: Iterable[Group]) -> set[str]:
    """The topics that members of these groups subscribe to."""
    return {topic for group in groups for member in group.members for topic in member.subscription or ()}


def list_groups(client: Client, states: Sequence[str] = ()) -> list[ListedGroup]:
    """Every group of the cluster, by group id; with `states` only groups in one of them, in any case (KIP-518)."""
    groups = []
    for listed, refused in _lists(client, states):
        if refused is not None:
            raise refused
        groups += listed
    return sorted(groups, key=lambda group: group.group_id)


def list_known_groups(client: Client) -> tuple[list[ListedGroup], list[Refused]]:
    """The groups that the nodes have at present, and the errors of nodes whose other groups load, move or have no log.

    Raises Refused for any other error.
    """
    groups, problems = [], []
    for listed, refused in _lists(client, ()):
        groups += listed
        if refused is not None:
            if refused.error_code not in COORDINATOR_MOVED:
                raise refused
            problems.append(refused)
    return sorted(groups, key=lambda group: group.group_id), problems


def _lists(client: Client, states: Sequence[str]) -> Iterator[tuple[list[ListedGroup], Refused | None]]:
    """The groups of each node, and its error: Tenure has groups beside it."""
    request = ListGroupsRequest(states_filter=list(states))
    for node in client.nodes():
        response: ListGroupsResponse = client.request(request, node, at_least=4 if states else 0)
        code = response.error_code
        listed = [
            ListedGroup(group.group_id, group.group_type, group.protocol_type, group.group_state, node.node_id)
            for group in response.groups
        ]
        yield listed, client.refused(code, f"list of groups on {node.address}", ListGroupsRequest) if code else None


def describe_groups(client: Client, group_ids: Iterable[str]) -> dict[str, Group | Refused]:
    """Each group or its error; GROUP_ID_NOT_FOUND for an unknown one (before version 6 a dead group, KIP-1043).

    DescribeGroups knows no group of the newer protocols, so those that it doesn't know are asked for once more.
    """
    answers = describe_classic_groups(client, group_ids)
    for ask in (describe_consumer_groups, describe_streams_groups, describe_share_groups):
        others = [group_id for group_id, answer in answers.items() if is_unknown(answer)]
        try:
            found = ask(client, others)
        except Refused as refused:
            if refused.error_code != ErrorCode.UNSUPPORTED_VERSION:  # that of a server older than this kind of group
                raise
        else:
            answers |= {group_id: answer for group_id, answer in found.items() if not is_unknown(answer)}
    return answers


def described_group(client: Client, group_id: str, besides: Collection[str] = ()) -> Group:
    """One group. Raises Refused, and OtherKind for a group of the kinds in `besides`."""
    answer = describe_groups(client, [group_id])[group_id]
    if isinstance(answer, Refused):
        raise answer
    if answer.kind in besides:
        raise OtherKind(group_id, answer.kind, answer.state)
    return answer


def is_unknown(answer: object) -> bool:
    """Whether there is no such group, of the protocol that was asked about."""
    return isinstance(answer, Refused) and answer.error_code in {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,  # of a group: its server has the protocol switched off
    }


def describe_consumer_groups(client: Client, group_ids: Iterable[str]) -> dict[str, Group | Refused]:
    """Groups of the consumer protocol (KIP-848). Raises Refused, UNSUPPORTED_VERSION, if the server is too old."""

    def results(response: ConsumerGroupDescribeResponse, node: Node) -> Iterator[tuple[str, int, Group]]:
        for group in response.groups:
            yield group.group_id, group.error_code, consumer_group_of(group, node)

    def request(asked: list[str]) -> ConsumerGroupDescribeRequest:
        return ConsumerGroupDescribeRequest(group_ids=asked, include_waiting=True)

    return client.ask_coordinators(group_ids, request, results)


def describe_streams_groups(client: Client, group_ids: Iterable[str]) -> dict[str, Group | Refused]:
    """Groups of Kafka Streams (KIP-1071). Raises Refused, UNSUPPORTED_VERSION, if the server is too old."""

    def results(response: StreamsGroupDescribeResponse, node: Node) -> Iterator[tuple[str, int, Group]]:
        topologies = [group.topology for group in response.groups if group.topology is not None]
        # Only where a task reads several topics may one of them lack the partition of the task.
        several = {
            topic for each in topologies for part in each.subtopologies or () if len(sources_of(part)) > 1
            for topic in sources_of(part)
        }  # fmt: skip
        counts = partition_counts(client, several) if several else {}
        for group in response.groups:
            yield group.group_id, group.error_code, streams_group_of(group, node, counts)

    return client.ask_coordinators(group_ids, lambda asked: StreamsGroupDescribeRequest(group_ids=asked), results)


def describe_share_groups(client: Client, group_ids: Iterable[str]) -> dict[str, Group | Refused]:
    """Share groups (KIP-932). Raises Refused, UNSUPPORTED_VERSION, if the server is too old."""

    def results(response: ShareGroupDescribeResponse, node: Node) -> Iterator[tuple[str, int, Group]]:
        for group in response.groups:
            yield group.group_id, group.error_code, share_group_of(group, node)

    return client.ask_coordinators(group_ids, lambda asked: ShareGroupDescribeRequest(group_ids=asked), results)


def describe_classic_groups(client: Client, group_ids: Iterable[str]) -> dict[str, Group | Refused]:
    """Groups of the classic protocol."""

    def results(response: DescribeGroupsResponse, node: Node) -> Iterator[tuple[str, int, Group]]:
        for group in response.groups:
            absent = group.group_state == DEAD and not group.error_code
            yield group.group_id, ErrorCode.GROUP_ID_NOT_FOUND if absent else group.error_code, group_of(group, node)

    def request(asked: list[str]) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=asked, include_waiting=True)

    return client.ask_coordinators(group_ids, request, results)


def delete_groups(client: Client, group_ids: Iterable[str]) -> dict[str, Refused | None]:
    """Delete each group with its offsets; None for success. A group with members gets NON_EMPTY_GROUP."""

    def results(response: DeleteGroupsResponse, _node: Node) -> Iterator[tuple[str, int, None]]:
        for result in response.results:
            yield result.group_id, result.error_code, None

    return client.ask_coordinators(group_ids, lambda asked: DeleteGroupsRequest(groups_names=asked), results)


def remove_members(client: Client, group_id: str, instance_ids: Sequence[str]) -> dict[str, int]:
    """Make static members leave, by instance id alone; error codes by instance id, 0 for success (KIP-345).

    An unknown instance id gets UNKNOWN_MEMBER_ID, and so does each instance id of an unknown group. Raises `Refused` if
    the coordinator refuses the whole request. Needs LeaveGroup version 3.
    """
    return remove_seats(client, group_id, dict.fromkeys(instance_ids, ""))


def remove_seats(client: Client, group_id: str, member_ids: Mapping[str, str]) -> dict[str, int]:
    """Make static members leave, as `remove_members` does, but only under these member ids, by instance id.

    A member that restarted meanwhile has another member id: it stays, with FENCED_INSTANCE_ID. "": any member id.
    """
    identities = [
        LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason=LEAVE_REASON)
        for instance_id, member_id in member_ids.items()
    ]

    def results(response: LeaveGroupResponse, _node: Node) -> Iterator[tuple[str, int, dict[str, int]]]:
        left = {member.group_instance_id or "": member.error_code for member in response.members}
        yield group_id, response.error_code, left

    request = LeaveGroupRequest(group_id=group_id, members=identities)
    answer = client.ask_coordinators([group_id], lambda _asked: request, results, at_least=3)[group_id]
    if isinstance(answer, Refused):
        raise answer
    return answer


Offsets = dict[str, dict[int, int]]
"""The committed offsets of a group, by topic and partition; NO_OFFSET where a client committed a number below 0.

Kafka's admin client reads it as none too (KAFKA-9507). kafkajs commits -2 to begin with the earliest record.
"""


def committed_offsets(client: Client, group_ids: Iterable[str]) -> dict[str, Offsets | Refused]:
    """Every committed offset of each group. Needs OffsetFetch version 8 (Kafka 3.0).

    From version 10 on, topics would come without their names.
    """

    def request(asked: list[str]) -> OffsetFetchRequest:
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in asked]
        return OffsetFetchRequest(groups=groups)

    def results(response: OffsetFetchResponse, _node: Node) -> Iterator[tuple[str, int, Offsets]]:
        for group in response.groups:
            offsets = {
                topic.name: {
                    partition.partition_index: offset if (offset := partition.committed_offset) >= 0 else NO_OFFSET
                    for partition in topic.partitions
                    if not partition.error_code
                }
                for topic in group.topics
            }
            yield group.group_id, group.error_code, offsets

    return client.ask_coordinators(group_ids, request, results, at_least=8, at_most=9)


class ShareOffsets(NamedTuple):
    """How far a share group is: the first records that it hasn't dealt with, and how many these are."""

    starts: Offsets
    lags: Mapping[str, Mapping[int, int | None]]


def share_offsets(client: Client, group_ids: Iterable[str]) -> dict[str, ShareOffsets | Refused]:
    """The offsets of share groups (KIP-932)."""

    def request(asked: list[str]) -> DescribeShareGroupOffsetsRequest:
        group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        return DescribeShareGroupOffsetsRequest(groups=[group(group_id=name, topics=None) for name in asked])

    def results(response: DescribeShareGroupOffsetsResponse, _node: Node) -> Iterator[tuple[str, int, ShareOffsets]]:
        for group in response.groups:
            known = {
                topic.topic_name: [each for each in topic.partitions if not each.error_code] for topic in group.topics
            }
            starts = {
                topic: {each.partition_index: max(each.start_offset, NO_OFFSET) for each in partitions}
                for topic, partitions in known.items()
            }
            lags = {
                topic: {each.partition_index: _told(each.lag) for each in partitions}
                for topic, partitions in known.items()
            }
            yield group.group_id, group.error_code, ShareOffsets(starts, lags)

    return client.ask_coordinators(group_ids, request, results)


def unstable_offsets(client: Client, groups: Sequence[Group]) -> dict[str, list[TopicPartition]]:
    """The topic partitions whose offsets are pending in transactions, by group; groups without them are left out.

    Those of the topics that members have are asked for by name: a server lists no partition that only has a pending
    offset. A group that can't be asked is left out.
    """
    by_id = {group.group_id: group for group in groups}

    def request(asked: list[str]) -> OffsetFetchRequest:
        return OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=_held_topics(by_id[name]))
                for name in asked
            ],
            require_stable=True,
        )

    def results(response: OffsetFetchResponse, _node: Node) -> Iterator[tuple[str, int, list[TopicPartition]]]:
        for group in response.groups:
            pending = [
                (topic.name, each.partition_index)
                for topic in group.topics
                for each in topic.partitions
                if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            ]
            yield group.group_id, group.error_code, sorted(pending)

    answers = client.ask_coordinators(by_id, request, results, at_least=8, at_most=9)
    return {name: answer for name, answer in answers.items() if answer and not isinstance(answer, Refused)}


def _held_topics(group: Group) -> list[OffsetFetchRequest.OffsetFetchRequestTopics] | None:
    """The topic partitions of a group's members; None, for all with offsets, if they have none."""
    pairs = sorted(pair for member in group.members for pair in member.topic_partitions)
    return [
        OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[index for _, index in some])
        for topic, some in groupby(pairs, itemgetter(0))
    ] or None


def group_of(described: DescribeGroupsResponse.DescribedGroup, node: Node) -> Group:
    """A description as a plain value. node: the coordinator of the group."""
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
    return Group(
        described.group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        node,
        members,
        _waiting(described.waiting, members),
        expects=_expects(described.expects),
        target_size=described.target_size,
    )


def _expects(told: DescribeGroupsResponse.GroupExpects) -> Expects | None:
    """The missing members that a server described; None if nobody is missing and no join is held."""
    return Expects(told.missing, told.held, _told(told.until_ms)) if told.missing or told.held else None


def consumer_group_of(described: ConsumerGroupDescribeResponse.DescribedGroup, node: Node) -> Group:
    """A description of a group of the consumer protocol as a plain value. node: the coordinator of the group."""
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
            Awaited(
                by_id[each.member_id],
                each.phase,
                each.partitions,
                None if each.since_ms < 0 else each.since_ms,
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
        node,
        members,
        consumer=state,
        expects=Expects(described.expects.missing, 0, None) if described.expects.missing else None,
    )


def sources_of(part: StreamsGroupDescribeResponse.Subtopology) -> list[str]:
    """The topics that a subtopology reads."""
    return sorted({*part.source_topics, *(topic.name for topic in part.repartition_source_topics)})


def streams_group_of(
    described: StreamsGroupDescribeResponse.DescribedGroup, node: Node, counts: Mapping[str, int]
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
        node,
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


def share_group_of(described: ShareGroupDescribeResponse.DescribedGroup, node: Node) -> Group:
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
        node,
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
            replace(member, client_id=seat.client_id, client_host=seat.client_host)
            for member in members
            if (seat := awaited.get(member.member_id)) is not None
        ],
        [Pending(each.member_id, each.client_id, each.client_host, each.lapses_ms) for each in told.pending],
    )
