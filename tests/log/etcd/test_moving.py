"""A cluster moves into etcd and out of it, whole or not at all; and an old owner is fenced after a restore."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from uuid import uuid4

import pytest

from coordinator.log.cluster.port import Txn, TxnResult
from coordinator.log.cluster.shared import parse_state_head
from coordinator.log.engine import EngineError
from coordinator.log.etcd import client as clients
from coordinator.log.etcd import moving
from coordinator.log.etcd.client import Access
from coordinator.log.etcd.moving import EPOCHS, Mover, Stored
from tests.log.calls import append, record
from tests.log.etcd.test_engine import PARTITIONS, Node
from tests.support.etcd import Etcd, program
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

pytestmark = pytest.mark.etcd

NUMBERS = count()


@pytest.fixture
def cluster() -> str:
    """A cluster that isn't there yet."""
    return f"moving-{next(NUMBERS)}"


def _mover(etcd: Etcd, cluster: str) -> Mover:
    return Mover(Access(etcd.endpoints), cluster, lambda: uuid4().hex)


def _stored() -> Stored:
    records: list[dict[bytes, bytes]] = [
        {b"\0\1key/%d\0\xff" % number: b"\0%d" % number * 40 for number in range(3 * partition)}
        for partition in range(PARTITIONS)
    ]
    records[1][b"\0\2large"] = b"\0" + bytes(range(256)) * 3_000
    epochs = [-1, 7, *range(2, PARTITIONS)]
    return Stored("cluster-id", records, epochs, {"topic/a": b"{}", "set/acls:\u00e4:b": b"x\0"})


def test_everything_comes_back_byte_for_byte(etcd: Etcd, cluster: str) -> None:
    """Keys, values, entries and the cluster's id; epochs go on above those of the source."""
    stored = _stored()
    with _mover(etcd, cluster) as mover:
        mover.write(stored)
        back = mover.read()
    assert back.records == list(stored.records)
    assert (back.cluster_id, back.entries) == (stored.cluster_id, stored.entries)
    assert back.epochs == [epoch + 1 for epoch in stored.epochs]


def test_a_node_serves_what_was_moved(etcd: Etcd, cluster: str) -> None:
    """It loads all records, and its epoch is above the former owner's."""
    stored = _stored()
    with _mover(etcd, cluster) as mover:
        mover.write(stored)
    node = Node(etcd, cluster, 1)
    try:
        node.register()
        wait_until(lambda: settled_alone(node), "each partition has its owner", WITHIN_S)
        loaded = {each.key: each.value for each in node.loaded[1]}
        assert loaded == stored.records[1]
        assert node.owns[1].epoch == 9
        assert node.engine.cluster_id == "cluster-id"
        assert node.engine.follow(lambda _writes: None) == stored.entries
        with _mover(etcd, cluster) as mover, pytest.raises(EngineError, match="running: 1"):
            mover.read()
        with _mover(etcd, cluster) as mover, pytest.raises(EngineError, match="running: 1"):
            mover.write(stored)
    finally:
        node.engine.close()


def settled_alone(node: Node) -> bool:
    """Whether a node owns and has loaded everything."""
    return len(node.owns) == PARTITIONS


def test_groups_are_never_mixed(etcd: Etcd, cluster: str) -> None:
    """A cluster with groups or topics takes no others, and stays as it is; so does one of another size."""
    stored = _stored()
    other = stored._replace(records=[{b"\0\1a": b"\0b"}] * PARTITIONS)
    with _mover(etcd, cluster) as mover:
        mover.write(stored)
        before = etcd.values(f"/{cluster}/")
        for refused, reason in ((other, "makes a new cluster"), (stored._replace(records=[{}]), "12 partitions")):
            with pytest.raises(EngineError, match=reason):
                mover.write(refused)
        assert etcd.values(f"/{cluster}/") == before
    with _mover(etcd, "absent") as mover, pytest.raises(EngineError, match="no cluster absent"):
        mover.read()


