"""One request of each API that needs a right, and what is compared of its answer.

A shape keeps error codes, names and what is left out; it has none of a server's own values, such as times and texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from protocol.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    AlterUserScramCredentialsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeUserScramCredentialsRequest,
    ElectLeadersRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListPartitionReassignmentsRequest,
    Message,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from tests.support.batches import batch

TOPIC, HIDDEN, ABSENT, GROUP, CONSUMERS = "orders", "secrets", "absent", "workers", "consumers"
NO_ID, UNKNOWN_ID = UUID(int=0), UUID(int=7)

Shape = Callable[[Any], Any]


class Case(NamedTuple):
    """A request in a version. make: the request, of the id of TOPIC. shape: what is compared of its answer."""

    name: str
    version: int
    make: Callable[[UUID], Message]
    shape: Shape


def partitions_of(topics: str, partitions: str, name: str = "name") -> Shape:
    """The error code of each partition, by topic."""

    def shape(body: Any) -> Any:
        return sorted(
            (getattr(topic, name), sorted(each.error_code for each in getattr(topic, partitions)))
            for topic in getattr(body, topics)
        )

    return shape


def codes_of(results: str, *fields: str) -> Shape:
    """The error code of each result, and some fields."""

    def shape(body: Any) -> Any:
        return sorted(
            (each.error_code, *(repr(getattr(each, field)) for field in fields)) for each in getattr(body, results)
        )

    return shape


def whole(body: Any) -> Any:
    """The error code of the answer."""
    return body.error_code


def topics_of(request: Any, *names: str, **fields: Any) -> list[Any]:
    """A topic of a request for each name."""
    return [request(name=name, **fields) for name in names or (TOPIC, HIDDEN, ABSENT)]


def metadata(names: tuple[str, ...] | None, *, creates: bool = False) -> Callable[[UUID], Message]:
    """A Metadata of these topics, None for all, with all authorized operations."""
    topics = None if names is None else topics_of(MetadataRequest.MetadataRequestTopic, *names)
    return lambda _: MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=creates,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )


def metadata_shape(body: Any) -> Any:
    """Each topic that is not internal with its error, size and operations, and the operations on the cluster."""
    topics = sorted(
        (
            repr(each.name),
            each.error_code,
            len(each.partitions),
            each.topic_authorized_operations,
            each.topic_id != NO_ID,
        )
        for each in body.topics
        if not (each.name or "").startswith("__")
    )
    return topics, body.cluster_authorized_operations


def commit(_: UUID) -> Message:
    """An OffsetCommit of all topics."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = topics_of(OffsetCommitRequest.OffsetCommitRequestTopic, partitions=[partition])
    return OffsetCommitRequest(group_id=GROUP, topics=topics)


def fetch_offsets(*, all_of_it: bool) -> Callable[[UUID], Message]:
    """An OffsetFetch of one group."""
    topics = topics_of(OffsetFetchRequest.OffsetFetchRequestTopics, partition_indexes=[0])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=None if all_of_it else topics)
    return lambda _: OffsetFetchRequest(groups=[group])


def fetched(body: Any) -> Any:
    """The error of each group, and of its partitions."""
    return [(group.error_code, partitions_of("topics", "partitions")(group)) for group in body.groups]


def fetch(topic_id: UUID) -> Message:
    """A Fetch by id: of a topic, and of one that doesn't exist."""
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=100)
    topics = [FetchRequest.FetchTopic(topic_id=each, partitions=[partition]) for each in (topic_id, UUID(int=7))]
    return FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=100, session_epoch=-1, topics=topics)


def fetch_by_name(_: UUID) -> Message:
    """A Fetch of all topics."""
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=100)
    topics = [FetchRequest.FetchTopic(topic=name, partitions=[partition]) for name in (TOPIC, HIDDEN, ABSENT)]
    return FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=100, session_epoch=-1, topics=topics)


def produce(_: UUID) -> Message:
    """A record for each topic."""
    data = [ProduceRequest.PartitionProduceData(index=0, records=batch([(None, b"x", 1_000)]))]
    topics = topics_of(ProduceRequest.TopicProduceData, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)


def resources(request: Any, *, changes: bool) -> list[Any]:
    """A topic of each sort, and the broker, as resources of configs."""
    found = []
    for kind, name in ((2, TOPIC), (2, HIDDEN), (2, ABSENT), (4, "1")):
        resource = request(resource_type=kind, resource_name=name)
        if changes:
            resource.configs = []
        found.append(resource)
    return found


