"""Tests the upkeep of a partition: what is compacted and when, and when a new file takes its place."""

from __future__ import annotations

import errno
import os
from itertools import count
from pathlib import Path

import pytest

from coordinator.log.compaction.task import Compaction
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import list_segments
from tests.log.disks import FailingDisk, fail_one
from tests.log.embedded.compacting import (
    NOW_MS,
    Partition,
    numbered,
    state,
)


class TestPolicy:
    """The policy decides which segments a compaction covers, and when."""

    def test_ratio(self, tmp_path: Path) -> None:
        """After a compaction the next is due when more than the ratio of the closed bytes is dirty, not before."""
        partition = Partition(tmp_path / "p", min_cleanable_ratio=0.5)
        partition.append(0, 200, keys=100)
        first = partition.clean()
        assert first is not None
        assert partition.upkeep.dirty_ratio == 1.0
        clean_size = first.size_after
        assert partition.clean() is None
        assert partition.upkeep.dirty_ratio == 0.0
        number = 200
        while (compaction := partition.clean()) is None:
            closed = sum(segment.path.stat().st_size for segment in list_segments(Disk(), partition.folder)[:-1])
            assert closed - clean_size <= clean_size
            partition.append(number, number + 1, keys=100)
            number += 1
        assert compaction.size_before - clean_size > clean_size
        assert state(partition.read()) == state([numbered(at, 100) for at in range(number)])

    def test_quiet_and_dirty_is_rolled(self, tmp_path: Path) -> None:
        """The upkeep closes an active segment that holds most of a log once no append came between two looks."""
        partition = Partition(tmp_path / "p")
        partition.append(0, 1, size=70_000)
        assert partition.clean() is None
        compaction = partition.clean()
        assert compaction is not None
        assert compaction.clean_offset == 1
        assert partition.log.size == 0
        assert partition.clean() is None
        partition.append(1, 2, size=65_536 - 200)
        assert [partition.clean() for _ in range(3)] == [None] * 3
        assert partition.read() == [numbered(0, size=70_000), numbered(1, size=65_536 - 200)]

    def test_busy_or_small_is_not_rolled(self, tmp_path: Path) -> None:
        """The upkeep leaves a segment open that grows between looks, and a small one as well."""
        partition = Partition(tmp_path / "p")
        for number in range(5):
            partition.append(number, number + 1)
            assert partition.clean() is None
        assert partition.clean() is None
        assert len(list_segments(Disk(), partition.folder)) == 1

    def test_old_is_rolled(self, tmp_path: Path) -> None:
        """The upkeep closes a segment whose first record is as old as log.roll.ms, however small it is."""
        partition = Partition(tmp_path / "p", roll_ms=1_000)
        partition.append(0, 8)
        assert partition.clean(NOW_MS + 999) is None
        compaction = partition.clean(NOW_MS + 1_000)
        assert compaction is not None
        assert compaction.clean_offset == 8
        assert partition.read() == [numbered(at) for at in range(1, 8)]
        assert partition.log.size == 0
        assert partition.clean(NOW_MS + 9_000) is None

    def test_damaged_is_left_alone(self, tmp_path: Path) -> None:
        """The upkeep leaves a segment whose first bytes are no batch, and goes on; the next load reports it."""
        partition = Partition(tmp_path / "p", roll_ms=0)
        partition.append(0, 1)
        (segment,) = list_segments(Disk(), partition.folder)
        segment.path.write_bytes(bytes(segment.path.stat().st_size))
        assert partition.clean() is None
        assert partition.log.size > 0

    def test_too_young(self, tmp_path: Path) -> None:
        """With a lag, younger records wait, and meanwhile the upkeep doesn't look at them all the time."""
        partition = Partition(tmp_path / "p", min_compaction_lag_ms=1_000)
        partition.append(0, 100)
        assert partition.clean(NOW_MS + 999) == Compaction(0, [], 0, 0)
        assert partition.clean(NOW_MS + 1_000) is None
        compaction = partition.clean(NOW_MS + 1_249)
        assert compaction is not None
        assert compaction.files

    def test_an_open_transaction_is_in_the_way(self, tmp_path: Path) -> None:
        """A compaction that an open transaction stopped where it began isn't repeated all the time."""
        partition = Partition(tmp_path / "p", backoff_ms=1)
        partition.append(0, 100)
        work = partition.due()
        partition.upkeep.finish(work, Compaction(0, [], 0, 0))
        assert partition.upkeep.look(NOW_MS + 39, is_new_round=True) is None
        assert partition.upkeep.look(NOW_MS + 40, is_new_round=True) is not None

    def test_failed_is_left_alone(self, tmp_path: Path) -> None:
        """After a failure the upkeep removes the new files, and compacts again later."""
        partition = Partition(tmp_path / "p", backoff_ms=1)
        partition.append(0, 100)
        work = partition.due()
        assert partition.write(work)
        partition.upkeep.finish(work, None)
        assert all(path.suffix == ".log" for path in partition.folder.iterdir())
        assert partition.clean(NOW_MS + 39) is None
        assert partition.clean(NOW_MS + 40) is not None

    def test_removed_from_a_closed_log_too(self, tmp_path: Path) -> None:
        """The upkeep also removes the new files of a log that closed meanwhile: the next load may be long."""
        partition = Partition(tmp_path / "p")
        partition.append(0, 100)
        work = partition.due()
        assert partition.write(work)
        partition.log.close("it is being loaded")
        partition.upkeep.finish(work, None)
        assert all(path.suffix == ".log" for path in partition.folder.iterdir())

    @pytest.mark.parametrize("lag_ms", [0, 1_000])
    def test_left_out_is_done_later(self, tmp_path: Path, lag_ms: int) -> None:
        """If a compaction leaves a part out, the rest counts, and a later compaction starts there, with a lag too."""
        partition = Partition(tmp_path / "p", backoff_ms=1, min_compaction_lag_ms=lag_ms)
        partition.append(0, 100)
        work = partition.due()
        partition.upkeep.finish(work, Compaction(30, [], 100, 100, "No space left on device"))
        assert partition.upkeep.look(NOW_MS + 39, is_new_round=False) is None
        work = partition.due(NOW_MS + 40, is_new_round=False)
        assert work.task.dirty_offset == 30


