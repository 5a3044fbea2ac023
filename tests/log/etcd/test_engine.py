"""Tests the engine's part in a cluster on real etcd: claims, moves, fences. tests/log/test_engine.py has the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from queue import SimpleQueue
from random import Random
from uuid import uuid4

import pytest

from coordinator.log.cluster import NodeAddresses
from coordinator.log.cluster.port import Lost
from coordinator.log.engine import EngineError, Fenced, Ownership
from coordinator.log.etcd import client as clients
from coordinator.log.etcd.client import TLS_PROBLEM, Access
from coordinator.log.etcd.engine import EtcdEngine, Opening, open_engine, version_problem, version_warning
from protocol.records.batch import Record
from tests.log.calls import append, load, record
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

pytestmark = pytest.mark.etcd

PARTITIONS = 12
TTL_MS = 2_000


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    """Three members, for all tests of this module; each test has a cluster name of its own."""
    with Etcd(members=3) as running:
        yield running


class Node:
    """A node as its runtime drives it: it acquires and loads what it should, and releases what it is asked for.

    keeps: whether it doesn't release anything.
    """

    def __init__(self, etcd: Etcd, cluster: str, node_id: int) -> None:
        self.node_id = node_id
        self.keeps = False
        self.owns: dict[int, Ownership] = {}
        self.loaded: dict[int, list[Record]] = {}
        self._told: dict[int, tuple[int | None, int]] = {}
        self.engine: EtcdEngine = open_engine(
            Access(etcd.endpoints), cluster, node_id, PARTITIONS, TTL_MS, lambda: uuid4().hex, settle_ms=200
        )
        self.engine.start(self._changed)

    def register(self) -> None:
        """Take part."""
        self.engine.register(NodeAddresses(self.node_id, {"PLAINTEXT": ("127.0.0.1", 9_000 + self.node_id)}))

    def _changed(self, partition: int, owner: int | None, epoch: int) -> None:
        own, self._told[partition] = self.owns.get(partition), (owner, epoch)
        if owner is None and own is None:
            self.engine.acquire(partition, partial(self._acquired, partition))
        elif own is not None and owner != self.node_id:
            if epoch != own.epoch:
                del self.owns[partition]
            elif not self.keeps:
                self.release(partition)

    def release(self, partition: int) -> None:
        """Give a partition up."""
        self.engine.release(self.owns.pop(partition), lambda _outcome: None)

    def _acquired(self, partition: int, outcome: Ownership | EngineError) -> None:
        if not isinstance(outcome, EngineError):
            records: list[Record] = []
            self.engine.load(outcome, records.extend, partial(self._loaded, partition, outcome, records))

    def _loaded(self, partition: int, own: Ownership, records: list[Record], error: EngineError | None) -> None:
        if error is None:
            self.loaded[partition] = records
            self.owns[partition] = own
            # The engine may have asked for it while it was loaded.
            if self._told[partition][0] is not None:
                self._changed(partition, *self._told[partition])


@pytest.fixture
def start(etcd: Etcd) -> Iterator[Callable[[int], Node]]:
    """Start nodes of one cluster by their ids; all are closed in the end."""
    cluster, nodes = uuid4().hex, list[Node]()

    def started(node_id: int) -> Node:
        node = Node(etcd, cluster, node_id)
        nodes.append(node)
        node.register()
        return node

    yield started
    for node in nodes:
        node.engine.close()


def settled(*nodes: Node) -> bool:
    """Whether these nodes own all partitions, each just once, and all of them know that."""
    owned = {partition: node.node_id for node in nodes for partition in list(node.owns)}
    return (
        sum(len(node.owns) for node in nodes) == len(owned) == PARTITIONS
        and all(node.engine.owner(partition) == owner for node in nodes for partition, owner in owned.items())
        and all(node.owns for node in nodes)
    )


def test_nodes_share_the_partitions_and_hand_them_over(start: Callable[[int], Node]) -> None:
    """A node that joins gets its share, with the records; a node that leaves gives all away, before it goes."""
    one = start(1)
    wait_until(lambda: settled(one), "each partition has one owner", WITHIN_S)
    assert append(one.engine, one.owns[5], record(1)) is None
    assert one.engine.share().missing == set()
    epochs = {partition: own.epoch for partition, own in one.owns.items()}
    two = start(2)
    wait_until(lambda: settled(one, two), "each partition has one owner", WITHIN_S)
    assert [node.node_id for node in one.engine.nodes()] == [1, 2]
    assert all(own.epoch == epochs[partition] + 1 for partition, own in two.owns.items())
    assert [node.engine.share().missing for node in (one, two)] == [set(), set()]
    one.engine.leave()
    wait_until(lambda: settled(two), "each partition has one owner", WITHIN_S)
    assert not one.owns
    assert [each.value for each in two.loaded[5]] == [record(1).value]


def test_a_node_misses_what_another_one_has_not_handed_over(start: Callable[[int], Node]) -> None:
    """A node knows which partitions are to come, until it has them."""
    one = start(1)
    wait_until(lambda: settled(one), "each partition has one owner", WITHIN_S)
    one.keeps = True
    two = start(2)
    wait_until(lambda: bool(two.engine.share().missing), "partitions are to come", WITHIN_S)
    missing = two.engine.share().missing
    assert missing < set(range(PARTITIONS))
    one.keeps = False
    for partition in missing:
        one.release(partition)
    wait_until(lambda: settled(one, two), "each partition has one owner", WITHIN_S)
    assert set(two.owns) == missing
    assert two.engine.share().missing == set()


def test_a_node_that_dies_is_followed_by_others(start: Callable[[int], Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """When its lease has ended, another node owns everything; what the dead node wants to write is refused."""
    one, two = start(1), start(2)
    wait_until(lambda: settled(one, two), "each partition has one owner", WITHIN_S)
    partition, own = next(iter(one.owns.items()))
    assert append(one.engine, own, record(1)) is None
    monkeypatch.setattr(one.engine.client, "keep_alive", lambda _lease, _done: None)
    wait_until(lambda: settled(two), "each partition has one owner", WITHIN_S)
    assert not own.valid()
    assert isinstance(append(one.engine, own, record(2)), Fenced)
    assert [each.value for each in load(two.engine, two.owns[partition])[0]] == [record(1).value]
    assert append(two.engine, two.owns[partition], record(3)) is None


def test_a_node_that_closes_gives_its_lease_back(start: Callable[[int], Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have its partitions at once, however long the lease would last."""
    monkeypatch.setitem(globals(), "TTL_MS", int(10_000 * WITHIN_S))
    one, two = start(1), start(2)
    wait_until(lambda: settled(one, two), "each partition has one owner", WITHIN_S)
    one.engine.close()
    wait_until(lambda: settled(two), "each partition has one owner", WITHIN_S)
    assert sorted(two.owns) == list(range(PARTITIONS))


