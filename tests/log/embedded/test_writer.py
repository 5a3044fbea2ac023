"""Engines of two logs in one folder share a thread and a journal."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from coordinator.log.embedded import journal
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.engine import Damaged, Ownership, Unavailable
from coordinator.log.segments.journal import journal_number, journal_path, left_path
from coordinator.log.segments.outside import find_logs, find_logs_of_ids, opened, read_segment
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, Frame, partition_folder, segment_at
from tests.log.calls import acquire, append, append_batch, load, numbers_of, record
from tests.log.calls import opened as opened_partition
from tests.log.disks import FailingDisk, Killed
from tests.log.embedded.journaling import beside, journaling, kill
from tests.support.patience import WITHIN_S

BOTH = 2
"""Partition 3 of the groups' log, and partition 3 of the log of transactional ids."""


@pytest.fixture(autouse=True)
def killed_threads_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that a disk kills prints no trace."""
    hook = threading.excepthook
    monkeypatch.setattr(threading, "excepthook", lambda found: None if found.exc_type is Killed else hook(found))


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes from the journal into a segment, unless a test has it done."""
    monkeypatch.setattr(journal, "WRITE_S", 600.0)


def two(folder: Path, disk: FailingDisk) -> tuple[EmbeddedEngine, EmbeddedEngine]:
    """Return the groups' engine, and that of transactional ids beside it."""
    first = journaling(folder, disk)
    return first, beside(first, folder, disk)


def append_to_both(engines: tuple[EmbeddedEngine, ...], owns: list[Ownership], number: int) -> list[object]:
    """Append a record to a partition of each engine in one window; return the outcomes."""
    told: SimpleQueue[object] = SimpleQueue()

    def appended(_outcome: object) -> None:
        for engine, own in zip(engines, owns, strict=True):
            append_batch(engine, own, [record(number)], told.put)

    engines[0].acquire(49, appended)  # the thread takes none of them before it has called back
    return [told.get(timeout=WITHIN_S) for _ in owns]


def begun(engines: tuple[EmbeddedEngine, ...]) -> list[Ownership]:
    """Open partition 3 of each log, and append its first record, which begins its segment."""
    owns = [opened_partition(engine, 3)[0] for engine in engines]
    assert append_to_both(engines, owns, 0) == [None] * BOTH
    assert append_to_both(engines, owns, 1) == [None] * BOTH  # the journal's file is made
    return owns


def close(engines: tuple[EmbeddedEngine, ...]) -> None:
    """End both, the first one last."""
    for engine in reversed(engines):
        engine.close()


def loaded(folder: Path) -> list[list[int]]:
    """The numbers in partition 3 of each log, as new engines load them."""
    engines = two(folder, FailingDisk())
    found = [numbers_of(opened_partition(engine, 3)[1]) for engine in engines]
    close(engines)
    return found


def crashed(folder: Path) -> None:
    """Leave a folder whose journal has the newest record of each log."""
    disk = FailingDisk()
    engines = two(folder, disk)
    begun(engines)
    kill(engines[0], disk)
    engines[1].close()


def test_one_sync_for_both_logs(tmp_path: Path, disk: FailingDisk) -> None:
    """A window with partitions of both logs takes one write and one fdatasync, and both are there after a stop."""
    engines = two(tmp_path, disk)
    owns = begun(engines)
    disk.calls.clear()
    assert append_to_both(engines, owns, 2) == [None] * BOTH
    assert (disk.calls["write"] - 1, disk.calls["fdatasync"]) == (1, 1)  # a write is the epoch of partition 49
    close(engines)
    assert not list(tmp_path.glob(".journal*"))
    assert not disk.descriptors
    assert loaded(tmp_path) == [[0, 1, 2]] * BOTH


def test_a_crash_loses_nothing_of_either_log(tmp_path: Path, disk: FailingDisk) -> None:
    """Records that only the journal has get into the segments of their own log; partitions of one number stay apart."""
    engines = two(tmp_path, disk)
    owns = begun(engines)
    assert append(engines[0], owns[0], record(2)) is None
    assert append(engines[1], owns[1], record(3)) is None
    kill(engines[0], disk)
    engines[1].close()
    assert loaded(tmp_path) == [[0, 1, 2], [0, 1, 3]]


