"""Topics: create them, find the ends of their logs, and the logs that fail.

House rule: as in groups, this module hides the differences between servers and versions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Struct

from coordinator.client.client import Client, Node, metadata_request, nodes_of
from coordinator.client.errors import Refused, Unreachable
from coordinator.story.described import CoordinatorNode, FailingLog, StoreHealth
from coordinator.story.events import says
from protocol.messages import (
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    ListOffsetsRequest,
    MetadataRequest,
)

if TYPE_CHECKING:
    from protocol.messages import (
        CreateTopicsResponse,
        DescribeClusterResponse,
        DescribeConfigsResponse,
        ListOffsetsResponse,
        MetadataResponse,
    )

GROUPS_TOPIC = "__consumer_offsets"

TopicPartition = tuple[str, int]

LATEST = -1
"""ListOffsets' timestamp for the end of the log."""
EARLIEST = -2
"""ListOffsets' timestamp for the first record of the log."""
LEADERS_S = 20.0
"""How long an answer about leaders counts."""
CONSUMER_REPLICA = -1
"""ListOffsets' replica id for a consumer, which is no replica."""

TOPIC, BROKER, GROUP = 2, 4, 32
"""Types of the resources that have settings (KIP-1043 for the last one)."""


def described_settings(
    client: Client, kind: int, names: Iterable[str], keys: Iterable[str] | None = None, node: Node | None = None
) -> list[DescribeConfigsResponse.DescribeConfigsResult]:
    """The settings of resources of a kind, a result for each. keys: those that are asked for; None for all."""
    wanted = None if keys is None else list(keys)
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=wanted
        )
        for name in names
    ]
    response: DescribeConfigsResponse = client.request(DescribeConfigsRequest(resources=resources), node, at_least=1)
    return response.results


def create_topic(client: Client, name: str, partition_count: int) -> None:
    """Create a topic with one replica. Raises `Refused` if the cluster refuses."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(client.timeout * 1_000))
    response: CreateTopicsResponse = client.request(request)
    for result in response.topics:
        if result.error_code:
            raise client.refused(result.error_code, f"topic {result.name!r}", CreateTopicsRequest, result.name)


def user_topics(client: Client) -> dict[str, int]:
    """The number of partitions by topic, of all topics but internal ones."""
    response: MetadataResponse = client.request(MetadataRequest(topics=None))
    return {topic.name or "": len(topic.partitions) for topic in response.topics if not topic.is_internal}


def log_end_offsets(
    client: Client,
    topic_partitions: Iterable[TopicPartition],
    which: int | Mapping[TopicPartition, int] = LATEST,
    leaders: Leaders | None = None,
    *,
    only_committed: bool = False,
) -> dict[TopicPartition, int]:
    """The offset behind the last record, of each topic partition that has a leader and answers.

    which: EARLIEST for the offset of the first record; or by topic partition a time (Unix time in ms), for the first
    record that is as young, -1 for none. leaders: as far as known. only_committed: where readers of committed records
    stop.
    """
    leaders = leaders or Leaders()
    wanted = set(topic_partitions)
    if not wanted:
        return {}
    of_all, times = (which, {}) if isinstance(which, int) else (LATEST, which)
    ends: dict[TopicPartition, int] = {}
    for node, led in leaders.of(client, wanted).items():
        topics = [
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=pair[1], timestamp=times[pair] if times else of_all
                    )
                    for pair in some
                ],
            )
            for topic, some in groupby(led, itemgetter(0))
        ]
        request = ListOffsetsRequest(replica_id=CONSUMER_REPLICA, isolation_level=only_committed, topics=topics)
        response: ListOffsetsResponse = client.request(request, node, at_least=2 if only_committed else 1)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    leaders.forget(topic.name)
                else:
                    ends[topic.name, partition.partition_index] = partition.offset
    return ends


class NodeHealth(NamedTuple):
    """The words of a cluster's nodes about their logs and their shared store; only Tenure's nodes have them.

    failing, failing_count: the logs that they can't write or read, some of each node, and how many there are of all.
    stores: how the store of each node does, by the node's id. away: the ids of nodes that don't answer, and have gone.
    """

    failing: list[FailingLog]
    failing_count: int
    stores: dict[int, StoreHealth]
    away: list[int]


def node_health(client: Client) -> NodeHealth:
    """Ask each node. Raises Unreachable if one doesn't answer that is still a node of the cluster."""
    health = NodeHealth([], 0, {}, [])
    for node in client.nodes():
        try:
            response: DescribeClusterResponse = client.request(DescribeClusterRequest(include_failing_logs=True), node)
        except Refused:
            continue  # Kafka before 2.8 doesn't know DescribeCluster
        except Unreachable:
            if node in client.nodes():
                raise
            health.away.append(node.node_id)
            continue
        health.failing.extend(FailingLog(each.name, each.since_ms, each.reason) for each in response.failing_logs)
        health = health._replace(failing_count=health.failing_count + response.failing_log_count)
        told = response.store
        if told.calls >= 0:
            health.stores[node.node_id] = StoreHealth(
                told.calls, told.slow, told.lost, told.longest_ms, told.used, told.quota
            )
    return health


