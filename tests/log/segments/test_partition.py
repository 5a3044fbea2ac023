"""Tests the log of one partition: appends, new segments, all failures of a disk and crashes of a machine.

The log promises: it reads back everything that it reported as durable, in order, whatever happens; it has no refused
append, unless a crash came before it could cut it off; and it uses a disk that works again.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.partition import PartitionLog
from coordinator.log.segments.segment import list_segments
from protocol.records.batch import Record, encode_batch
from protocol.records.walk import decode_batches
from tests.log.calls import record
from tests.log.disks import CALLS, CrashingDisk, FailingDisk, Killed, OneFails, each_call, fail_one
from tests.support.length import rounds

SEGMENT_SIZE = 600
ERRORS = (errno.ENOSPC, errno.EIO)
FAILING = {"write", "fdatasync", "truncate", "open", "sync_folder", "read"}
HISTORIES = rounds(20, 60, 2_000)
"""Each test runs so many histories of failures and crashes."""


def open_log(disk: Disk, folder: Path, epoch: int = 0, segment_size: int = SEGMENT_SIZE) -> PartitionLog:
    """Return a log that hasn't read its files yet."""
    return PartitionLog(disk, folder, epoch, segment_size, lambda _file, _position, _size: None)


def read(log: PartitionLog) -> list[Record]:
    """Return all records of a log."""
    return [found for page in log.read() for found in page]


def numbers(first: int, end: int, size: int = 10) -> list[list[Record]]:
    """Return appends of one record each."""
    return [[record(number, size)] for number in range(first, end)]


def flat(appends: list[list[Record]]) -> list[Record]:
    """Return the records of these appends."""
    return [found for records in appends for found in records]


class TestAppending:
    """A log takes appends on a disk that works."""

    def test_nothing_is_created_before_the_first_append(self, folder: Path) -> None:
        """A log that reads an empty partition creates no file: fifty unused partitions cost nothing."""
        log = open_log(Disk(), folder)
        assert read(log) == []
        assert log.closed_because == ""
        assert not folder.exists()

    def test_segments(self, folder: Path) -> None:
        """Segments follow each other without gap, named for their first offset, none larger than it may be."""
        log = open_log(Disk(), folder, epoch=4)
        read(log)
        appends = [[record(number * 3 + at) for at in range(3)] for number in range(20)]
        for at in range(0, 20, 4):
            assert log.append(appends[at : at + 4]) == 4
        log.close("the test is over")
        segments = list_segments(Disk(), folder)
        assert len(segments) > 3
        next_offset = 0
        for segment in segments:
            content = segment.path.read_bytes()
            assert len(content) <= SEGMENT_SIZE
            assert segment.base_offset == next_offset
            for batch in decode_batches(content):
                assert (batch.header.base_offset, batch.header.partition_leader_epoch, len(batch.records)) == (
                    next_offset,
                    4,
                    3,
                )
                next_offset = batch.header.next_offset
        assert next_offset == 60
        assert read(open_log(Disk(), folder)) == flat(appends)

    def test_large_batch(self, folder: Path) -> None:
        """A batch that is larger than a segment gets one of its own."""
        log = open_log(Disk(), folder)
        read(log)
        assert log.append([*numbers(0, 2), [record(2, 5_000)], *numbers(3, 5)]) == 5
        segments = [(segment.base_offset, segment.path.stat().st_size) for segment in list_segments(Disk(), folder)]
        assert [base_offset for base_offset, _ in segments] == [0, 2, 3]
        assert segments[1][1] > 5_000

    def test_offsets_far_from_the_first(self, folder: Path) -> None:
        """A log starts a new segment where gaps would take offsets out of reach of Kafka's indexes."""
        folder.mkdir()
        last = 2**31 - 2
        (folder / "00000000000000000000.log").write_bytes(encode_batch([record(0)], last - 1, 0))
        log = open_log(Disk(), folder)
        read(log)
        assert log.append(numbers(1, 4)) == 3
        assert [segment.base_offset for segment in list_segments(Disk(), folder)] == [0, last + 1]
        assert read(log) == flat(numbers(0, 4))

    def test_goes_on_in_the_newest_segment(self, folder: Path) -> None:
        """The next owner appends where the one before stopped, with its own epoch."""
        for epoch in range(3):
            log = open_log(Disk(), folder, epoch)
            assert read(log) == flat(numbers(0, epoch))
            assert log.append(numbers(epoch, epoch + 1)) == 1
            log.close("the test is over")
        (segment,) = list_segments(Disk(), folder)
        batches = list(decode_batches(segment.path.read_bytes()))
        assert [(batch.header.base_offset, batch.header.partition_leader_epoch) for batch in batches] == [
            (0, 0),
            (1, 1),
            (2, 2),
        ]

    def test_one_write_and_one_sync(self, folder: Path, disk: FailingDisk) -> None:
        """A log appends any number of batches with one write and one fdatasync; a new file syncs folders."""
        log = open_log(disk, folder, segment_size=1 << 20)
        read(log)
        log.append(numbers(0, 1))
        assert disk.calls["sync_folder"] == 2  # the partition's, and its parent
        disk.calls.clear()
        log.append(numbers(1, 500))
        assert disk.calls == {"write": 1, "fdatasync": 1}

    def test_one_descriptor(self, folder: Path, disk: FailingDisk) -> None:
        """An open log holds one file open, a closed one none."""
        log = open_log(disk, folder)
        read(log)
        log.append(numbers(0, 50))
        assert len(disk.descriptors) == 1
        read(log)
        assert len(disk.descriptors) == 1
        log.close("the test is over")
        assert disk.descriptors == set()