def test_readers_outside_see_what_only_the_journal_has(tmp_path: Path) -> None:
    """`tenure log dump` and the audit read the log of transactional ids with the journal beside it."""
    crashed(tmp_path)
    counts = []
    for topic in ("__consumer_offsets", TRANSACTIONS_TOPIC):
        (log,) = find_logs(tmp_path, topic)
        with opened(log) as segments:
            counts.append(sum(isinstance(each, Frame) for segment in segments for each in read_segment(segment)))
    assert counts == [2, 2]


def test_readers_outside_see_that_a_folder_of_ids_is_gone(tmp_path: Path) -> None:
    """The journal has records of transactional ids, so their log isn't taken for one that never was."""
    crashed(tmp_path)
    folder = partition_folder(tmp_path, 3, TRANSACTIONS_TOPIC)
    for path in folder.iterdir():
        path.unlink()
    is_gone = pytest.raises(OSError, match="the file is gone")
    for _ in range(2):  # without segments, then without a folder
        (log,) = find_logs_of_ids(tmp_path)
        assert log.folder == folder
        with is_gone, opened(log):
            pass
        if folder.exists():
            folder.rmdir()
    journal_path(tmp_path, 1, 0).write_bytes(b"")
    folder.mkdir()
    (log,) = find_logs_of_ids(tmp_path)
    with pytest.raises(OSError, match="it is empty"), opened(log):
        pass


def test_segments_of_both_have_all_of_it_when_somebody_asks(tmp_path: Path) -> None:
    """`write_out` of the first engine serves both logs, by their numbers in the journal."""
    engines = two(tmp_path, FailingDisk())
    owns = begun(engines)
    paths = [
        segment_at(partition_folder(tmp_path, 3, log), 0).path for log in ("__consumer_offsets", TRANSACTIONS_TOPIC)
    ]
    before = [path.stat().st_size for path in paths]
    assert append_to_both(engines, owns, 2) == [None] * BOTH
    done = threading.Event()
    engines[0].write_out([journal_number(3, TRANSACTIONS_TOPIC)], done.set)
    assert done.wait(WITHIN_S)
    assert [path.stat().st_size > size for path, size in zip(paths, before, strict=True)] == [False, True]
    close(engines)


def test_what_is_left_for_a_load(tmp_path: Path) -> None:
    """A partition of ids that can't take its bytes is reported; a file of its own name has them until its load."""
    crashed(tmp_path)
    folder = partition_folder(tmp_path, 3, TRANSACTIONS_TOPIC)
    folder.rename(tmp_path / "away")
    reports: list[dict[str, object]] = []
    first = journaling(tmp_path, FailingDisk(), report=lambda _, **fields: reports.append(fields))
    engines = first, beside(first, tmp_path, FailingDisk())
    assert [fields["left"] for fields in reports if "left" in fields] == [["__transaction_state-3"]]
    left = left_path(tmp_path, journal_number(3, TRANSACTIONS_TOPIC), 0)
    assert list(tmp_path.glob(".journal-left-*")) == [left]
    assert left.name == ".journal-left-__transaction_state-3.0"
    own = acquire(engines[1], 3)
    assert not isinstance(own, Exception)
    assert isinstance(load(engines[1], own)[1], Damaged)
    (tmp_path / "away").rename(folder)
    records, error = load(engines[1], own)
    assert (numbers_of(records), error) == ([0, 1], None)
    assert not left.exists()
    assert numbers_of(opened_partition(engines[0], 3)[1]) == [0, 1]
    close(engines)


def test_a_journal_that_fails_refuses_both(tmp_path: Path, disk: FailingDisk) -> None:
    """If the journal can't be written, the appends of both logs fail, and a load of each finds what was durable."""
    engines = two(tmp_path, disk)
    owns = begun(engines)
    disk.fails = lambda name, _number: OSError(5, "broken") if name == "fdatasync" else None
    assert [type(each) for each in append_to_both(engines, owns, 2)] == [Unavailable] * BOTH
    disk.fails = lambda _name, _number: None
    found = [load(engine, own) for engine, own in zip(engines, owns, strict=True)]
    assert [(numbers_of(records), error) for records, error in found] == [([0, 1], None)] * BOTH
    assert append_to_both(engines, owns, 3) == [None] * BOTH
    close(engines)
    assert loaded(tmp_path) == [[0, 1, 3]] * BOTH
    assert not journal_path(tmp_path, 1, 0).exists()
