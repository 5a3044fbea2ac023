"""The cluster as the store knows it: the nodes that live, and the node that owns each partition of the groups' log.

A store that several nodes share has a `Cluster`; the store of one machine has none. A node registers when its listeners
are bound and it is ready to own partitions. It leaves before it stops: then its engine wishes to hand every partition
over (`engine`).

House rule: nothing in here waits. But for `ask_whether_newest`, answers come from what the store's engine watches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from coordinator.log.engine import Done, Ownership


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

    def ask_whether_newest(self, own: Ownership, done: Done) -> None:
        """Ask the store whether an ownership is the newest of its partition; what was read before may be told then.

        done: called on the engine's thread with None, Fenced, or Unavailable if the store doesn't answer.
        """

    def register(self, node: NodeAddresses) -> None:
        """This node is ready to own partitions; its clients reach it at these addresses."""

    def leave(self) -> None:
        """This node is about to stop: hand its partitions over, and claim none any more."""
