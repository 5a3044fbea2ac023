"""Tests the contract of an engine, on each engine there is."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from coordinator.log.cluster import NodeAddresses
from coordinator.log.cluster.port import Lost, Rejected, Txn, TxnResult
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.upkeep import Cleaning
from coordinator.log.engine import Damaged, Engine, EngineError, Fenced, Unavailable
from coordinator.log.etcd.client import Access
from coordinator.log.etcd.engine import EtcdEngine, open_engine
from protocol.records.batch import Record
from tests.log.calls import append, append_batch, begin_append, load, opened, owned, record, release
from tests.log.disks import FailingDisk, fail_one
from tests.support.etcd import Etcd
from tests.support.memory import ManualEngine, ManualLog
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

PARTITION_COUNT = 3
TTL_MS = 5_000
"""Of a node's lease: longer than the machine is ever busy with others."""
RESOURCE_EXHAUSTED = 8
"""gRPC's code when etcd has no space."""
NODE_ID = 7
ALL_THE_TIME = Cleaning(min_cleanable_ratio=0.0, backoff_ms=1, roll_ms=0)


class Store(ABC):
    """An engine's storage, and a way to make it fail.

    engine: the one that runs over it. changes: the calls of on_ownership by all engines over it.
    """

    engine: Engine

    def as_loaded(self, records: list[Record]) -> list[Record]:
        """Return what a load brings after these records, each with a key of its own."""
        return records

    def __init__(self) -> None:
        self.changes: list[tuple[int, int | None, int]] = []

    def tell(self, partition: int, node_id: int | None, epoch: int) -> None:
        """Keep one call of on_ownership."""
        self.changes.append((partition, node_id, epoch))

    @abstractmethod
    def start(self) -> None:
        """Start an engine; the former one was closed."""

    @abstractmethod
    def fail_next_append(self) -> None:
        """Let the next append fail."""


class EmbeddedStore(Store):
    """Files in a folder. settings: of the engine."""

    settings: ClassVar[dict[str, Any]] = {"segment_size": 1_000}

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._disk = FailingDisk()

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        self.engine = EmbeddedEngine(self._folder, PARTITION_COUNT, NODE_ID, disk=self._disk, **self.settings)
        self.engine.start(self.tell)

    def fail_next_append(self) -> None:
        self._disk.fails = fail_one("write", self._disk.calls["write"] + 1, errno.ENOSPC)


class CompactingStore(EmbeddedStore):
    """Files in a folder, which the engine compacts all the time."""

    settings: ClassVar = {"segment_size": 100, "cleaning": ALL_THE_TIME}


class JournalStore(EmbeddedStore):
    """Files in a folder, behind a small journal."""

    settings: ClassVar = {"journal": True, "journal_size": 65_536}


class CompactingJournalStore(EmbeddedStore):
    """Files in a folder behind a journal, which the engine compacts all the time."""

    settings: ClassVar = {**JournalStore.settings, "segment_size": 400, "cleaning": ALL_THE_TIME}


class MemoryStore(Store):
    """An engine that is its own store."""

    def __init__(self, _folder: Path) -> None:
        super().__init__()
        self.engine: ManualEngine = ManualEngine(PARTITION_COUNT, NODE_ID)

    def start(self) -> None:
        self.engine.start(self.tell)

    def fail_next_append(self) -> None:
        self.engine.fail_next(Unavailable("No space left on device"))


