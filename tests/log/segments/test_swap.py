"""After any failure or crash in a swap of compacted files, either the old segments count or the new one."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Event

import pytest

from coordinator.log.compaction.rewrite import compact
from coordinator.log.compaction.task import Cleaned, Task
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.upkeep import Cleaning
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.recovery import LogReader
from coordinator.log.segments.segment import segment_at
from coordinator.log.segments.swap import cleaned_path, recover_swaps, remove_cleaned, segments_as_swapped, swap_in
from protocol.records.batch import Record, encode_batch
from tests.log.calls import Events, begin_append, opened
from tests.log.disks import CrashingDisk, FailingDisk, Killed
from tests.support.length import rounds
from tests.support.patience import WITHIN_S

STEPS = (
    "rename",
    "sync_folder",
    "remove",
    "list_folder",
    "open",
    "write",
    "fdatasync",
    "truncate",
    "free",
    "read",
    "close",
)
TASK = Task(end_offset=12, dirty_offset=0, now_ms=10, lag_ms=0, retention_ms=0, segment_size=150)


def write(folder: Path) -> None:
    """Write six closed segments and an active one, with superseded and deleted keys; every tombstone may go."""
    folder.mkdir()
    for base_offset in range(0, 12, 2):
        key = b"key-%d" % (base_offset // 2 % 3)
        first = Record(key, b"first-%d" % base_offset, 1)
        second = Record(key, None if base_offset > 6 else b"second-%d" % base_offset, 1)
        batch = encode_batch([first, second], base_offset, 1)
        segment_at(folder, base_offset).path.write_bytes(batch)
    segment_at(folder, 12).path.write_bytes(encode_batch([Record(b"key-9", b"x", 1)], 12, 1))


def state(folder: Path) -> dict[bytes, bytes]:
    """Return the state that a replay finds."""
    found: dict[bytes, bytes | None] = {}
    reader = LogReader(Disk(), folder, None, lambda *_: pytest.fail("nothing is torn here"))
    for page in reader.pages():
        found |= {record.key: record.value for record in page}
    assert reader.next_offset == 13
    return {key: value for key, value in found.items() if value is not None}


def run(disk: Disk, folder: Path) -> None:
    """Compact, and swap each file in."""

    def swap(cleaned: Cleaned) -> None:
        deque(swap_in(disk, folder, *cleaned[:2]), 0)

    compact(disk, folder, TASK, swap)


EXPECTED = {b"key-0": b"second-6", b"key-9": b"x"}


def test_swapped(folder: Path) -> None:
    """After an undisturbed swap, the new file replaces the old segments, and no other file stays."""
    write(folder)
    before = sum(path.stat().st_size for path in folder.iterdir())
    assert state(folder) == EXPECTED
    run(Disk(), folder)
    assert state(folder) == EXPECTED
    assert all(path.suffix == ".log" for path in folder.iterdir())
    assert sum(path.stat().st_size for path in folder.iterdir()) < before / 2


@pytest.mark.parametrize("error", [OSError(5, "I/O error"), Killed()], ids=["fails", "killed"])
@pytest.mark.parametrize("name", STEPS)
def test_interrupted_anywhere(tmp_path: Path, name: str, error: BaseException) -> None:
    """If the n-th call of any kind fails or ends the process, in the recovery too, the state is the same."""
    number = 0
    while True:
        number += 1
        folder = tmp_path / f"{name}-{number}"
        write(folder)
        disk = FailingDisk(lambda called, at, number=number: error if (called, at) == (name, number) else None)  # type: ignore[misc]
        try:
            run(disk, folder)
        except (OSError, Killed):
            assert disk.calls[name] >= number
        else:
            break
        again = 0
        while True:
            again += 1
            disk = FailingDisk(lambda called, at, again=again: error if (called, at) == (name, again) else None)  # type: ignore[misc]
            try:
                recover_swaps(disk, folder)
            except (OSError, Killed):
                continue
            break
        assert all(path.suffix == ".log" for path in folder.iterdir())
        assert state(folder) == EXPECTED
        run(Disk(), folder)
        assert state(folder) == EXPECTED
    assert number > 1 or name == "truncate"


def cut_at(disk: CrashingDisk, calls: int) -> None:
    """Let the process end before the call of that number from here on, of any method."""
    end = disk.calls.total() + calls
    disk.fails = lambda _name, _number: Killed() if disk.calls.total() == end else None


@pytest.mark.rounds
def test_power_cut_anywhere(tmp_path: Path) -> None:
    """If a power cut loses any bytes and names that no sync made durable, the state is the same.

    The power fails, or the process is killed, in the middle; then the power fails in the recovery.
    """
    finished = False
    calls = 0
    while not finished:
        calls += 1
        for seed in range(rounds(6, 10, 30)):
            chance = Random(seed)
            folder = tmp_path / f"{calls}-{seed}"
            write(folder)
            disk = CrashingDisk(chance, in_order=seed % 3 > 0)
            cut_at(disk, calls)
            try:
                run(disk, folder)
                finished = True
            except Killed:
                pass
            if seed % 2:
                disk.crash()
            else:
                disk.kill()
            cut_at(disk, chance.randrange(1, 8))
            with suppress(Killed):
                recover_swaps(disk, folder)
            disk.crash()
            recover_swaps(Disk(), folder)
            assert state(folder) == EXPECTED
    assert calls > 50


def test_power_cut_in_a_swap(tmp_path: Path) -> None:
    """A power cut before any call of a swap loses nothing; enough runs show each missing sync of a folder."""
    calls, finished = 0, False
    while not finished:
        calls += 1
        for seed in range(12):
            folder = tmp_path / f"{calls}-{seed}"
            write(folder)
            (cleaned,) = compact(Disk(), folder, TASK._replace(segment_size=10_000), lambda _cleaned: None).files
            disk = CrashingDisk(Random(seed))
            cut_at(disk, calls)
            try:
                deque(swap_in(disk, folder, *cleaned[:2]), 0)
                finished = True
            except Killed:
                pass
            disk.crash()
            recover_swaps(Disk(), folder)
            assert state(folder) == EXPECTED
    assert calls > 10


class _Renames(Disk):
    """Keeps the names of the files that became `.swap` files, in order."""

    def __init__(self) -> None:
        self.swapped: list[str] = []

    def rename(self, old: Path, new: Path) -> None:
        if new.suffix == ".swap":
            self.swapped.append(new.name)
        super().rename(old, new)


def test_oldest_first(tmp_path: Path) -> None:
    """The engine swaps in the oldest file of a compaction first: tombstones come later."""
    disk, told = _Renames(), Events()
    engine = EmbeddedEngine(tmp_path, 1, 1, segment_size=2_000)
    engine.start(lambda *_change: None)
    own, _ = opened(engine)
    records = [Record(b"key-%d" % (number % 2 * number), b"%050d" % number, 1) for number in range(100)]
    outcomes = [begin_append(engine, own, [record]) for record in records]
    assert {outcome.get(timeout=WITHIN_S) for outcome in outcomes} == {None}
    engine.close()
    done = Event()

    def report(name: str, /, **fields: object) -> None:
        told(name, **fields)
        done.set()

    cleaning = Cleaning(backoff_ms=1)
    engine = EmbeddedEngine(tmp_path, 1, 1, segment_size=2_000, disk=disk, cleaning=cleaning, report=report)
    engine.start(lambda *_change: None)
    opened(engine)
    assert done.wait(WITHIN_S)
    engine.close()
    assert told.names()[0] == "compacted"
    assert len(disk.swapped) > 2
    assert disk.swapped == sorted(disk.swapped)


def test_left_over_file_is_overwritten(folder: Path) -> None:
    """A new segment has nothing of a `.cleaned` file of its name that another compaction left behind."""
    write(folder)
    for base_offset in range(0, 12, 2):
        cleaned_path(folder, base_offset).write_bytes(bytes(10_000))
    run(Disk(), folder)
    remove_cleaned(Disk(), folder)
    assert state(folder) == EXPECTED
    assert sum(path.stat().st_size for path in folder.iterdir()) < 10_000


def test_left_over_segments_stay_dead(folder: Path) -> None:
    """A segment that a swap replaces doesn't come back, even if the new file has none of its records."""
    write(folder)
    (cleaned, *_) = compact(Disk(), folder, TASK._replace(segment_size=10_000), lambda _cleaned: None).files
    cleaned_path(folder, 0).rename(folder / f"{0:020}-{cleaned.next_offset:020}.swap")
    segment_at(folder, 4).path.unlink()
    recover_swaps(Disk(), folder)
    assert sorted(path.name for path in folder.iterdir()) == [f"{0:020}.log", f"{12:020}.log"]
    assert state(folder) == EXPECTED


def test_what_was_not_decided_on_goes(folder: Path) -> None:
    """A recovery removes `.cleaned` files, whose swap was not decided, and nothing else."""
    write(folder)
    cleaned_path(folder, 0).write_bytes(b"half a fi")
    remove_cleaned(Disk(), folder)
    assert not cleaned_path(folder, 0).exists()
    assert state(folder) == EXPECTED


def test_only_offsets_of_a_log_are_swapped(tmp_path: Path) -> None:
    """A file counts in the place of the segments that it replaces, unless its name has no offsets of a log."""
    names = [f"{offset:020}.log" for offset in (0, 3, 5, 9)]
    odd = [f"{9:020}-{9:020}.swap", f"{5:020}-{2**63:020}.swap", "9" * 20 + "-" + "9" * 20 + ".swap"]
    swap = f"{2:020}-{9:020}.swap"
    found = segments_as_swapped(tmp_path, [*names, *odd, swap])
    assert [(segment.base_offset, segment.path.name) for segment in found] == [(0, names[0]), (2, swap), (9, names[3])]
    (tmp_path / odd[1]).touch()
    recover_swaps(Disk(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [odd[1]]