class Owners(NamedTuple):
    """The owners of the groups' log. nodes: each that lives, with its partitions. nobody: the others."""

    nodes: dict[Node, list[int]]
    nobody: list[int]


def partition_owners(client: Client) -> Owners:
    """The nodes of the cluster with their partitions of the groups' log; no partitions if there is no such log yet."""
    response: MetadataResponse = client.request(metadata_request([GROUPS_TOPIC]), at_least=4)
    nodes = nodes_of(response)
    owners = Owners({nodes[node_id]: [] for node_id in sorted(nodes)}, [])
    for topic in response.topics:
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index):
            node = nodes.get(partition.leader_id)
            (owners.nobody if node is None else owners.nodes[node]).append(partition.partition_index)
    return owners


class OwnerJson(CoordinatorNode, frozen=True):
    """A node and its partitions of the groups' log, as JSON."""

    partitions: list[int]


class OwnersJson(Struct):
    """The nodes of a cluster and what they have, as JSON."""

    nodes: list[OwnerJson]
    partitions_without_node: Annotated[list[int], says("of `__consumer_offsets`, as partitions are")]


def owners_json(owners: Owners) -> OwnersJson:
    """The nodes of a cluster and what they have, as JSON."""
    nodes = [OwnerJson(node.node_id, *node.address, partitions) for node, partitions in owners.nodes.items()]
    return OwnersJson(nodes, owners.nobody)


class Leaders:
    """The nodes that lead topic partitions, for a caller that asks often. clock: in seconds.

    An answer counts for LEADERS_S, or until a node says that it doesn't lead.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._topics: dict[str, tuple[float, list[Node | None]]] = {}
        """By topic, when it was asked for, and the leader of each topic partition."""

    def counts(self, client: Client, names: Iterable[str]) -> dict[str, int]:
        """The number of partitions by topic; unknown topics are left out."""
        asked = set(names)
        self._ask(client, asked)
        return {name: len(self._topics[name][1]) for name in asked if name in self._topics}

    def of(self, client: Client, wanted: set[TopicPartition]) -> dict[Node, list[TopicPartition]]:
        """Topic partitions by the node that leads them, in order."""
        self._ask(client, {name for name, _index in wanted})
        led: dict[Node, list[TopicPartition]] = {}
        for topic, pairs in groupby(sorted(wanted), itemgetter(0)):
            _, nodes = self._topics.get(topic, (0, []))
            for pair in pairs:
                node = nodes[pair[1]] if pair[1] < len(nodes) else None
                if node is not None:
                    led.setdefault(node, []).append(pair)
        return led

    def forget(self, topic: str | None = None) -> None:
        """Ask for the topic, or for all, again when somebody wants it."""
        if topic is None:
            self._topics.clear()
        else:
            self._topics.pop(topic, None)

    def _ask(self, client: Client, names: set[str]) -> None:
        now = self._clock()
        old = {name for name in names if name not in self._topics or now - self._topics[name][0] >= LEADERS_S}
        if not old:
            return
        response: MetadataResponse = client.request(metadata_request(sorted(old)), at_least=4)
        by_id = nodes_of(response)
        for topic in response.topics:
            self.forget(topic.name or "")
            if not topic.error_code:
                leaders = {each.partition_index: by_id.get(each.leader_id) for each in topic.partitions}
                nodes = [leaders.get(index) for index in range(len(leaders))]
                self._topics[topic.name or ""] = now - LEADERS_S * (None in nodes), nodes