def test_another_number_of_partitions_is_refused(etcd: Etcd, start: Callable[[int], Node]) -> None:
    """The groups would be looked for on the wrong partitions."""
    node = start(1)
    cluster = node.engine.core._keys.prefix.decode().strip("/")
    with pytest.raises(EngineError, match=r"^offsets.topic.num.partitions: 50, but the cluster was made with 12$"):
        open_engine(Access(etcd.endpoints), cluster, 2, 50, TTL_MS, lambda: uuid4().hex)


def test_loads_of_many_and_of_large_records(start: Callable[[int], Node]) -> None:
    """All come back whole, one of them larger than what etcd takes uncompressed, and in pages."""
    node = start(1)
    wait_until(lambda: settled(node), "each partition has one owner", WITHIN_S)
    own = node.owns[5]
    large = [Record(b"large-%d" % number, Random(number).randbytes(300_000), 0) for number in range(20)]
    large.append(Record(b"larger", b"as a snapshot repeats itself " * 100_000, 0))
    small = [record(number) for number in range(10_000)]
    batches = [[each] for each in large] + [small[at : at + 500] for at in range(0, len(small), 500)]
    outcome: SimpleQueue[tuple[int, EngineError | None]] = SimpleQueue()
    node.engine.append(own, batches, lambda *told: outcome.put(told))
    assert outcome.get(timeout=WITHIN_S) == (len(batches), None)
    pages, done = list[list[Record]](), SimpleQueue[EngineError | None]()
    node.engine.load(own, pages.append, done.put)
    assert done.get(timeout=WITHIN_S) is None
    assert len(pages) > 2
    found = {each.key: each.value for page in pages for each in page}
    assert found == {each.key: each.value for each in large + small}