class EtcdStore(Store):
    """A cluster of one node on etcd."""

    engine: EtcdEngine

    def __init__(self, etcd: Etcd) -> None:
        super().__init__()
        self._etcd = etcd
        self._cluster = uuid4().hex

    def as_loaded(self, records: list[Record]) -> list[Record]:
        return sorted(Record(record.key, record.value, 0) for record in records)

    def start(self) -> None:
        self.engine = open_engine(
            Access(self._etcd.endpoints),
            self._cluster,
            NODE_ID,
            PARTITION_COUNT,
            TTL_MS,
            lambda: uuid4().hex,
            settle_ms=0,
        )
        self.engine.register(NodeAddresses(NODE_ID, {}))
        # The node also has to see its registration: before that, no node is the best one for any partition.
        claims = self.engine.core.claims
        wait_until(lambda: claims.may_claim and NODE_ID in claims.picture.nodes, "the node may claim", WITHIN_S)
        self.engine.start(self.tell)

    def fail_next_append(self) -> None:
        client, transact = self.engine.client, self.engine.client.txn

        def refuse_one(txn: Txn, done: Callable[[TxnResult | Lost | Rejected], None]) -> None:
            if txn.compares and txn.success:
                client.txn = transact  # type: ignore[method-assign]
                done(Rejected("No space left on device", RESOURCE_EXHAUSTED))
            else:
                transact(txn, done)

        client.txn = refuse_one  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def etcds() -> Iterator[Callable[[int], Etcd]]:
    """Yield what returns running etcd with so many members; they serve all tests of this module."""
    with ExitStack() as running:
        yield cache(lambda members: running.enter_context(Etcd(members)))