def create(*names: str) -> Callable[[UUID], Message]:
    """A CreateTopics that only asks whether it might."""
    topics = topics_of(CreateTopicsRequest.CreatableTopic, *names, num_partitions=1, replication_factor=1)
    return lambda _: CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True)


def created(body: Any) -> Any:
    """Error, and whether the settings are shown."""
    return sorted(
        (each.name, each.error_code, each.topic_config_error_code, bool(each.configs)) for each in body.topics
    )


def delete(_: UUID) -> Message:
    """Only a topic that doesn't exist is deleted."""
    names = [
        DeleteTopicsRequest.DeleteTopicState(name=ABSENT),
        DeleteTopicsRequest.DeleteTopicState(topic_id=UUID(int=7)),
    ]
    return DeleteTopicsRequest(topics=names, timeout_ms=1000)


def grow(_: UUID) -> Message:
    """A CreatePartitions that only asks whether it might."""
    topics = topics_of(CreatePartitionsRequest.CreatePartitionsTopic, count=2, assignments=None)
    return CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=True)


def acl(**fields: Any) -> Any:
    """An ACL to create, which is refused for its name by whoever may create some."""
    return CreateAclsRequest.AclCreation(
        resource_type=4, resource_name="x", principal="User:x", host="*", operation=2, permission_type=3, **fields
    )


def unmatched(request: Any) -> Any:
    """A filter that selects nothing."""
    return request(
        resource_type_filter=2,
        resource_name_filter="nothing",
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


ELECTED = ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
REASSIGNED = AlterPartitionReassignmentsRequest.ReassignableTopic(
    name=TOPIC, partitions=[AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[1])]
)
MOVED = AlterReplicaLogDirsRequest.AlterReplicaLogDir(
    path="/nowhere", topics=[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])]
)
EPOCH = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
LISTED = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
REMOVED = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=9, offset=0)

UNKNOWN_USER = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="x", mechanism=1)
QUOTA = AlterClientQuotasRequest.EntryData(
    entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="x")],
    ops=[AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1.0)],
)

JOIN = JoinGroupRequest(
    group_id="joined",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    member_id="",
    protocol_type="consumer",
    protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
)
COMMITTED = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
    name=TOPIC,
    partitions=[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
)

