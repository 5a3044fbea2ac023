"""Tests the engine's core on a model of etcd, in virtual time."""

from __future__ import annotations

from typing import Any

from coordinator.log.engine import EngineError, Fenced, Ownership, Unavailable
from coordinator.log.etcd.core import GIVE_UP_MS, Core
from coordinator.log.etcd.keys import Keys
from protocol.records.batch import Record
from tests.log.calls import record
from tests.support.etcd_model import EtcdModel
from tests.support.virtual_time import Timeline

PARTITIONS = 4
TTL_MS = 3_000
LONG_MS = 20_000


class World:
    """A cluster of etcd, and nodes by their ids."""

    def __init__(self, *node_ids: int) -> None:
        self.time = Timeline(1)
        self.etcd = EtcdModel(self.time)
        self.cores: dict[int, Core] = {}
        self.processes = {node_id: self.time.process(f"node {node_id}") for node_id in node_ids}
        self.told: dict[int, list[tuple[int, int | None, int]]] = {}
        for node_id in node_ids:
            port = self.etcd.port(self.processes[node_id])
            core = self.cores[node_id] = Core(port, Keys("c"), node_id, PARTITIONS, TTL_MS)
            told = self.told[node_id] = []
            core.begin()
            core.start(lambda *change, told=told: told.append(change))
            core.register(b"{}")
        self.time.run(3_000)

    def ask(self, call: Any, *arguments: Any, within_ms: int = LONG_MS) -> Any:
        """Make a call, let time pass, and return what it told; None is told as "done"."""
        came: list[Any] = []
        call(*arguments, lambda *outcome: came.append(outcome[-1]))
        end_ms = self.time.ms + within_ms
        while not came and self.time.ms < end_ms:
            self.time.run(10)
        assert len(came) == 1
        return "done" if came[0] is None else came[0]

    def own(self, node_id: int, partition: int = 0) -> Ownership:
        """Acquire and load a partition."""
        own: Ownership | EngineError = self.ask(self.cores[node_id].acquire, partition)
        assert not isinstance(own, EngineError)
        assert self.ask(self.cores[node_id].load, own, lambda _page: None) == "done"
        return own

    def append(self, node_id: int, own: Ownership, *records: Record) -> Any:
        """Append one batch."""
        return self.ask(self.cores[node_id].append, own, [list(records)])


def test_two_calls_for_one_partition_are_one_claim() -> None:
    """Both callers get the same ownership: a second claim would fence the first."""
    world = World(1)
    came: list[Ownership | EngineError] = []
    for _ in range(2):
        world.cores[1].acquire(0, came.append)
    world.time.run(1_000)
    assert len(came) == 2
    assert came[0] is came[1]
    assert not isinstance(came[0], EngineError)
    assert came[0].epoch == 0


def test_only_the_newest_owner_is_told_that_it_is() -> None:
    """A node whose clock or process stood still finds out, before it tells what it remembers."""
    world = World(1, 2)
    former = world.own(1)
    assert world.ask(world.cores[1].ask_whether_newest, former) == "done"
    world.processes[1].freeze()
    world.time.run(2 * TTL_MS)
    newer = world.own(2)
    assert newer.epoch == former.epoch + 1
    world.processes[1].thaw()
    assert isinstance(world.ask(world.cores[1].ask_whether_newest, former), Fenced)
    assert world.ask(world.cores[2].ask_whether_newest, newer) == "done"


def test_without_etcd_nobody_is_told_that_it_is_the_newest() -> None:
    """The one try fails, and the caller decides what to answer."""
    world = World(1)
    own = world.own(1)
    for member in (0, 1, 2):
        world.etcd.kill(member)
    assert isinstance(world.ask(world.cores[1].ask_whether_newest, own), Unavailable)


def test_a_store_without_space_refuses_appends_and_lets_the_partition_load() -> None:
    """So heartbeats and reads go on; when there is space again, appends do too."""
    world = World(1)
    own = world.own(1)
    assert world.append(1, own, record(1)) == "done"
    world.etcd.store.limit = 1
    failed = world.append(1, own, record(2))
    assert isinstance(failed, Unavailable)
    assert world.ask(world.cores[1].load, own, lambda _page: None) == "done"
    world.etcd.store.limit = None
    world.etcd.store.is_full = False
    assert world.append(1, own, record(3)) == "done"


def test_an_append_without_an_answer_fails_in_the_end_and_the_load_waits_for_etcd() -> None:
    """Clients get an error after a limited time. The partition goes on when etcd is back, in the same epoch."""
    world = World(1)
    own = world.own(1)
    for member in (0, 1):
        world.etcd.freeze(member)
    began_ms = world.time.ms
    assert isinstance(world.append(1, own, record(1)), Unavailable)
    assert world.time.ms - began_ms < GIVE_UP_MS + 2_000
    loaded: list[object] = []
    world.cores[1].load(own, lambda _page: None, loaded.append)
    world.time.run(5_000)
    assert not own.valid()
    assert loaded == []
    for member in (0, 1):
        world.etcd.heal(member)
    world.time.run(10_000)
    assert loaded == [None]
    assert own.valid()
    assert own.lapses > 0
    assert world.append(1, own, record(2)) == "done"
