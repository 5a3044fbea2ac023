"""Groups, as an admin sees them: list, describe and delete them, remove members, fetch offsets.

Each function returns plain values; an error of one group or member is a value beside the results of the others.

House rule: this module hides the differences between servers and versions, above all how they report an unknown group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct, to_builtins

from coordinator.client.client import COORDINATOR_MOVED, Client, Node
from coordinator.client.errors import OtherKind, Refused
from coordinator.client.topics import Leaders, TopicPartition
from coordinator.story.described import (
    CoordinatorNode,
    Group,
    consumer_group_of,
    group_of,
    share_group_of,
    sources_of,
    streams_group_of,
)
from coordinator.story.offsets import NO_OFFSET
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
    from protocol.messages import (
        DeleteGroupsResponse,
        DescribeGroupsResponse,
        DescribeShareGroupOffsetsResponse,
        LeaveGroupResponse,
        ListGroupsResponse,
        OffsetFetchResponse,
        StreamsGroupDescribeResponse,
    )

Result = TypeVar("Result")

DEAD = "Dead"
LEAVE_REASON = "removed by an admin"
"""The reason that LeaveGroup sends from version 5 on (KIP-800)."""


class ListedGroup(Struct, frozen=True):
    """A group in a list. state and group_type are "" if the server is too old to send them.

    node_id: of its coordinator; None if there is none.
    """

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    node_id: int | None = None


def listed_json(group: ListedGroup) -> dict[str, Any]:
    """A group of a list, as JSON."""
    told: dict[str, Any] = to_builtins(group)
    del told["node_id"]
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

    DescribeGroups knows no group of the newer protocols (KIP-848, KIP-1071, KIP-932), so those that it doesn't know are
    asked for once more.
    """
    answers = client.ask_coordinators(group_ids, describe_request, _classic_groups)
    newer = (
        (lambda asked: ConsumerGroupDescribeRequest(group_ids=asked, include_waiting=True), of_each(consumer_group_of)),
        (lambda asked: StreamsGroupDescribeRequest(group_ids=asked), partial(_streams_groups, client)),
        (lambda asked: ShareGroupDescribeRequest(group_ids=asked), of_each(share_group_of)),
    )
    for request, results in newer:
        others = [group_id for group_id, answer in answers.items() if is_unknown(answer)]
        try:
            found = client.ask_coordinators(others, request, results)
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


def _classic_groups(response: DescribeGroupsResponse, node: Node) -> Iterator[tuple[str, int, Group]]:
    for group_id, code, group in of_each(group_of)(response, node):
        yield group_id, ErrorCode.GROUP_ID_NOT_FOUND if group.state == DEAD and not code else code, group


def _streams_groups(
    client: Client, response: StreamsGroupDescribeResponse, node: Node
) -> Iterator[tuple[str, int, Group]]:
    topologies = [group.topology for group in response.groups if group.topology is not None]
    # Only where a task reads several topics may one of them lack the partition of the task.
    several = {
        topic for each in topologies for part in each.subtopologies or () if len(sources_of(part)) > 1
        for topic in sources_of(part)
    }  # fmt: skip
    counts = Leaders().counts(client, several) if several else {}
    return of_each(partial(streams_group_of, counts=counts))(response, node)


def describe_request(asked: list[str]) -> DescribeGroupsRequest:
    """Asks for groups of the classic protocol, with all that Tenure tells."""
    return DescribeGroupsRequest(groups=asked, include_waiting=True)


def of_each(read: Callable[[Any, CoordinatorNode], Result]) -> Callable[[Any, Node], Iterator[tuple[str, int, Result]]]:
    """Reads an answer with a list of groups. read: gets a group of it, and the coordinator."""

    def results(response: Any, node: Node) -> Iterator[tuple[str, int, Result]]:
        coordinator = CoordinatorNode(node.node_id, *node.address)
        for group in response.groups:
            yield group.group_id, group.error_code, read(group, coordinator)

    return results


def delete_groups(client: Client, group_ids: Iterable[str]) -> dict[str, Refused | None]:
    """Delete each group with its offsets; None for success. A group with members gets NON_EMPTY_GROUP."""

    def results(response: DeleteGroupsResponse, _node: Node) -> Iterator[tuple[str, int, None]]:
        for result in response.results:
            yield result.group_id, result.error_code, None

    return client.ask_coordinators(group_ids, lambda asked: DeleteGroupsRequest(groups_names=asked), results)


def remove_seats(client: Client, group_id: str, member_ids: Mapping[str, str]) -> dict[str, int]:
    """Make static members leave; error codes by instance id, 0 for success (KIP-345).

    member_ids: by instance id; "" for any. A member that restarted meanwhile has another member id than its former one:
    it stays, with FENCED_INSTANCE_ID.
    An unknown instance id gets UNKNOWN_MEMBER_ID, and so does each instance id of an unknown group. Raises `Refused` if
    the coordinator refuses the whole request. Needs LeaveGroup version 3.
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

    def offsets(group: OffsetFetchResponse.OffsetFetchResponseGroup, _: CoordinatorNode) -> Offsets:
        return {
            topic.name: {
                partition.partition_index: offset if (offset := partition.committed_offset) >= 0 else NO_OFFSET
                for partition in topic.partitions
                if not partition.error_code
            }
            for topic in group.topics
        }

    return client.ask_coordinators(group_ids, request, of_each(offsets), at_least=8, at_most=9)


class ShareOffsets(NamedTuple):
    """How far a share group is: the first records that it hasn't dealt with, and how many these are."""

    starts: Offsets
    lags: Mapping[str, Mapping[int, int | None]]


def share_offsets(client: Client, group_ids: Iterable[str]) -> dict[str, ShareOffsets | Refused]:
    """The offsets of share groups (KIP-932)."""

    def request(asked: list[str]) -> DescribeShareGroupOffsetsRequest:
        group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
        return DescribeShareGroupOffsetsRequest(groups=[group(group_id=name, topics=None) for name in asked])

    def offsets(
        group: DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup, _: CoordinatorNode
    ) -> ShareOffsets:
        known = {topic.topic_name: [each for each in topic.partitions if not each.error_code] for topic in group.topics}
        starts = {
            topic: {each.partition_index: max(each.start_offset, NO_OFFSET) for each in partitions}
            for topic, partitions in known.items()
        }
        lags = {
            topic: {each.partition_index: each.lag if each.lag >= 0 else None for each in partitions}
            for topic, partitions in known.items()
        }
        return ShareOffsets(starts, lags)

    return client.ask_coordinators(group_ids, request, of_each(offsets))


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

    def pending(group: OffsetFetchResponse.OffsetFetchResponseGroup, _: CoordinatorNode) -> list[TopicPartition]:
        return sorted(
            (topic.name, each.partition_index)
            for topic in group.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        )

    answers = client.ask_coordinators(by_id, request, of_each(pending), at_least=8, at_most=9)
    return {name: answer for name, answer in answers.items() if answer and not isinstance(answer, Refused)}


def _held_topics(group: Group) -> list[OffsetFetchRequest.OffsetFetchRequestTopics] | None:
    """The topic partitions of a group's members; None, for all with offsets, if they have none."""
    pairs = sorted(pair for member in group.members for pair in member.topic_partitions)
    return [
        OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[index for _, index in some])
        for topic, some in groupby(pairs, itemgetter(0))
    ] or None
