"""Tests the engine with a journal: one sync for all partitions, checkpoints, failures, and what each crash leaves."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest

from coordinator.log.embedded import journal
from coordinator.log.embedded.engine import EmbeddedEngine
from coordinator.log.embedded.journal import Journal
from coordinator.log.engine import Damaged, EngineError, Ownership, Unavailable
from coordinator.log.segments.counts import Counts
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.journal import (
    EXTENT_SIZE,
    WINDOWS_AT,
    journal_path,
    left_path,
    most_bytes,
    node_files,
    read_files,
)
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC, partition_folder, segment_at
from tests.log.calls import Events, acquire, append, append_batch, load, numbers_of, opened, record, release
from tests.log.disks import CrashingDisk, FailingDisk, Killed, each_call, fail_one
from tests.log.embedded.journaling import JOURNAL_SIZE, Partition, Run, join_checkpoints, journaling, kill, play_history
from tests.support.length import rounds
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

HISTORIES = rounds(60, 200, 2_000)


@pytest.fixture(autouse=True)
def killed_threads_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that a disk kills prints no trace."""
    hook = threading.excepthook
    monkeypatch.setattr(threading, "excepthook", lambda found: None if found.exc_type is Killed else hook(found))


def append_to_all(engine: EmbeddedEngine, owns: list[Ownership], number: int, size: int = 10) -> list[object]:
    """Append a record to each of the partitions in one window; return the outcomes."""
    outcomes: list[SimpleQueue[object]] = [SimpleQueue() for _ in owns]

    def appended(_outcome: object) -> None:
        for own, outcome in zip(owns, outcomes, strict=True):
            append_batch(engine, own, [record(number, size)], outcome.put)

    engine.acquire(49, appended)  # the thread takes none of them before it has called back
    return [outcome.get(timeout=WITHIN_S) for outcome in outcomes]


def append_in_a_row(engine: EmbeddedEngine, own: Ownership, count: int, size: int = 10) -> SimpleQueue[object]:
    """Append records, each behind the success of the one before. The queue gets the last outcome, or the error."""
    outcomes: SimpleQueue[object] = SimpleQueue()

    def go_on(outcome: object, left: int) -> None:
        if outcome is not None or not left:
            outcomes.put(outcome)
        else:
            append_batch(engine, own, [record(1_000 - left, size)], lambda outcome: go_on(outcome, left - 1))

    go_on(None, count)
    return outcomes


def numbers_left(folder: Path, *partitions: int) -> list[list[int]]:
    """Return what the next engine of a folder loads of these partitions."""
    engine = journaling(folder)
    found = [numbers_of(opened(engine, partition)[1]) for partition in partitions]
    engine.close()
    return found


def begun(engine: EmbeddedEngine, count: int) -> list[Ownership]:
    """Open partitions, and append the first record of each, which begins its segment."""
    owns = [opened(engine, partition)[0] for partition in range(count)]
    assert append_to_all(engine, owns, 0) == [None] * count
    return owns


class Gated(FailingDisk):
    """Holds the checkpoints' syncs of segments, once it is gated, until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gated = False
        self.gate, self.waiting = threading.Event(), threading.Event()

    def fdatasync(self, descriptor: int) -> None:
        is_journal = ".journal" in str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if threading.current_thread().name == "log-checkpoint" and self.is_gated and not is_journal:
            self.waiting.set()
            assert self.gate.wait(WITHIN_S)
        super().fdatasync(descriptor)


class BrokenFiles(FailingDisk):
    """While it `is_broken`, files with one of `words` in their paths can't be written."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.is_broken = False
        self._words = words

    def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
        """Write, or fail."""
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if self.is_broken and any(word in path for word in self._words):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return super().write(descriptor, parts, position)


class FullForJournals(FailingDisk):
    """While it `is_full`, no file of a journal can be opened. tries: how often one was to be."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.tries = 0

    def open(self, path: Path, *, create: bool = False, anew: bool = False) -> int:
        """Open a file, or fail."""
        if path.name.startswith(".journal"):
            self.tries += 1
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, create=create, anew=anew)


def fill(engine: EmbeddedEngine, owns: list[Ownership], number: int, until: Callable[[], bool]) -> int:
    """Append records to all partitions, from that number on, until something holds; the number of the next."""
    while not until():
        assert append_to_all(engine, owns, number) == [None] * len(owns)
        number += 1
    return number


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let logs write to their segments, and checkpoints begin, after each window."""
    monkeypatch.setattr(journal, "WRITE_S", 0.0)
    monkeypatch.setattr(journal, "SYNC_S", 0.0)