@pytest.fixture(
    params=[
        EmbeddedStore,
        CompactingStore,
        JournalStore,
        CompactingJournalStore,
        MemoryStore,
        pytest.param(1, id="etcd", marks=pytest.mark.etcd),
        pytest.param(3, id="etcd-3", marks=pytest.mark.etcd),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path, etcds: Callable[[int], Etcd]) -> Iterator[Store]:
    """Yield a store with an engine running over it."""
    made: Store = (
        EtcdStore(etcds(request.param)) if isinstance(request.param, int) else request.param(tmp_path / "data")
    )
    made.start()
    yield made
    made.engine.close()


def restart(store: Store) -> Engine:
    """Close the engine and start the next."""
    store.engine.close()
    store.start()
    return store.engine


def state(records: list[Record]) -> dict[bytes, bytes]:
    """Return the last value of each key."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


class TestOwnership:
    """At most one ownership of a partition is valid."""

    def test_told_from_the_start(self, store: Store) -> None:
        """An engine reports each partition once as it finds it, before any change; then each change with its epoch."""
        own = owned(store.engine, 1)
        assert store.changes == [(0, None, -1), (1, None, -1), (2, None, -1), (1, NODE_ID, own.epoch)]
        release(store.engine, own)
        wait_until(lambda: len(store.changes) > 4, "the engine reports the release", WITHIN_S)  # perhaps later
        assert store.changes[4:] == [(1, None, own.epoch)]

    @pytest.mark.parametrize("kind", [EmbeddedEngine, ManualEngine])
    def test_what_other_nodes_own_is_theirs_from_the_start(
        self, tmp_path: Path, kind: type[EmbeddedEngine | ManualEngine]
    ) -> None:
        """Each of several nodes reports the owner of each partition; its own have no owner until it acquires them."""
        changes: list[tuple[int, int | None, int]] = []
        owners = [NODE_ID, NODE_ID + 1, NODE_ID]
        engine = (
            ManualLog(owners).engine(NODE_ID)
            if kind is ManualEngine
            else EmbeddedEngine(tmp_path, 3, NODE_ID, owners=owners)
        )
        engine.start(lambda *change: changes.append(change))
        own = owned(engine, 2)
        engine.close()
        assert changes[:4] == [(0, None, -1), (1, NODE_ID + 1, -1), (2, None, -1), (2, NODE_ID, own.epoch)]

    def test_epoch_grows(self, store: Store) -> None:
        """Each ownership has a higher epoch than all before, whether they appended or not, restarts included."""
        epochs = []
        for appends in (True, False, True, False):
            for again in (release, lambda _engine, _own: restart(store), lambda _engine, _own: None):
                own, _ = opened(store.engine)
                assert own.partition == 0
                epochs.append(own.epoch)
                if appends:
                    assert append(store.engine, own, record(1)) is None
                again(store.engine, own)
        assert epochs == sorted(set(epochs))
        assert epochs[0] >= 0

    def test_former_owner_is_fenced(self, store: Store) -> None:
        """Once a newer ownership is given out, the older one isn't valid, and the engine refuses it everything."""
        former, _ = opened(store.engine)
        assert former.valid()
        newer, _ = opened(store.engine)
        assert newer.valid()
        assert not former.valid()
        assert isinstance(append(store.engine, former, record(1)), Fenced)
        assert isinstance(load(store.engine, former)[1], Fenced)
        assert release(store.engine, former) is None
        assert newer.valid()
        assert append(store.engine, newer, record(2)) is None
        assert load(store.engine, newer)[0] == store.as_loaded([record(2)])

    def test_released_is_over(self, store: Store) -> None:
        """An engine treats a released ownership like a fenced one; releasing it again does nothing."""
        own, _ = opened(store.engine)
        assert release(store.engine, own) is None
        assert not own.valid()
        assert isinstance(append(store.engine, own, record(1)), Fenced)
        assert isinstance(load(store.engine, own)[1], Fenced)
        assert release(store.engine, own) is None

    def test_close_ends_all(self, store: Store) -> None:
        """A close ends all ownerships of the engine."""
        owns = [owned(store.engine, partition) for partition in range(PARTITION_COUNT)]
        restart(store)
        assert not any(own.valid() for own in owns)


class TestAppend:
    """An engine keeps everything that it reports as durable."""

    def test_loaded_by_the_next_owner(self, store: Store) -> None:
        """The next ownership loads the appended records, last value per key; a restarted engine does as well."""
        own, records = opened(store.engine)
        assert records == []
        batches = [[record(1), record(2)], [Record(b"key-1", None, 5)], [record(3)], [Record(b"key-3", b"new", 6)]]
        for batch in batches:
            assert append(store.engine, own, *batch) is None
        expected = state([record for batch in batches for record in batch])
        assert expected == {b"key-2": record(2).value, b"key-3": b"new"}
        assert state(opened(store.engine)[1]) == expected
        assert state(opened(restart(store))[1]) == expected

    def test_loaded_by_the_same_owner(self, store: Store) -> None:
        """A load sees every append that was made before it, and appends go on behind it."""
        own, _ = opened(store.engine)
        appending = [begin_append(store.engine, own, [record(number)]) for number in range(100)]
        records, error = load(store.engine, own)
        assert error is None
        assert records == store.as_loaded([record(number) for number in range(100)])
        assert [outcome.get(timeout=WITHIN_S) for outcome in appending] == [None] * 100
        assert append(store.engine, own, record(100)) is None
        assert load(store.engine, own)[0] == store.as_loaded([record(number) for number in range(101)])

    def test_partitions_are_apart(self, store: Store) -> None:
        """An engine loads records from the partition that they were appended to."""
        owns = [opened(store.engine, partition)[0] for partition in range(PARTITION_COUNT)]
        for number in range(30):
            assert append(store.engine, owns[number % PARTITION_COUNT], record(number)) is None
        for partition in range(PARTITION_COUNT):
            expected = [record(number) for number in range(partition, 30, PARTITION_COUNT)]
            assert opened(store.engine, partition)[1] == store.as_loaded(expected)

    def test_outcomes_in_order(self, store: Store) -> None:
        """An engine reports the outcomes of a partition's appends in the order of the appends."""
        own, _ = opened(store.engine)
        done: SimpleQueue[tuple[int, EngineError | None]] = SimpleQueue()

        def told(number: int, outcome: EngineError | None) -> None:
            done.put((number, outcome))

        for number in range(500):
            append_batch(store.engine, own, [record(number)], partial(told, number))
        assert [done.get(timeout=WITHIN_S) for _ in range(500)] == [(number, None) for number in range(500)]

    def test_batches_together(self, store: Store) -> None:
        """An engine keeps all batches of one append in their order, and reports them once."""
        own, _ = opened(store.engine)
        told: SimpleQueue[tuple[int, EngineError | None]] = SimpleQueue()
        batches = [[record(0)], [record(1), record(2)], [record(3)]]
        store.engine.append(own, [list(batch) for batch in batches], lambda *outcome: told.put(outcome))
        assert told.get(timeout=WITHIN_S) == (3, None)
        assert append(store.engine, own, record(4)) is None
        assert told.empty()
        assert opened(restart(store))[1] == store.as_loaded([record(number) for number in range(5)])

    def test_close_writes_what_was_appended(self, store: Store) -> None:
        """Before close returns, the engine writes and reports everything that was appended."""
        own, _ = opened(store.engine)
        done: SimpleQueue[EngineError | None] = SimpleQueue()
        for number in range(200):
            append_batch(store.engine, own, [record(number)], done.put)
        restart(store)
        assert [done.get_nowait() for _ in range(200)] == [None] * 200
        assert opened(store.engine)[1] == store.as_loaded([record(number) for number in range(200)])

    def test_callback_may_append(self, store: Store) -> None:
        """A callback may call the engine, as a chain of appends shows."""
        own, _ = opened(store.engine)
        done: SimpleQueue[EngineError | None] = SimpleQueue()

        def go_on(outcome: EngineError | None, number: int = 0) -> None:
            if outcome is not None or number == 20:
                done.put(outcome)
            else:
                append_batch(store.engine, own, [record(number)], lambda outcome: go_on(outcome, number + 1))

        go_on(None)
        assert done.get(timeout=WITHIN_S) is None
        assert load(store.engine, own)[0] == store.as_loaded([record(number) for number in range(20)])


class TestFailure:
    """A failed append closes its partition and no other."""

    def test_refused_until_loaded(self, store: Store) -> None:
        """The engine refuses the failed append and all behind it until a load; the log has all others only."""
        own, _ = opened(store.engine)
        other, _ = opened(store.engine, 1)
        assert append(store.engine, own, record(0)) is None
        assert append(store.engine, own, record(1)) is None  # the journal is there, if the engine has one
        store.fail_next_append()
        failed = append(store.engine, own, record(2))
        assert isinstance(failed, Unavailable)
        assert "No space left on device" in str(failed)
        assert isinstance(append(store.engine, own, record(3)), Unavailable)
        assert own.valid()
        assert append(store.engine, other, record(4)) is None
        assert load(store.engine, own) == (store.as_loaded([record(0), record(1)]), None)
        assert append(store.engine, own, record(5)) is None
        assert opened(restart(store))[1] == store.as_loaded([record(0), record(1), record(5)])
        assert opened(store.engine, 1)[1] == store.as_loaded([record(4)])

    def test_batches_together(self, store: Store) -> None:
        """If an append of several batches fails, the log has the batches that the engine reports as durable, only."""
        own, _ = opened(store.engine)
        store.fail_next_append()
        told: SimpleQueue[tuple[int, EngineError | None]] = SimpleQueue()
        store.engine.append(own, [[record(1)], [record(2)]], lambda *outcome: told.put(outcome))
        durable, error = told.get(timeout=WITHIN_S)
        assert (durable, type(error)) == (0, Unavailable)
        assert load(store.engine, own) == ([], None)

    def test_refused_before_loaded(self, store: Store) -> None:
        """The engine refuses an append before the first load, because its caller doesn't know the records yet."""
        own = owned(store.engine)
        assert isinstance(append(store.engine, own, record(1)), Unavailable)
        assert load(store.engine, own) == ([], None)
        assert append(store.engine, own, record(1)) is None

    def test_errors_have_one_root(self) -> None:
        """An `except EngineError` catches all errors of an engine; Damaged says where the damage is."""
        assert issubclass(Fenced, EngineError)
        assert issubclass(Unavailable, EngineError)
        damaged = Damaged("file.log", 7, "torn")
        assert isinstance(damaged, EngineError)
        assert str(damaged) == "file.log at byte 7: torn"
        assert (damaged.file, damaged.position, damaged.reason) == ("file.log", 7, "torn")
