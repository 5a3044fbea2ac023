"""The cluster as clients see it: its nodes, the coordinator of each group, the leader of each topic partition.

The nodes are this server, or all workers of one server (supervisor.py). They stay the same while the server runs, so
each node gives the same answers; nodes of a test kit may go and come back. In a cluster (`log.cluster`) they are those
that live at the moment of each request. The controller is the first node; in a cluster, the owner of partition 0 of
`__consumer_offsets`. The coordinator of a group is the node that owns the group's partition of `__consumer_offsets`,
that of a transactional id the node that owns the id's partition of `__transaction_state`. A topic's partitions go to
the nodes in turn; the topic's id decides which node is the first. The leader of a topic partition keeps its records. In
place of a node that doesn't live stands NOBODY, the id that Kafka gives to no node.

A client gets, for each node, the advertised address of the listener that the client came through. A listener that
listens on all addresses and advertises none gives each client the address that this client reached.

House rule: Metadata and FindCoordinator answer from here and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID, uuid5

from coordinator.config import EVERYWHERE, Config
from coordinator.group.partition import partition_for
from coordinator.log.cluster import Cluster, NodeAddresses, StoreNumbers
from coordinator.log.embedded.engine import SEGMENT_SIZE
from coordinator.log.engine import NOBODY
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from coordinator.log.store import Owners, node_in_turn
from coordinator.log.topics.list import Topic
from coordinator.server.nodes.topics import Topics
from coordinator.story.schema import EVENTS_TOPIC

SEGMENTS_KEPT = 8
"""__rebalance_events has about so many segments: retention removes one of them at a time."""

IDS_CONFIGS = {"cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": str(SEGMENT_SIZE)}
"""The settings of `__transaction_state` that tools see; Kafka has larger segments."""

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


def node_addresses(config: Config, bound: Mapping[str, tuple[str, int]]) -> NodeAddresses:
    """The addresses that a node gives to clients: those it advertises, else those it is bound to (`bound`, by name)."""
    advertised = {listener.name: (listener.host, listener.port) for listener in config.advertised_listeners}
    return NodeAddresses(config.node_id, {name: advertised.get(name, address) for name, address in bound.items()})


class Discovery:
    """See the module.

    offsets: the topic `__consumer_offsets`.
    nodes: all nodes, always in the same order. owners: the store's. events_partitions: how many partitions
    __rebalance_events had when the server started; it gets at least one for each node. silent_nodes: the ids of nodes
    that don't answer now. present: the ids of nodes that run; None for all. leading: the ids of nodes that topic
    partitions go to in turn; None for all. The last three may change at any time.
    cluster: the store's; then `nodes` is this node alone, and neither `owners` nor the last three count.
    owners_of_ids: of the partitions of `__transaction_state`; None if there are none. shows_ids: whether there is
    such a topic. is_fixed: whether nodes and leaders stay the same while the server runs.
    is_never_silent: whether all nodes always answer, as the only one does.
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
        *,
        cluster: Cluster | None = None,
        owners_of_ids: Owners | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.topics = topics
        self.is_fixed = cluster is None and present is None and leading is None
        self.is_never_silent = silent_nodes == ()
        self._owners = owners
        self._owners_of_ids = owners_of_ids
        self._silent_nodes = silent_nodes
        node_ids = [node.node_id for node in nodes]
        self._cluster = cluster
        # The nodes of a cluster as last seen, and the same by their ids.
        self._seen: Sequence[NodeAddresses] | None = None
        self._seen_live: dict[int, NodeAddresses] = {}
        # The ids of all nodes that lived since this one started.
        self._known: set[int] = set()
        self._present = node_ids if present is None else present
        self._leading = node_ids if leading is None else leading
        self._nodes = {node.node_id: node for node in nodes}
        offsets_id = uuid5(UUID(int=0), f"{cluster_id}/{OFFSETS_TOPIC}")
        self.offsets = Topic(OFFSETS_TOPIC, offsets_id, config.offsets_topic_num_partitions, offsets_configs(config))
        ids_id = uuid5(UUID(int=0), f"{cluster_id}/{TRANSACTIONS_TOPIC}")
        self._ids = Topic(TRANSACTIONS_TOPIC, ids_id, config.transaction_state_log_num_partitions, IDS_CONFIGS)
        self.shows_ids = False
        events_id = uuid5(UUID(int=0), f"{cluster_id}/{EVENTS_TOPIC}")
        events = Topic(EVENTS_TOPIC, events_id, max(len(nodes), events_partitions), events_configs(config))
        self._events = events if config.events_enable else None

    @property
    def ids(self) -> Topic | None:
        """`__transaction_state`; None as long as nobody has asked for a coordinator of transactions, as in Kafka."""
        return self._ids if self.shows_ids else None

    @property
    def events(self) -> Topic | None:
        """`__rebalance_events`; None if the configuration turns it off.

        In a cluster a node has the partition with the number of its id, so that it finds it again after a restart.
        """
        events = self._events
        if events is not None and self._cluster is not None and events.partition_count <= self.node_ids[-1]:
            events = self._events = Topic(events.name, events.topic_id, self.node_ids[-1] + 1, events.configs)
        return events

    @property
    def keeps_records(self) -> bool:
        """Whether users' topics have records: in a cluster they have none, because nothing would replicate them."""
        return self._cluster is None

    def store_numbers(self) -> StoreNumbers | None:
        """The numbers of the store that the nodes of a cluster share; None without a cluster."""
        return None if self._cluster is None else self._cluster.numbers()

    @property
    def node_ids(self) -> Sequence[int]:
        """The ids of all nodes."""
        return self._present if self._cluster is None else list(self._live(self._cluster))

    @property
    def controller_id(self) -> int:
        """The id of the controller; NOBODY if it doesn't live."""
        return self._present[0] if self._cluster is None else self._owner(0)

    def nodes(self, call: Reached) -> list[Node]:
        """All nodes that have the listener of `call`, as its client reaches them."""
        if self._cluster is None:
            return [self.node(node_id, call, call.listener) for node_id in self._present]
        live = self._live(self._cluster).values()
        return [_reached(node, call, call.listener) for node in live if call.listener in node.addresses]

    def coordinator(self, key: str, call: Reached, *, is_transactional: bool = False) -> Node:
        """The node that coordinates a group, or a transactional id.

        NO_NODE while it doesn't answer, or this node can't know.
        """
        if self._cluster is not None and not self._cluster.valid():
            return NO_NODE  # others may have taken over unseen: the client should ask one of them
        if is_transactional:
            node_id = self.owner_of_id(key)
        else:
            node_id = self._owner(partition_for(key, self.offsets.partition_count))
        if node_id == NOBODY or node_id in self._silent_nodes:
            return NO_NODE
        return self.node(node_id, call, call.listener)

    def owner_of_id(self, transactional_id: str) -> int:
        """The id of the node that coordinates a transactional id. Only for a store with a log of ids."""
        assert self._owners_of_ids is not None
        return self._owners_of_ids(partition_for(transactional_id, self._ids.partition_count))

    def node(self, node_id: int, call: Reached, listener: str) -> Node:
        """A node that lives, with the address of its listener of that name; NO_NODE if it has no such listener."""
        if self._cluster is None:
            return _reached(self._nodes[node_id], call, listener)
        nodes = self._live(self._cluster)
        return _reached(nodes[node_id], call, listener) if listener in nodes[node_id].addresses else NO_NODE

    def _live(self, cluster: Cluster) -> dict[int, NodeAddresses]:
        """The nodes of a cluster that live, by their ids, in order. This one does, even before it is registered."""
        nodes = cluster.nodes()
        if nodes is not self._seen:  # Metadata asks for each partition of each topic
            live = self._nodes | {node.node_id: node for node in nodes}
            self._seen, self._seen_live = nodes, dict(sorted(live.items()))
            self._known.update(live)
        return self._seen_live

    def _owner(self, partition: int) -> int:
        """The id of the node that owns a partition of `__consumer_offsets`; NOBODY if none does, or it doesn't live."""
        if self._cluster is None:
            return self._owners(partition)
        owner = self._cluster.owner(partition)
        return owner if owner is not None and owner in self._live(self._cluster) else NOBODY

    def leader(self, topic: Topic, partition: int) -> int:
        """The id of the node that leads a topic partition; NOBODY if it doesn't live."""
        if topic is self.offsets:
            return self._owner(partition)
        if topic is self._ids:
            assert self._owners_of_ids is not None
            return self._owners_of_ids(partition)
        is_events = topic.name == EVENTS_TOPIC
        if self._cluster is None:
            return node_in_turn((0 if is_events else topic.topic_id.int) + partition, self._leading)
        if is_events:
            return partition if partition in self._live(self._cluster) else NOBODY
        return node_in_turn(topic.topic_id.int + partition, self.node_ids)

    def replicas(self, topic: Topic, partition: int) -> list[int]:
        """The ids of the nodes that have a topic partition, living or not; the partition has no leader.

        A cluster has a partition of `__rebalance_events` for each number up to the highest id. If the nodes are 11 to
        13, nobody has those of 0 to 10. A node with an id between those of others may be away since this one started.
        """
        if self._cluster is None or topic.name != EVENTS_TOPIC:
            return []
        return [partition] if partition in self._known or min(self._known) < partition else []

    def topic(self, name: str) -> Topic | None:
        """A topic by its name."""
        if name == OFFSETS_TOPIC:
            return self.offsets
        if name == TRANSACTIONS_TOPIC:
            return self.ids
        if name == EVENTS_TOPIC and self._events is not None:
            return self.events
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """A topic by its id."""
        topic = self.topics.get_by_id(topic_id)  # first, because nearly all requests are about users' topics
        if topic is not None:
            return topic
        if topic_id == self.offsets.topic_id:
            return self.offsets
        if topic_id == self._ids.topic_id:
            return self.ids
        if self._events is not None and topic_id == self._events.topic_id:
            return self.events
        return None

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of a topic, by its id."""
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def all_topics(self) -> Iterator[Topic]:
        """Every topic, by name."""
        yield self.offsets
        if self.ids is not None:
            yield self.ids
        yield from self.kept_topics()

    def kept_topics(self) -> Iterator[Topic]:
        """Every topic but those that engines write (ENGINES_TOPICS)."""
        if self.events is not None:
            yield self.events
        yield from self.topics

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether a topic partition exists."""
        found = self.topic(topic)
        return found is not None and 0 <= partition < found.partition_count


def _reached(node: NodeAddresses, call: Reached, listener: str) -> Node:
    """A node, as the client of `call` reaches it through a listener."""
    host, port = node.addresses[listener]
    return Node(node.node_id, call.local_host if host in EVERYWHERE else host, port)


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
