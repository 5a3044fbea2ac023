"""Topics: created, looked up, and read although nothing is ever in them."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from protocol.messages import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
)
from tests.oracle.stage import Client, Stage, script, script_for

NOWHERE = UUID(int=7)


@script_for(0, 1, 2, 3, 4, 5, 6, 7)
def create_topics(stage: Stage, version: int) -> None:
    """Made, there already, badly named, without partitions, for more brokers than there are, named twice."""
    a = stage.client("a")
    name = f"created.v{version}"
    for changes in (
        {"name": name},
        {"name": name},
        {"name": "a b"},
        {"name": ""},
        {"name": "."},
        {"name": ".."},
        {"name": "x" * 250},
        {"name": f"{name}-none", "num_partitions": 0},
        {"name": f"{name}-none", "num_partitions": -2},
        {"name": f"{name}-none", "replication_factor": 3},
        {"name": f"{name}-none", "replication_factor": 0},
        {"name": f"{name}-none", "num_partitions": 0, "replication_factor": 3},
        {"name": name, "num_partitions": 0, "replication_factor": 3},
        {"name": "a b", "num_partitions": 0},
    ):
        a.ask(CreateTopicsRequest(topics=[_topic(**changes)], timeout_ms=10_000), version)
    twice = [_topic(name=f"{name}-twice"), _topic(name=f"{name}-twice"), _topic(name=f"{name}-once")]
    a.ask(CreateTopicsRequest(topics=twice, timeout_ms=10_000), version)
    a.ask(CreateTopicsRequest(topics=[], timeout_ms=10_000), version)
    if version >= 1:
        for topic in (_topic(name=name), _topic(name=f"{name}-checked"), _topic(name="a b")):
            a.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True), version)
    if version >= 4:
        for topic in (
            _topic(name=f"{name}-default", num_partitions=-1, replication_factor=-1),
            _topic(name=f"{name}-default", num_partitions=1, replication_factor=-1),
        ):
            a.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)
    stage.until_topic(f"{name}-once")
    _metadata(a, 4, [f"{name}-none", f"{name}-twice", f"{name}-once", f"{name}-checked"])


@script_for(2, 5, 7)
def create_topics_with_given_replicas(stage: Stage, version: int) -> None:
    """A replica assignment instead of numbers; not both, and no broker that isn't there."""
    a = stage.client("a")
    name = f"given.v{version}"
    replica = CreateTopicsRequest.CreatableReplicaAssignment
    here = [replica(partition_index=0, broker_ids=[1]), replica(partition_index=1, broker_ids=[1])]
    for topic in (
        _topic(name=name, num_partitions=-1, replication_factor=-1, assignments=here),
        _topic(name=f"{name}-both", num_partitions=2, replication_factor=1, assignments=here),
        _topic(
            name=f"{name}-elsewhere",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[replica(partition_index=0, broker_ids=[9])],
        ),
    ):
        a.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)
    stage.until_topic(name)
    _metadata(a, 4, [name])


@script_for(0, 1, 4, 5, 7, 8, 9, 10, 11, 12)
def metadata(stage: Stage, version: int) -> None:
    """Topics by name: known, unknown, badly named, named twice; and none at all."""
    a = stage.client("a")
    one, two = stage.topic("metadata.one", 1), stage.topic("metadata.two", 3)
    _metadata(a, version, [one])
    _metadata(a, version, [two, one, two])
    _metadata(a, version, ["a b", ""])
    if version >= 1:
        _metadata(a, version, [])
    if version >= 4:
        _metadata(a, version, ["metadata.unknown", one])
        _metadata(a, version, ["."])


@script_for(8, 9, 10)
def metadata_with_operations(stage: Stage, version: int) -> None:
    """Metadata has the caller's permissions on a topic and on the cluster."""
    a = stage.client("a")
    topics = [MetadataRequest.MetadataRequestTopic(name=stage.topic("metadata.one", 1))]
    a.ask(
        MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
        version,
    )


@script()
def metadata_by_topic_id(stage: Stage) -> None:
    """Metadata v12 finds a topic by its id; an unknown id is UNKNOWN_TOPIC_ID."""
    a = stage.client("a")
    topic_id = _topic_id(a, stage.topic("metadata.one", 1))
    for wanted in (topic_id, NOWHERE):
        topic = MetadataRequest.MetadataRequestTopic(topic_id=wanted, name=None)
        a.ask(MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 12)


@script_for(0, 4, 9, 12)
def metadata_creates_topics(stage: Stage, version: int) -> None:
    """An unknown topic that may be created is unknown in this answer, and there soon after."""
    a = stage.client("a")
    name = f"automatic.v{version}"
    topics = [MetadataRequest.MetadataRequestTopic(name=name)]
    a.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), version)
    stage.until_topic(name)
    _metadata(a, version, [name], create=version < 4)


@script("limited")
def metadata_does_not_create_topics(stage: Stage) -> None:
    """With auto.create.topics.enable=false it stays unknown."""
    a = stage.client("a")
    topics = [MetadataRequest.MetadataRequestTopic(name="never-created")]
    a.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
    a.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 1)
    _metadata(a, 12, ["never-created"])


