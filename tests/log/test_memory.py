"""Tests the additions of the in-memory engine; test_engine.py tests that it is an engine."""

from __future__ import annotations

from coordinator.log.engine import EngineError, Unavailable
from coordinator.log.memory import MemoryEngine
from tests.log.calls import append, append_batch, begin_append, load, opened, record


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