class TestWindow:
    """A window of many partitions is one write and one fdatasync."""

    def test_one_sync_for_all(self, tmp_path: Path, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        """A window of 49 partitions takes one write and one fdatasync, and the segments have it after a clean stop."""
        monkeypatch.setattr(journal, "WRITE_S", 600.0)
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 49)
        assert append_to_all(engine, owns, 1) == [None] * 49  # the file is made
        disk.calls.clear()
        assert append_to_all(engine, owns, 2) == [None] * 49
        assert (disk.calls["write"] - 1, disk.calls["fdatasync"]) == (1, 1)  # a write is the epoch of partition 49
        engine.close()
        assert not list(tmp_path.glob(".journal*"))
        assert not disk.descriptors
        engine = EmbeddedEngine(tmp_path, 50, 1)
        engine.start(lambda *_: None)
        assert [numbers_of(opened(engine, partition)[1]) for partition in range(49)] == [[0, 1, 2]] * 49
        engine.close()

    @pytest.mark.parametrize("count", [1, 5])
    def test_segments_get_it_soon(self, tmp_path: Path, count: int) -> None:
        """The segments of an idle engine have all that was reported a moment later, without a further call."""
        engine = journaling(tmp_path, FailingDisk())
        owns = begun(engine, count)
        segments = [segment_at(partition_folder(tmp_path, own.partition), 0).path for own in owns]
        before = [path.stat().st_size for path in segments]
        assert append_to_all(engine, owns, 1) == [None] * count
        wait_until(
            lambda: all(path.stat().st_size > size for path, size in zip(segments, before, strict=True)),
            "the segments have it",
            WITHIN_S,
        )
        engine.close()

    def test_segments_have_all_of_it_when_somebody_asks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`write_out` puts what the named partitions have reported into their segments; the others go on to collect."""
        monkeypatch.setattr(journal, "WRITE_S", 600.0)
        engine = journaling(tmp_path, FailingDisk())
        owns = begun(engine, 3)
        segments = [segment_at(partition_folder(tmp_path, own.partition), 0).path for own in owns]
        before = [path.stat().st_size for path in segments]
        assert append_to_all(engine, owns, 1) == [None] * 3
        done = threading.Event()
        engine.write_out([0, 2, 40], done.set)
        assert done.wait(WITHIN_S)
        grown = [path.stat().st_size > size for path, size in zip(segments, before, strict=True)]
        assert grown == [True, False, True]
        engine.close()

    def test_large_appends(self, tmp_path: Path, disk: FailingDisk) -> None:
        """What no file of the journal has room for goes to its segment, before or behind what the journal has."""
        engine = journaling(tmp_path, disk, segment_size=1_000_000)
        owns = begun(engine, 3)
        for number, size in enumerate([10, 100_000, 20_000, 20_000, 30_000, 10], 1):
            assert append_to_all(engine, owns, number, size) == [None] * 3
        engine.close()
        assert numbers_left(tmp_path, *range(3)) == [list(range(7))] * 3

    def test_files_in_turn(self, tmp_path: Path) -> None:
        """The journal never takes more than its size, however much is appended, and a wait for a checkpoint counts."""
        counts = Counts()
        engine = journaling(tmp_path, counts=counts)
        owns = begun(engine, 5)
        sizes: list[int] = []
        for number in range(1, 100):
            assert append_to_all(engine, owns, number, 100) == [None] * 5
            sizes = [path.stat().st_size for paths in node_files(FailingDisk(), tmp_path).values() for path in paths]
            assert sum(sizes) <= JOURNAL_SIZE
        assert len(sizes) == 2
        engine.close()
        assert numbers_left(tmp_path, *range(5)) == [list(range(100))] * 5

    @pytest.mark.parametrize("is_early", [False, True])
    def test_full_file_waits_for_the_checkpoint(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_early: bool
    ) -> None:
        """If both files are full, a window waits until the segments are synced; a metric says how long.

        is_early: the checkpoint began before its file was full, so that the window waits for another one too.
        """
        began = time.perf_counter()
        disk, counts = Gated(), Counts()
        engine = journaling(tmp_path, disk, counts=counts)
        owns = begun(engine, 2)
        if is_early:
            monkeypatch.setattr(journal, "SYNC_S", 0.0)
            disk.is_gated = True
            assert append_to_all(engine, owns, 1) == [None] * 2
            assert disk.waiting.wait(WITHIN_S)
            monkeypatch.setattr(journal, "SYNC_S", 600.0)
            fill(engine, owns, 2, lambda: engine._journal._current == 1)
        else:
            fill(engine, owns, 1, lambda: len(node_files(disk, tmp_path).get(1, [])) == 2)
            disk.is_gated = True
        outcomes = append_in_a_row(engine, owns[0], 30, 8_000)
        assert disk.waiting.wait(WITHIN_S)
        assert outcomes.empty()
        while not is_in("_take_results"):
            threading.Event().wait(0.001)
        disk.gate.set()
        assert outcomes.get(timeout=WITHIN_S) is None
        engine.close()
        assert sum(counts.journal_waits.counts) > 0
        assert counts.journal_waits.total < time.perf_counter() - began

    def test_full_file_waits_for_the_other_to_be_made(self, tmp_path: Path) -> None:
        """If a file is full before the other one is there, the metric counts this wait too."""

        class Slow(FailingDisk):
            gate = threading.Event()

            def rename(self, old: Path, new: Path) -> None:
                if threading.current_thread().name == "log-checkpoint" and new.name.startswith(".journal"):
                    assert self.gate.wait(WITHIN_S)
                super().rename(old, new)

        disk, counts = Slow(), Counts()
        engine = journaling(tmp_path, disk, counts=counts)
        (own,) = begun(engine, 1)
        try:
            outcomes = append_in_a_row(engine, own, 10)
            wait_until(lambda: is_in("_switch") and is_in("result"), "a window waits for the other file", WITHIN_S)
            disk.gate.set()
            assert outcomes.get(timeout=WITHIN_S) is None
        finally:
            disk.gate.set()
            engine.close()
        assert sum(counts.journal_waits.counts) == 1

    def test_a_cut_in_the_first_window_of_a_file_that_is_written_anew(self, tmp_path: Path) -> None:
        """The segments have all that the file had, and the other file says so before: nothing is missed."""

        class Cut(Gated):
            at: Path | None = None

            def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
                if Path(f"/proc/self/fd/{descriptor}").readlink() == self.at:
                    whole = b"".join(parts)
                    super().write(descriptor, [whole[: len(whole) // 2]], position)
                    raise Killed
                return super().write(descriptor, parts, position)

        disk = Cut()
        engine = journaling(tmp_path, disk)
        (own,) = begun(engine, 1)
        number = fill(engine, [own], 1, lambda: len(node_files(disk, tmp_path).get(1, [])) == 2)
        number = fill(engine, [own], number, lambda: engine._journal._current == 1)
        number = fill(engine, [own], number, lambda: engine._journal._current == 0)
        disk.is_gated = True
        acknowledged: list[int] = []

        def go_on(outcome: object, at: int) -> None:
            if outcome is None:
                acknowledged.append(at - 1)
                append_batch(engine, own, [record(at, 8_000)], lambda outcome: go_on(outcome, at + 1))

        go_on(None, number)
        wait_until(lambda: disk.waiting.is_set() and is_in("_take_results"), "a window waits for it", WITHIN_S)
        disk.at = journal_path(tmp_path, 1, 1 - engine._journal._current)
        disk.gate.set()
        wait_until(lambda: not [each for each in threading.enumerate() if each.name == "log"], "the end", WITHIN_S)
        kill(engine, disk)
        (numbers,) = numbers_left(tmp_path, 0)
        assert numbers[: acknowledged[-1] + 1] == list(range(acknowledged[-1] + 1))

    def test_files_are_made_before_they_are_needed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Behind the half of the first file, and once; a switch begins a checkpoint: so no window waits for either."""
        monkeypatch.setattr(journal, "SYNC_S", 600.0)
        disk, counts = FailingDisk(), Counts()
        engine = journaling(tmp_path, disk, counts=counts)
        owns = begun(engine, 2)
        made, files = disk.calls["rename"], list[tuple[int, int]]()
        for number in range(1, 30):
            assert append_to_all(engine, owns, number) == [None] * 2
            join_checkpoints()
            acquire(engine, 48)  # the engine takes what ended
            files.append((engine._journal._current, len(node_files(disk, tmp_path)[1])))
        assert files[0] == (0, 1)
        assert files.index((0, 2)) < files.index((1, 2))
        assert disk.calls["rename"] - made <= 2
        assert sum(counts.journal_waits.counts) == 0
        engine.close()

    def test_a_file_with_windows_that_are_needed_stays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The small first file isn't replaced by a larger one while the checkpoint of its windows is under way."""
        monkeypatch.setattr(journal, "FIRST_SIZE", JOURNAL_SIZE * 3 // 8)
        monkeypatch.setattr(journal, "SYNC_S", 600.0)
        disk = Gated()
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 2)
        disk.is_gated = True
        number = fill(engine, owns, 1, lambda: engine._journal._current == 1)
        assert disk.waiting.wait(WITHIN_S)
        path = journal_path(tmp_path, 1, 0)
        salt = path.read_bytes()[:WINDOWS_AT]
        assert path.stat().st_size < JOURNAL_SIZE // 2
        second = engine._journal._files[1]
        fill(engine, owns, number, lambda: second is not None and second.at > JOURNAL_SIZE * 3 // 8)
        assert engine._journal._making is None
        assert path.read_bytes()[:WINDOWS_AT] == salt
        disk.gate.set()
        engine.close()

    def test_the_small_first_file_is_replaced_once_nothing_in_it_is_needed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A window behind the checkpoint says that nothing in the file is needed; the next switch makes it large."""
        monkeypatch.setattr(journal, "FIRST_SIZE", JOURNAL_SIZE * 3 // 8)
        engine = journaling(tmp_path)
        owns = begun(engine, 2)
        number = fill(engine, owns, 1, lambda: engine._journal._current == 1)
        path = journal_path(tmp_path, 1, 0)
        assert path.stat().st_size < JOURNAL_SIZE // 2
        join_checkpoints()
        acquire(engine, 48)  # the engine takes what ended
        fill(engine, owns, number, lambda: engine._journal._current == 0)
        assert path.stat().st_size == JOURNAL_SIZE // 2
        engine.close()

    def test_a_checkpoint_that_began_too_early_is_followed_by_another(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It began before the file was full; so it isn't enough for the file to be written anew."""
        monkeypatch.setattr(journal, "SYNC_S", 0.0)
        disk, counts = Gated(), Counts()
        engine = journaling(tmp_path, disk, counts=counts)
        owns = begun(engine, 2)
        disk.is_gated = True
        assert append_to_all(engine, owns, 1) == [None] * 2
        assert disk.waiting.wait(WITHIN_S)
        monkeypatch.setattr(journal, "SYNC_S", 600.0)
        number = fill(engine, owns, 2, lambda: engine._journal._current == 1)
        waited = sum(counts.journal_waits.counts)
        disk.gate.set()

        def is_full() -> bool:
            join_checkpoints()
            acquire(engine, 48)  # the engine takes what ended
            return engine._journal._current == 0

        fill(engine, owns, number, is_full)
        assert sum(counts.journal_waits.counts) == waited
        engine.close()

    def test_the_largest_window(self, tmp_path: Path) -> None:
        """An append that no file takes, even by a byte, goes to its segment: no file grows beyond its size."""
        engine = journaling(tmp_path, segment_size=100 * JOURNAL_SIZE)
        (own,) = begun(engine, 1)
        most = most_bytes(engine._journal.window_max)
        for size in range(most - 6 * EXTENT_SIZE, most, EXTENT_SIZE // 2):
            assert append(engine, own, record(1, size)) is None
            sizes = [path.stat().st_size for path in node_files(Disk(), tmp_path)[1]]
            assert max(sizes) <= JOURNAL_SIZE // 2
        engine.close()

    def test_switched_off_again(self, tmp_path: Path, disk: FailingDisk) -> None:
        """An engine without a journal brings back what one with a journal left, and removes it."""
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 3)
        assert append_to_all(engine, owns, 1) == [None] * 3
        kill(engine, disk)
        events = Events()
        engine = EmbeddedEngine(tmp_path, 50, 1, report=events)
        engine.start(lambda *_: None)
        assert not list(tmp_path.glob(".journal*"))
        assert [numbers_of(opened(engine, partition)[1]) for partition in range(3)] == [[0, 1]] * 3
        assert events.names() == ["journal_recovered"]
        engine.close()

    def test_other_nodes(self, tmp_path: Path) -> None:
        """The first engine of a folder brings back every node's journal; one of several leaves the others' alone."""
        for node in (1, 2):
            disk = FailingDisk()
            engine = EmbeddedEngine(tmp_path, 50, node, journal=True, disk=disk, recovers_all=False)
            engine.start(lambda *_: None)
            own, _ = opened(engine, node)
            assert append(engine, own, record(0)) is None
            assert append(engine, own, record(1)) is None
            kill(engine, disk)
        disk = FailingDisk()
        assert sorted(node_files(disk, tmp_path)) == [1, 2]
        engine = EmbeddedEngine(tmp_path, 50, 2, recovers_all=False)
        engine.start(lambda *_: None)
        engine.close()
        assert sorted(node_files(disk, tmp_path)) == [1]
        assert numbers_left(tmp_path, 1, 2) == [[0, 1]] * 2

    def test_another_log_of_the_folder(self, tmp_path: Path, disk: FailingDisk) -> None:
        """An engine of another log leaves the journal alone, and what is left for partitions of the groups' log."""
        engine = journaling(tmp_path, disk)
        (own,) = begun(engine, 1)
        assert append(engine, own, record(1)) is None
        left = left_path(tmp_path, 0, 0)
        left.write_bytes(b"of the groups")
        other = EmbeddedEngine(tmp_path, 50, 1, log=TRANSACTIONS_TOPIC)
        other.start(lambda *_: None)
        assert opened(other, 0)[1] == []
        other.close()
        left.unlink()
        assert append(engine, own, record(2)) is None
        kill(engine, disk)
        assert numbers_left(tmp_path, 0) == [[0, 1, 2]]


def is_in(function: str) -> bool:
    """Return whether an engine's thread is inside that function."""
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "log"]
    frame = sys._current_frames().get(thread.ident or 0)
    return any(each.f_code.co_name == function for each, _ in traceback.walk_stack(frame))