@script_for(0, 1, 2, 3, 4, 5, 6, 7, 8)
def list_offsets(stage: Stage, version: int) -> None:
    """The first and the last offset of an empty partition, offsets by time, and what isn't there."""
    a = stage.client("a")
    name = stage.topic("list-offsets", 2)
    for timestamp in (-1, -2, -3, -4, 0, 1_700_000_000_000):
        _list_offsets(a, version, {name: [(0, timestamp)]})
    _list_offsets(a, version, {name: [(0, -1), (1, -2), (9, -1)], "no-such-topic": [(0, -1)]})
    _list_offsets(a, version, {name: [(0, -1), (0, -2), (1, -1)]})
    _list_offsets(a, version, {})


@script_for(4, 5, 6, 7, 8, 9, 10, 11, 12)
def fetch(stage: Stage, version: int) -> None:
    """An empty partition has zero bytes; beyond its end is OFFSET_OUT_OF_RANGE; and what isn't there."""
    a = stage.client("a")
    name = stage.topic("fetched", 2)
    _fetch(a, version, {name: [(0, 0), (1, 0)]})
    _fetch(a, version, {name: [(0, 0)]}, min_bytes=0, max_wait_ms=60_000)
    _fetch(a, version, {name: [(0, 5), (1, 0)]}, max_wait_ms=60_000)
    _fetch(a, version, {name: [(0, -1)]}, max_wait_ms=60_000)
    _fetch(a, version, {"no-such-topic": [(0, 0)]}, max_wait_ms=60_000)
    _fetch(a, version, {name: [(0, 0), (9, 0)]})
    _fetch(a, version, {}, max_wait_ms=60_000)
    if version >= 7:
        _fetch(a, version, {}, session_id=77, session_epoch=3, max_wait_ms=60_000)
        _fetch(a, version, {name: [(0, 0)]}, session_id=77, session_epoch=-1)


@script_for(7, 12)
def fetch_in_a_session(stage: Stage, version: int) -> None:
    """A fetch that opens a session (KIP-227) is answered in full; a server may decline, and Kafka accepts."""
    a = stage.client("a")
    name = stage.topic("fetched", 2)
    _fetch(a, version, {name: [(0, 0)]}, session_epoch=0, max_wait_ms=10)


@script()
def fetch_waits(stage: Stage) -> None:
    """A fetch that finds nothing waits as long as it says, and what follows on its connection waits with it."""
    a = stage.client("a")
    name = stage.topic("fetched", 2)
    a.send(_fetch_request(12, {name: [(0, 0)]}, max_wait_ms=700), 12)
    a.waits()
    _send_metadata(a, 12, [name])
    a.waits()
    a.receive()
    a.receive()


@script_for(1, 4)
def describe_configs(stage: Stage, version: int) -> None:
    """Settings of an unknown topic, of another broker, and of kinds that have none."""
    a = stage.client("a")
    for kind, name in ((2, "no-such-topic"), (2, "a b"), (4, "9"), (4, "x")):
        resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
        a.ask(DescribeConfigsRequest(resources=[resource]), version)
    a.ask(DescribeConfigsRequest(resources=[]), version)


@script_for(1, 4)
def describe_configs_of_the_broker(stage: Stage, version: int) -> None:
    """The settings that matter to a group, by name; unknown names are left out."""
    a = stage.client("a")
    keys = ["group.max.size", "group.min.session.timeout.ms", "no.such.setting"]
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=keys
    )
    a.ask(DescribeConfigsRequest(resources=[resource]), version)


def _topic(
    name: str,
    num_partitions: int = 1,
    replication_factor: int = 1,
    assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] | None = None,
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        assignments=assignments or [],
    )


def _send_metadata(client: Client, version: int, names: list[str], *, create: bool = False) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    client.send(MetadataRequest(topics=topics, allow_auto_topic_creation=create or version < 4), version)


def _metadata(client: Client, version: int, names: list[str], *, create: bool = False) -> MetadataResponse:
    _send_metadata(client, version, names, create=create)
    return cast("MetadataResponse", client.receive())


def _topic_id(client: Client, name: str) -> UUID:
    return _metadata(client, 12, [name]).topics[0].topic_id


def _list_offsets(client: Client, version: int, topics: dict[str, list[tuple[int, int]]]) -> None:
    asked = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                for index, timestamp in partitions
            ],
        )
        for name, partitions in topics.items()
    ]
    client.ask(ListOffsetsRequest(replica_id=-1, topics=asked), version)


def _fetch_request(
    version: int,
    topics: dict[str, list[tuple[int, int]]],
    *,
    max_wait_ms: int = 10,
    min_bytes: int = 1,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    asked = [
        FetchRequest.FetchTopic(
            topic=name,
            partitions=[
                FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000)
                for index, offset in partitions
            ],
        )
        for name, partitions in topics.items()
    ]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1_000_000, topics=asked
    )
    if version >= 7:
        request.session_id, request.session_epoch = session_id, session_epoch
    return request


def _fetch(
    client: Client, version: int, topics: dict[str, list[tuple[int, int]]], *, max_wait_ms: int = 10, **more: int
) -> None:
    client.ask(_fetch_request(version, topics, max_wait_ms=max_wait_ms, **more), version)
