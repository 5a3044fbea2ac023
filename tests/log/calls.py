"""Calls an engine and waits for the outcome, so that a test needs one line for a call.

House rule: no test waits for time to pass; WITHIN_S only ends a test that would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from coordinator.log.engine import Engine, EngineError, Fenced, Ownership, Unavailable
from protocol.records.batch import Record
from tests.support.patience import WITHIN_S

Appending = SimpleQueue[Fenced | Unavailable | None]
"""The outcome of an append arrives here."""


class Session:
    """A lease that holds."""

    lapses = 0

    def valid(self) -> bool:
        """See Ownership."""
        return True


def record(number: int, size: int = 10) -> Record:
    """Return a record with a number of its own and a value of about `size` bytes."""
    return Record(b"key-%d" % number, b"%0*d" % (size, number), 1_700_000_000_000 + number)


def acquire(engine: Engine, partition: int) -> Ownership | EngineError:
    """Acquire a partition; return the ownership or the error."""
    outcome: SimpleQueue[Ownership | EngineError] = SimpleQueue()
    engine.acquire(partition, outcome.put)
    return outcome.get(timeout=WITHIN_S)


def load(engine: Engine, own: Ownership) -> tuple[list[Record], EngineError | None]:
    """Load a partition; return its records and the error, None if there is none."""
    records: list[Record] = []
    outcome: SimpleQueue[EngineError | None] = SimpleQueue()
    engine.load(own, records.extend, outcome.put)
    return records, outcome.get(timeout=WITHIN_S)


def append_batch(
    engine: Engine, own: Ownership, records: list[Record], told: Callable[[Fenced | Unavailable | None], object]
) -> None:
    """Append one batch; put its outcome into `told`."""

    def done(durable: int, error: Fenced | Unavailable | None) -> None:
        assert durable == (error is None)  # the append has one batch
        told(error)

    engine.append(own, [records], done)


def begin_append(engine: Engine, own: Ownership, records: list[Record]) -> Appending:
    """Append without waiting; return the queue that gets the outcome."""
    outcome: Appending = SimpleQueue()
    append_batch(engine, own, records, outcome.put)
    return outcome


def append(engine: Engine, own: Ownership, *records: Record) -> Fenced | Unavailable | None:
    """Append one batch; return its error, None if it is durable."""
    return begin_append(engine, own, list(records)).get(timeout=WITHIN_S)


def release(engine: Engine, own: Ownership) -> EngineError | None:
    """Release an ownership; return the error, None if there is none."""
    outcome: SimpleQueue[EngineError | None] = SimpleQueue()
    engine.release(own, outcome.put)
    return outcome.get(timeout=WITHIN_S)


def owned(engine: Engine, partition: int = 0) -> Ownership:
    """Acquire a partition; fail if the engine refuses."""
    own = acquire(engine, partition)
    assert not isinstance(own, EngineError)
    return own


def opened(engine: Engine, partition: int = 0) -> tuple[Ownership, list[Record]]:
    """Acquire and load a partition; return the ownership and the records."""
    own = owned(engine, partition)
    records, error = load(engine, own)
    assert error is None
    return own, records


class Events(list[tuple[str, dict[str, object]]]):
    """A report of the embedded engine that keeps all it gets: (name, fields)."""

    def __call__(self, name: str, /, **fields: object) -> None:
        """Keep one report."""
        self.append((name, fields))

    def names(self) -> list[str]:
        """Return the names of the reports without their fields."""
        return [name for name, _ in self]


class Client:
    """Appends numbered records as a runtime does: after a refusal, it first acquires and loads the partition again.

    durable: the acknowledged numbers; each load has to find them.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._own: Ownership | None = None
        self.durable: list[int] = []

    def append(self, number: int, size: int = 10) -> bool:
        """Append a record; return whether the engine acknowledged it."""
        if self._own is None:
            own = acquire(self._engine, 0)
            if isinstance(own, EngineError):
                return False
            records, error = load(self._engine, own)
            if error is not None:
                return False
            assert numbers_of(records) == self.durable
            self._own = own
        if append(self._engine, self._own, record(number, size)) is not None:
            self._own = None
            return False
        self.durable.append(number)
        return True


def numbers_of(records: list[Record]) -> list[int]:
    """Return the numbers that `record` got for these records."""
    return [int(found.key.removeprefix(b"key-")) for found in records]
