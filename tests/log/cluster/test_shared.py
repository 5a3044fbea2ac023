"""Nodes make each shared change once, and all see all changes in one order, whatever fails meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

import pytest

from coordinator.log.cluster.keys import Keys
from coordinator.log.cluster.port import Delete, Lost, Put, Rejected, Txn, TxnResult
from coordinator.log.cluster.shared import (
    BYTES_MAX,
    GIVE_UP_MS,
    GIVE_UP_SOON_MS,
    OPERATIONS_MAX,
    POLL_MS,
    Shared,
    Writes,
)
from coordinator.log.engine import EngineError, Unavailable
from tests.support.etcd_model import EtcdModel, ModelPort
from tests.support.virtual_time import Timeline

KEYS = Keys("test")
TAGS = count()
CALM_MS = 30_000
"""After so long without faults every change has its outcome, and every copy is the newest."""


class Node:
    """A node with its copy. seen: the counter's values in the order in which this node saw them."""

    def __init__(self, world: World, node_id: int) -> None:
        self.port = world.etcd.port(world.time.process(f"node {node_id}"))
        self.shared = Shared(self.port, KEYS, node_id, lambda: f"t{next(TAGS)}")
        self.seen: list[int] = []
        self.outcomes: list[EngineError | None] = []
        self.shared.follow(self._changed)
        self.shared.start()

    def _changed(self, writes: Writes) -> None:
        value = writes.get("counter")
        if value is not None:
            self.seen.append(int(value))

    def change(self, decide: Callable[[Mapping[str, bytes]], Writes]) -> None:
        """Make a change; its outcome goes to `outcomes`."""
        self.shared.change(decide, self.outcomes.append)

    def count(self) -> None:
        """Raise the counter by one."""
        self.change(lambda entries: {"counter": b"%d" % (int(entries.get("counter", b"0")) + 1)})


class World:
    """A cluster of etcd with three nodes."""

    def __init__(self, seed: int = 1) -> None:
        self.time = Timeline(seed)
        self.etcd = EtcdModel(self.time)
        self.nodes = [Node(self, number) for number in range(3)]
        self.time.run(100)

    def ask(self, node: Node, decide: Callable[[Mapping[str, bytes]], Writes]) -> EngineError | None:
        """Make one change, and wait for its outcome."""
        before = len(node.outcomes)
        node.change(decide)
        self.time.run(1_000)
        assert len(node.outcomes) == before + 1
        return node.outcomes[-1]

    def calm(self) -> None:
        """End all faults, and wait until everything is over."""
        for member in self.etcd.members:
            self.etcd.heal(member.index)
            for process, where in list(self.etcd.cuts):
                self.etcd.mend(process, where.index)
        self.time.run(CALM_MS)


@pytest.fixture
def world() -> World:
    """Return a cluster with the usual seed."""
    return World()


def _write(writes: Writes) -> Callable[[Mapping[str, bytes]], Writes]:
    return lambda _entries: writes


