"""Tests what a test can do with an engine in memory."""

from __future__ import annotations

from coordinator.log.engine import Unavailable
from tests.log.calls import append, begin_append, opened, record
from tests.support.memory import ManualEngine, ManualLog


def started() -> ManualEngine:
    """Return an engine that was started."""
    engine = ManualEngine(2, 1)
    engine.start(lambda _partition, _node_id, _epoch: None)
    return engine


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


def test_a_wish_moves_a_partition_once_it_is_released() -> None:
    """The owner hears the wish in its own epoch; the next node hears of the free partition after the release."""
    log = ManualLog([1, 1])
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
