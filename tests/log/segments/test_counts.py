"""A log counts its costs where they arise, on every thread, and as the disk has them."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from coordinator.log.segments.counts import Counts, Histogram
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.partition import PartitionLog
from tests.log.calls import record
from tests.log.disks import FailingDisk, fail_one


def opened(disk: Disk, folder: Path, counts: Counts) -> PartitionLog:
    """Return a log that takes appends."""
    log = PartitionLog(disk, folder, 0, 10_000, lambda *_: None, counts)
    assert list(log.read()) == []
    return log


def test_bytes_and_writes_are_those_on_the_disk(tmp_path: Path) -> None:
    """Two appends that share a write count as one write; a flush takes at most the time of its append."""
    counts = Counts()
    log = opened(Disk(), tmp_path / "p", counts)
    assert log.append([[record(1)], [record(2)]]) == 2
    assert log.append([[record(3)]]) == 1
    log.close("the test is over")
    (segment,) = (tmp_path / "p").glob("*.log")
    assert counts.bytes == segment.stat().st_size
    assert sum(counts.appends.counts) == sum(counts.flushes.counts) == 2
    assert 0 < counts.flushes.total < counts.appends.total
    assert counts.failures == 0


def test_a_failed_append_is_a_failure_and_no_append(tmp_path: Path) -> None:
    """A failed append counts as a failure; none of its bytes count as appended."""
    counts = Counts()
    disk = FailingDisk(fail_one("fdatasync", 1))
    log = opened(disk, tmp_path / "p", counts)
    assert log.append([[record(1)]]) == 0
    assert (counts.failures, counts.bytes, sum(counts.appends.counts)) == (1, 0, 0)


def test_threads_that_append_at_once_are_all_counted() -> None:
    """The counts have every append of threads that append at once."""
    counts = Counts()

    def append() -> None:
        for _ in range(2_000):
            counts.appended(3, 0.25, 0.125)

    threads = [Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts.bytes == 24_000
    assert sum(counts.appends.counts) == sum(counts.flushes.counts) == 8_000
    assert (counts.appends.total, counts.flushes.total) == (2_000, 1_000)


def test_a_value_falls_into_one_bucket() -> None:
    """A value at a bucket's upper end belongs to it; a value above all ends has a bucket of its own."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 8.0
