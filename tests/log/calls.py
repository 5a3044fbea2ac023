"""An engine's calls, made and waited for: what a test wants to write in one line.

House rule: no test waits for time to pass; PATIENCE_S only ends a test that would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from coordinator.log.engine import Engine, EngineError, Fenced, Ownership, Unavailable
from protocol.records.batch import Record

PATIENCE_S = 60.0

Appending = SimpleQueue[Fenced | Unavailable | None]
"""Where the outcome of an append arrives."""


def record(number: int, size: int = 10) -> Record:
    """A record that is told from others by its number; its value has about `size` bytes."""
    return Record(b"key-%d" % number, b"%0*d" % (size, number), 1_700_000_000_000 + number)


def acquire(engine: Engine, partition: int) -> Ownership | EngineError:
    """What acquire comes to."""
    outcome: SimpleQueue[Ownership | EngineError] = SimpleQueue()
    engine.acquire(partition, outcome.put)
    return outcome.get(timeout=PATIENCE_S)


def load(engine: Engine, own: Ownership) -> tuple[list[Record], EngineError | None]:
    """The records that load hands over, and what it comes to."""
    records: list[Record] = []
    outcome: SimpleQueue[EngineError | None] = SimpleQueue()
    engine.load(own, records.extend, outcome.put)
    return records, outcome.get(timeout=PATIENCE_S)


def append_batch(
    engine: Engine, own: Ownership, records: list[Record], told: Callable[[Fenced | Unavailable | None], object]
) -> None:
    """Append one batch; `told` what it comes to."""

    def done(durable: int, error: Fenced | Unavailable | None) -> None:
        assert durable == (error is None)  # of one
        told(error)

    engine.append(own, [records], done)


def begin_append(engine: Engine, own: Ownership, records: list[Record]) -> Appending:
    """Append without waiting."""
    outcome: Appending = SimpleQueue()
    append_batch(engine, own, records, outcome.put)
    return outcome


def append(engine: Engine, own: Ownership, *records: Record) -> Fenced | Unavailable | None:
    """What the append of one batch comes to."""
    return begin_append(engine, own, list(records)).get(timeout=PATIENCE_S)


def release(engine: Engine, own: Ownership) -> EngineError | None:
    """What release comes to."""
    outcome: SimpleQueue[EngineError | None] = SimpleQueue()
    engine.release(own, outcome.put)
    return outcome.get(timeout=PATIENCE_S)


def owned(engine: Engine, partition: int = 0) -> Ownership:
    """The ownership of a partition that can be acquired."""
    own = acquire(engine, partition)
    assert not isinstance(own, EngineError)
    return own


def opened(engine: Engine, partition: int = 0) -> tuple[Ownership, list[Record]]:
    """A partition that can be acquired and loaded, and its records."""
    own = owned(engine, partition)
    records, error = load(engine, own)
    assert error is None
    return own, records


class Events(list[tuple[str, dict[str, object]]]):
    """A report of the embedded engine that keeps what it is told: (name, fields)."""

    def __call__(self, name: str, /, **fields: object) -> None:
        """Take note."""
        self.append((name, fields))

    def names(self) -> list[str]:
        """What happened, without the details."""
        return [name for name, _ in self]


class Client:
    """Appends numbered records as a runtime would: after a refusal, the partition is acquired and loaded anew first.

    durable: the numbers that were acknowledged, which are what each load has to find.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._own: Ownership | None = None
        self.durable: list[int] = []

    def append(self, number: int, size: int = 10) -> bool:
        """Whether it was acknowledged."""
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
    """What `record` made them from."""
    return [int(found.key.removeprefix(b"key-")) for found in records]
