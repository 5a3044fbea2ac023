"""An engine in memory that a test has in its hand: when appends become durable, which fail, who owns a partition.

- `hold = True`: appends wait, and become durable at the next `flush`, `load`, `acquire`, `release` or `close`.
- `fail_next(error)`: the next append is refused with `error`, and its partition closes.
- `lapse`, `come_back`: all ownerships of a node lapse, and hold again.
- `ManualLog.hand_over`: another node gets a partition, once its owner has released it: its engine reports the wish.
- `ManualLog.orphan`: nobody has it, until the next `move`. The former owner is fenced.

House rule: what isn't held, lapsed or to fail is done as by MemoryEngine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

from coordinator.log.cluster import NodeAddresses, NodeShare
from coordinator.log.engine import NOBODY, Acquired, Appended, Done, Fenced, Ownership, Page, Unavailable
from coordinator.log.memory import MemoryEngine, MemoryLog, Owned
from protocol.records.batch import Record


class Lapsing(Owned):
    """An ownership that lapses with its engine."""

    def __init__(self, partition: int, epoch: int, engine: ManualEngine) -> None:
        super().__init__(partition, engine.node_id, epoch)
        self._engine = engine

    def valid(self) -> bool:
        return self.is_valid and not self._engine.is_lapsed

    @property
    def lapses(self) -> int:
        return self._engine.lapses


class ManualCluster:
    """One node's view of the nodes that share a log. See Cluster."""

    def __init__(self, log: ManualLog, engine: ManualEngine) -> None:
        self._log = log
        self._engine = engine

    def nodes(self) -> Sequence[NodeAddresses]:
        return [node for _, node in sorted(self._log.nodes.items())]

    def owner(self, partition: int) -> int | None:
        own = self._log.owned.get(partition)
        return None if own is None else own.node_id

    def share(self) -> NodeShare:
        """Each lapse of the engine ends a registration."""
        node_id = self._engine.node_id
        missing = (index for index, owner in enumerate(self._log.owners) if owner == node_id != self.owner(index))
        return NodeShare((node_id in self._log.nodes) * (1 + self._engine.lapses), frozenset(missing))

    def valid(self) -> bool:
        return not self._engine.is_lapsed

    def ask_whether_newest(self, own: Ownership, done: Done) -> None:
        done(None if self._log.owned.get(own.partition) is own else Fenced("another node has it"))

    def numbers(self) -> None:
        """A store in memory has none."""

    def has_room(self) -> bool:
        return True

    def register(self, node: NodeAddresses) -> None:
        """The test decides which partitions the node gets."""
        self._log.nodes[node.node_id] = node

    def leave(self) -> None:
        """The other nodes get the partitions in turn."""
        node_id = self._engine.node_id
        self._log.nodes.pop(node_id, None)
        others = cycle(sorted(self._log.nodes))
        for partition, own in list(self._log.owned.items()):
            if own.node_id == node_id and self._log.nodes:
                self._log.hand_over(partition, next(others))


class ManualLog(MemoryLog):
    """The partitions that the engines of several nodes share. nodes: those that are registered."""

    engines: dict[int, ManualEngine]  # type: ignore[assignment]  # it makes no others

    def __init__(self, owners: Sequence[int]) -> None:
        super().__init__(owners)
        self.nodes: dict[int, NodeAddresses] = {}

    def engine(self, node_id: int) -> ManualEngine:
        return ManualEngine(len(self.owners), node_id, self)

    def hand_over(self, partition: int, node_id: int) -> None:
        """Let the owner of a partition hand it over to another node, which runs."""
        former = self.owned[partition]
        self.owners[partition] = node_id
        self.engines[former.node_id].on_ownership(partition, node_id, former.epoch)

    def orphan(self, partition: int) -> None:
        """Take a partition from its owner. No node is to acquire it."""
        self.owners[partition] = NOBODY
        former = self.owned.pop(partition, None)
        if former is not None:
            former.is_valid = False
        self.epochs[partition] += 1
        self.changed(partition, NOBODY)


class ManualEngine(MemoryEngine):
    """See the module. cluster: as this node sees it. is_lapsed, lapses: of all its ownerships."""

    def __init__(self, partition_count: int, node_id: int, log: ManualLog | None = None) -> None:
        self.shared = log or ManualLog([node_id] * partition_count)
        super().__init__(partition_count, node_id, self.shared)
        self.cluster = ManualCluster(self.shared, self)
        self.hold = False
        self.is_lapsed = False
        self.lapses = 0
        self._held: deque[Callable[[], None]] = deque()
        self._failure: Fenced | Unavailable | None = None

    def fail_next(self, error: Fenced | Unavailable) -> None:
        """Let the next append that the engine would write fail with `error`."""
        self._failure = error

    def lapse(self) -> None:
        """Let all ownerships of this node lapse."""
        self.is_lapsed = True

    def come_back(self) -> None:
        """End the lapse: what is still this node's is valid again."""
        self.lapses += 1
        self.is_lapsed = False

    def flush(self) -> None:
        """Write the waiting appends, and report them in their order."""
        while self._held:
            self._held.popleft()()

    def acquire(self, partition: int, done: Acquired) -> None:
        self.flush()
        super().acquire(partition, done)

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        self.flush()
        super().load(own, page, done)

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        self._held.append(partial(self._write, own, batches, done))
        if not self.hold:
            self.flush()

    def release(self, own: Ownership, done: Done) -> None:
        self.flush()
        super().release(own, done)

    def close(self) -> None:
        self.flush()
        super().close()
        self.shared.nodes.pop(self.node_id, None)

    def _own(self, partition: int, epoch: int) -> Owned:
        return Lapsing(partition, epoch, self)

    def _write(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        assert isinstance(own, Owned)
        if self._failure is not None and own.is_valid and not own.closed_because:
            failure, self._failure = self._failure, None
            own.closed_because = str(failure)
            done(0, failure)
        else:
            super().append(own, batches, done)
