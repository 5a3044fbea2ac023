"""An engine in memory, of one node or of several in one process: the test kit's servers without a data folder use it.

It keeps every promise of Engine except one: its records don't outlive the process. Callbacks run at once, inside the
call.

Several nodes have an engine each over one `MemoryLog`. A closed engine may be followed by another one of the same node.
`MemoryLog.move` gives a partition to another node: its engine reports the partition as free, its runtime acquires it,
which fences the former owner, and every other engine reports the new owner.

House rule: the conformance tests of engines run on this one too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from coordinator.log.engine import Acquired, Appended, Done, Fenced, OnOwnership, Ownership, Page, Unavailable
from coordinator.log.segments.transactions import Transactions
from protocol.records.batch import Batch, Record


class Owned:
    """An ownership; see engine.Ownership. closed_because: why appends aren't taken, "" while they are."""

    def __init__(self, partition: int, node_id: int, epoch: int) -> None:
        self.partition = partition
        self.node_id = node_id
        self.epoch = epoch
        self.is_valid = True
        self.closed_because = "not loaded"

    def valid(self) -> bool:
        """See Ownership."""
        return self.is_valid

    @property
    def lapses(self) -> int:
        """See Ownership: none."""
        return 0


class MemoryLog:
    """The partitions that the engines of several nodes share. Only one thread uses them all.

    owners: the id of the node that each partition belongs to; `move` changes it. records: of each partition, oldest
    first, without those of open and aborted transactions. transactions: the open ones. places: records so far, of all
    partitions. epochs: each partition's last one. owned: the valid ownerships. engines: those that run,
    by node id.
    """

    def __init__(self, owners: Sequence[int]) -> None:
        self.owners = list(owners)
        self.records: dict[int, list[Record]] = {partition: [] for partition in range(len(owners))}
        self.epochs = dict.fromkeys(self.records, -1)
        self.transactions = {partition: Transactions() for partition in self.records}
        self.places = 0
        self.owned: dict[int, Owned] = {}
        self.engines: dict[int, MemoryEngine] = {}

    def engine(self, node_id: int) -> MemoryEngine:
        """A new engine for a node."""
        return MemoryEngine(len(self.owners), node_id, self)

    def was_opened(self) -> bool:
        """Whether a node ever acquired a partition."""
        return any(epoch >= 0 for epoch in self.epochs.values())

    def move(self, partition: int, node_id: int) -> None:
        """Give a partition to another node. The former owner keeps it until the new one acquires it.

        A node whose engine doesn't run yet learns of it when that starts.
        """
        self.owners[partition] = node_id
        self.released(partition)

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

    log: shared with other nodes; None for a log of its own. on_ownership: as `start` got it.
    """

    def __init__(self, partition_count: int, node_id: int, log: MemoryLog | None = None) -> None:
        self._log = log or MemoryLog([node_id] * partition_count)
        self.records = self._log.records
        self.node_id = node_id
        self.on_ownership: OnOwnership = lambda _partition, _node_id, _epoch: None
        self._others: dict[str, Self] = {}

    def other(self, log: str, partition_count: int) -> Self:
        """The engine of another log of this node; it lives as long as this one."""
        return self._others.setdefault(log, type(self)(partition_count, self.node_id))

    def has(self, log: str) -> bool:
        """Whether the node has another log of that name."""
        return log in self._others

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
        former = log.owned.pop(partition, None)
        if former is not None:
            former.is_valid = False
        log.epochs[partition] += 1
        own = log.owned[partition] = self._own(partition, log.epochs[partition])
        log.changed(partition, self.node_id)
        done(own)

    def load(self, own: Ownership, page: Page, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
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
        assert isinstance(own, Owned)
        assert batches
        assert all(batches)
        if not own.is_valid:
            done(0, Fenced.of(own))
        elif own.closed_because:
            done(0, Unavailable(own.closed_because))
        else:
            for records in batches:
                self._take(own.partition, records)
            done(len(batches), None)

    def release(self, own: Ownership, done: Done) -> None:
        """See Engine."""
        assert isinstance(own, Owned)
        if own.is_valid:
            own.is_valid = False
            del self._log.owned[own.partition]
            self._log.released(own.partition)
        done(None)

    def close(self) -> None:
        """See Engine. The records stay; the engine may be started again."""
        for own in list(self._log.owned.values()):
            if own.node_id == self.node_id:
                self.release(own, lambda _outcome: None)
        self._log.engines.pop(self.node_id, None)

    def _own(self, partition: int, epoch: int) -> Owned:
        """A new ownership of this node."""
        return Owned(partition, self.node_id, epoch)

    def _take(self, partition: int, records: list[Record]) -> None:
        """Keep a batch; what is in a transaction waits for its marker."""
        first, self._log.places = self._log.places, self._log.places + len(records)
        offsets = range(first, self._log.places)
        producer_id, attributes = (records.producer_id, records.attributes) if isinstance(records, Batch) else (-1, 0)
        self.records[partition] += self._log.transactions[partition].take(producer_id, attributes, offsets, records)
