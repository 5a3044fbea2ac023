"""The cluster as clients see it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from coordinator.config import configs_of_workers
from coordinator.group.partition import partition_for
from coordinator.log.cluster import NodeAddresses
from coordinator.log.engine import NOBODY
from coordinator.log.segments.segment import OFFSETS_TOPIC
from coordinator.log.store import node_in_turn
from coordinator.log.topics.list import Topic
from coordinator.server.nodes.discovery import (
    Discovery,
    Node,
    events_configs,
    node_addresses,
)
from coordinator.server.nodes.topics import Topics
from coordinator.server.wire.call import Call
from coordinator.story.schema import EVENTS_TOPIC
from tests.server.harness import Sender, config_of, endless_calls


def discovery_of(*settings: str, ports: Mapping[str, int] | None = None) -> Discovery:
    """With a topic of three partitions. ports: the ports of listeners with port 0."""
    config = config_of(*settings)
    bound = {
        listener.name: (listener.host, (ports or {}).get(listener.name, listener.port)) for listener in config.listeners
    }
    topics = Topics({"orders": Topic("orders", UUID(int=5), 3)}, lambda _, __: None)
    return Discovery(config, "cluster", topics, [node_addresses(config, bound)], lambda _: config.node_id)


def leaders(discovery: Discovery, topic: Topic) -> list[int]:
    """Return the ids of the nodes that lead a topic's partitions, in their order."""
    return [discovery.leader(topic, partition) for partition in range(topic.partition_count)]


def cluster_of(*settings: str) -> list[Discovery]:
    """The discovery of each of several workers."""
    configs = configs_of_workers(config_of(*settings))
    nodes = [node_addresses(each, {one.name: (one.host, one.port) for one in each.listeners}) for each in configs]
    topics = Topics({"orders": Topic("orders", UUID(int=5), 3)}, lambda _, __: None)
    owners = partial(node_in_turn, node_ids=[each.node_id for each in configs])
    return [Discovery(each, "cluster", topics, nodes, owners) for each in configs]


def call_through(listener: str) -> Call:
    """A request that came through a listener."""
    return Call(3, 0, 1, "c", Sender(listener, "10.0.0.9"), lambda *_: None, endless_calls())


@pytest.mark.parametrize(
    "listen, advertised, expected",
    [
        ("127.0.0.1:9092", None, ("127.0.0.1", 9092)),
        ("127.0.0.1:9092", "kafka:19092", ("kafka", 19092)),
        ("0.0.0.0:9092", None, ("10.0.0.9", 9092)),
        (":9092", None, ("10.0.0.9", 9092)),
        ("[::]:9092", None, ("10.0.0.9", 9092)),
        (":9092", "kafka:19092", ("kafka", 19092)),
    ],
)
def test_a_client_is_told_an_address_that_it_can_reach(
    listen: str, advertised: str | None, expected: tuple[str, int]
) -> None:
    """The advertised address; else the listener's; else the one that this client reached."""
    settings = [f"listeners=PLAINTEXT://{listen}"]
    if advertised is not None:
        settings.append(f"advertised.listeners=PLAINTEXT://{advertised}")
    (node,) = discovery_of(*settings).nodes(call_through("PLAINTEXT"))
    assert (node.host, node.port) == expected


def test_each_listener_has_its_own_address() -> None:
    """A client from inside gets the inside address, a client from outside the outside one."""
    discovery = discovery_of(
        "listeners=IN://:29092,OUT://:9092",
        "advertised.listeners=IN://broker:29092,OUT://localhost:9092",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
    )
    assert discovery.nodes(call_through("IN")) == [Node(1, "broker", 29092)]
    assert discovery.nodes(call_through("OUT")) == [Node(1, "localhost", 9092)]


def test_a_free_port_is_told_once_it_is_known() -> None:
    """Clients get the port that the system chose, not the 0 of the setting."""
    discovery = discovery_of("listeners=PLAINTEXT://localhost:0", ports={"PLAINTEXT": 4711})
    assert discovery.nodes(call_through("PLAINTEXT")) == [Node(1, "localhost", 4711)]


def test_workers_are_told_by_each_of_them_alike() -> None:
    """Node ids count up, and so do ports, also advertised ones; a client gets the ports of its listener."""
    listening = "listeners=IN://:29092,OUT://:9092"
    names = "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT"
    for discovery in cluster_of(listening, "advertised.listeners=OUT://kafka:19092", names, "tenure.workers=3"):
        assert discovery.nodes(call_through("IN")) == [Node(index, "10.0.0.9", 29092 + index) for index in range(3)]
        assert discovery.nodes(call_through("OUT")) == [Node(index, "kafka", 19092 + index) for index in range(3)]


def test_a_group_is_where_its_partition_is() -> None:
    """Of N workers, worker p % N owns partition p, and leads the same partition in Metadata."""
    groups = [f"group-{number}" for number in range(20)]
    for discovery in cluster_of("listeners=PLAINTEXT://a:9092", "tenure.workers=3"):
        call = call_through("PLAINTEXT")
        found = [discovery.coordinator(group, call) for group in groups]
        assert [node.node_id for node in found] == [partition_for(group, 4) % 3 for group in groups]
        assert {node.port for node in found} == {9092, 9093, 9094}
        offsets = discovery.topic(OFFSETS_TOPIC)
        assert offsets is not None
        assert leaders(discovery, offsets) == [0, 1, 2, 0]


