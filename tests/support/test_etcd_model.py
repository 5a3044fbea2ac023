"""The model of an etcd cluster does what a real one does to those who trust it too much."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from coordinator.log.cluster.port import Compacted, Compare, Event, Lost, Page, Put, Rejected, Target, Txn, TxnResult
from tests.support.etcd_model import TRY_MS, EtcdModel, ModelPort
from tests.support.virtual_time import Process, Timeline

KEY = b"k"


class World:
    """A cluster of three and one process."""

    def __init__(self, seed: int = 1) -> None:
        self.time = Timeline(seed)
        self.etcd = EtcdModel(self.time)
        self.process: Process = self.time.process("node")
        self.port: ModelPort = self.etcd.port(self.process)

    def ask(self, call: Any, *arguments: Any, within_ms: int = TRY_MS) -> Any:
        """Make a call of the port, and let time pass until its outcome is there."""
        came: list[Any] = []
        call(*arguments, came.append)
        self.time.run(within_ms)
        assert len(came) == 1
        return came[0]

    def put(self, value: bytes, lease: int = 0) -> Any:
        """Write the key."""
        return self.ask(self.port.txn, Txn([], [Put(KEY, value, lease)]))

    def read(self) -> bytes | None:
        """The key's value."""
        page = self.ask(partial(self.port.range, limit=0), KEY, KEY + b"\0")
        assert isinstance(page, Page)
        return page.kvs[0].value if page.kvs else None

    def heal(self) -> None:
        """All members run, and there is a leader."""
        for member in self.etcd.members:
            self.etcd.heal(member.index)
        self.time.run(5_000)


def test_a_try_that_was_given_up_is_applied_over_a_newer_value() -> None:
    """Trap 1: a frozen member has the request; it wakes after a newer value was written through another member."""
    late = 0
    for seed in range(20):
        world = World(seed)
        world.etcd.freeze(world.port.member.index)
        assert isinstance(world.put(b"old"), Lost)
        world.time.run(2_000)
        assert isinstance(world.put(b"new"), TxnResult)
        world.heal()
        late += world.read() == b"old"
    assert 0 < late < 20


def test_without_a_majority_nothing_is_answered_and_no_lease_ends() -> None:
    """Both go on when the majority is back; a lease has its whole TTL again then."""
    world = World()
    lease = world.ask(world.port.grant, 3)
    assert isinstance(world.put(b"mine", lease), TxnResult)
    for index in (0, 1):
        world.etcd.kill(index)
    world.time.run(60_000)
    assert isinstance(world.put(b"new"), Lost)
    assert isinstance(world.ask(world.port.keep_alive, lease), Lost)
    world.etcd.late_share = 0.0
    world.heal()
    assert world.read() == b"mine"
    world.time.run(6_000)
    assert world.read() is None
    assert world.ask(world.port.keep_alive, lease) == 0


def test_a_lease_lives_as_long_as_it_is_renewed() -> None:
    """Renewed it stays; then it ends between TTL and TTL + 0.5 s, its keys with it."""
    world = World()
    lease = world.ask(world.port.grant, 3)
    world.put(b"mine", lease)
    for _ in range(10):
        assert world.ask(world.port.keep_alive, lease) == 3
        world.time.run(1_500)
    world.ask(world.port.keep_alive, lease, within_ms=10)
    began_ms = world.time.ms
    while world.etcd.store.get(KEY) is not None:
        world.time.step(world.time.ms + 1_000)
    assert 2_980 <= world.time.ms - began_ms <= 3_510


@pytest.mark.parametrize("fault", ["none", "frozen", "killed", "isolated", "cut"])
def test_a_watch_tells_all_in_order_until_its_end(fault: str) -> None:
    """Whatever happens to its member, a watch that goes on behind its last change misses none and repeats none."""
    for seed in range(30):
        world = World(seed)
        world.etcd.slow = 0.3
        told: list[Event] = []
        begin_watch(world, told, 1)
        for number in range(30):
            if number == 10:
                begin_fault(world, fault)
            world.etcd.store.txn(Txn([], [Put(KEY, b"%d" % number)]))
            world.etcd.tell_watches()
            world.time.run(100)
        world.heal()
        if fault == "cut":
            world.etcd.mend(world.process, 0)
        world.time.run(20_000)
        assert [event.kv.value for event in told] == [b"%d" % number for number in range(30)]


def begin_fault(world: World, fault: str) -> None:
    """One fault at the first member."""
    etcd = world.etcd
    calls: dict[str, Callable[[int], None]] = {
        "frozen": etcd.freeze,
        "killed": etcd.kill,
        "isolated": etcd.isolate,
        "cut": partial(etcd.cut, world.process),
    }
    if fault != "none":
        calls[fault](0)


def begin_watch(world: World, told: list[Event], start: int) -> None:
    """Watch, and watch again behind the last change when the watch ends."""

    def on_end(_why: Lost | Compacted) -> None:
        begin_watch(world, told, told[-1].kv.mod_revision + 1 if told else 1)

    world.port.watch(b"", start, lambda events, _revision: told.extend(events), on_end)


def test_a_watch_from_a_later_revision_hears_of_none_before_it() -> None:
    """As in etcd: a node that asks for too late a revision misses a change, and a test of it must fail."""
    world = World()
    told: list[Event] = []
    begin_watch(world, told, world.etcd.store.revision + 2)
    for value in (b"1", b"2"):
        world.time.run(1_000)
        world.put(value)
    world.time.run(1_000)
    assert [event.kv.value for event in told] == [b"2"]


def test_a_watch_of_forgotten_history_ends() -> None:
    """Its end says why."""
    world = World()
    for number in range(5):
        world.put(b"%d" % number)
    assert world.ask(world.port.compact, 4) is None
    ends: list[Lost | Compacted] = []
    world.port.watch(b"", 2, lambda _events, _revision: None, ends.append)
    world.time.run(1_000)
    assert ends == [Compacted()]


def test_a_full_store_refuses_to_grow() -> None:
    """Writes are refused and not applied; deletions and reads go on."""
    world = World()
    world.put(b"1")
    world.etcd.store.limit = 0
    refused = world.put(b"2")
    assert isinstance(refused, Rejected)
    assert "space" in refused.reason
    assert world.read() == b"1"


def test_a_frozen_process_gets_its_answers_when_it_wakes_and_a_killed_one_never() -> None:
    """The cluster carries out calls that a process sent before it was frozen or killed."""
    for end in ("frozen", "killed"):
        world = World()
        came: list[Any] = []
        world.port.txn(Txn([Compare(KEY, Target.CREATE_REVISION, 0)], [Put(KEY, b"1")]), came.append)
        (world.process.freeze if end == "frozen" else world.process.kill)()
        world.time.run(5_000)
        assert not came
        assert world.etcd.store.get(KEY) is not None
        if end == "frozen":
            world.process.thaw()
            world.time.run(0)
            assert len(came) == 1


def test_one_seed_is_one_run() -> None:
    """The same seed gives the same answers at the same times."""

    def play(seed: int) -> list[str]:
        world = World(seed)
        world.etcd.slow = 0.5
        lines: list[str] = []
        for number in range(20):
            world.port.txn(
                Txn([], [Put(KEY, b"%d" % number)]), lambda answer: lines.append(f"{world.time.ms} {answer}")
            )
        world.etcd.freeze(1)
        world.time.run(1_500)
        world.heal()
        return lines

    assert play(7) == play(7)
    assert play(7) != play(8)
