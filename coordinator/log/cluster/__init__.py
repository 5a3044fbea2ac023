"""The cluster as the store knows it: the nodes that live, and the node that owns each partition of the groups' log.

A store that several nodes share has a `Cluster`; the store of one machine has none. A node registers when its listeners
are bound and it is ready to own partitions. It leaves before it stops: then its engine wishes to hand every partition
over (`engine`).

House rule: nothing in here waits. But for `ask_whether_newest`, answers come from what the store's engine watches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from coordinator.log.engine import Done, Ownership
from coordinator.log.segments.counts import Histogram


class NodeAddresses(NamedTuple):
    """A node, and the address of each of its listeners, by the listener's name."""

    node_id: int
    addresses: Mapping[str, tuple[str, int]]


class RecentCalls(NamedTuple):
    """Calls to the shared store in the last minute: how many, the slow ones, those without an answer, the longest."""

    calls: int = 0
    slow: int = 0
    lost: int = 0
    longest_ms: int = 0


class NodeShare(NamedTuple):
    """The partitions that a node should have, as it stands.

    registration: a number of its present registration, another one after each lost lease; 0 while it isn't registered.
    missing: those that it should own, by the nodes that live, and doesn't own.
    """

    registration: int
    missing: frozenset[int]


class StoreNumbers(NamedTuple):
    """The numbers of the shared store, as this node sees it; times in ms, sizes in bytes.

    lease_age_ms: since the store last kept this node's lease. lapses: how often the lease wasn't kept in time. calls:
    made, by name; lost: those of them without an answer. seconds: until answers came. used, size, quota: of the store's
    file: what is in use, all of it, and the most that it may have; the first two are 0 until the store told them.
    alarms: of the store. recent: the calls of the last minute.
    """

    lease_age_ms: int
    lapses: int
    calls: Mapping[str, int]
    lost: int
    seconds: Histogram
    used: int
    size: int
    quota: int
    alarms: Sequence[str]
    recent: RecentCalls = RecentCalls()


class Cluster(Protocol):
    """See the module. Any thread may call these."""

    def nodes(self) -> Sequence[NodeAddresses]:
        """The nodes that live, in the order of their ids, as each registered."""

    def owner(self, partition: int) -> int | None:
        """The id of the node that owns a partition; None while no node does."""

    def share(self) -> NodeShare:
        """The partitions that this node should have."""

    def valid(self) -> bool:
        """Whether this node still takes its ownerships as valid: see `engine.Ownership.valid`. It costs little."""

    def ask_whether_newest(self, own: Ownership, done: Done) -> None:
        """Ask the store whether an ownership is the newest of its partition; what was read before may be told then.

        done: called on the engine's thread with None, Fenced, or Unavailable if the store doesn't answer.
        """

    def numbers(self) -> StoreNumbers | None:
        """The numbers of the store; None if it has none."""

    def has_room(self) -> bool:
        """Whether the store has room for new groups; those that exist go on without."""

    def register(self, node: NodeAddresses) -> None:
        """This node is ready to own partitions; its clients reach it at these addresses."""

    def leave(self) -> None:
        """This node is about to stop: hand its partitions over, and claim none any more."""
