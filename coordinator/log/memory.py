"""An engine in memory: the test double for code that uses the log.

It keeps every promise of Engine except one: its records don't outlive the process. Callbacks run at once, inside the
call (or inside `flush`), so a test has no thread to wait for. A test decides how the "disk" behaves:

- `hold = True`: appends wait, and become durable at the next `flush`, `load`, `acquire`, `release` or `close`.
- `fail_next(error)`: the next batch is refused with `error`, and its partition closes.

Several nodes in one process have an engine each over one `MemoryLog`. A closed engine may be followed by another one of
the same node. A test decides who owns a partition:

- `MemoryLog.move`: another node. Its engine reports the partition as free, its runtime acquires it, which fences the
  former owner, and every other engine reports the new owner.
- `MemoryLog.hand_over`: the same, once the owner has released it: its engine reports the wish.
- `MemoryLog.orphan`: nobody, until the next `move`. The former owner is fenced.
- `MemoryEngine.lapse`, `come_back`: all ownerships of a node lapse, and hold again.

House rule: the conformance tests of engines run on this one too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle

from coordinator.log.cluster import NodeAddresses, NodeShare
from coordinator.log.engine import NOBODY, Acquired, Appended, Done, Fenced, OnOwnership, Ownership, Page, Unavailable
from coordinator.log.segments.transactions import Transactions, marker_type
from protocol.records.batch import CONTROL, Batch, Record


class _Owned:
    def __init__(self, partition: int, node_id: int, epoch: int, engine: MemoryEngine) -> None:
        self.partition = partition
        self.node_id = node_id
        self.epoch = epoch
        self.is_valid = True
        self.closed_because = "not loaded"
        self._engine = engine

    def valid(self) -> bool:
        return self.is_valid and not self._engine.is_lapsed

    @property
    def lapses(self) -> int:
        return self._engine.lapses


class MemoryCluster:
    """One node's view of the nodes that share a log. See Cluster."""

    def __init__(self, log: MemoryLog, engine: MemoryEngine) -> None:
        self._log = log
        self._engine = engine

    def nodes(self) -> Sequence[NodeAddresses]:
        """See Cluster."""
        return [node for _, node in sorted(self._log.nodes.items())]

    def owner(self, partition: int) -> int | None:
        """See Cluster."""
        own = self._log.owned.get(partition)
        return None if own is None else own.node_id

    def share(self) -> NodeShare:
        """See Cluster. Each lapse of the engine ends a registration."""
        node_id = self._engine.node_id
        missing = (index for index, owner in enumerate(self._log.owners) if owner == node_id != self.owner(index))
        return NodeShare((node_id in self._log.nodes) * (1 + self._engine.lapses), frozenset(missing))

    def valid(self) -> bool:
        """See Cluster."""
        return not self._engine.is_lapsed

    def ask_whether_newest(self, own: Ownership, done: Done) -> None:
        """See Cluster."""
        done(None if self._log.owned.get(own.partition) is own else Fenced("another node has it"))

    def numbers(self) -> None:
        """See Cluster: a store in memory has none."""

    def has_room(self) -> bool:
        """See Cluster."""
        return True

    def register(self, node: NodeAddresses) -> None:
        """See Cluster. The test decides which partitions the node gets."""
        self._log.nodes[node.node_id] = node

    def leave(self) -> None:
        """See Cluster. The other nodes get the partitions in turn."""
        node_id = self._engine.node_id
        self._log.nodes.pop(node_id, None)
        others = cycle(sorted(self._log.nodes))
        for partition, own in list(self._log.owned.items()):
            if own.node_id == node_id and self._log.nodes:
                self._log.hand_over(partition, next(others))


class MemoryLog:
    """The partitions that the engines of several nodes share. Only one thread uses them all.

    owners: the id of the node that each partition belongs to; `move` changes it. records: of each partition, oldest
    first, without those of open and aborted transactions. transactions: the open ones. places: records of transactions
    so far, of all partitions. epochs: each partition's last one. owned: the valid ownerships. engines: those that run,
    by node id. nodes: those that are registered.
    """

    def __init__(self, owners: Sequence[int]) -> None:
        self.owners = list(owners)
        self.records: dict[int, list[Record]] = {partition: [] for partition in range(len(owners))}
        self.epochs = dict.fromkeys(self.records, -1)
        self.transactions = {partition: Transactions() for partition in self.records}
        self.places = 0
        self.owned: dict[int, _Owned] = {}
        self.engines: dict[int, MemoryEngine] = {}
        self.nodes: dict[int, NodeAddresses] = {}

    def engine(self, node_id: int) -> MemoryEngine:
        """A new engine for a node."""
        return MemoryEngine(len(self.owners), node_id, log=self)

    def was_opened(self) -> bool:
        """Whether a node ever acquired a partition."""
        return any(epoch >= 0 for epoch in self.epochs.values())

    def move(self, partition: int, node_id: int) -> None:
        """Give a partition to another node. The former owner keeps it until the new one acquires it.

        A node whose engine doesn't run yet learns of it when that starts.
        """
        self.owners[partition] = node_id
        self.released(partition)

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

    def released(self, partition: int) -> None:
        """Let the node that a partition belongs to acquire it, if its engine runs."""
        engine = self.engines.get(self.owners[partition])
        if engine is not None:
            engine.on_ownership(partition, None, self.epochs[partition])

    def changed(self, partition: int, node_id: int) -> None:
        """Let every engine report the owner of a partition."""
        for engine in self.engines.values():
            engine.on_ownership(partition, node_id, self.epochs[partition])