def test_a_change_is_at_its_node_when_it_is_answered_and_at_the_others_soon(world: World) -> None:
    """The others get it through the watch, long before the next poll."""
    one, two, three = world.nodes
    had: list[Mapping[str, bytes]] = []
    one.shared.change(_write({"a": b"1", "b": b"2"}), lambda _error: had.append(dict(one.shared.entries)))
    world.time.run(POLL_MS // 2)
    assert had == [{"a": b"1", "b": b"2"}]
    assert two.shared.entries == three.shared.entries == {"a": b"1", "b": b"2"}
    assert world.ask(two, _write({"a": None})) is None
    assert one.shared.entries == three.shared.entries == {"b": b"2"}


def test_a_change_knows_all_changes_before_it(world: World) -> None:
    """Two nodes change at once: the second is asked anew, with what the first wrote. The head counts all."""
    for node in world.nodes:
        node.count()
        node.count()
    world.time.run(5_000)
    assert [node.outcomes for node in world.nodes] == [[None, None]] * 3
    assert [node.shared.entries["counter"] for node in world.nodes] == [b"6"] * 3
    assert {node.shared._head.sequence for node in world.nodes} == {6}


@pytest.mark.parametrize("seed", range(25))
def test_each_change_is_made_once_under_faults(seed: int) -> None:
    """The counter grows by one for each change that was answered, and by at most one for each that was given up."""
    world = World(seed)
    chance = world.time.random
    asked = 0
    for _ in range(120):
        world.time.run(chance.randint(0, 400))
        index = chance.randrange(3)
        node = chance.choice(world.nodes)
        match chance.randrange(10):
            case 0:
                chance.choice([world.etcd.kill, world.etcd.freeze, world.etcd.isolate])(index)
            case 1 | 2:
                world.etcd.heal(index)
            case 3:
                world.etcd.cut(node.port.process, index)
            case 4:
                world.etcd.mend(node.port.process, index)
            case 5:
                world.etcd.slow = chance.choice((0.0, 0.2))
            case _:
                node.count()
                asked += 1
    world.calm()
    outcomes = [outcome for node in world.nodes for outcome in node.outcomes]
    assert len(outcomes) == asked
    made = sum(outcome is None for outcome in outcomes)
    counters = {int(node.shared.entries["counter"]) for node in world.nodes}
    assert len(counters) == 1
    assert made <= counters.pop() <= asked
    for node in world.nodes:
        assert node.seen == sorted(set(node.seen))


def test_a_lost_answer_doesnt_make_a_change_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction was carried out, its answer is lost, and another node changes something: still it counts once."""
    one, two, _ = world.nodes
    sent: list[Txn] = []
    original = one.port.txn

    def lose_the_first(txn: Txn, done: Callable[..., None]) -> None:
        if any(isinstance(each, Put) for each in txn.success):
            sent.append(txn)
            if len(sent) == 1:
                original(txn, lambda _outcome: two.count())
                one.port.later(500, partial(done, Lost("no answer")))
                return
        original(txn, done)

    monkeypatch.setattr(one.port, "txn", lose_the_first)
    one.count()
    world.time.run(3_000)
    assert len(sent) == 2
    assert one.outcomes == two.outcomes == [None]
    assert one.shared.entries["counter"] == b"2"


def test_a_copy_whose_history_was_compacted_is_read_anew(world: World) -> None:
    """A node that was cut off for long gets the difference, deletions too."""
    one, two, _ = world.nodes
    assert world.ask(one, _write({"a": b"1", "b": b"1"})) is None
    for member in world.etcd.members:
        world.etcd.cut(two.port.process, member.index)
    changes: list[Writes] = []
    two.shared.follow(changes.append)
    world.time.run(5_000)
    for number in range(10):
        assert world.ask(one, _write({"a": b"%d" % number, "b": None, "c": b"new"})) is None
    one.port.compact(one.shared.revision, lambda _outcome: None)
    world.time.run(100)
    world.calm()
    assert two.shared.entries == one.shared.entries == {"a": b"9", "c": b"new"}
    assert changes == [{"a": b"9", "b": None, "c": b"new"}]


def test_a_large_change_is_made_in_parts_that_etcd_takes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction has more than 128 operations, nor more than 1 MB."""
    one, two, _ = world.nodes
    sent: list[Txn] = []
    original = one.port.txn

    def note(txn: Txn, done: Callable[..., None]) -> None:
        sent.append(txn)
        original(txn, done)

    monkeypatch.setattr(one.port, "txn", note)
    wanted = {f"topic/{number}": b"x" * 20_000 for number in range(300)}

    def decide(entries: Mapping[str, bytes]) -> Writes:
        return {name: value for name, value in wanted.items() if entries.get(name) != value}

    assert world.ask(one, decide) is None
    world.time.run(1_000)
    assert two.shared.entries == wanted
    written = [txn for txn in sent if any(isinstance(each, Put | Delete) for each in txn.success)]
    assert max(len(txn.success) for txn in written) <= OPERATIONS_MAX
    sizes = [sum(len(each.value) for each in txn.success if isinstance(each, Put)) for txn in written]
    assert max(sizes) <= BYTES_MAX + 1_000
    assert len(written) == 7


def test_a_copy_is_read_anew_when_its_watch_is_silent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll finds that the copy is behind the head."""
    monkeypatch.setattr("tests.support.etcd_model.ModelPort.watch", lambda *_arguments: lambda: None)
    late = Node(world, 3)
    world.time.run(100)
    assert world.ask(world.nodes[0], _write({"a": b"1"})) is None
    world.time.run(POLL_MS)
    assert late.shared.entries == {"a": b"1"}
    assert late.shared.rereads == 1


def test_a_copy_whose_pages_are_too_large_for_an_answer_is_read_in_smaller_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Etcd, or gRPC, refuses an answer beyond its bound."""
    wanted = {f"topic/{number}": b"x" for number in range(100)}
    assert world.ask(world.nodes[0], _write(wanted)) is None
    answer = ModelPort.range

    def bounded(port: ModelPort, start: bytes, end: bytes, done: Callable[..., None], **asked: int) -> None:
        if asked["limit"] > 30:
            done(Rejected("received message larger than max", 8))
        else:
            answer(port, start, end, done, limit=asked["limit"], revision=asked["revision"])

    monkeypatch.setattr(ModelPort, "range", bounded)
    late = Node(world, 3)
    world.time.run(1_000)
    assert late.shared.entries == wanted


def test_a_copy_of_several_pages_is_of_one_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is made between two pages, to an entry of the first one, isn't missed."""
    monkeypatch.setattr("coordinator.log.cluster.shared.PAGE_KEYS", 20)
    wanted = {f"topic/{number}": b"x" for number in range(100)}
    one = world.nodes[0]
    assert world.ask(one, _write(wanted)) is None
    answer, pages = ModelPort.range, count(1)

    def interrupted(port: ModelPort, start: bytes, end: bytes, done: Callable[..., None], **asked: int) -> None:
        if next(pages) == 3:
            one.change(_write({"topic/0": b"y"}))
            world.time.run(1_000)
        answer(port, start, end, done, limit=asked["limit"], revision=asked["revision"])

    late = Node(world, 3)
    monkeypatch.setattr(ModelPort, "range", interrupted)
    world.time.run(3_000)
    assert next(pages) > 3
    assert late.shared.entries == one.shared.entries == wanted | {"topic/0": b"y"}


def test_a_change_ends_with_an_error_when_etcd_refuses_or_doesnt_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next change goes on, and a change that was given up is never made after the next one."""
    one = world.nodes[0]
    for index in (0, 1):
        world.etcd.freeze(index)
    one.count()
    world.time.run(GIVE_UP_MS + 3_000)
    assert isinstance(one.outcomes[-1], Unavailable)
    world.calm()
    one.count()
    world.calm()
    assert one.outcomes[1:] == [None]
    assert one.shared.entries["counter"] in {b"1", b"2"}
    monkeypatch.setattr(one.port, "txn", lambda _txn, done: done(Rejected("no space", 8)))
    error = world.ask(one, _write({"a": b"1"}))
    assert "no space" in str(error)


def test_a_change_behind_one_that_was_given_up_ends_soon(world: World) -> None:
    """Its client has waited already; but once etcd answers again, changes have their time."""
    one = world.nodes[0]
    for index in (0, 1):
        world.etcd.freeze(index)
    one.count()
    world.time.run(GIVE_UP_MS)
    one.count()
    world.time.run(GIVE_UP_SOON_MS)
    assert [type(each) for each in one.outcomes] == [Unavailable, Unavailable]
    world.calm()
    for index in (0, 1):
        world.etcd.freeze(index)
    one.count()
    world.time.run(GIVE_UP_MS - POLL_MS)
    assert len(one.outcomes) == 2


def test_a_change_ends_with_an_error_when_etcd_goes_after_another_node_was_first(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """etcd says so, and then nothing more: this copy never gets the other node's change."""
    one = world.nodes[0]
    later = one.shared.revision + 1

    def answers_once(_txn: Txn, done: Callable[[TxnResult], None]) -> None:
        patched.undo()
        for member in world.etcd.members:
            world.etcd.freeze(member.index)
        done(TxnResult(False, later, [None, None]))

    with monkeypatch.context() as patched:
        patched.setattr(one.port, "txn", answers_once)
        one.count()
        world.time.run(GIVE_UP_MS - POLL_MS)
        assert one.outcomes == []
        world.time.run(2 * POLL_MS)
    assert isinstance(one.outcomes[0], Unavailable)
    world.calm()
    assert world.ask(world.nodes[1], _write({"b": b"2"})) is None
    assert world.ask(one, _write({"a": b"1"})) is None
    assert one.shared.entries == {"a": b"1", "b": b"2"}


def test_a_large_change_takes_its_time_while_etcd_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts together take longer than a change waits for one answer."""
    one = world.nodes[0]
    txn = one.port.txn
    monkeypatch.setattr(one.port, "txn", lambda *asked: one.port.later(500, partial(txn, *asked)))
    writes = {f"name/{number}": b"" for number in range(30 * OPERATIONS_MAX)}
    began_ms = world.time.ms
    one.change(lambda entries: {name: value for name, value in writes.items() if name not in entries})
    while not one.outcomes and world.time.ms < began_ms + 6 * GIVE_UP_MS:
        world.time.run(100)
    assert one.outcomes == [None]
    assert world.time.ms - began_ms > GIVE_UP_MS
    assert one.shared.entries.keys() == writes.keys()


def test_a_change_that_breaks_holds_no_other_up(world: World) -> None:
    """Its caller gets the reason."""
    one = world.nodes[0]

    def broken(_entries: Mapping[str, bytes]) -> Writes:
        raise KeyError("partitions")

    assert "KeyError('partitions')" in str(world.ask(one, broken))
    assert world.ask(one, _write({"a": b"1"})) is None


def test_an_entry_with_a_name_that_is_no_text_holds_no_other_up(world: World) -> None:
    """Its readers say that they can't read it."""
    one, two, _ = world.nodes
    name = b"topic/\xff".decode(errors="surrogateescape")
    assert world.ask(one, _write({name: b"1", "a": b"1"})) is None
    assert world.ask(two, _write({"b": b"2"})) is None
    assert one.shared.entries == {name: b"1", "a": b"1", "b": b"2"}


def test_the_end_ends_all_changes(world: World) -> None:
    """Nobody waits for an outcome that never comes."""
    one = world.nodes[0]
    one.count()
    one.count()
    one.shared.end()
    one.count()
    world.time.run(5_000)
    assert [str(error) for error in one.outcomes] == ["the node ends"] * 3
