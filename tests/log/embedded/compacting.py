"""Runs engines that compact, and compacts single partitions by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from coordinator.log.compaction.cleaner import Work
from coordinator.log.compaction.rewrite import compact
from coordinator.log.compaction.task import Cleaned, Compaction
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.upkeep import Cleaning, Upkeep
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.partition import PartitionLog
from coordinator.log.segments.segment import partition_folder
from protocol.records.batch import Record
from tests.log.calls import begin_append, opened
from tests.support.patience import WITHIN_S

BUSY = Cleaning(backoff_ms=1)
NOW_MS = 1_800_000_000_000
SEGMENT_SIZE = 2_000
PAUSE_S = 0.005

Report = tuple[str, dict[str, object]]


class Reports(SimpleQueue[Report]):
    """A report that a test can wait for."""

    def __call__(self, name: str, /, **fields: object) -> None:
        """Keep one report."""
        self.put((name, fields))

    def wait_for(self, name: str) -> dict[str, object]:
        """Return the fields of the next report of that name."""
        while True:
            found, fields = self.get(timeout=WITHIN_S)
            if found == name:
                return fields

    def comes_soon(self) -> bool:
        """Whether a report is there or comes in a moment, which a disk in memory needs so that not all is appends."""
        try:
            self.put(self.get(timeout=PAUSE_S))
        except Empty:
            return False
        return True


@contextmanager
def running(
    data_dir: Path, report: Reports, cleaning: Cleaning = BUSY, segment_size: int = SEGMENT_SIZE
) -> Iterator[EmbeddedEngine]:
    """Yield an engine that compacts."""
    engine = EmbeddedEngine(data_dir, 3, 1, segment_size=segment_size, report=report, cleaning=cleaning)
    engine.start(lambda *_change: None)
    try:
        yield engine
    finally:
        engine.close()


def numbered(number: int, keys: int = 7, size: int = 50) -> Record:
    """Return the next value of one of a few keys."""
    return Record(b"key-%d" % (number % keys), b"%0*d" % (size, number), NOW_MS)


def fill(engine: EmbeddedEngine, total: int, partition: int = 0) -> dict[bytes, bytes | None]:
    """Append so many numbered records; return the state that they leave."""
    own, _ = opened(engine, partition)
    appending = [begin_append(engine, own, [numbered(number)]) for number in range(total)]
    assert [outcome.get(timeout=WITHIN_S) for outcome in appending] == [None] * total
    return state([numbered(number) for number in range(total)])


def state(records: list[Record]) -> dict[bytes, bytes | None]:
    """Return the last value per key."""
    return {record.key: record.value for record in records}


def folder_size(data_dir: Path, partition: int = 0) -> int:
    """Return the bytes of all files of a partition."""
    total = 0
    for path in partition_folder(data_dir, partition).iterdir():
        with suppress(FileNotFoundError):  # the engine swapped it in, or replaced it, at this moment
            total += path.stat().st_size
    return total


class Partition:
    """A partition whose upkeep a test does by hand."""

    def __init__(self, folder: Path, disk: Disk | None = None, **cleaning: float) -> None:
        self.disk = disk or Disk()
        self.folder = folder
        self.log = PartitionLog(self.disk, folder, 1, SEGMENT_SIZE, lambda *_cut: None)
        self.upkeep = Upkeep(self.disk, 0, folder, self.log, SEGMENT_SIZE, Cleaning(**cleaning))  # type: ignore[arg-type]
        self.read()

    def read(self) -> list[Record]:
        """Load it; return its records."""
        return [record for page in self.log.read() for record in page]

    def append(self, first: int, end: int, keys: int = 7, size: int = 50) -> None:
        """Append numbered records."""
        assert self.log.append([[numbered(number, keys, size)] for number in range(first, end)]) == end - first

    def clean(self, now_ms: int = NOW_MS) -> Compaction | None:
        """Compact if a compaction is due; return its outcome."""
        work = self.upkeep.look(now_ms, is_new_round=True)
        if work is None:
            return None

        def swap(cleaned: Cleaned) -> None:
            assert self.swap(work, cleaned) == ""

        compaction = compact(self.disk, self.folder, work.task, swap)
        self.upkeep.finish(work, compaction)
        return compaction

    def due(self, now_ms: int = NOW_MS, *, is_new_round: bool = True) -> Work:
        """Return the compaction that is due."""
        work = self.upkeep.look(now_ms, is_new_round=is_new_round)
        assert work is not None
        return work

    def write(self, work: Work) -> list[Cleaned]:
        """Write the new files, and swap none in."""
        return compact(self.disk, self.folder, work.task, lambda _cleaned: None).files

    def swap(self, work: Work, cleaned: Cleaned) -> str:
        """Swap a file in, step by step; return the reason if a step refuses it, else ""."""
        steps = self.upkeep.begin_swap(cleaned)
        more, reason = True, ""
        while more:
            more, reason = self.upkeep.swap(work, steps)
        return reason
