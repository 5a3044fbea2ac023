"""Tests the additions of the in-memory engine; test_engine.py tests that it is an engine."""

from __future__ import annotations

from coordinator.log.engine import EngineError, Fenced, Unavailable
from coordinator.log.memory import MemoryEngine, MemoryLog
from tests.log.calls import append, append_batch, begin_append, load, opened, owned, record


def started() -> MemoryEngine:
    """Return an engine that was started."""
    engine = MemoryEngine(2, 1)
    engine.start(lambda _partition, _node_id, _epoch: None)
    return engine


def test_callbacks_come_inside_the_call() -> None:
    """The engine has no thread: when append returns, the outcome is there, and a test can look at the records."""
    engine = started()
    own, _ = opened(engine)
    outcomes: list[EngineError | None] = []
    append_batch(engine, own, [record(1)], outcomes.append)
    assert outcomes == [None]
    assert engine.records[0] == [record(1)]


def test_held_appends_wait_for_flush() -> None:
    """While the engine holds appends, none is durable and it reports none; flush does both, in order."""
    engine = started()
    own, _ = opened(engine)
    engine.hold = True
    outcomes = [begin_append(engine, own, [record(number)]) for number in range(3)]
    assert all(outcome.empty() for outcome in outcomes)
    assert engine.records[0] == []
    engine.flush()
    assert [outcome.get_nowait() for outcome in outcomes] == [None] * 3
    assert engine.records[0] == [record(0), record(1), record(2)]


def test_failure_waits_for_an_append_that_is_written() -> None:
    """fail_next meets the next append that the engine would write, not one that it refuses anyway."""
    engine = started()
    own, _ = opened(engine)
    other, _ = opened(engine, 1)
    engine.fail_next(Unavailable("first"))
    assert str(append(engine, own, record(1))) == "first"
    engine.fail_next(Unavailable("second"))
    assert str(append(engine, own, record(2))) == "first"
    assert str(append(engine, other, record(3))) == "second"


def test_records_put_there_are_loaded() -> None:
    """A test may put records into a partition before an owner loads it."""
    engine = started()
    engine.records[1] = [record(1)]
    own, records = opened(engine, 1)
    assert records == [record(1)]
    assert load(engine, own)[0] == [record(1)]


def test_a_moved_partition_goes_to_the_next_node_with_its_records() -> None:
    """The new owner loads what the former one wrote, in a higher epoch; the former one is fenced."""
    log = MemoryLog([1, 2])
    one, two = log.engine(1), log.engine(2)
    for engine in (one, two):
        engine.start(lambda _partition, _node_id, _epoch: None)
    former, _ = opened(one)
    assert append(one, former, record(1)) is None
    one.hold = True
    held = begin_append(one, former, [record(2)])
    log.move(0, 2)
    assert former.valid()
    own, records = opened(two)
    assert records == [record(1)]
    assert own.epoch > former.epoch
    assert not former.valid()
    one.flush()
    assert isinstance(held.get_nowait(), Fenced)
    assert append(two, own, record(3)) is None
    assert log.records[0] == [record(1), record(3)]


def test_a_move_is_reported_to_each_node() -> None:
    """The new node hears that the partition is free, then all hear who owns it; a closed engine hears nothing."""
    log = MemoryLog([1, 2])
    changes: dict[int, list[tuple[int, int | None, int]]] = {1: [], 2: [], 3: []}
    engines = {node_id: log.engine(node_id) for node_id in changes}
    for node_id, engine in engines.items():
        engine.start(lambda *change, node_id=node_id: changes[node_id].append(change))
    first = owned(engines[1])
    engines[3].close()
    for told in changes.values():
        told.clear()
    log.move(0, 2)
    assert changes == {1: [], 2: [(0, None, first.epoch)], 3: []}
    own = owned(engines[2])
    assert changes == {1: [(0, 2, own.epoch)], 2: [(0, None, first.epoch), (0, 2, own.epoch)], 3: []}


def test_a_close_ends_only_what_the_node_owns() -> None:
    """The other nodes of a log go on, and the next engine of the node goes on in a higher epoch."""
    log = MemoryLog([1, 2])
    one, two = log.engine(1), log.engine(2)
    for engine in (one, two):
        engine.start(lambda _partition, _node_id, _epoch: None)
    own, _ = opened(one)
    others, _ = opened(two, 1)
    one.close()
    assert not own.valid()
    assert append(two, others, record(1)) is None
    again = log.engine(1)
    again.start(lambda _partition, _node_id, _epoch: None)
    assert owned(again).epoch > own.epoch


def test_a_wish_moves_a_partition_once_it_is_released() -> None:
    """The owner hears the wish in its own epoch; the next node hears of the free partition after the release."""
    log = MemoryLog([1, 1])
    changes: dict[int, list[tuple[int, int | None, int]]] = {1: [], 2: []}
    one, two = log.engine(1), log.engine(2)
    for engine in (one, two):
        engine.start(lambda *change, node_id=engine.node_id: changes[node_id].append(change))
    own, _ = opened(one)
    for told in changes.values():
        told.clear()
    log.hand_over(0, 2)
    assert changes == {1: [(0, 2, own.epoch)], 2: []}
    assert append(one, own, record(1)) is None
    one.release(own, lambda _: None)
    assert changes[2] == [(0, None, own.epoch)]
    _, records = opened(two)
    assert records == [record(1)]


def test_a_lapse_ends_without_a_new_epoch() -> None:
    """All ownerships of the node are invalid meanwhile; the count of lapses grows with the end."""
    engine = started()
    own, _ = opened(engine)
    engine.lapse()
    assert not own.valid()
    assert append(engine, own, record(1)) is None
    engine.come_back()
    assert own.valid()
    assert own.lapses == 1
