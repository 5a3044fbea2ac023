"""Tests the engine's core on a model of etcd, in virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coordinator.log.cluster.core import GIVE_UP_MS
from coordinator.log.cluster.keys import Head, Keys, best_node
from coordinator.log.cluster.port import Delete, Lost, Put, Rejected, Txn
from coordinator.log.engine import EngineError, Fenced, Ownership, Unavailable
from protocol.records.batch import Record
from tests.log.calls import record
from tests.log.cluster.worlds import PARTITIONS, TTL_MS, Etcd, World

KEYS = Keys("c")


def delete(world: World, key: bytes) -> None:
    """Delete a key, as an operator may."""
    port = world.etcd.port(world.time.process("operator"))
    world.ask(lambda done: port.txn(Txn([], [Delete(key)]), done))


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


def test_a_partition_that_another_node_has_is_not_acquired() -> None:
    """The refusal names its owner, and the node is told again whose the partition is: the refusal may come late."""
    world = World(1, 2)
    world.own(1)
    world.time.run(1_000)
    world.told[2].clear()
    refused = world.ask(world.cores[2].acquire, 0)
    assert isinstance(refused, Fenced)
    assert str(refused) == "node 1 owns partition 0"
    world.time.run(1_000)
    assert world.told[2] == [(0, 1, -1)]


def test_a_claim_ends_with_the_lease_that_it_began_with() -> None:
    """own/ppp is gone with that lease, so the node owns nothing, whatever lease it has got since."""
    world = World(1)
    core = world.cores[1]
    came: list[Ownership | EngineError] = []
    core.acquire(0, came.append)
    core.session.lease += 1
    world.time.run(1_000)
    assert isinstance(came[0], Fenced)


def test_an_append_of_the_former_owner_during_a_claim_makes_the_claim_read_the_head_again() -> None:
    """The claim holds the partition's key, so it goes on behind that append, with an epoch above the head's."""
    world = World(1)
    port = world.cores[1]._port
    send = port.txn

    def append_first(txn: Txn, done: Any) -> None:
        if any(isinstance(each, Put) and each.key == KEYS.head(0) for each in txn.success):
            patched.undo()
            send(Txn([], [Put(KEYS.head(0), Head(4, 8, "2/7").text())]), lambda _outcome: send(txn, done))
        else:
            send(txn, done)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(port, "txn", append_first)
        assert world.own(1).epoch == 5


def test_a_wish_to_hand_over_comes_after_the_ownership_that_it_is_about() -> None:
    """A node that claims another one's partition hears of the wish when it knows what to release, or it never would."""
    world = World(1, 2)
    partition = next(each for each in range(PARTITIONS) if best_node(each, (1, 2)) == 2)
    order: list[str] = []
    world.cores[1].claims._on_ownership = lambda *change: order.append(f"told {change}")
    world.cores[1].acquire(partition, lambda _own: order.append("acquired"))
    world.time.run(1_000)
    assert "acquired" in order
    assert order.index("acquired") < order.index(f"told {(partition, 2, 0)}")


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


def test_an_owner_is_fenced_when_a_read_finds_no_head() -> None:
    """Somebody has deleted it; what the node remembers may be told no more."""
    world = World(1)
    own = world.own(1)
    delete(world, KEYS.head(0))
    assert isinstance(world.ask(world.cores[1].ask_whether_newest, own), Fenced)
    assert not own.valid()


def test_an_owner_whose_key_is_gone_owns_nothing() -> None:
    """Another node may claim the partition, so this one must not wait for its next append to find out."""
    world = World(1)
    own = world.own(1)
    world.time.run(2_000)
    assert own.valid()
    delete(world, KEYS.own(0))
    world.time.run(2_000)
    assert not own.valid()
    assert world.told[1][-1] == (0, None, own.epoch + 1)