CASES = [
    Case("Produce", 9, produce, partitions_of("responses", "partition_responses")),
    Case("Fetch", 12, fetch_by_name, partitions_of("responses", "partitions", "topic")),
    Case("Fetch by id", 13, fetch, lambda body: sorted(each.partitions[0].error_code for each in body.responses)),
    Case(
        "ListOffsets",
        7,
        lambda _: ListOffsetsRequest(
            replica_id=-1, topics=topics_of(ListOffsetsRequest.ListOffsetsTopic, partitions=[LISTED])
        ),
        partitions_of("topics", "partitions"),
    ),
    Case("Metadata", 9, metadata((TOPIC, HIDDEN, ABSENT)), metadata_shape),
    Case("Metadata of all", 9, metadata(None), metadata_shape),
    Case(
        "Metadata by id",
        12,
        lambda topic_id: MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None)]),
        lambda body: [(each.error_code, each.name, len(each.partitions)) for each in body.topics],
    ),
    Case("Metadata that may create", 9, metadata(("a b",), creates=True), metadata_shape),
    Case("OffsetCommit", 8, commit, partitions_of("topics", "partitions")),
    Case("OffsetFetch", 8, fetch_offsets(all_of_it=False), fetched),
    Case("OffsetFetch of all", 8, fetch_offsets(all_of_it=True), fetched),
    Case(
        "OffsetFetch of one group",
        5,
        lambda _: OffsetFetchRequest(
            group_id=GROUP, topics=topics_of(OffsetFetchRequest.OffsetFetchRequestTopic, partition_indexes=[0])
        ),
        lambda body: (body.error_code, partitions_of("topics", "partitions")(body)),
    ),
    Case("FindCoordinator", 3, lambda _: FindCoordinatorRequest(key=GROUP), whole),
    Case(
        "FindCoordinator of many",
        4,
        lambda _: FindCoordinatorRequest(coordinator_keys=[GROUP, "x"]),
        codes_of("coordinators", "key"),
    ),
    Case("JoinGroup", 5, lambda _: JOIN, whole),
    Case("SyncGroup", 3, lambda _: SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="x"), whole),
    Case("Heartbeat", 3, lambda _: HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="x"), whole),
    Case("LeaveGroup", 2, lambda _: LeaveGroupRequest(group_id=GROUP, member_id="x"), whole),
    Case(
        "LeaveGroup of many",
        4,
        lambda _: LeaveGroupRequest(group_id=GROUP, members=[LeaveGroupRequest.MemberIdentity(member_id="x")]),
        lambda body: (body.error_code, [each.error_code for each in body.members]),
    ),
    Case(
        "DescribeGroups",
        4,
        lambda _: DescribeGroupsRequest(groups=[GROUP, "x"], include_authorized_operations=True),
        codes_of("groups", "group_id", "authorized_operations"),
    ),
    Case("ListGroups", 4, lambda _: ListGroupsRequest(), lambda body: sorted(each.group_id for each in body.groups)),
    Case("DeleteGroups", 1, lambda _: DeleteGroupsRequest(groups_names=["x", "y"]), codes_of("results", "group_id")),
    Case(
        "OffsetDelete",
        0,
        lambda _: OffsetDeleteRequest(
            group_id=GROUP,
            topics=topics_of(
                OffsetDeleteRequest.OffsetDeleteRequestTopic,
                partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=9)],
            ),
        ),
        lambda body: (body.error_code, partitions_of("topics", "partitions")(body)),
    ),
    Case("CreateTopics", 5, create("new", TOPIC), created),
    Case("DeleteTopics", 6, delete, codes_of("responses", "name")),
    Case("CreatePartitions", 1, grow, codes_of("results", "name")),
    Case(
        "DeleteRecords",
        1,
        lambda _: DeleteRecordsRequest(
            topics=topics_of(DeleteRecordsRequest.DeleteRecordsTopic, partitions=[REMOVED]), timeout_ms=1000
        ),
        partitions_of("topics", "partitions"),
    ),
    Case("InitProducerId", 1, lambda _: InitProducerIdRequest(transactional_id=None), whole),
    Case(
        "OffsetForLeaderEpoch",
        3,
        lambda _: OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[EPOCH])
                for name in (TOPIC, HIDDEN, ABSENT)
            ],
        ),
        partitions_of("topics", "partitions", "topic"),
    ),
    Case(
        "DescribeConfigs",
        2,
        lambda _: DescribeConfigsRequest(
            resources=resources(DescribeConfigsRequest.DescribeConfigsResource, changes=False)
        ),
        codes_of("results", "resource_name"),
    ),
    Case(
        "AlterConfigs",
        1,
        lambda _: AlterConfigsRequest(
            resources=resources(AlterConfigsRequest.AlterConfigsResource, changes=True), validate_only=True
        ),
        codes_of("responses", "resource_name"),
    ),
    Case(
        "IncrementalAlterConfigs",
        1,
        lambda _: IncrementalAlterConfigsRequest(
            resources=resources(IncrementalAlterConfigsRequest.AlterConfigsResource, changes=True), validate_only=True
        ),
        codes_of("responses", "resource_name"),
    ),
    Case(
        "AlterReplicaLogDirs",
        1,
        lambda _: AlterReplicaLogDirsRequest(dirs=[MOVED]),
        partitions_of("results", "partitions", "topic_name"),
    ),
    Case(
        "DescribeLogDirs",
        4,
        lambda _: DescribeLogDirsRequest(topics=[]),
        lambda body: (body.error_code, len(body.results)),
    ),
    Case(
        "ElectLeaders",
        1,
        lambda _: ElectLeadersRequest(topic_partitions=[ELECTED], timeout_ms=1000),
        lambda body: (
            body.error_code,
            partitions_of("replica_election_results", "partition_result", "topic")(body),
        ),
    ),
    Case(
        "AlterPartitionReassignments",
        0,
        lambda _: AlterPartitionReassignmentsRequest(topics=[REASSIGNED], timeout_ms=1000),
        lambda body: (body.error_code, partitions_of("responses", "partitions")(body)),
    ),
    Case(
        "ListPartitionReassignments",
        0,
        lambda _: ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000),
        whole,
    ),
    Case(
        "DescribeCluster",
        0,
        lambda _: DescribeClusterRequest(include_cluster_authorized_operations=True),
        lambda body: (body.error_code, body.cluster_authorized_operations),
    ),
    Case("DescribeClientQuotas", 0, lambda _: DescribeClientQuotasRequest(components=[]), whole),
    Case(
        "AlterClientQuotas",
        0,
        lambda _: AlterClientQuotasRequest(entries=[QUOTA], validate_only=True),
        codes_of("entries"),
    ),
    Case(
        "DescribeUserScramCredentials",
        0,
        lambda _: DescribeUserScramCredentialsRequest(
            users=[DescribeUserScramCredentialsRequest.UserName(name=name) for name in ("x", "y")]
        ),
        lambda body: (body.error_code, codes_of("results", "user")(body)),
    ),
    Case(
        "AlterUserScramCredentials",
        0,
        lambda _: AlterUserScramCredentialsRequest(deletions=[UNKNOWN_USER], upsertions=[]),
        codes_of("results", "user"),
    ),
    Case("DescribeAcls", 2, lambda _: unmatched(DescribeAclsRequest), whole),
    Case("CreateAcls", 2, lambda _: CreateAclsRequest(creations=[acl(), acl()]), codes_of("results")),
    Case(
        "DeleteAcls",
        2,
        lambda _: DeleteAclsRequest(filters=[unmatched(DeleteAclsRequest.DeleteAclsFilter)]),
        codes_of("filter_results"),
    ),
]