class Trial:
    """Appends on a disk that fails, and reads whenever the log is closed, until all `appends` are durable.

    durable: the appends that the log reported as durable, in order.
    """

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        self.durable: list[list[Record]] = []

    def run(self, window: int = 3, total: int = 16) -> None:
        """Run two owners, one after the other; each makes half of the appends."""
        for epoch in range(2):
            log = open_log(self._disk, self._folder, epoch)
            end = total * (epoch + 1) // 2
            for _ in range(total):
                if len(self.durable) == end:
                    break
                if log.closed_because:
                    self._read(log)
                else:
                    done = len(self.durable)
                    appends = numbers(done, min(done + window, end), size=50)
                    self.durable += appends[: log.append(appends)]
            log.close("it was given up")

    def _read(self, log: PartitionLog) -> None:
        """Read the log, which must have the durable appends and no others."""
        try:
            assert read(log) == flat(self.durable)
        except OSError as error:
            log.close(str(error))


class TestNthCallFails:
    """A call of the system fails once, or again for a while, and the log keeps its promises."""

    @pytest.mark.parametrize("tears", [True, False])
    @pytest.mark.parametrize("name", [name for name in CALLS if name not in {"lock", "rename", "remove"}])
    @pytest.mark.parametrize("lasting", [1, 4])
    def test_each(self, tmp_path: Path, name: str, lasting: int, tears: bool) -> None:
        """The n-th call of a kind fails, and the next ones too, for n = 1, 2, 3, ... until a run meets no failure.

        The fourth write always fails, so that the log always has bytes to cut.
        """
        for one in each_call(name, lasting):

            def fails(called: str, at: int, one: OneFails = one) -> OSError | None:
                if one(called, at) or (called, at) == ("write", 4):
                    return OSError(ERRORS[at % 2], "the test wants it")
                return None

            disk, folder = FailingDisk(fails), tmp_path / f"{one.number}"
            disk.tears = tears
            trial = Trial(disk, folder)
            trial.run()
            assert read(open_log(Disk(), folder)) == flat(trial.durable) == flat(numbers(0, 16, size=50))
            assert disk.descriptors == set()


