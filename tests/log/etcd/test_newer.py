"""Keys and values that a newer version has written in another way: a clear error, and nothing is written over them.

The format in the meta key keeps such versions apart (test_moving has that). These tests are for what comes all the
same: a version that forgot to raise it, or a restore of another cluster's keys.
"""

from __future__ import annotations

import pytest

from coordinator.log.cluster import NodeAddresses
from coordinator.log.cluster.core import Core
from coordinator.log.cluster.keys import Keys, best_node
from coordinator.log.cluster.shared import Shared
from coordinator.log.engine import EngineError, Fenced
from coordinator.log.etcd.engine import parse_node
from protocol.records.batch import Record
from protocol.records.packing import PACKED
from tests.log.calls import record
from tests.log.cluster.worlds import PARTITIONS, Etcd, World

KEYS = Keys("c")
NEWER = b"v2;{epoch: 7}"


def test_a_head_of_a_newer_version_is_claimed_by_nobody() -> None:
    """The partition is refused with the key and its value, which stays; other partitions are served."""
    world = World(1)
    etcd = Etcd(world)
    etcd.put(KEYS.head(0), NEWER)
    error = world.ask(world.cores[1].acquire, 0)
    assert type(error) is EngineError
    assert str(error) == f"/c/head/000 has a value that this version can't read: {NEWER.decode()!r}"
    assert etcd.get(KEYS.head(0)).value == NEWER  # type: ignore[union-attr]
    assert world.append(1, world.own(1, 1), record(1)) == "done"


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_owner_whose_head_a_newer_version_changes_is_fenced(*, is_refused: bool) -> None:
    """Its append fails at once, and writes nothing, also if etcd has refused it; those of other partitions go on."""
    world = World(1)
    etcd = Etcd(world)
    own, other = world.own(1), world.own(1, 1)
    etcd.put(KEYS.head(0), NEWER)
    world.etcd.store.limit = 0 if is_refused else None
    assert isinstance(world.append(1, own, record(1)), Fenced)
    world.etcd.store.limit, world.etcd.store.is_full = None, False
    assert isinstance(world.ask(world.cores[1].ask_whether_newest, own), Fenced)
    assert etcd.get(KEYS.head(0)).value == NEWER  # type: ignore[union-attr]
    assert world.append(1, other, record(2)) == "done"


def test_a_value_that_is_packed_in_a_newer_way_is_an_error_of_the_load() -> None:
    """The load ends, with a reason, so the partition doesn't load for ever; the value stays."""
    world = World(1)
    etcd = Etcd(world)
    key, value = KEYS.log(0) + b"\0\2g", PACKED + b"\x28\xb5\x2f\xfd"
    etcd.put(key, value)
    own = world.ask(world.cores[1].acquire, 0)
    error = world.ask(world.cores[1].load, own, lambda _page: None)
    assert type(error) is EngineError
    assert "can't be unpacked" in str(error)
    assert isinstance(world.append(1, own, Record(b"\0\2g", None, 0)), EngineError)
    assert etcd.get(key).value == value  # type: ignore[union-attr]


def test_an_owner_and_a_node_of_a_newer_version_are_nobody() -> None:
    """A line names each key, once; the node goes on to follow all others, and leaves these as they are."""
    world = World(1)
    etcd = Etcd(world)
    etcd.put(KEYS.own(0), NEWER)
    etcd.put(KEYS.nodes + b"v2;5", b"{}", etcd.lease())
    etcd.put(KEYS.own(1), NEWER)
    etcd.put(KEYS.owners + b"v2;5", b"1")
    world.time.run(20_000)
    core: Core = world.cores[1]
    assert core.claims.picture.owners[:2] == [-1, -1]
    assert set(core.claims.picture.nodes) == {1}
    assert world.logged == ["key_unreadable"] * 4
    assert [etcd.get(KEYS.own(each)).value for each in (0, 1)] == [NEWER, NEWER]  # type: ignore[union-attr]
    world.processes[2] = world.time.process("node 2")
    world.start(2)
    world.time.run(3_000)
    assert set(core.claims.picture.nodes) == {1, 2}
    assert any(best_node(each, (1, 2)) == 2 for each in range(PARTITIONS))


def test_a_registration_without_a_lease_is_that_of_no_node() -> None:
    """Each node has one, so another program wrote it. It counts as no node that was there, and gets no partitions."""
    world = World(1)
    etcd = Etcd(world)
    etcd.put(KEYS.node(5), b"zzz")
    etcd.put(KEYS.owners + b"999", b"3")
    core = world.cores[1]
    assert set(core.claims.picture.nodes) == {1}
    assert core.claims.picture.owners == [None] * PARTITIONS
    assert world.logged == ["key_unreadable"]
    assert not any(owner == 5 for _, owner, _ in world.told[1])
    etcd.put(KEYS.node(6), NEWER, etcd.lease())
    assert set(core.claims.picture.nodes) == {1, 6}


@pytest.mark.parametrize(
    "info", [NEWER, b"\xff", b"[]", b'{"addresses": {}}', b'{"listeners": ["EXTERNAL"]}', b'{"listeners": {"A": "b"}}']
)
def test_a_node_that_registers_in_a_newer_way_has_no_address(info: bytes) -> None:
    """Clients don't hear of it. All other nodes are named."""
    assert parse_node(5, info) == NodeAddresses(5, {})


def test_what_nodes_share_is_read_and_not_changed_below_a_newer_head() -> None:
    """A change gets an error with the key; the entries are there."""
    world = World(1)
    etcd = Etcd(world)
    etcd.put(KEYS.state + b"entry/topic/a", b"{}")
    etcd.put(KEYS.state + b"head", NEWER)
    shared = Shared(world.etcd.port(world.processes[1]), KEYS, 1, lambda: "tag")
    shared.start()
    world.time.run(1_000)
    assert shared.entries == {"topic/a": b"{}"}
    error = world.ask(shared.change, lambda _entries: {"topic/b": b"{}"})
    assert str(error) == "/c/state/head has a value that this version can't read: nothing is written"
    assert etcd.get(KEYS.state + b"head").value == NEWER  # type: ignore[union-attr]
    assert etcd.get(KEYS.state + b"entry/topic/b") is None
