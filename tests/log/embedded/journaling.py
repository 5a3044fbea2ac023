"""Plays a runtime over an engine with a journal on a disk that fails, loses pages, and is cut off.

House rule: chance comes from a seed that the test hands in.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import cast

from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.ownership import Owned
from coordinator.log.engine import Damaged, EngineError, Ownership
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC
from protocol.records.batch import Record
from tests.log.calls import append_batch, numbers_of, record
from tests.log.disks import CrashingDisk, FailingDisk, Killed, SharedDisk
from tests.support.patience import WITHIN_S

PARTITIONS = 4
JOURNAL_SIZE = 64 * 1024
"""The smallest: a file has room for six windows of one page."""


def journaling(folder: Path, disk: Disk | None = None, **options: object) -> EmbeddedEngine:
    """Return a started engine with a small journal."""
    options = {"segment_size": 100_000, "journal": True, "journal_size": JOURNAL_SIZE} | options
    folder.mkdir(exist_ok=True)
    engine = EmbeddedEngine(folder, 50, 1, disk=disk, **options)  # type: ignore[arg-type]
    engine.start(lambda *_change: None)
    return engine


def beside(first: EmbeddedEngine, folder: Path, disk: Disk, **options: object) -> EmbeddedEngine:
    """Return a started engine of transactional ids that shares the thread and the journal of `first`."""
    log = {"disk": disk, "log": TRANSACTIONS_TOPIC, "beside": first}
    engine = EmbeddedEngine(folder, 50, 1, segment_size=20_000, **log, **options)  # type: ignore[arg-type]
    engine.start(lambda *_change: None)
    return engine


class Partition:
    """What a runtime knows of a partition.

    durable: acknowledged numbers, and those that came back after a crash. open: numbers without an outcome, or refused:
    a crash may bring them back until a load has left them out.
    """

    def __init__(self) -> None:
        self.durable: list[int] = []
        self.open: set[int] = set()

    def found(self, numbers: list[int], *, crashed: bool) -> None:
        """Check what a load has found."""
        more = set(numbers) - set(self.durable)
        assert numbers == sorted(set(numbers))
        assert set(self.durable) <= set(numbers), (self.durable, numbers)
        assert more <= (self.open if crashed else set())
        self.durable = numbers
        self.open = set()


class Run:
    """One life of two engines with one journal, from their start to their end, in order or not.

    Every second partition is one of transactional ids. refused: how many appends were.
    """

    def __init__(self, folder: Path, disk: FailingDisk, partitions: list[Partition], **options: object) -> None:
        self.refused = 0
        self._partitions = partitions
        self._told: SimpleQueue[tuple[int, object, object]] = SimpleQueue()
        self._owns: dict[int, Ownership] = {}
        self._loaded: set[int] = set()
        self._crashed = dict.fromkeys(range(len(partitions)), True)
        shared = SharedDisk(disk)
        self._engine = journaling(folder, shared, report=self._report, **options)
        self._others = beside(self._engine, folder, shared, report=self._report)

    def play(self, chance: Random, windows: int, first: int, size_max: int = 3_000) -> None:
        """Append windows of numbered records; load what is refused; now and then release a partition."""
        for number in range(first, first + windows):
            chosen = [each for each in range(len(self._partitions)) if chance.random() < 0.6]
            ready = [partition for partition in chosen if self.open(partition)]
            self.window(number, {partition: chance.randrange(10, size_max) for partition in ready})
            if chance.random() < 0.1 and self._loaded:
                partition = chance.choice(sorted(self._loaded))
                self._loaded.remove(partition)
                self._engine_of(partition).release(self._owns.pop(partition), partial(self._tell, -1))
                self._next()

    def roll(self, partition: int) -> None:
        """Begin a new segment of a loaded partition, as compaction does, unless the engine has closed its log."""
        log = cast("Owned", self._owns[partition]).log

        def rolled(_outcome: object) -> None:
            if log.is_open():
                log.roll()
            self._tell(partition)

        self._engine.acquire(49, rolled)
        self._next()
        if not log.is_open():
            self._loaded.remove(partition)

    def close(self) -> None:
        """End in order."""
        self._others.close()
        self._engine.close()

    def _engine_of(self, partition: int) -> EmbeddedEngine:
        return self._others if partition % 2 else self._engine

    def window(self, number: int, sizes: dict[int, int]) -> None:
        """Append a record of that number to each loaded partition in `sizes`, of that size; take the outcomes."""

        def appended(_outcome: object) -> None:
            for partition, size in sizes.items():
                engine, tell = self._engine_of(partition), partial(self._tell, partition)
                append_batch(engine, self._owns[partition], [record(number, size)], tell)

        for partition in sizes:
            self._partitions[partition].open.add(number)
        self._engine.acquire(49, appended)  # the thread takes none of them before it has called back
        for _ in sizes:
            at, outcome = self._next()
            if outcome is None:
                self._partitions[at].open.remove(number)
                self._partitions[at].durable.append(number)
            else:
                self.refused += 1
                self._loaded.remove(at)

    def open(self, partition: int) -> bool:
        """Acquire and load a partition if it isn't loaded; return whether it is."""
        if partition in self._loaded:
            return True
        if partition not in self._owns:
            self._engine_of(partition).acquire(partition, partial(self._tell, partition))
            _, own = self._next()
            if isinstance(own, EngineError):
                return False
            self._owns[partition] = cast("Ownership", own)
        records: list[Record] = []
        self._engine_of(partition).load(self._owns[partition], records.extend, partial(self._tell, partition))
        _, error = self._next()
        assert not isinstance(error, Damaged), error
        if error is None:
            self._partitions[partition].found(numbers_of(records), crashed=self._crashed[partition])
            self._crashed[partition] = False
            self._loaded.add(partition)
        return error is None

    def _tell(self, partition: int, outcome: object = None, *_more: object) -> None:
        self._told.put((partition, outcome, None))

    def _report(self, name: str, /, **fields: object) -> None:
        assert name != "partition_damaged", fields
        if name == "engine_failed":
            self._told.put((-1, None, fields["error"]))

    def _next(self) -> tuple[int, object]:
        partition, outcome, failed = self._told.get(timeout=WITHIN_S)
        if failed is not None:
            assert failed == "Killed()", failed
            raise Killed
        return partition, outcome