class Machine:
    """A disk, and processes that own a partition one after the other, on a machine that may crash.

    durable: the records that were reported so. attempted: the further ones since the log was last read.
    """

    def __init__(self, folder: Path, seed: int, *, in_order: bool, garbles: bool) -> None:
        self.chance = Random(seed)
        self.disk = CrashingDisk(self.chance, in_order=in_order, garbles=garbles)
        self.durable: list[Record] = []
        self.attempted: list[Record] = []
        self._folder = folder
        self._next = 0
        folder.mkdir()
        self.start()

    def start(self) -> None:
        """Start a process."""
        self.log = open_log(self.disk, self._folder / "p", segment_size=9_000)

    def append(self) -> None:
        """Append a few batches of many sizes."""
        appends = []
        for _ in range(self.chance.randint(1, 4)):
            count = self.chance.randint(1, 3)
            appends.append([record(self._next + at, self.chance.choice([5, 300, 3_000])) for at in range(count)])
            self._next += count
        self.attempted = flat(appends)
        done = self.log.append(appends)
        self.durable += flat(appends[:done])
        self.attempted = flat(appends[done:])

    def read(self) -> None:
        """Read the log."""
        found = read(self.log)
        extra = found[len(self.durable) :]
        assert found[: len(self.durable)] == self.durable
        assert extra == self.attempted[: len(extra)]
        self.durable, self.attempted = found, []


class TestCrashes:
    """The log keeps its promises in random histories of failures and crashes; the seed is the test."""

    machine_class: type[Machine] = Machine

    def run(self, folder: Path, seed: int, *, in_order: bool = True, garbles: bool = False) -> int:
        """Return how many records were durable in the end; raise Damaged if the log refuses to load.

        No kill follows a failure that the process hasn't mended yet: partition.py says why.
        """
        machine = self.machine_class(folder, seed, in_order=in_order, garbles=garbles)
        chance = machine.chance
        failing = 0.0
        may_be_killed = False

        def fails(name: str, _number: int) -> BaseException | None:
            nonlocal may_be_killed
            if name not in FAILING or chance.random() >= failing:
                return None
            if may_be_killed and chance.random() < 0.5:
                return Killed()
            may_be_killed = False
            return OSError(chance.choice(ERRORS), "the test wants it")

        machine.disk.fails = fails
        for _ in range(60):
            failing = chance.choice([0.0, 0.0, 0.1, 0.4])
            healthy = not machine.log.closed_because
            step = chance.random()
            if healthy and step < 0.7:
                may_be_killed = True
                try:
                    machine.append()
                except Killed:
                    machine.disk.kill()
                    machine.start()
                may_be_killed = False
            elif step < 0.8 and (healthy or not garbles):
                machine.disk.crash()
                machine.start()
            elif step < 0.9 and healthy:
                machine.disk.kill()
                machine.start()
            else:
                try:
                    machine.read()
                except OSError as error:
                    machine.log.close(str(error))
        failing = 0.0
        if machine.log.closed_because:
            machine.read()
        machine.append()
        machine.disk.crash()
        machine.start()
        machine.read()
        return len(machine.durable)

    @pytest.mark.rounds
    @pytest.mark.parametrize("garbles", [False, True])
    def test_nothing_durable_is_lost(self, tmp_path: Path, garbles: bool) -> None:
        """After failures, kills and power cuts in any order, the log has all durable records and no refused ones."""
        durable = [self.run(tmp_path / f"{seed}", seed, garbles=garbles) for seed in range(HISTORIES)]
        assert max(durable) > 50

    def test_refused_is_cut_at_once(self, tmp_path: Path) -> None:
        """A failed append that the log could cut off doesn't come back, even if the power fails right after."""
        for seed in range(20):
            for name in ("write", "fdatasync"):
                machine = self.machine_class(tmp_path / f"{name}-{seed}", seed, in_order=True, garbles=False)
                machine.read()
                machine.append()
                machine.disk.fails = fail_one(name, machine.disk.calls[name] + 1)
                machine.append()
                assert machine.log.closed_because == os.strerror(errno.EIO)
                machine.attempted = []
                machine.disk.crash()
                machine.start()
                machine.read()

    @pytest.mark.rounds
    def test_pages_in_any_order(self, tmp_path: Path) -> None:
        """A disk that writes later pages first may leave a hole: the log may refuse to load, and loses nothing."""
        refused = []
        for seed in range(HISTORIES):
            try:
                self.run(tmp_path / f"{seed}", seed, in_order=False)
            except Damaged as damaged:
                refused.append(damaged.reason)
        # The hole is before a whole batch, or before all of one but the start of its header.
        assert all("a batch follows" in reason or "the batch is whole" in reason for reason in refused)
        assert len(refused) < HISTORIES