class TestFailure:
    """What can't be written costs the appends that waited for it, or one partition."""

    def test_one_of_50_partitions(self, tmp_path: Path, at_once: None) -> None:
        """If one partition's segment fails after the journal's success, it alone is refused, and nothing is lost."""
        events, disk = Events(), BrokenFiles("consumer_offsets-7/")
        engine = journaling(tmp_path, disk, report=events)
        owns = begun(engine, 49)
        disk.is_broken = True
        assert append_to_all(engine, owns, 1) == [None] * 49
        outcomes = append_to_all(engine, owns, 2)
        assert [partition for partition, outcome in enumerate(outcomes) if outcome is not None] == [7]
        assert str(outcomes[7]) == os.strerror(errno.EDQUOT)
        assert isinstance(load(engine, owns[7])[1], Unavailable)
        for number in range(3, 40):  # the others go on, whatever the journal's files have for this one
            others = [own for own in owns if own.partition != 7]
            assert append_to_all(engine, others, number) == [None] * 48
        assert list(tmp_path.glob(".journal-left-7.*")) == [left_path(tmp_path, 7, 0)]
        disk.is_broken = False
        assert numbers_of(load(engine, owns[7])[0]) == [0, 1]
        assert not left_path(tmp_path, 7, 0).exists()
        assert append(engine, owns[7], record(40)) is None
        assert {fields["partition"] for name, fields in events if name == "partition_unavailable"} == {7}
        assert events.names()[-1] == "partition_available"
        engine.close()
        assert numbers_left(tmp_path, 7, 8) == [[0, 1, 40], [*range(40)]]

    def test_a_segment_that_fails_behind_the_answer_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The report comes with the failed write, not with the next append: a partition may get none for long."""
        monkeypatch.setattr(journal, "WRITE_S", 600.0)
        monkeypatch.setattr(journal, "SYNC_S", 600.0)
        events, disk = Events(), BrokenFiles("consumer_offsets-0/")
        engine = journaling(tmp_path, disk, report=events)
        (own,) = begun(engine, 1)
        disk.is_broken = True
        assert append(engine, own, record(1)) is None
        assert events == []
        written = threading.Event()
        engine.write_out([0], written.set)
        assert written.wait(WITHIN_S)
        assert events == [("partition_unavailable", {"partition": 0, "reason": os.strerror(errno.EDQUOT)})]
        disk.is_broken = False
        engine.close()

    @pytest.mark.parametrize("at", [9, WINDOWS_AT + 9, WINDOWS_AT + 100], ids=["first page", "head", "batches"])
    def test_damaged_left_file(self, tmp_path: Path, at_once: None, at: int) -> None:
        """A damaged file of what is left for a partition refuses this one by that file's name; the others serve."""
        disk = BrokenFiles("consumer_offsets-1/")
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 3)
        disk.is_broken = True
        assert append_to_all(engine, owns, 1) == [None] * 3
        path = left_path(tmp_path, 1, 0)
        for number in range(2, 20):  # until its segment has failed, and the journal's file as well is full
            assert append_to_all(engine, [owns[0], owns[2]], number) == [None] * 2
        assert path.exists()
        kill(engine, disk)
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)
        for _ in range(2):
            events = Events()
            engine = journaling(tmp_path, report=events)
            assert [numbers_of(opened(engine, partition)[1]) for partition in (0, 2)] == [list(range(20))] * 2
            own = acquire(engine, 1)
            assert not isinstance(own, EngineError)
            damage = load(engine, own)[1]
            assert isinstance(damage, Damaged)
            assert damage.file == str(path)
            assert events[-1][0] == "partition_damaged"
            assert events[-1][1]["partition"] == 1
            engine.close()
        assert path.read_bytes() == content

    @pytest.mark.parametrize("name", ["write", "fdatasync"])
    def test_journal_fails(self, tmp_path: Path, disk: FailingDisk, name: str) -> None:
        """If the journal fails, all that waited for it is refused; then a new file is made, and nothing comes back."""
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 5)
        assert append_to_all(engine, owns, 1) == [None] * 5
        before = journal_path(tmp_path, 1, 0).read_bytes()[:WINDOWS_AT]
        number = disk.calls[name] + (2 if name == "write" else 1)  # a write is the epoch of partition 49
        disk.fails = fail_one(name, number)
        outcomes = append_to_all(engine, owns, 2)
        assert [str(outcome) for outcome in outcomes] == [os.strerror(errno.EIO)] * 5
        assert all(isinstance(outcome, Unavailable) for outcome in append_to_all(engine, owns, 3))
        assert [numbers_of(load(engine, own)[0]) for own in owns] == [[0, 1]] * 5
        assert append_to_all(engine, owns, 4) == [None] * 5
        anew = journal_path(tmp_path, 1, 0).read_bytes()[:WINDOWS_AT]
        assert anew != before
        assert append_to_all(engine, owns, 5) == [None] * 5
        assert journal_path(tmp_path, 1, 0).read_bytes()[:WINDOWS_AT] == anew, "it is made once for a failure"
        kill(engine, disk)
        assert numbers_left(tmp_path, *range(5)) == [[0, 1, 4, 5]] * 5

    @pytest.mark.parametrize(
        "name", ["open", "close", "write", "fdatasync", "truncate", "sync_folder", "rename", "remove"]
    )
    @pytest.mark.parametrize("lasts", [False, pytest.param(True, marks=pytest.mark.long)])
    def test_nth_call(self, tmp_path: Path, at_once: None, name: str, lasts: bool) -> None:
        """Whichever call fails, once or from then on for a while, what is acknowledged is there, and nothing else."""
        for one in each_call(name, 12, 5) if lasts else each_call(name):
            folder = tmp_path / f"{name}-{one.number}"
            partitions = [Partition() for _ in range(4)]
            disk = FailingDisk()
            run = Run(folder, disk, partitions)
            disk.calls.clear()
            disk.fails = one
            run.play(Random(one.number), 14, 0)
            run.close()
            last = Run(folder, FailingDisk(), partitions)
            for partition in range(4):
                assert last.open(partition)
            last.close()

    def test_damaged_journal(self, tmp_path: Path, disk: FailingDisk) -> None:
        """An engine doesn't start on a journal with a damaged head; it names file and position, and changes nothing."""
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 2)
        for number in (1, 2, 3):
            assert append_to_all(engine, owns, number) == [None] * 2
        kill(engine, disk)
        path = journal_path(tmp_path, 1, 0)
        content = bytearray(path.read_bytes())
        content[WINDOWS_AT + 4096 + 20] ^= 1
        path.write_bytes(content)
        for _ in range(2):
            with pytest.raises(Damaged) as caught:
                journaling(tmp_path)
            assert (caught.value.file, caught.value.position) == (str(path), WINDOWS_AT + 4096)
        assert path.read_bytes() == content

    @pytest.mark.parametrize("fails_from", [0, 1], ids=["first file", "second file"])
    def test_no_room_for_the_journal(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_from: int) -> None:
        """If a file of the journal can't be made, appends go to their segments until it can; nothing is lost."""
        disk, events = FullForJournals(), Events()
        engine = journaling(tmp_path, disk, report=events)
        owns = begun(engine, 3)
        if fails_from:
            assert append_to_all(engine, owns, 1) == [None] * 3
        disk.is_full = True
        disk.tries = 0
        for number in range(2, 40):
            assert append_to_all(engine, owns, number) == [None] * 3
        assert 0 < disk.tries <= 2  # not again with each window
        assert [name for name, _ in events] == ["journal_left_out"]
        monkeypatch.setattr(Journal, "_retry_s", property(lambda _: 0.0, lambda *_: None), raising=False)
        disk.is_full = False
        assert append_to_all(engine, owns, 40) == [None] * 3
        assert len(node_files(disk, tmp_path)[1]) == 1 + fails_from
        kill(engine, disk)
        wanted = [0, *([1] if fails_from else []), *range(2, 41)]
        assert numbers_left(tmp_path, *range(3)) == [wanted] * 3

    def test_no_room_for_a_large_window(self, tmp_path: Path) -> None:
        """The first file has room for its first window, however large; if not, the window goes to the segments."""

        class Small(FailingDisk):
            def write(self, descriptor: int, parts: Sequence[bytes | memoryview], position: int) -> int:
                is_journal = ".journal" in str(Path(f"/proc/self/fd/{descriptor}").readlink())
                if is_journal and position + sum(map(len, parts)) > journal.FIRST_SIZE:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(descriptor, parts, position)

        for disk in (FailingDisk(), Small()):
            folder = tmp_path / type(disk).__name__
            engine = journaling(folder, disk, journal_size=8 * journal.FIRST_SIZE, segment_size=8 * journal.FIRST_SIZE)
            (own,) = begun(engine, 1)
            assert append(engine, own, record(1, 2 * journal.FIRST_SIZE)) is None
            assert len(node_files(disk, folder)) == (type(disk) is FailingDisk)
            engine.close()

    def test_a_failed_making_is_tried_again(self, tmp_path: Path) -> None:
        """The second file, which couldn't be made in time, is made when it is needed, if there is room by then."""
        disk, events = FullForJournals(), Events()
        engine = journaling(tmp_path, disk, report=events)
        owns = begun(engine, 2)
        assert append_to_all(engine, owns, 1) == [None] * 2
        disk.is_full = True
        for number in range(2, 6):  # beyond the half of the first file
            assert append_to_all(engine, owns, number) == [None] * 2
        join_checkpoints()
        disk.is_full = False
        for number in range(6, 12):
            assert append_to_all(engine, owns, number) == [None] * 2
        assert len(node_files(disk, tmp_path)[1]) == 2
        assert events.names() == []
        engine.close()

    def test_stops_in_order_behind_a_failure(
        self, tmp_path: Path, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A failed journal keeps no thread busy, and a clean stop removes it: what was refused doesn't come back."""
        monkeypatch.setattr(journal, "WRITE_S", 0.0)
        engine = journaling(tmp_path, disk)
        (own,) = begun(engine, 1)
        assert append(engine, own, record(1)) is None
        acquire(engine, 48)  # the engine's thread has written the segment by then, and its sync is due in SYNC_S
        assert engine._journal.due_s() is not None
        failing = {"fdatasync", "remove"}
        disk.fails = lambda name, _: OSError(errno.EIO, os.strerror(errno.EIO)) if name in failing else None
        assert isinstance(append(engine, own, record(2)), Unavailable)
        acquire(engine, 48)
        assert engine._journal.due_s() is None
        failing.remove("fdatasync")
        assert isinstance(load(engine, own)[1], Unavailable)
        disk.fails = lambda _name, _number: None
        engine.close()
        assert not list(tmp_path.glob(".journal*"))
        assert numbers_left(tmp_path, 0) == [[0, 1]]

    def test_given_up_while_nothing_works(self, tmp_path: Path, disk: FailingDisk) -> None:
        """A partition that is given up on a failing disk keeps its appends, and a clean stop leaves no file of it.

        The report names the partition and the reason.
        """
        events = Events()
        engine = journaling(tmp_path, disk, report=events)
        (own,) = begun(engine, 1)
        assert append(engine, own, record(1)) is None
        failing = {"fdatasync", "remove"}
        disk.fails = lambda name, _: OSError(errno.EIO, os.strerror(errno.EIO)) if name in failing else None
        assert release(engine, own) is None
        assert list(tmp_path.glob(".journal-left-0.*.new"))
        assert events == [("partition_unavailable", {"partition": 0, "reason": os.strerror(errno.EIO)})]
        disk.fails = lambda _name, _number: None
        engine.close()
        assert not list(tmp_path.glob(".journal*"))
        assert numbers_left(tmp_path, 0) == [[0, 1]]

    def test_given_up_while_nothing_works_and_taken_again(
        self, tmp_path: Path, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its next owner in the same engine finds all of it, even if the journal alone has it."""
        monkeypatch.setattr(journal, "WRITE_S", 600.0)
        engine = journaling(tmp_path, disk)
        (own,) = begun(engine, 1)
        assert append(engine, own, record(1)) is None
        disk.fails = lambda name, _: OSError(errno.EIO, os.strerror(errno.EIO)) if name == "write" else None
        assert release(engine, own) is None
        disk.fails = lambda _name, _number: None
        assert numbers_of(opened(engine, 0)[1]) == [0, 1]
        engine.close()

    def test_nothing_is_taken_while_appends_of_a_failed_segment_have_no_other_place(
        self, tmp_path: Path, at_once: None
    ) -> None:
        """Only the journal has them, so it is not written anew before a file of their own can be."""
        disk = BrokenFiles("consumer_offsets-1/", ".journal-left")
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 2)
        disk.is_broken = True
        assert append_to_all(engine, owns, 1) == [None] * 2
        taken = [1]
        while append(engine, owns[0], record(taken[-1] + 1)) is None:
            taken.append(taken[-1] + 1)
            assert len(taken) < 40, "the journal has room for twelve windows"
            join_checkpoints()
        assert isinstance(append(engine, owns[0], record(100)), Unavailable)
        disk.is_broken = False
        assert numbers_of(load(engine, owns[1])[0]) == [0, 1]
        assert numbers_of(load(engine, owns[0])[0]) == [0, *taken]
        assert append(engine, owns[0], record(101)) is None
        engine.close()

    def test_a_mistake_in_a_checkpoint_is_reported(
        self, tmp_path: Path, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It ends the engine, behind the syncs of the other segments; nothing that was acknowledged is lost."""
        died: SimpleQueue[object] = SimpleQueue()
        monkeypatch.setattr(threading, "excepthook", died.put)
        sync_one, synced = Journal._sync_one, list[str]()

        def mistaken(self: Journal, path: Path) -> OSError | None:
            if path.parent.name.endswith("-0"):
                raise ZeroDivisionError
            synced.append(path.parent.name)
            return sync_one(self, path)

        events = Events()
        engine = journaling(tmp_path, disk, report=events)
        owns = begun(engine, 3)
        monkeypatch.setattr(Journal, "_sync_one", mistaken)
        monkeypatch.setattr(journal, "SYNC_S", 0.0)
        assert append_to_all(engine, owns, 1) == [None] * 3
        died.get(timeout=WITHIN_S)
        assert events == [("engine_failed", {"partition": -1, "error": "ZeroDivisionError()"})]
        assert [name[-1] for name in synced] == ["1", "2"]
        kill(engine, disk)
        assert numbers_left(tmp_path, *range(3)) == [[0, 1]] * 3

    def test_no_file_stays_open_behind_a_stop_on_a_failing_disk(self, tmp_path: Path, disk: FailingDisk) -> None:
        """The journal stays for the next start, and the engine closes its files."""
        engine = journaling(tmp_path, disk)
        (own,) = begun(engine, 1)
        assert append(engine, own, record(1)) is None
        disk.fails = lambda name, _: OSError(errno.EIO, os.strerror(errno.EIO)) if name == "fdatasync" else None
        engine.close()
        assert not disk.descriptors
        assert numbers_left(tmp_path, 0) == [[0, 1]]

    @pytest.mark.parametrize("size", [10, 5_000])
    def test_appends_of_an_older_version(self, tmp_path: Path, disk: FailingDisk, size: int) -> None:
        """Where an engine that knows no journal has appended meanwhile, the redo refuses and overwrites nothing."""
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 1)
        assert append_to_all(engine, owns, 1) == [None]
        kill(engine, disk)
        path = journal_path(tmp_path, 1, 0)
        path.rename(tmp_path / "hidden")
        engine = EmbeddedEngine(tmp_path, 50, 1)
        engine.start(lambda *_: None)
        own, records = opened(engine, 0)
        assert numbers_of(records) == [0]
        assert append(engine, own, record(2, size)) is None
        engine.close()
        (tmp_path / "hidden").rename(path)
        segment = segment_at(partition_folder(tmp_path, 0), 0).path
        content = segment.read_bytes()
        engine = journaling(tmp_path)
        refused = acquire(engine, 0)
        assert not isinstance(refused, EngineError)
        assert isinstance(load(engine, refused)[1], Damaged)
        assert segment.read_bytes() == content
        engine.close()

    def test_no_room_at_all(self, tmp_path: Path, disk: FailingDisk) -> None:
        """If nothing can be written, appends are refused and loads succeed, until there is room."""
        engine = journaling(tmp_path, disk)
        owns = begun(engine, 2)
        disk.fails = lambda name, _: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if name == "write" else None
        disk.tears = False
        assert [str(outcome) for outcome in append_to_all(engine, owns, 1)] == [os.strerror(errno.ENOSPC)] * 2
        disk.fails = lambda _name, _number: None
        assert [load(engine, own)[1] for own in owns] == [None] * 2
        assert append_to_all(engine, owns, 2) == [None] * 2
        engine.close()
        assert not disk.descriptors


def killed_from(disk: FailingDisk, end: int, _name: str, _number: int) -> Killed | None:
    """Return a `fails`, once its first arguments are there: the process ends at that call of any method."""
    return Killed() if disk.calls.total() >= end else None


class TestCrash:
    """A crash at any moment leaves everything that was acknowledged."""

    @pytest.mark.rounds
    @pytest.mark.parametrize("is_power_cut", [False, True])
    def test_at_each_step(self, tmp_path: Path, at_once: None, is_power_cut: bool) -> None:
        """A kill, or a power cut, at every call of the disk, with checkpoints and turns of the files under way."""
        reached, end = True, 0
        step = rounds(23, 7, 1)
        while reached:
            end += step
            folder = tmp_path / f"{end}"
            partitions = [Partition() for _ in range(3)]
            disk = CrashingDisk(Random(end), in_order=False)
            run: Run | None = None
            with suppress(Killed):
                run = Run(folder, disk, partitions)
                disk.calls.clear()
                disk.fails = partial(killed_from, disk, end)
                run.play(Random(7), 16, 0, 5_000)
            assert run is not None
            reached = disk.calls.total() >= end
            run.close()
            join_checkpoints()
            if is_power_cut:
                disk.crash()
            else:
                disk.kill()
            last = Run(folder, CrashingDisk(Random(end)), partitions)
            assert all(last.open(partition) for partition in range(3))
            last.close()
        assert end > 100

    @pytest.mark.parametrize("is_power_cut", [False, True])
    def test_front_of_a_segment(self, tmp_path: Path, at_once: None, is_power_cut: bool) -> None:
        """A crash at every call of the disk, while the journal has batches for the front of a new, empty segment."""
        reached, end = True, 0
        found = set()
        while reached:
            end += 1
            folder = tmp_path / f"{end}"
            partitions = [Partition() for _ in range(2)]
            disk = CrashingDisk(Random(end), in_order=False)
            run = Run(folder, disk, partitions)
            assert all(run.open(partition) for partition in range(2))
            run.window(0, {0: 10, 1: 10})
            run.window(1, {0: 10, 1: 10})
            disk.calls.clear()
            disk.fails = partial(killed_from, disk, end)
            with suppress(Killed):
                run.roll(0)
                run.window(2, {0: 10, 1: 10})
                run.window(3, {0: 5_000})
                run.roll(0)
                run.window(4, {1: 10})
                run.window(5, {0: 10})
            reached = disk.calls.total() >= end
            run.close()
            join_checkpoints()
            if is_power_cut:
                disk.crash()
            else:
                disk.kill()
            for paths in node_files(Disk(), folder).values():
                extents = read_files(Disk(), paths).extents.get(0, [])
                found |= {extent.base_offset for extent in extents if extent.position == 0}
            last = Run(folder, CrashingDisk(Random(end)), partitions)
            assert all(last.open(partition) for partition in range(2))
            last.close()
        assert end > 20
        assert found == {2, 4}  # the first batches of both new segments were in the journal

    @pytest.mark.rounds
    def test_histories(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A disk keeps or loses each unsynced page by chance: nothing acknowledged is lost, no half comes back."""
        cut = refused = 0
        for seed in range(HISTORIES):
            monkeypatch.setattr(journal, "WRITE_S", (0.0, 60.0)[seed % 2])
            monkeypatch.setattr(journal, "SYNC_S", (0.0, 60.0, 60.0)[seed % 3])
            more = play_history(tmp_path / f"{seed}", seed)
            cut += more[0]
            refused += more[1]
        assert cut > HISTORIES
        assert refused > HISTORIES