class TestConsent:
    """A swap happens only in the log that was compacted."""

    def test_read_anew_or_closed(self, tmp_path: Path) -> None:
        """If the partition closed or loaded again meanwhile, the upkeep uses nothing of the compaction."""
        partition = Partition(tmp_path / "p")
        partition.append(0, 100)
        for round_, then in enumerate((lambda: partition.log.close("it was given up"), partition.read)):
            partition.read()
            work = partition.due(NOW_MS * (1 + round_))
            files = partition.write(work)
            then()
            assert partition.swap(work, files[0]) == "the partition was closed meanwhile"
            partition.upkeep.finish(work, None)
            assert state(partition.read()) == state([numbered(at) for at in range(100)])

    def test_between_two_steps(self, tmp_path: Path) -> None:
        """A log takes appends between any two steps; a load finishes all steps, so none follows it."""
        for stop_at in count(1):
            partition = Partition(tmp_path / f"{stop_at}")
            partition.append(0, 100)
            work = partition.due()
            (cleaned, *_) = partition.write(work)
            steps = partition.upkeep.begin_swap(cleaned)
            end, taken, more, reason = 100, 0, True, ""
            while more and taken < stop_at:
                more, reason = partition.upkeep.swap(work, steps)
                taken += 1
                partition.append(end, end + 30)
                end += 30
            expected = state([numbered(at) for at in range(end)])
            assert state(partition.read()) == expected
            if not more:
                assert reason == ""
                assert taken > 4
                break
            assert partition.upkeep.swap(work, steps) == (False, "the partition was closed meanwhile")
            assert not list(partition.folder.glob("*.swap"))
            assert state(partition.read()) == expected

    @pytest.mark.parametrize("finished_by", ["load", "retry", "second retry"])
    @pytest.mark.parametrize("name", ["rename", "remove", "sync_folder"])
    @pytest.mark.parametrize("number", [1, 2])
    def test_failed_swap(self, tmp_path: Path, disk: FailingDisk, name: str, number: int, finished_by: str) -> None:
        """The next load finishes a swap that the disk broke off; without a load, the next attempt does.

        Until then no other swap begins, and appends go on.
        """
        partition = Partition(tmp_path / "p", disk, backoff_ms=1)
        partition.append(0, 100)
        work = partition.due()
        (cleaned, *_) = partition.write(work)
        disk.fails = fail_one(name, disk.calls[name] + number, errno.EIO)
        assert partition.swap(work, cleaned) == os.strerror(errno.EIO)
        partition.upkeep.finish(work, None)
        assert partition.upkeep.look(NOW_MS + 39, is_new_round=True) is None
        partition.append(100, 110)
        if finished_by == "second retry":
            disk.fails = fail_one("list_folder", disk.calls["list_folder"] + 1, errno.EIO)
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                partition.upkeep.look(NOW_MS + 40, is_new_round=True)
            assert partition.upkeep.look(NOW_MS + 79, is_new_round=True) is None
        if finished_by == "load":
            assert state(partition.read()) == state([numbered(at) for at in range(110)])
        assert partition.upkeep.look(NOW_MS + 80, is_new_round=True) is not None
        assert all(path.suffix == ".log" for path in partition.folder.iterdir())
        assert state(partition.read()) == state([numbered(at) for at in range(110)])
