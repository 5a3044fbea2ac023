"""Requests about groups: each becomes one event, or one for each group that it names.

A handler decides what Kafka decides before its coordinator sees a request: which topic partitions exist, which fields a
version has, which are mandatory. The coordinator decides the rest.

House rule: no state. Source: Kafka's KafkaApis and GroupCoordinatorAdapter, release 3.9 in KRaft mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.group.events import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from coordinator.group.refuse import refuse
from coordinator.server.runtime.partition import Standing
from coordinator.server.wire.call import gather
from protocol.messages import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.server.wire.call import Call, Services
    from protocol.messages import (
        DeleteGroupsRequest,
        DescribeGroupsRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        ListGroupsRequest,
        SyncGroupRequest,
    )

GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
"""The operations on a group that clients may do without an authorizer: READ, DELETE, DESCRIBE."""

NO_OFFSET = -1


def join_group(services: Services, call: Call, request: JoinGroupRequest) -> None:
    """JoinGroup."""
    # Only a member without an id needs a fresh one, and making one takes time.
    fresh_id = "" if request.member_id else services.fresh_id()
    event = JoinGroup(call, call.api_version, call.client, request, fresh_id)
    services.runtime.submit(request.group_id, event)


def sync_group(services: Services, call: Call, request: SyncGroupRequest) -> None:
    """SyncGroup. From v5 on, protocol type and protocol name are mandatory (KIP-559)."""
    event = SyncGroup(call, call.api_version, call.client, request)
    if call.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        call.answer(refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    else:
        services.runtime.submit(request.group_id, event)


def heartbeat(services: Services, call: Call, request: HeartbeatRequest) -> None:
    """Heartbeat, if the short cut in `Api.dispatch` has not answered it."""
    services.runtime.submit(request.group_id, Heartbeat(call, request, call.client))


def leave_group(services: Services, call: Call, request: LeaveGroupRequest) -> None:
    """LeaveGroup."""
    event = LeaveGroup(call, call.api_version, call.client, request)
    services.runtime.submit(request.group_id, event)


def commit_offsets(services: Services, call: Call, request: OffsetCommitRequest) -> None:
    """OffsetCommit. The coordinator gets the topic partitions that exist; the others get their error here.

    Version 0 is for ZooKeeper. Without one, Kafka answers UNSUPPORTED_VERSION if any of the topic partitions exists.
    """
    has_partition = services.discovery.has_partition
    known: list[OffsetCommitRequest.OffsetCommitRequestTopic] = []
    unknown: list[OffsetCommitResponse.OffsetCommitResponseTopic] = []
    for topic in request.topics:
        exist = [has_partition(topic.name, each.partition_index) for each in topic.partitions]
        if all(exist) and exist:
            known.append(topic)
            continue
        present = [each for each, is_there in zip(topic.partitions, exist, strict=True) if is_there]
        absent = [each.partition_index for each, is_there in zip(topic.partitions, exist, strict=True) if not is_there]
        if present:
            known.append(OffsetCommitRequest.OffsetCommitRequestTopic(name=topic.name, partitions=present))
        if absent:
            unknown.append(_committed(topic.name, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if not known:
        call.answer(OffsetCommitResponse(topics=unknown))
        return
    if call.api_version == 0:
        all_of_it = [
            _committed(topic.name, [each.partition_index for each in topic.partitions], ErrorCode.UNSUPPORTED_VERSION)
            for topic in request.topics
        ]
        call.answer(OffsetCommitResponse(topics=all_of_it))
        return

    request.topics = known
    if not unknown:
        event = CommitOffsets(call, call.api_version, call.client, request)
        services.runtime.submit(request.group_id, event)
        return

    def answer(body: OffsetCommitResponse) -> None:
        _add(body.topics, unknown)
        call.answer(body)

    event = CommitOffsets(call.reply(answer), call.api_version, call.client, request)
    services.runtime.submit(request.group_id, event)


def _committed(topic: str, partitions: list[int], error: ErrorCode) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    return OffsetCommitResponse.OffsetCommitResponseTopic(
        name=topic,
        partitions=[
            OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=index, error_code=error)
            for index in partitions
        ],
    )


def _add(topics: list[Any], more: list[Any]) -> None:
    """Add topics to those of a response; a topic that is in both gets its partitions together."""
    by_name = {topic.name: topic for topic in topics}
    for topic in more:
        if topic.name in by_name:
            by_name[topic.name].partitions.extend(topic.partitions)
        else:
            topics.append(topic)


def fetch_offsets(services: Services, call: Call, request: OffsetFetchRequest) -> None:
    """OffsetFetch: one group up to v7, any number from v8 on. From v2 on, null topics mean all topics."""
    if call.api_version == 0:
        group = OffsetFetchResponse.OffsetFetchResponseGroup(error_code=ErrorCode.UNSUPPORTED_VERSION)
        call.answer(_one_group(call, request, group))
        return
    if call.api_version >= 8:
        groups = request.groups

        def answer(bodies: list[OffsetFetchResponse.OffsetFetchResponseGroup]) -> None:
            call.answer(OffsetFetchResponse(groups=bodies))

    else:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequest.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in request.topics
            ]
        groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]

        def answer(bodies: list[OffsetFetchResponse.OffsetFetchResponseGroup]) -> None:
            call.answer(_one_group(call, request, bodies[0]))

    for asked, receive in zip(groups, gather(len(groups), answer), strict=True):
        event = FetchOffsets(call.reply(receive), asked.group_id, asked.topics, request.require_stable, call.client)
        services.runtime.submit(asked.group_id, event)


def _one_group(
    call: Call, request: OffsetFetchRequest, group: OffsetFetchResponse.OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    """The answer of v0 to v7. Before v2 the group has no error field: each topic partition carries its error."""
    if group.error_code and call.api_version < 2:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics or []]
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponse.OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        OffsetFetchResponse.OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=NO_OFFSET,
                            metadata="",
                            error_code=group.error_code,
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in asked
            ]
        )
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def delete_offsets(services: Services, call: Call, request: OffsetDeleteRequest) -> None:
    """OffsetDelete (KIP-496). The coordinator gets the topic partitions that exist; the others get their error here."""
    known: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = []
    unknown: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        exist = [services.discovery.has_partition(topic.name, each.partition_index) for each in topic.partitions]
        present = [each for each, is_there in zip(topic.partitions, exist, strict=True) if is_there]
        absent = [
            OffsetDeleteResponse.OffsetDeleteResponsePartition(
                partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for each, is_there in zip(topic.partitions, exist, strict=True)
            if not is_there
        ]
        if present:
            known.append(OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic.name, partitions=present))
        if absent:
            unknown.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=absent))

    def answer(body: OffsetDeleteResponse) -> None:
        if not body.error_code:  # an error of the whole request has no topics
            _add(body.topics, unknown)
        call.answer(body)

    request.topics = known
    services.runtime.submit(request.group_id, DeleteOffsets(call.reply(answer), request, call.client))


def describe_groups(services: Services, call: Call, request: DescribeGroupsRequest) -> None:
    """DescribeGroups."""

    def answer(groups: list[DescribeGroupsResponse.DescribedGroup]) -> None:
        if call.api_version >= 3 and request.include_authorized_operations:
            for group in groups:
                if not group.error_code:
                    group.authorized_operations = GROUP_OPERATIONS
        call.answer(DescribeGroupsResponse(groups=groups))

    for group_id, receive in zip(request.groups, gather(len(request.groups), answer), strict=True):
        event = DescribeGroup(call.reply(receive), call.api_version, group_id, request.include_waiting, call.client)
        services.runtime.submit(group_id, event)


def delete_groups(services: Services, call: Call, request: DeleteGroupsRequest) -> None:
    """DeleteGroups: a group that is named twice is deleted once."""
    group_ids = list(dict.fromkeys(request.groups_names))

    def answer(results: list[DeleteGroupsResponse.DeletableGroupResult]) -> None:
        call.answer(DeleteGroupsResponse(results=results))

    for group_id, receive in zip(group_ids, gather(len(group_ids), answer), strict=True):
        services.runtime.submit(group_id, DeleteGroup(call.reply(receive), group_id, call.client))


def list_groups(services: Services, call: Call, request: ListGroupsRequest) -> None:
    """ListGroups: the groups of all partitions that are served; with an error while other partitions load."""
    served = list(services.runtime.served())
    loading = any(partition.standing is Standing.LOADING for partition in services.runtime.partitions)

    def answer(parts: list[list[ListGroupsResponse.ListedGroup]]) -> None:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE
        call.answer(ListGroupsResponse(error_code=error, groups=[group for part in parts for group in part]))

    for partition, receive in zip(served, gather(len(served), answer), strict=True):
        event = ListGroups(call.reply(receive), request.states_filter, request.types_filter, call.client)
        partition.submit(None, event)