def test_the_leader_in_the_groups_log_is_its_owner() -> None:
    """Metadata and FindCoordinator both ask the store's owners."""
    nodes = [NodeAddresses(node_id, {"PLAINTEXT": ("a", 9092 + node_id)}) for node_id in (1, 2)]
    owners = [2, 2, 1]
    config = config_of("offsets.topic.num.partitions=3")
    discovery = Discovery(config, "cluster", Topics({}, lambda _, __: None), nodes, owners.__getitem__)
    offsets = discovery.topic(OFFSETS_TOPIC)
    assert offsets is not None
    assert leaders(discovery, offsets) == owners
    group = next(each for each in "abcdefgh" if partition_for(each, 3) == 0)
    assert discovery.coordinator(group, call_through("PLAINTEXT")).node_id == 2


def test_topic_partitions_are_dealt_out_in_turn() -> None:
    """The first node depends on the topic, so that topics of one partition are spread too."""
    for discovery in cluster_of("listeners=PLAINTEXT://a:9092", "tenure.workers=2"):
        found = [leaders(discovery, Topic("t", UUID(int=number), 3)) for number in (4, 5)]
        assert found == [[0, 1, 0], [1, 0, 1]]


def test_nodes_come_and_go() -> None:
    """Clients see the nodes that are present now, and the leaders that the turn has now."""
    configs = configs_of_workers(config_of("tenure.workers=3", "listeners=PLAINTEXT://127.0.0.1:9092"))
    nodes = [node_addresses(each, {one.name: (one.host, one.port) for one in each.listeners}) for each in configs]
    topics = Topics({"orders": Topic("orders", UUID(int=3), 3)}, lambda _, __: None)
    present, leading = [0, 1, 2], [0, 1, 2]
    discovery = Discovery(configs[0], "cluster", topics, nodes, lambda _: 0, present=present, leading=leading)
    call, orders = call_through("PLAINTEXT"), topics.get("orders")
    assert orders is not None
    assert [node.port for node in discovery.nodes(call)] == [9092, 9093, 9094]
    assert leaders(discovery, orders) == [0, 1, 2]
    present.remove(0)
    leading[0] = 2
    assert [node.port for node in discovery.nodes(call)] == [9093, 9094]
    assert leaders(discovery, orders) == [2, 1, 2]


def test_topics_are_found_by_name_and_id() -> None:
    """Also `__consumer_offsets`, whose id is the same at every start."""
    discovery, again = discovery_of(), discovery_of()
    orders, offsets = discovery.topic("orders"), discovery.topic(OFFSETS_TOPIC)
    assert orders is not None
    assert offsets is not None
    assert [topic.name for topic in discovery.all_topics()] == [OFFSETS_TOPIC, "orders"]
    assert discovery.topic_by_id(orders.topic_id) is orders
    assert discovery.topic_by_id(offsets.topic_id) is offsets
    assert again.topic(OFFSETS_TOPIC) == offsets
    assert discovery.topic("absent") is None
    assert discovery.topic_by_id(UUID(int=6)) is None


def test_a_topic_has_as_many_partitions_as_it_says() -> None:
    """Numbered from 0, and no others."""
    discovery = discovery_of()
    assert [index for index in range(-2, 6) if discovery.has_partition("orders", index)] == [0, 1, 2]
    assert not discovery.has_partition("absent", 0)


def test_the_topic_of_events_has_a_partition_for_each_node() -> None:
    """Each node leads one and writes events there. The topic keeps more partitions if there were more nodes before."""
    for discovery in cluster_of("tenure.workers=2", "tenure.events.enable=true"):
        topic = discovery.topic(EVENTS_TOPIC)
        assert topic is not None
        assert topic is discovery.topic_by_id(topic.topic_id) is discovery.events
        assert leaders(discovery, topic) == discovery.node_ids
        assert [each.name for each in discovery.all_topics()] == [OFFSETS_TOPIC, EVENTS_TOPIC, "orders"]
        assert [each.name for each in discovery.kept_topics()] == [EVENTS_TOPIC, "orders"]
    topics = Topics({}, lambda _, __: None)
    nodes = [NodeAddresses(1, {})]
    grown = Discovery(config_of("tenure.events.enable=true"), "cluster", topics, nodes, lambda _: 1, 3).events
    assert grown is not None
    assert grown.partition_count == 3


class Living:
    """The nodes of a cluster that live, by id."""

    def __init__(self, *node_ids: int) -> None:
        self.living = [NodeAddresses(node_id, {}) for node_id in node_ids]

    def nodes(self) -> list[NodeAddresses]:
        """As log.cluster.Cluster."""
        return self.living


def test_events_of_nodes_that_are_away_have_a_place() -> None:
    """Their partitions have no leader, but a replica; those of ids that no node has have neither."""
    cluster: Any = Living(11, 13, 14)
    discovery = Discovery(
        config_of("tenure.events.enable=true"),
        "cluster",
        Topics({}, lambda _, __: None),
        [NodeAddresses(11, {})],
        lambda _: 11,
        cluster=cluster,
    )
    topic = discovery.events
    assert topic is not None
    assert topic.partition_count == 15
    cluster.living = cluster.living[:2]
    without = [each for each, leader in enumerate(leaders(discovery, topic)) if leader == NOBODY]
    assert without == [*range(11), 12, 14]
    assert [each for each in without if discovery.replicas(topic, each) == [each]] == [12, 14]
    assert [each for each in without if discovery.replicas(topic, each) == []] == [*range(11)]


def test_events_have_limits() -> None:
    """By age and size, in segments that are small enough for both."""
    configs = events_configs(
        config_of("tenure.events.retention.ms=8000", "tenure.events.retention.bytes=80000000"),
    )
    assert configs == {
        "cleanup.policy": "delete",
        "retention.bytes": "80000000",
        "retention.ms": "8000",
        "segment.bytes": "10000000",
        "segment.ms": "1000",
    }
    for_ever = events_configs(config_of("tenure.events.retention.ms=-1", "tenure.events.retention.bytes=-1"))
    assert for_ever == {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
