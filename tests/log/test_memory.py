"""Tests the moves of an engine in memory between nodes; test_engine.py tests that it is an engine."""

from __future__ import annotations

from coordinator.log.engine import EngineError, Fenced
from coordinator.log.memory import MemoryEngine, MemoryLog
from tests.log.calls import append, append_batch, load, opened, owned, record


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
    log.move(0, 2)
    assert former.valid()
    own, records = opened(two)
    assert records == [record(1)]
    assert own.epoch > former.epoch
    assert not former.valid()
    assert isinstance(append(one, former, record(2)), Fenced)
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
