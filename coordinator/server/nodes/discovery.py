"""The cluster as clients see it: its nodes, the coordinator of each group, the leader of each topic partition.

The nodes are this server, or all workers of one server (supervisor.py). They stay the same while the server runs, so
each node gives the same answers; nodes of a test kit may go and come back. The coordinator of a group is the node that
owns the group's partition of `__consumer_offsets`. A topic's partitions go to the nodes in turn; the topic's id decides
which node is the first. The leader of a topic partition keeps its records.

A client gets, for each node, the advertised address of the listener that the client came through. A listener that
listens on all addresses and advertises none gives each client the address that this client reached.

House rule: Metadata and FindCoordinator answer from here and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID, uuid5

from coordinator.config import EVERYWHERE
from coordinator.group.partition import partition_for
from coordinator.log.segments.segment import OFFSETS_TOPIC
from coordinator.log.store import node_in_turn
from coordinator.log.topics.list import Topic
from coordinator.timeline.schema import EVENTS_TOPIC

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.log.store import Owners
    from coordinator.server.nodes.topics import Topics

SEGMENTS_KEPT = 8
"""__rebalance_events has about so many segments: retention removes one of them at a time."""

LEADER_EPOCH = 0
"""The leader epoch of every topic partition: its leader never changes."""


class Reached(Protocol):
    """How a client reached this node."""

    @property
    def listener(self) -> str:
        """The name of the listener."""

    @property
    def local_host(self) -> str:
        """This node's address, as the client connected to it."""


class Node(NamedTuple):
    """A broker, as a client reaches it."""

    node_id: int
    host: str
    port: int


NO_NODE = Node(-1, "", -1)
"""Kafka's Node.noNode."""


class NodeAddresses(NamedTuple):
    """A node, and the address of each of its listeners, by the listener's name."""

    node_id: int
    addresses: Mapping[str, tuple[str, int]]


def node_addresses(config: Config, bound: Mapping[str, tuple[str, int]]) -> NodeAddresses:
    """The addresses that a node gives to clients: those it advertises, else those it is bound to (`bound`, by name)."""
    advertised = {listener.name: (listener.host, listener.port) for listener in config.advertised_listeners}
    return NodeAddresses(config.node_id, {name: advertised.get(name, address) for name, address in bound.items()})


class Discovery:
    """See the module.

    nodes: all nodes, always in the same order. owners: the store's. events_partitions: how many partitions
    __rebalance_events had when the server started; it gets at least one for each node. silent_nodes: the ids of nodes
    that don't answer now. present: the ids of nodes that run; None for all. leading: the ids of nodes that topic
    partitions go to in turn; None for all. The last three may change at any time.
    """

    def __init__(
        self,
        config: Config,
        cluster_id: str,
        topics: Topics,
        nodes: Sequence[NodeAddresses],
        owners: Owners,
        events_partitions: int = 0,
        silent_nodes: Collection[int] = (),
        present: Sequence[int] | None = None,
        leading: Sequence[int] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.topics = topics
        self._owners = owners
        self._silent_nodes = silent_nodes
        node_ids = [node.node_id for node in nodes]
        self.node_ids = node_ids if present is None else present
        self._leading = node_ids if leading is None else leading
        self._nodes = {node.node_id: node for node in nodes}
        offsets_id = uuid5(UUID(int=0), f"{cluster_id}/{OFFSETS_TOPIC}")
        self._offsets = Topic(OFFSETS_TOPIC, offsets_id, config.offsets_topic_num_partitions, offsets_configs(config))
        events_id = uuid5(UUID(int=0), f"{cluster_id}/{EVENTS_TOPIC}")
        events = Topic(EVENTS_TOPIC, events_id, max(len(nodes), events_partitions), events_configs(config))
        self.events = events if config.events_enable else None
        """`__rebalance_events`; None if the configuration turns it off."""

    def nodes(self, call: Reached) -> list[Node]:
        """All nodes, as the client of `call` reaches them; the first is the controller."""
        return [self.node(node_id, call, call.listener) for node_id in self.node_ids]

    def coordinator(self, group_id: str, call: Reached) -> Node:
        """The node that coordinates a group; NO_NODE while it doesn't answer."""
        node_id = self._owners(partition_for(group_id, self._offsets.partition_count))
        return NO_NODE if node_id in self._silent_nodes else self.node(node_id, call, call.listener)

    def node(self, node_id: int, call: Reached, listener: str) -> Node:
        """A node with the address of its listener of that name."""
        host, port = self._nodes[node_id].addresses[listener]
        return Node(node_id, call.local_host if host in EVERYWHERE else host, port)

    def leaders(self, topic: Topic) -> list[int]:
        """The ids of the nodes that lead a topic's partitions, in their order."""
        return [self.leader(topic, partition) for partition in range(topic.partition_count)]

    def leader(self, topic: Topic, partition: int) -> int:
        """The id of the node that leads a topic partition."""
        if topic is self._offsets:
            return self._owners(partition)
        first = 0 if topic.name == EVENTS_TOPIC else topic.topic_id.int
        return node_in_turn(first + partition, self._leading)

    def topic(self, name: str) -> Topic | None:
        """A topic by its name."""
        if name == OFFSETS_TOPIC:
            return self._offsets
        if self.events is not None and name == EVENTS_TOPIC:
            return self.events
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """A topic by its id."""
        if topic_id == self._offsets.topic_id:
            return self._offsets
        if self.events is not None and topic_id == self.events.topic_id:
            return self.events
        return self.topics.get_by_id(topic_id)

    def all_topics(self) -> Iterator[Topic]:
        """Every topic, by name."""
        yield self._offsets
        yield from self.kept_topics()

    def kept_topics(self) -> Iterator[Topic]:
        """Every topic but `__consumer_offsets`: their records are in logs of their own."""
        if self.events is not None:
            yield self.events
        yield from self.topics

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether a topic partition exists."""
        found = self.topic(topic)
        return found is not None and 0 <= partition < found.partition_count


def offsets_configs(config: Config) -> dict[str, str]:
    """The settings of `__consumer_offsets` that tools see: those that Kafka gives it."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }


def events_configs(config: Config) -> dict[str, str]:
    """The settings of `__rebalance_events`: retention by age and size, and segments small enough for it."""
    size, age_ms = config.events_retention_bytes, config.events_retention_ms
    configs = {"cleanup.policy": "delete", "retention.bytes": str(size), "retention.ms": str(age_ms)}
    if size >= 0:
        segment_bytes = max(size // SEGMENTS_KEPT, config.group.message_max_bytes)
        configs["segment.bytes"] = str(min(segment_bytes, config.log_segment_bytes))
    if age_ms >= 0:
        configs["segment.ms"] = str(max(age_ms // SEGMENTS_KEPT, 1))
    return configs