def test_a_page_that_is_too_large_is_read_in_parts(
    start: Callable[[int], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC refuses an answer above its limit; the load asks for fewer keys then."""
    monkeypatch.setattr(clients, "RECEIVED_MAX", 200_000)
    node = start(1)
    wait_until(lambda: settled(node), "each partition has one owner", WITHIN_S)
    records = [record(number, size=10_000) for number in range(100)]
    for one in records:
        assert append(node.engine, node.owns[5], one) is None
    assert sorted(each.value or b"" for each in load(node.engine, node.owns[5])[0]) == [each.value for each in records]


def test_a_node_knows_how_full_etcd_is(start: Callable[[int], Node]) -> None:
    """It asks at once, and again now and then."""
    keeping = start(1).engine.housekeeping
    wait_until(lambda: keeping.size > 0, "etcd has told its size", WITHIN_S)
    assert 0 < keeping.used <= keeping.size
    assert not keeping.is_full
    assert keeping.alarms == ()


@pytest.mark.parametrize(
    ("version", "is_refused", "is_warned"),
    [
        ("3.3.25", True, True),
        ("3.4.20", True, True),
        ("3.4.23", False, True),
        ("3.5.0", True, True),
        ("3.5.5", True, True),
        ("3.5.6", False, True),
        ("3.5.24", False, False),
        ("3.7.0-rc.1", False, False),
    ],
)
def test_versions_that_lose_data_are_refused(version: str, is_refused: bool, is_warned: bool) -> None:
    """Each is known for losses of acknowledged writes; older ones than today's get a warning."""
    assert bool(version_problem(version)) is is_refused
    assert bool(version_warning(version)) is is_warned


class Scripted:
    """A client of two members whose logins have these outcomes, and its loop."""

    endpoint, size = "127.0.0.1:1", 2

    def __init__(self, *outcomes: Lost) -> None:
        self.left = list(outcomes)

    def log_in(self, done: Callable[[Lost], None]) -> None:
        """As Client."""
        done(self.left.pop(0))

    def call(self, call: Callable[..., None], *arguments: object) -> None:
        """As Loop."""
        call(*arguments)


def test_a_start_gives_up_when_no_member_has_the_right_certificate() -> None:
    """So many problems with certificates in a row as there are members; another loss in between begins anew."""
    wrong, away = Lost(f"{TLS_PROBLEM}it names another host"), Lost("no answer")
    client = Scripted(wrong, away, wrong, wrong, away)
    with pytest.raises(EngineError, match=r"it names another host$"):
        Opening(client, client).version()  # type: ignore[arg-type]
    assert client.left == [away]


def test_what_nodes_share_is_changed_by_any_and_known_to_all(start: Callable[[int], Node]) -> None:
    """A node gets the entries that there are, and each change of another node."""
    one = start(1)
    outcomes: SimpleQueue[EngineError | None] = SimpleQueue()
    one.engine.change(lambda _entries: {"topic/a": b"1", "topic/b": b"2"}, outcomes.put)
    assert outcomes.get(timeout=WITHIN_S) is None
    two = start(2)
    changes: SimpleQueue[Mapping[str, bytes | None]] = SimpleQueue()
    assert two.engine.follow(changes.put) == {"topic/a": b"1", "topic/b": b"2"}
    one.engine.change(dict.fromkeys, outcomes.put)
    assert outcomes.get(timeout=WITHIN_S) is None
    assert changes.get(timeout=WITHIN_S) == {"topic/a": None, "topic/b": None}
