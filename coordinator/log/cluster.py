"""The cluster as the store knows it: the nodes that live, and the node that owns each partition of the groups' log.

A store that several nodes share has a `Cluster`; the store of one machine has none. A node registers when its listeners
are bound and it is ready to own partitions. It leaves before it stops: then its engine wishes to hand every partition
over (`engine`).

House rule: nothing in here waits, or asks the store: the answers come from what the store's engine watches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class NodeAddresses(NamedTuple):
    """A node, and the address of each of its listeners, by the listener's name."""

    node_id: int
    addresses: Mapping[str, tuple[str, int]]


class Cluster(Protocol):
    """See the module. Any thread may call these."""

    def nodes(self) -> Sequence[NodeAddresses]:
        """The nodes that live, in the order of their ids, as each registered."""

    def owner(self, partition: int) -> int | None:
        """The id of the node that owns a partition; None while no node does."""

    def valid(self) -> bool:
        """Whether this node still takes its ownerships as valid: see `engine.Ownership.valid`. It costs little."""

    def register(self, node: NodeAddresses) -> None:
        """This node is ready to own partitions; its clients reach it at these addresses."""

    def leave(self) -> None:
        """This node is about to stop: hand its partitions over, and claim none any more."""
