"""Metadata, DescribeCluster, FindCoordinator; topics created, grown and deleted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from coordinator.config import INT32_MAX
from coordinator.server.requests.topics import CREATE_PARTITIONS_MAX
from protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    FindCoordinatorRequest,
    Message,
    MetadataRequest,
    OffsetFetchRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, serving
from tests.support.requests import commit_request, request, topics_request

NO_ID = UUID(int=0)


def metadata_request(*names: str, create: bool = False, **fields: Any) -> MetadataRequest:
    """Metadata of topics by name."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **fields)


async def test_everything_is_shown_who_asks_for_everything() -> None:
    """This node, the cluster, and every topic with its partitions, each led and kept by this node."""
    async with connected("node.id=7") as (server, peer):
        answer = await peer.ask(MetadataRequest(topics=None), 12)
        host, port = server.server.address
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(7, host, port)]
        assert answer.controller_id == 7
        assert answer.cluster_id
        offsets, orders = answer.topics
        assert (offsets.name, offsets.is_internal, len(offsets.partitions)) == ("__consumer_offsets", True, 4)
        assert (orders.name, orders.is_internal, len(orders.partitions)) == ("orders", False, 3)
        assert NO_ID not in {offsets.topic_id, orders.topic_id}
        for index, partition in enumerate(orders.partitions):
            assert (partition.error_code, partition.partition_index) == (ErrorCode.NONE, index)
            assert (partition.leader_id, partition.leader_epoch) == (7, 0)
            assert partition.replica_nodes == partition.isr_nodes == [7]
        assert answer.cluster_authorized_operations == orders.topic_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", range(13))
async def test_metadata_is_answered_in_every_version(peer: Peer, version: int) -> None:
    """An empty list asks for all topics in version 0, and for none in later versions."""
    answer = await peer.ask(MetadataRequest(topics=[]), version)
    assert [topic.name for topic in answer.topics] == ([] if version else ["__consumer_offsets", "orders"])
    answer = await peer.ask(metadata_request("orders", "absent", "orders", create=version < 4), version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("orders", ErrorCode.NONE),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_topics_are_found_by_id(peer: Peer) -> None:
    """From v12 on. An unknown id gets UNKNOWN_TOPIC_ID."""
    everything = await peer.ask(MetadataRequest(topics=None), 12)
    known = everything.topics[1].topic_id
    topics = [MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in (known, UUID(int=999))]
    answer = await peer.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("orders", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    answer = await peer.ask(MetadataRequest(topics=topics[:1], allow_auto_topic_creation=False), 11)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("", ErrorCode.INVALID_REQUEST)]


async def test_a_missing_topic_is_created_if_both_sides_want_it() -> None:
    """The first answer calls it unknown, the next shows it with num.partitions; invalid names are refused."""
    async with connected("num.partitions=5") as (_, peer):
        answer = await peer.ask(metadata_request("fresh", "in/valid", create=True), 9)
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        answer = await peer.ask(metadata_request("fresh"), 9)
        assert (answer.topics[0].error_code, len(answer.topics[0].partitions)) == (ErrorCode.NONE, 5)


async def test_a_change_that_comes_after_its_timeout_is_made(
    peer: Peer, server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gets REQUEST_TIMED_OUT. The result that comes later is taken quietly, and the topic is there."""
    topics = server.server._topics
    held: list[Any] = []
    with monkeypatch.context() as slow:
        slow.setattr(topics, "_write", lambda _, done: held.append(done))
        await peer.send(topics_request({"late": 2}, timeout_ms=2_000), 5)
        await server.until(lambda: bool(held))
        await server.advance(1_999)
        assert peer.is_silent()
        await server.advance(1)
        answer = await peer.receive()
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    (done,) = held
    done({})
    answer = await peer.ask(metadata_request("late"), 9)
    assert (answer.topics[0].error_code, len(answer.topics[0].partitions)) == (ErrorCode.NONE, 2)


async def test_a_change_whose_client_has_gone_leaves_no_timer(
    peer: Peer, server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may name a timeout of weeks and close its connection: the call ends with the change."""
    held: list[Any] = []
    monkeypatch.setattr(server.server._topics, "_write", lambda _, done: held.append(done))
    await peer.send(topics_request({"late": 2}, timeout_ms=INT32_MAX), 5)
    await server.until(lambda: bool(held))
    waits = server.server._api._services.waits
    assert len(waits._timers) == 1
    peer.close()
    await server.until(lambda: not server.connections())
    (done,) = held
    done({})
    assert len(waits._timers) == 0


@pytest.mark.parametrize("name", ["__rebalance_events", "__rebalance.events", "__cluster_metadata"])
async def test_metadata_creates_no_topic_of_the_servers_own(name: str) -> None:
    """Even where `__rebalance_events` does not exist, because it is turned off."""
    async with connected("tenure.events.enable=false") as (_, peer):
        for _ in range(2):
            (answer,) = (await peer.ask(metadata_request(name, create=True), 9)).topics
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_clients_are_told_the_advertised_address() -> None:
    """By Metadata and by FindCoordinator alike."""
    async with connected("advertised.listeners=PLAINTEXT://kafka.example:19092") as (_, peer):
        (broker,) = (await peer.ask(MetadataRequest(topics=None), 9)).brokers
        assert (broker.host, broker.port) == ("kafka.example", 19092)
        found = await peer.ask(FindCoordinatorRequest(key="g"), 2)
        assert (found.host, found.port) == ("kafka.example", 19092)


async def test_a_server_that_listens_everywhere_tells_each_client_the_address_it_reached() -> None:
    """No client can connect to 0.0.0.0."""
    async with serving("listeners=PLAINTEXT://0.0.0.0:0") as server:
        server.server.addresses[0] = ("127.0.0.1", server.server.address[1])
        peer = await server.peer()
        (broker,) = (await peer.ask(MetadataRequest(topics=None), 9)).brokers
        assert (broker.host, broker.port) == server.server.address


# CreateTopics.


def topic(name: str, partitions: int = 2, replicas: int = 1, **fields: Any) -> CreateTopicsRequest.CreatableTopic:
    """A topic to create."""
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **fields
    )


def assigned(*brokers: list[int]) -> list[CreateTopicsRequest.CreatableReplicaAssignment]:
    """A manual assignment of partitions 0, 1, ..."""
    return [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
        for index, ids in enumerate(brokers)
    ]


def config(name: str, value: str) -> list[CreateTopicsRequest.CreatableTopicConfig]:
    """One setting of a topic."""
    return [CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)]