def member(_: UUID) -> Message:
    """A member of the consumer protocol joins a group of its own and gets a topic."""
    return ConsumerGroupHeartbeatRequest(
        group_id=CONSUMERS,
        member_id="m",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


def groups(request: Any, *, changes: bool) -> list[Any]:
    """Two groups as resources of configs."""
    found = [request(resource_type=32, resource_name=name) for name in (GROUP, CONSUMERS)]
    for resource in found if changes else ():
        resource.configs = []
    return found


def commit_by_ids(topic_id: UUID) -> Message:
    """A commit from outside, of a topic and of one that doesn't exist."""
    position = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topics = [
        OffsetCommitRequest.OffsetCommitRequestTopic(topic_id=each, partitions=[position])
        for each in (topic_id, UNKNOWN_ID)
    ]
    return OffsetCommitRequest(group_id=GROUP, topics=topics)


NEWER = [
    Case("ConsumerGroupHeartbeat", 1, member, whole),
    Case(
        "ConsumerGroupDescribe",
        1,
        lambda _: ConsumerGroupDescribeRequest(group_ids=[CONSUMERS, GROUP], include_authorized_operations=True),
        codes_of("groups", "group_id", "authorized_operations"),
    ),
    Case("OffsetCommit by ids", 10, commit_by_ids, partitions_of("topics", "partitions", "name")),
    Case(
        "OffsetFetch by ids",
        10,
        lambda topic_id: OffsetFetchRequest(
            groups=[
                OffsetFetchRequest.OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[
                        OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0])
                        for each in (topic_id, UNKNOWN_ID)
                    ],
                )
                for group in (GROUP, CONSUMERS)
            ]
        ),
        lambda body: [
            (each.group_id, each.error_code, partitions_of("topics", "partitions", "name")(each))
            for each in body.groups
        ],
    ),
    Case(
        "DescribeConfigs of groups",
        2,
        lambda _: DescribeConfigsRequest(
            resources=groups(DescribeConfigsRequest.DescribeConfigsResource, changes=False)
        ),
        codes_of("results", "resource_name"),
    ),
    Case("ListConfigResources", 1, lambda _: ListConfigResourcesRequest(resource_types=[32, 4]), whole),
    Case(
        "AlterConfigs of groups",
        1,
        lambda _: AlterConfigsRequest(
            resources=groups(AlterConfigsRequest.AlterConfigsResource, changes=True), validate_only=True
        ),
        codes_of("responses", "resource_name"),
    ),
    Case(
        "IncrementalAlterConfigs of groups",
        1,
        lambda _: IncrementalAlterConfigsRequest(
            resources=groups(IncrementalAlterConfigsRequest.AlterConfigsResource, changes=True), validate_only=True
        ),
        codes_of("responses", "resource_name"),
    ),
]
"""Requests that Kafka 4.3 knows and 3.9 doesn't."""