class MemoryEngine:
    """Keeps the `records` of each partition, oldest first. A test may read them, and may add records for a load.

    owners: as in EmbeddedEngine. log: shared with other nodes; None for a log of its own.
    on_ownership: as `start` got it. cluster: as this node sees it. is_lapsed, lapses: of all its ownerships.
    """

    def __init__(
        self, partition_count: int, node_id: int, owners: Sequence[int] | None = None, *, log: MemoryLog | None = None
    ) -> None:
        self._log = log or MemoryLog(owners or [node_id] * partition_count)
        self.records = self._log.records
        self.cluster = MemoryCluster(self._log, self)
        self.hold = False
        self.is_lapsed = False
        self.lapses = 0
        self.node_id = node_id
        self.on_ownership: OnOwnership = lambda _partition, _node_id, _epoch: None
        self._held: deque[Callable[[], None]] = deque()
        self._failure: Unavailable | None = None
        self._others: dict[str, MemoryEngine] = {}

    def other(self, log: str, partition_count: int) -> MemoryEngine:
        """The engine of another log of this node; it lives as long as this one."""
        return self._others.setdefault(log, MemoryEngine(partition_count, self.node_id))

    def has(self, log: str) -> bool:
        """Whether the node has another log of that name."""
        return log in self._others

    def fail_next(self, error: Unavailable) -> None:
        """Let the write of the next batch fail with `error`."""
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

    def start(self, on_ownership: OnOwnership) -> None:
        """See Engine."""
        self.on_ownership = on_ownership
        self._log.engines[self.node_id] = self
        for partition, owner in enumerate(self._log.owners):
            on_ownership(partition, None if owner == self.node_id else owner, -1)

    def acquire(self, partition: int, done: Acquired) -> None:
        """See Engine."""
        log = self._log
        assert log.owners[partition] == self.node_id
        self.flush()
        former = log.owned.pop(partition, None)
        if former is not None:
            former.is_valid = False
        log.epochs[partition] += 1
        own = log.owned[partition] = _Owned(partition, self.node_id, log.epochs[partition], self)
        log.changed(partition, self.node_id)
        done(own)

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, _Owned)
        self.flush()
        if not own.is_valid:
            done(Fenced.of(own))
            return
        if self.records[own.partition]:
            page(list(self.records[own.partition]))
        for batch in self._log.transactions[own.partition].open():
            page(batch)
        own.closed_because = ""
        done(None)

    def append(self, own: Ownership, batches: list[list[Record]], done: Appended) -> None:
        """See Engine."""
        assert isinstance(own, _Owned)
        assert batches
        assert all(batches)
        self._held.append(partial(self._write, own, batches, done))
        if not self.hold:
            self.flush()

    def release(self, own: Ownership, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, _Owned)
        self.flush()
        if own.is_valid:
            own.is_valid = False
            del self._log.owned[own.partition]
            self._log.released(own.partition)
        done(None)

    def close(self) -> None:
        """See Engine. The records stay; the engine may be started again."""
        self.flush()
        for own in list(self._log.owned.values()):
            if own.node_id == self.node_id:
                self.release(own, lambda _outcome: None)
        self._log.engines.pop(self.node_id, None)
        self._log.nodes.pop(self.node_id, None)

    def _write(self, own: _Owned, batches: list[list[Record]], done: Appended) -> None:
        for number, records in enumerate(batches):
            error = self._refusal(own)
            if error is not None:
                done(number, error)
                return
            self._take(own.partition, records)
        done(len(batches), None)

    def _take(self, partition: int, records: list[Record]) -> None:
        """Keep a batch; what is in a transaction waits for its marker."""
        transactions = self._log.transactions[partition]
        if not isinstance(records, Batch):
            transactions.supersede({key: (value, timestamp_ms) for key, value, timestamp_ms in records})
            self.records[partition] += records
        elif records.attributes & CONTROL:
            marker = marker_type(records[0].key)
            assert marker is not None
            self.records[partition] += transactions.end(records.producer_id, marker)
        else:
            first = self._log.places
            self._log.places += len(records)
            offsets = range(first, self._log.places)
            transactions.add(records.producer_id, offsets, records)

    def _refusal(self, own: _Owned) -> Fenced | Unavailable | None:
        """The error for a batch that this engine doesn't write, None if it does."""
        if not own.is_valid:
            return Fenced.of(own)
        if own.closed_because:
            return Unavailable(own.closed_because)
        failure, self._failure = self._failure, None
        if failure is not None:
            own.closed_because = str(failure)
        return failure