def test_a_node_that_starts_in_the_middle_does_no_harm(
    etcd: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new node is refused; one that was about to register owns nothing before the end, and everything after it."""
    early = Node(etcd, cluster, 1)
    stored = _stored()
    seen: list[int] = []
    written = Mover._write_partition

    def slowly(self: Mover, partition: int, records: Mapping[bytes, bytes], epoch: int) -> None:
        if partition == PARTITIONS // 2:
            early.register()
            wait_until(early.engine.nodes, "the node is registered", WITHIN_S)
            # A node that registers later, in another cluster, has claimed everything by the end.
            later = Node(etcd, f"{cluster}-other", 1)
            later.register()
            wait_until(lambda: settled_alone(later), "each partition has its owner", WITHIN_S)
            later.engine.close()
            with pytest.raises(EngineError, match="a move into this cluster is under way"):
                Node(etcd, cluster, 2)
        written(self, partition, records, epoch)
        seen.append(len(early.owns))

    monkeypatch.setattr(Mover, "_write_partition", slowly)
    try:
        with _mover(etcd, cluster) as mover:
            mover.write(stored)
        assert seen == [0] * PARTITIONS
        wait_until(lambda: settled_alone(early), "each partition has its owner", WITHIN_S)
        for partition in range(PARTITIONS):
            assert {each.key: each.value for each in early.loaded[partition]} == stored.records[partition]
    finally:
        early.engine.close()


@pytest.mark.parametrize("at", [0, 5, PARTITIONS - 1])
def test_an_interrupted_write_is_made_again(etcd: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Until then no node starts and nothing can be read; afterwards there is nothing of the first try."""
    first = _stored()
    written = Mover._write_partition

    def interrupted(self: Mover, partition: int, records: Mapping[bytes, bytes], epoch: int) -> None:
        if partition == at:
            raise KeyboardInterrupt
        written(self, partition, records, epoch)

    with monkeypatch.context() as patched:
        patched.setattr(Mover, "_write_partition", interrupted)
        with _mover(etcd, cluster) as mover, pytest.raises(KeyboardInterrupt):
            mover.write(first)
    with pytest.raises(EngineError, match="a move into this cluster"):
        Node(etcd, cluster, 1)
    second = first._replace(records=[{b"\0\1b%d" % number: b"\0"} for number in range(PARTITIONS)], entries={})
    with _mover(etcd, cluster) as mover:
        with pytest.raises(EngineError, match="interrupted"):
            mover.read()
        mover.write(second)
        back = mover.read()
    assert (back.records, back.entries) == (list(second.records), {})


def test_a_write_that_another_program_disturbs_is_no_cluster(
    etcd: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there afterwards is compared with what was written; no node starts with a mixture."""
    written = Mover._write_entries

    def disturbed(self: Mover, entries: Mapping[str, bytes]) -> None:
        written(self, entries)
        _put(etcd, f"/{cluster}/log/000/x", b"\0")

    monkeypatch.setattr(Mover, "_write_entries", disturbed)
    with _mover(etcd, cluster) as mover, pytest.raises(EngineError, match="another program writes there"):
        mover.write(_stored())
    with pytest.raises(EngineError, match="a move into this cluster"):
        Node(etcd, cluster, 1)


def test_a_newer_format_is_refused(etcd: Etcd, cluster: str) -> None:
    """In one line; nothing is read or written."""
    with _mover(etcd, cluster) as mover:
        mover.write(_stored())
    meta = etcd.values(f"/{cluster}/meta")[f"/{cluster}/meta"]
    _put(etcd, f"/{cluster}/meta", meta.replace(b'"format": 1', b'"format": 2, "later": "x"'))
    with _mover(etcd, cluster) as mover:
        for call in (mover.read, mover.restored, lambda: mover.write(_stored())):
            with pytest.raises(EngineError, match="have format 2, and this version knows 1"):
                call()
    with pytest.raises(EngineError, match="have format 2, and this version knows 1"):
        Node(etcd, cluster, 1)


def test_keys_that_are_no_cluster_are_refused(etcd: Etcd, cluster: str) -> None:
    """Another program's, perhaps: one line says so."""
    for meta in (b"no JSON", b"7", b"{}"):
        _put(etcd, f"/{cluster}/meta", meta)
        with _mover(etcd, cluster) as mover:
            for call in (mover.read, mover.restored, lambda: mover.write(_stored())):
                with pytest.raises(EngineError, match="have format unknown, and this version knows 1"):
                    call()


def test_pages_are_as_small_as_the_client_needs(etcd: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many large groups are more than the client takes in one answer."""
    records = [*_stored().records, {b"\0\2large/%d" % number: bytes(50_000) for number in range(30)}]
    stored = _stored()._replace(records=records[1:], epochs=[0] * PARTITIONS)
    monkeypatch.setattr(clients, "RECEIVED_MAX", 1_000_000)
    with _mover(etcd, cluster) as mover:
        mover.write(stored)
        assert mover.read().records == list(stored.records)


def test_a_cluster_of_many_partitions_moves(etcd: Etcd, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys that keep nodes out are more than one transaction takes, and go in several."""
    limit = PARTITIONS // 3
    monkeypatch.setattr(moving, "OPERATIONS_MAX", limit)
    sizes: list[int] = []
    call_txn = Mover._call_txn

    def counted(self: Mover, txn: Txn) -> TxnResult:
        sizes.append(len(txn.success))
        return call_txn(self, txn)

    monkeypatch.setattr(Mover, "_call_txn", counted)
    stored = _stored()
    with _mover(etcd, cluster) as mover:
        mover.write(stored)
        assert mover.read().records == list(stored.records)
    assert max(sizes) == limit + 1
    assert etcd.values(f"/{cluster}/own/") == {}


def _put(etcd: Etcd, key: str, value: bytes) -> None:
    ctl = program("etcdctl")
    assert ctl is not None
    subprocess.run(
        [ctl, f"--endpoints={etcd.endpoints[0]}", "put", key],
        input=value,
        env={"ETCDCTL_API": "3"},
        check=True,
        capture_output=True,
    )


def test_an_old_owner_is_fenced_after_a_restore(tmp_path: Path) -> None:
    """It still runs when etcd comes back from a snapshot; what it has appended since is gone, and it writes nothing."""
    with Etcd() as etcd:
        old = Node(etcd, "restored", 1)
        try:
            old.register()
            wait_until(lambda: settled_alone(old), "each partition has its owner", WITHIN_S)
            mine = dict(old.owns)
            assert append(old.engine, mine[3], record(1)) is None
            assert _change(old, {"topic/a": b"1"}) is None
            etcd.save_snapshot(tmp_path / "snapshot.db")
            assert append(old.engine, mine[4], record(2)) is None
            etcd.restore_snapshot(tmp_path / "snapshot.db")
            with _mover(etcd, "restored") as mover:
                done = mover.restored()
            assert done.partitions == PARTITIONS
            assert parse_state_head(etcd.values("/restored/state/")["/restored/state/head"]).sequence > EPOCHS
            assert append(old.engine, mine[3], record(3)) is not None
            assert isinstance(append(old.engine, mine[4], record(4)), EngineError)
        finally:
            old.engine.close()
        new = Node(etcd, "restored", 2)
        try:
            new.register()
            wait_until(lambda: settled_alone(new), "each partition has its owner", WITHIN_S)
            assert all(own.epoch > EPOCHS for own in new.owns.values())
            assert [each.value for each in new.loaded[3]] == [record(1).value]
            assert new.loaded[4] == []
            assert _change(new, {"topic/b": b"2"}) is None
            assert new.engine.follow(lambda _writes: None) == {"topic/a": b"1", "topic/b": b"2"}
        finally:
            new.engine.close()


def _change(node: Node, writes: Mapping[str, bytes]) -> EngineError | None:
    over: SimpleQueue[EngineError | None] = SimpleQueue()
    node.engine.change(lambda _entries: writes, over.put)
    return over.get(timeout=WITHIN_S)
