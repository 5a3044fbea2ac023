"""One request of each API that needs a right, and what is compared of its answer.

A shape keeps error codes, names and what is left out; it has none of a server's own values, such as times and texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from protocol.messages import Message
from tests.support.batches import batch
from tests.support.requests import request

TOPIC, HIDDEN, ABSENT, GROUP, CONSUMERS = "orders", "secrets", "absent", "workers", "consumers"
ALL = (TOPIC, HIDDEN, ABSENT)
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


def as_asked(api: str, **fields: Any) -> Callable[[UUID], Message]:
    """A request in which no id of a topic is."""
    return lambda _: request(api, **fields)


def with_all(
    api: str, name: str = "name", *, each: dict[str, Any], topics: str = "topics", **fields: Any
) -> Callable[[UUID], Message]:
    """A request of ALL topics."""
    return as_asked(api, **{topics: [{name: topic, **each} for topic in ALL]}, **fields)


def metadata(names: tuple[str, ...] | None, *, creates: bool = False) -> Callable[[UUID], Message]:
    """A Metadata of these topics, None for all, with all authorized operations."""
    return as_asked(
        "Metadata",
        topics=None if names is None else [{"name": name} for name in names],
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


def fetch(name: str, *topics: Any) -> Message:
    """A Fetch of these topics, by name or id."""
    partitions = [{"partition": 0, "partition_max_bytes": 100}]
    asked = [{name: topic, "partitions": partitions} for topic in topics]
    return request("Fetch", replica_id=-1, max_wait_ms=0, max_bytes=100, session_epoch=-1, topics=asked)


def fetched(body: Any) -> Any:
    """The error of each group, and of its partitions."""
    return [(group.error_code, partitions_of("topics", "partitions")(group)) for group in body.groups]


def configs(api: str, *resources: tuple[int, str], **fields: Any) -> Callable[[UUID], Message]:
    """A request of these resources: the settings, or no change of them."""
    none: dict[str, Any] = {} if api == "DescribeConfigs" else {"configs": []}
    asked = [{"resource_type": kind, "resource_name": name, **none} for kind, name in resources]
    return as_asked(api, resources=asked, **fields)


def created(body: Any) -> Any:
    """Error, and whether the settings are shown."""
    return sorted(
        (each.name, each.error_code, each.topic_config_error_code, bool(each.configs)) for each in body.topics
    )


BROKER_AND_TOPICS = ((2, TOPIC), (2, HIDDEN), (2, ABSENT), (4, "1"))
GROUPS = ((32, GROUP), (32, CONSUMERS))
UNMATCHED: dict[str, Any] = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
"""The fields of a filter that selects nothing."""
ACL = {
    "resource_type": 4,
    "resource_name": "x",
    "principal": "User:x",
    "host": "*",
    "operation": 2,
    "permission_type": 3,
}
"""An ACL to create, which is refused for its name by whoever may create some."""

CASES = [
    Case(
        "Produce",
        9,
        with_all(
            "Produce",
            topics="topic_data",
            acks=-1,
            timeout_ms=60_000,
            each={"partition_data": [{"index": 0, "records": batch([(None, b"x", 1_000)])}]},
        ),
        partitions_of("responses", "partition_responses"),
    ),
    Case("Fetch", 12, lambda _: fetch("topic", *ALL), partitions_of("responses", "partitions", "topic")),
    Case(
        "Fetch by id",
        13,
        lambda topic_id: fetch("topic_id", topic_id, UNKNOWN_ID),
        lambda body: sorted(each.partitions[0].error_code for each in body.responses),
    ),
    Case(
        "ListOffsets",
        7,
        with_all("ListOffsets", replica_id=-1, each={"partitions": [{"partition_index": 0, "timestamp": -1}]}),
        partitions_of("topics", "partitions"),
    ),
    Case("Metadata", 9, metadata(ALL), metadata_shape),
    Case("Metadata of all", 9, metadata(None), metadata_shape),
    Case(
        "Metadata by id",
        12,
        lambda topic_id: request("Metadata", topics=[{"topic_id": topic_id, "name": None}]),
        lambda body: [(each.error_code, each.name, len(each.partitions)) for each in body.topics],
    ),
    Case("Metadata that may create", 9, metadata(("a b",), creates=True), metadata_shape),
    Case(
        "OffsetCommit",
        8,
        with_all("OffsetCommit", group_id=GROUP, each={"partitions": [{"partition_index": 0, "committed_offset": 1}]}),
        partitions_of("topics", "partitions"),
    ),
    Case(
        "OffsetFetch",
        8,
        as_asked(
            "OffsetFetch",
            groups=[{"group_id": GROUP, "topics": [{"name": name, "partition_indexes": [0]} for name in ALL]}],
        ),
        fetched,
    ),
    Case("OffsetFetch of all", 8, as_asked("OffsetFetch", groups=[{"group_id": GROUP, "topics": None}]), fetched),
    Case(
        "OffsetFetch of one group",
        5,
        with_all("OffsetFetch", group_id=GROUP, each={"partition_indexes": [0]}),
        lambda body: (body.error_code, partitions_of("topics", "partitions")(body)),
    ),
    Case("FindCoordinator", 3, as_asked("FindCoordinator", key=GROUP), whole),
    Case(
        "FindCoordinator of many",
        4,
        as_asked("FindCoordinator", coordinator_keys=[GROUP, "x"]),
        codes_of("coordinators", "key"),
    ),
    Case(
        "JoinGroup",
        5,
        as_asked(
            "JoinGroup",
            group_id="joined",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        ),
        whole,
    ),
    Case("SyncGroup", 3, as_asked("SyncGroup", group_id=GROUP, generation_id=1, member_id="x"), whole),
    Case("Heartbeat", 3, as_asked("Heartbeat", group_id=GROUP, generation_id=1, member_id="x"), whole),
    Case("LeaveGroup", 2, as_asked("LeaveGroup", group_id=GROUP, member_id="x"), whole),
    Case(
        "LeaveGroup of many",
        4,
        as_asked("LeaveGroup", group_id=GROUP, members=[{"member_id": "x"}]),
        lambda body: (body.error_code, [each.error_code for each in body.members]),
    ),
    Case(
        "DescribeGroups",
        4,
        as_asked("DescribeGroups", groups=[GROUP, "x"], include_authorized_operations=True),
        codes_of("groups", "group_id", "authorized_operations"),
    ),
    Case("ListGroups", 4, as_asked("ListGroups"), lambda body: sorted(each.group_id for each in body.groups)),
    Case("DeleteGroups", 1, as_asked("DeleteGroups", groups_names=["x", "y"]), codes_of("results", "group_id")),
    Case(
        "OffsetDelete",
        0,
        with_all("OffsetDelete", group_id=GROUP, each={"partitions": [{"partition_index": 9}]}),
        lambda body: (body.error_code, partitions_of("topics", "partitions")(body)),
    ),
    Case(
        "CreateTopics",
        5,
        as_asked(
            "CreateTopics",
            topics=[{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("new", TOPIC)],
            timeout_ms=60_000,
            validate_only=True,
        ),
        created,
    ),
    Case(
        "DeleteTopics",
        6,
        as_asked("DeleteTopics", topics=[{"name": ABSENT}, {"topic_id": UNKNOWN_ID}], timeout_ms=60_000),
        codes_of("responses", "name"),
    ),
    Case(
        "CreatePartitions",
        1,
        with_all("CreatePartitions", each={"count": 2, "assignments": None}, timeout_ms=60_000, validate_only=True),
        codes_of("results", "name"),
    ),
    Case(
        "DeleteRecords",
        1,
        with_all("DeleteRecords", each={"partitions": [{"partition_index": 9, "offset": 0}]}, timeout_ms=60_000),
        partitions_of("topics", "partitions"),
    ),
    Case("InitProducerId", 1, as_asked("InitProducerId", transactional_id=None), whole),
    Case(
        "OffsetForLeaderEpoch",
        3,
        with_all(
            "OffsetForLeaderEpoch",
            "topic",
            replica_id=-1,
            each={"partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]},
        ),
        partitions_of("topics", "partitions", "topic"),
    ),
    Case("DescribeConfigs", 2, configs("DescribeConfigs", *BROKER_AND_TOPICS), codes_of("results", "resource_name")),
    *(
        Case(api, 1, configs(api, *BROKER_AND_TOPICS, validate_only=True), codes_of("responses", "resource_name"))
        for api in ("AlterConfigs", "IncrementalAlterConfigs")
    ),
    Case(
        "AlterReplicaLogDirs",
        1,
        as_asked("AlterReplicaLogDirs", dirs=[{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]),
        partitions_of("results", "partitions", "topic_name"),
    ),
    Case(
        "DescribeLogDirs",
        4,
        as_asked("DescribeLogDirs", topics=[]),
        lambda body: (body.error_code, len(body.results)),
    ),
    Case(
        "ElectLeaders",
        1,
        as_asked("ElectLeaders", topic_partitions=[{"topic": TOPIC, "partitions": [0]}], timeout_ms=60_000),
        lambda body: (
            body.error_code,
            partitions_of("replica_election_results", "partition_result", "topic")(body),
        ),
    ),
    Case(
        "AlterPartitionReassignments",
        0,
        as_asked(
            "AlterPartitionReassignments",
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
            timeout_ms=60_000,
        ),
        lambda body: (body.error_code, partitions_of("responses", "partitions")(body)),
    ),
    Case(
        "ListPartitionReassignments",
        0,
        as_asked("ListPartitionReassignments", topics=None, timeout_ms=60_000),
        whole,
    ),
    Case(
        "DescribeCluster",
        0,
        as_asked("DescribeCluster", include_cluster_authorized_operations=True),
        lambda body: (body.error_code, body.cluster_authorized_operations),
    ),
    Case("DescribeClientQuotas", 0, as_asked("DescribeClientQuotas", components=[]), whole),
    Case(
        "AlterClientQuotas",
        0,
        as_asked(
            "AlterClientQuotas",
            entries=[
                {
                    "entity": [{"entity_type": "user", "entity_name": "x"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0}],
                }
            ],
            validate_only=True,
        ),
        codes_of("entries"),
    ),
    Case(
        "DescribeUserScramCredentials",
        0,
        as_asked("DescribeUserScramCredentials", users=[{"name": "x"}, {"name": "y"}]),
        lambda body: (body.error_code, codes_of("results", "user")(body)),
    ),
    Case(
        "AlterUserScramCredentials",
        0,
        as_asked("AlterUserScramCredentials", deletions=[{"name": "x", "mechanism": 1}], upsertions=[]),
        codes_of("results", "user"),
    ),
    Case("DescribeAcls", 2, as_asked("DescribeAcls", **UNMATCHED), whole),
    Case("CreateAcls", 2, as_asked("CreateAcls", creations=[ACL, ACL]), codes_of("results")),
    Case("DeleteAcls", 2, as_asked("DeleteAcls", filters=[UNMATCHED]), codes_of("filter_results")),
]

NEWER = [
    # It joins a group of its own and gets a topic.
    Case(
        "ConsumerGroupHeartbeat",
        1,
        as_asked(
            "ConsumerGroupHeartbeat",
            group_id=CONSUMERS,
            member_id="m",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        ),
        whole,
    ),
    Case(
        "ConsumerGroupDescribe",
        1,
        as_asked("ConsumerGroupDescribe", group_ids=[CONSUMERS, GROUP], include_authorized_operations=True),
        codes_of("groups", "group_id", "authorized_operations"),
    ),
    Case(
        "OffsetCommit by ids",
        10,
        lambda topic_id: request(
            "OffsetCommit",
            group_id=GROUP,
            topics=[
                {
                    "topic_id": each,
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                }
                for each in (topic_id, UNKNOWN_ID)
            ],
        ),
        partitions_of("topics", "partitions", "name"),
    ),
    Case(
        "Produce by ids",
        13,
        lambda topic_id: request(
            "Produce",
            acks=1,
            timeout_ms=60_000,
            topic_data=[
                {"topic_id": each, "partition_data": [{"records": batch([(b"key", b"value", 0)])}]}
                for each in (topic_id, UNKNOWN_ID)
            ],
        ),
        partitions_of("responses", "partition_responses", "name"),
    ),
    Case(
        "OffsetFetch by ids",
        10,
        lambda topic_id: request(
            "OffsetFetch",
            groups=[
                {
                    "group_id": group,
                    "topics": [{"topic_id": each, "partition_indexes": [0]} for each in (topic_id, UNKNOWN_ID)],
                }
                for group in (GROUP, CONSUMERS)
            ],
        ),
        lambda body: [
            (each.group_id, each.error_code, partitions_of("topics", "partitions", "name")(each))
            for each in body.groups
        ],
    ),
    Case("DescribeConfigs of groups", 2, configs("DescribeConfigs", *GROUPS), codes_of("results", "resource_name")),
    Case("ListConfigResources", 1, as_asked("ListConfigResources", resource_types=[32, 4]), whole),
    *(
        Case(f"{api} of groups", 1, configs(api, *GROUPS, validate_only=True), codes_of("responses", "resource_name"))
        for api in ("AlterConfigs", "IncrementalAlterConfigs")
    ),
]
"""Requests that Kafka 4.4 knows and 3.9 doesn't."""
