"""Tests what keeps etcd's file small, on a model of etcd in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordinator.log.cluster.port import Compacted, Lost, Page, Put, Rejected, Status, Txn
from coordinator.log.etcd.housekeeping import KEPT_MS, TICK_MS, Housekeeping
from tests.support.etcd_model import EtcdModel
from tests.support.virtual_time import Timeline


class World:
    """A cluster of etcd and a node. is_keeper: whether the node owns partition 0. told: facts for the operator."""

    def __init__(self) -> None:
        self.time = Timeline(1)
        self.etcd = EtcdModel(self.time)
        self.port = self.etcd.port(self.time.process("node"))
        self.is_keeper = True
        self.told: list[str] = []
        self.keeping = Housekeeping(
            self.port, b"meta", lambda: self.is_keeper, lambda name, _fields: self.told.append(name), quota=1_000_000
        )
        self.time.run(2_000)
        self.keeping.start()

    def write(self, count: int, size: int = 10) -> None:
        """Write one key so often."""
        for number in range(count):
            self.port.txn(Txn([], [Put(b"k", b"%0*d" % (size, number))]), lambda _outcome: None)
            self.time.run(100)

    def read_at(self, revision: int) -> Page | Compacted | Lost | Rejected:
        """Read the key as it was at a revision."""
        came: list[Page | Compacted | Lost | Rejected] = []
        self.port.range(b"k", b"l", came.append, limit=1, revision=revision)
        self.time.run(1_000)
        return came[0]


def test_old_versions_are_forgotten_and_new_ones_kept() -> None:
    """The next tick forgets history that is older than KEPT_MS."""
    world = World()
    world.write(10)
    old = world.etcd.store.revision - 3
    world.time.run(KEPT_MS + 2 * TICK_MS)
    world.write(10)
    kept = world.etcd.store.revision - 3
    world.time.run(TICK_MS + 1_000)
    assert isinstance(world.read_at(old), Compacted)
    assert isinstance(world.read_at(kept), Page)
    assert old < world.etcd.store.compacted <= kept


def test_a_lost_answer_and_one_behind_the_end_compact_nothing() -> None:
    """The next tick asks again after a lost answer; a node that ends leaves the history to others."""
    world = World()
    world.write(10)
    held: list[Callable[[], None]] = []
    asked, ask = world.port.txn, partial(setattr, world.port, "txn")
    ask(lambda txn, done: asked(txn, lambda outcome: held.append(partial(done, outcome))))
    world.time.run(KEPT_MS + 2 * TICK_MS)
    ask(lambda _txn, done: done(Lost("no answer")))
    world.time.run(TICK_MS)
    world.keeping.end()
    assert held
    for answer in held:
        answer()
    world.time.run(1_000)
    assert world.etcd.store.compacted == 0


def test_only_the_owner_of_partition_0_compacts() -> None:
    """Others would only repeat it."""
    world = World()
    world.is_keeper = False
    world.write(10)
    world.time.run(KEPT_MS + 3 * TICK_MS)
    assert world.etcd.store.compacted == 0


def test_a_filling_store_is_reported_once_and_takes_no_new_groups_above_80_percent() -> None:
    """Also when it empties again."""
    world = World()
    tell = partial(setattr, world.port, "status")
    for used, alarms in ((100, ()), (610_000, ()), (620_000, ()), (800_000, ()), (100, ("NOSPACE",)), (100, ())):
        tell(lambda done, used=used, alarms=alarms: done(Status("3.6.0", 900_000, used, alarms)))
        world.time.run(TICK_MS)
        assert world.keeping.is_full is (used >= 800_000 or bool(alarms))
    assert world.told == ["store_warned", "store_full", "store_fine"]
    assert world.keeping.share == 0.0001