def test_a_release_that_etcd_refused_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition would have no coordinator as long as this node lives: its key names a node that owns nothing."""
    world = World(1)
    own = world.own(1)
    core = world.cores[1]
    with monkeypatch.context() as patched:
        patched.setattr(core._port, "txn", lambda _txn, done: done(Rejected("too many requests", 8)))
        assert world.ask(core.release, own) == "done"
    world.time.run(3_000)
    assert world.etcd.store.get(KEYS.own(0)) is None
    assert world.logged == []  # the key is this node's own
    assert world.own(1).epoch == own.epoch + 1


def test_a_release_ends_with_the_lease_though_etcd_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """etcd deletes the key with its lease, so there is nothing left to wait for."""
    world = World(1)
    core = world.cores[1]
    own = world.own(1)
    monkeypatch.setattr(core._port, "txn", lambda _txn, done: done(Lost("no answer")))
    released: list[object] = []
    core.release(own, released.append)
    world.time.run(TTL_MS)
    assert released == []
    core.session.lease += 1
    world.time.run(TTL_MS)
    assert released == [None]


def test_a_release_that_comes_behind_the_next_claim_does_not_hide_its_owner() -> None:
    """The key is another one's by then, and the watch has told so: the node forgets only a key that it deleted."""
    world = World(1)
    core, own, lease = world.cores[1], world.own(1), Etcd(world).lease()
    send = core._port.txn

    def overtaken(txn: Txn, done: Any) -> None:
        patched.undo()
        claimed = Txn([], [Put(KEYS.own(0), b"2", lease)])

        def late(_: object) -> None:
            core._port.later(100, partial(send, txn, done))

        send(Txn([], [Delete(KEYS.own(0))]), lambda _: send(claimed, late))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(core._port, "txn", overtaken)
        assert world.ask(core.release, own) == "done"
    assert core.claims.picture.owners[0] == 2


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_node_that_ends_gives_its_lease_back_once_behind_its_last_release(count: int) -> None:
    """Its partitions are free, and other nodes know at once that it is gone: nobody waits until a lease expires."""
    world = World(1)
    for partition in range(count):
        world.own(1, partition)
    keys = [KEYS.node(1), *map(KEYS.own, range(count))]
    assert all(world.etcd.store.get(key) is not None for key in keys)
    ended: list[bool] = []
    world.cores[1].end(lambda: ended.append(True))
    world.time.run(TTL_MS // 2)
    assert ended == [True]
    assert all(world.etcd.store.get(key) is None for key in keys)


def test_a_load_that_etcd_refuses_has_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who sees the line knows what to do."""
    world = World(1)
    core = world.cores[1]
    own = world.ask(core.acquire, 0)
    monkeypatch.setattr(
        core._port, "range", lambda _start, _end, done, **_options: done(Rejected("permission denied", 7))
    )
    assert "permission denied" in str(world.ask(core.load, own, lambda _page: None))


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
    """Clients get an error after a limited time. The partition goes on when etcd is back, in the same epoch.

    A later load reads what was appended since, and the append whose answer was lost.
    """
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
    pages: list[list[Record]] = []
    assert world.ask(world.cores[1].load, own, pages.append) == "done"
    assert [each.key for page in pages for each in page] == [record(1).key, record(2).key]


def test_an_append_without_an_answer_is_over_for_a_partition_that_was_claimed_meanwhile() -> None:
    """The head is another one's: the barrier finds it, and the former owner doesn't go on as if it were its own."""
    world = World(1)
    own = world.own(1)
    for member in (0, 1):
        world.etcd.freeze(member)
    assert isinstance(world.append(1, own, record(1)), Unavailable)
    for member in (0, 1):
        world.etcd.heal(member)
    world.processes[1].freeze()
    Etcd(world).put(KEYS.head(0), Head(1, 0, "2/7").text())
    world.processes[1].thaw()
    assert isinstance(world.ask(world.cores[1].load, own, lambda _page: None), Fenced)
    assert not own.valid()
