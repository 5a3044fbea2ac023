"""What a client learns about the cluster: nodes, where a group's coordinator is, topics.

There is one node, this one; it leads every topic partition and coordinates every group. A client is told to connect to
the advertised address of the listener it came through. A listener that listens everywhere and advertises nothing tells
each client the address that this client reached.

House rule: Metadata and FindCoordinator answer from here and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid5

from coordinator.config import EVERYWHERE
from coordinator.log.topics import Topic

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.server.call import Call
    from coordinator.server.topics import Topics

OFFSETS_TOPIC = "__consumer_offsets"

LEADER_EPOCH = 0
"""Of every topic partition: its leader never changes."""


class Node(NamedTuple):
    """A broker, as a client reaches it."""

    node_id: int
    host: str
    port: int


NO_NODE = Node(-1, "", -1)
"""Kafka's Node.noNode."""


class Discovery:
    """See the module.

    addresses: listener's name -> the address it has; filled when the sockets are open.
    """

    def __init__(self, config: Config, cluster_id: str, topics: Topics) -> None:
        self.cluster_id = cluster_id
        self.topics = topics
        self.addresses: dict[str, tuple[str, int]] = {}
        self._node_id = config.node_id
        self._advertised: Mapping[str, tuple[str, int]] = {
            listener.name: (listener.host, listener.port) for listener in config.advertised_listeners
        }
        offsets_id = uuid5(UUID(int=0), f"{cluster_id}/{OFFSETS_TOPIC}")
        self._offsets = Topic(OFFSETS_TOPIC, offsets_id, config.offsets_topic_num_partitions)

    def node(self, call: Call) -> Node:
        """This node, as the client of `call` reaches it."""
        host, port = self._advertised.get(call.listener) or self.addresses[call.listener]
        return Node(self._node_id, call.local_host if host in EVERYWHERE else host, port)

    def topic(self, name: str) -> Topic | None:
        """A topic by its name."""
        if name == OFFSETS_TOPIC:
            return self._offsets
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """A topic by its id."""
        if topic_id == self._offsets.topic_id:
            return self._offsets
        return self.topics.get_by_id(topic_id)

    def all_topics(self) -> Iterator[Topic]:
        """Every topic, by name."""
        yield self._offsets
        yield from self.topics

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether a topic partition exists."""
        found = self.topic(topic)
        return found is not None and 0 <= partition < found.partition_count