def play_history(folder: Path, seed: int) -> tuple[int, int]:
    """Play some lives on one folder: a power cut or a kill ends most. Return the lives cut, and the appends refused."""
    chance = Random(seed)
    partitions = [Partition() for _ in range(PARTITIONS)]
    cut = refused = 0
    for life in range(chance.randint(2, 4)):
        disk = CrashingDisk(Random(chance.random()), in_order=chance.random() < 0.2)
        end = chance.randrange(10, 400) if chance.random() < 0.8 else 10**9
        disk.fails = failing(chance, disk, end)
        run: Run | None = None
        with suppress(Killed, EngineError):
            run = Run(folder, disk, partitions, segment_size=chance.choice([3_000, 20_000, 200_000]))
            run.play(chance, chance.randrange(1, 40), 50 * life)
        if run is not None:
            refused += run.refused
            run.close()
        join_checkpoints()
        if chance.random() < 0.7:
            cut += 1
            disk.crash()
        else:
            disk.kill()
    last = Run(folder, CrashingDisk(chance), partitions)
    assert all(last.open(partition) for partition in range(PARTITIONS))
    last.close()
    assert not list(folder.glob(".journal*"))
    return cut, refused


def kill(engine: EmbeddedEngine, disk: FailingDisk) -> None:
    """End the engine's process at its next call of the disk."""
    disk.fails = lambda _name, _number: Killed()
    engine.acquire(48, lambda _: None)
    engine.close()
    join_checkpoints()
    disk.kill()


def join_checkpoints() -> None:
    """Wait for the threads of a killed engine: a real one's end with it, and its descriptors become those of others.

    The engine's own thread has ended or waits for a call: a thread that it is just starting can't be joined yet.
    """
    for thread in threading.enumerate():
        if thread.name == "log-checkpoint":
            thread.join(WITHIN_S)


def failing(chance: Random, disk: FailingDisk, end: int) -> Callable[[str, int], BaseException | None]:
    """Return a `fails`: the process ends at a call; before, some writes and syncs fail."""
    rate = chance.choice([0.0, 0.0, 0.02, 0.1])

    def fails(name: str, _number: int) -> BaseException | None:
        if disk.calls.total() >= end:
            return Killed()
        if name in {"write", "fdatasync", "truncate", "sync_folder", "open", "rename"} and chance.random() < rate:
            return OSError(errno.EIO, "by chance")
        return None

    return fails