async def partitions_of(peer: Peer, name: str) -> int:
    """How many partitions a topic has; 0 if there is no such topic."""
    return len((await peer.ask(metadata_request(name), 9)).topics[0].partitions)


@pytest.mark.parametrize("version", range(8))
async def test_a_topic_is_created(peer: Peer, version: int) -> None:
    """It exists when the answer comes; creating it a second time fails."""
    (result,) = (await peer.ask(CreateTopicsRequest(topics=[topic("fresh", 4)]), version)).topics
    assert (result.name, result.error_code) == ("fresh", ErrorCode.NONE)
    assert not result.error_message
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (4, 1)
        assert {entry.name for entry in result.configs} >= {"cleanup.policy", "retention.ms"}
    if version >= 7:
        assert result.topic_id != NO_ID
    assert await partitions_of(peer, "fresh") == 4
    (result,) = (await peer.ask(CreateTopicsRequest(topics=[topic("fresh")]), version)).topics
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    "asked, error",
    [
        (topic("orders"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("__consumer_offsets"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic("__rebalance_events"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("__rebalance.events"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__consumer.offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", CREATE_PARTITIONS_MAX + 1), ErrorCode.POLICY_VIOLATION),
        (topic("t", 1, 1, assignments=assigned([1])), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, -1, assignments=assigned([2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=assigned([])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=assigned([1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=assigned([1], [1])[1:]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=assigned([1]) * 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", configs=config("no.such.thing", "1")), ErrorCode.INVALID_CONFIG),
    ],
)
async def test_a_topic_that_can_not_be_is_refused_with_a_reason(
    peer: Peer, asked: CreateTopicsRequest.CreatableTopic, error: ErrorCode
) -> None:
    """It gets the right code and a message; the topic beside it is created."""
    request = CreateTopicsRequest(topics=[asked, topic("other")])
    refused, other = (await peer.ask(request, 5)).topics
    assert refused.error_code == error
    assert refused.error_message
    assert (refused.num_partitions, refused.replication_factor) == (-1, -1)
    if error is ErrorCode.POLICY_VIOLATION:
        assert other.error_code == error
    else:
        assert (other.error_code, await partitions_of(peer, "other")) == (ErrorCode.NONE, 2)


async def test_a_name_that_stands_there_twice_is_created_not_at_all(peer: Peer) -> None:
    """Nor is a name that collides with another name of the same request."""
    names = ["a", "a", "b.c", "b_c"]
    results = (await peer.ask(CreateTopicsRequest(topics=[topic(name) for name in names]), 5)).topics
    assert {result.name: result.error_code for result in results} == {
        "a": ErrorCode.INVALID_REQUEST,
        "b.c": ErrorCode.NONE,
        "b_c": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert await partitions_of(peer, "a") == 0


async def test_defaults_and_assignments_count_the_partitions() -> None:
    """-1 means num.partitions; a manual assignment gives as many as it names."""
    async with connected("num.partitions=6") as (_, peer):
        topics = [topic("default", -1, -1), topic("manual", -1, -1, assignments=assigned([1], [1], [1]))]
        results = (await peer.ask(CreateTopicsRequest(topics=topics), 5)).topics
        assert [result.num_partitions for result in results] == [6, 3]
        assert await partitions_of(peer, "manual") == 3


async def test_names_that_collide_in_one_auto_creation(peer: Peer) -> None:
    """The first is created, the second is not, and no name stays taken."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("a.b", "a_b", "__consumer.offsets")]
    await peer.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)
    again = (await peer.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)).topics
    assert [topic.error_code == ErrorCode.NONE for topic in again] == [True, False, False]


# CreatePartitions.


def partitions_request(*asked: tuple[str, int, int | None], validate_only: bool = False) -> Message:
    """By (topic, count, brokers that are named one each)."""
    topics = [
        {"name": name, "count": count, "assignments": None if given is None else [{"broker_ids": [1]}] * given}
        for name, count, given in asked
    ]
    return request("CreatePartitions", topics=topics, timeout_ms=1_000, validate_only=validate_only)


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows(peer: Peer, version: int) -> None:
    """It keeps its id and settings. A request that can't be met is refused; one that only validates changes nothing."""
    before = (await peer.ask(metadata_request("orders"), 12)).topics[0].topic_id
    asked = [("orders", 5, None), ("absent", 5, None), ("__consumer_offsets", 99, None)]
    for validate_only in (True, False):
        assert await partitions_of(peer, "orders") == 3
        answer = await peer.ask(partitions_request(*asked, validate_only=validate_only), version)
        assert [each.error_code for each in answer.results] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
    assert await partitions_of(peer, "orders") == 5
    assert (await peer.ask(metadata_request("orders"), 12)).topics[0].topic_id == before


@pytest.mark.parametrize(
    ("count", "given", "error"),
    [
        (3, None, ErrorCode.INVALID_PARTITIONS),
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (CREATE_PARTITIONS_MAX + 1, None, ErrorCode.INVALID_PARTITIONS),
        (5, 1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (5, 2, ErrorCode.NONE),
    ],
)
async def test_how_a_topic_may_grow(peer: Peer, count: int, given: int | None, error: ErrorCode) -> None:
    """To more partitions than it has, within the limit; replicas, if named, must be named for each new partition."""
    answer = await peer.ask(partitions_request(("orders", count, given)), 3)
    assert answer.results[0].error_code == error
    assert await partitions_of(peer, "orders") == (3 if error else count)


# DeleteTopics.


def named(version: int, *names: str) -> DeleteTopicsRequest:
    """A request by name, in the form of its version."""
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1_000)
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topics=topics, timeout_ms=1_000)


@pytest.mark.parametrize("version", range(7))
async def test_a_topic_is_deleted(version: int) -> None:
    """It is gone when the answer comes; an unknown topic is an error, and the groups' own topic can't be deleted."""
    async with connected("tenure.topics=orders:3,bills:1") as (_, peer):
        answer = await peer.ask(named(version, "orders", "absent", "__consumer_offsets"), version)
        assert [(each.name, each.error_code) for each in answer.responses] == [
            ("orders", ErrorCode.NONE),
            ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("__consumer_offsets", ErrorCode.INVALID_REQUEST),
        ]
        everything = await peer.ask(MetadataRequest(topics=None), 12)
        assert [topic.name for topic in everything.topics] == ["__consumer_offsets", "bills"]
        answer = await peer.ask(named(version, "bills", "bills"), version)
        assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST]


async def test_a_topic_is_deleted_by_its_id(peer: Peer) -> None:
    """An unknown id is an error. A topic named by both id and name, or by neither, is an error too."""
    topic_id = (await peer.ask(metadata_request("orders"), 12)).topics[0].topic_id
    state = DeleteTopicsRequest.DeleteTopicState
    asked = [
        state(topic_id=UUID(int=99)),
        state(name="orders", topic_id=topic_id),
        state(),
        state(topic_id=topic_id),
    ]
    answer = await peer.ask(DeleteTopicsRequest(topics=asked, timeout_ms=1_000), 6)
    assert [each.error_code for each in answer.responses] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert (answer.responses[3].name, answer.responses[3].topic_id) == ("orders", topic_id)


async def test_offsets_in_a_topic_that_is_deleted_go_with_it() -> None:
    """Of every group, even if a topic of the same name is created later; offsets in other topics stay."""
    async with connected("tenure.topics=orders:3,bills:1") as (server, peer):
        await server.loaded()
        for group in ("one", "two"):
            committed = await peer.ask(commit_request(group, {("orders", 0): 7, ("bills", 0): 7}), 8)
            assert [topic.partitions[0].error_code for topic in committed.topics] == [0, 0]
        await peer.ask(named(6, "orders"), 6)
        await peer.ask(metadata_request("orders", create=True), 12)
        for group in ("one", "two"):
            answer = await peer.ask(OffsetFetchRequest(group_id=group, topics=None), 7)
            found = {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}
            assert found == {"bills": 7}


@pytest.mark.parametrize("version", range(2))
async def test_the_cluster_is_described(version: int) -> None:
    """With the same nodes as in Metadata; only brokers can be asked for, not controllers."""
    async with connected("node.id=7") as (server, peer):
        answer = await peer.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
        host, port = server.server.address
        assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(7, host, port)]
        assert (answer.controller_id, answer.error_code) == (7, 0)
        assert answer.cluster_id == (await peer.ask(MetadataRequest(topics=[]), 4)).cluster_id
        assert answer.cluster_authorized_operations > 0
        if version >= 1:
            for endpoint_type, error in (
                (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
                (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            ):
                answer = await peer.ask(DescribeClusterRequest(endpoint_type=endpoint_type), version)
                assert answer.error_code == error
