"""Tests how transactions in closed segments ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.log.compaction.outcomes import OFFSET_END, Outcomes
from coordinator.log.compaction.reading import closed_segments
from coordinator.log.engine import Damaged
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import read_frames
from protocol.records.batch import Batch, Record
from tests.log.compaction.closed import marker_of, put, sent, write


def test_by_producer_and_place(tmp_path: Path) -> None:
    """A producer has transactions with different outcomes; each of its batches belongs to the next marker."""
    aborted, committed = marker_of(7, commit=False), marker_of(7, commit=True)
    first = [sent(7, put(1)), sent(8, put(1)), sent(7, put(2)), aborted, [put(3)], sent(7, put(1)), committed]
    end = write(tmp_path, first, [sent(7, put(1)), aborted, marker_of(8, commit=True), sent(7, put(2)), committed])
    sources = closed_segments(Disk(), tmp_path, end)
    outcomes = Outcomes(Disk(), sources)
    found = []
    for segment, _ in sources:
        descriptor = Disk().open(segment.path)
        frames = read_frames(Disk(), descriptor, segment.path.stat().st_size)
        found += [frame.header.base_offset for frame in frames if outcomes.is_aborted(frame.header)]
        Disk().close(descriptor)
    assert found == [0, 2, 7]
    assert outcomes.stable_offset == OFFSET_END


def test_open(tmp_path: Path) -> None:
    """What has no marker here is open, from its first batch on."""
    end = write(tmp_path, [[put(1)], sent(7, put(1))], [sent(8, put(1)), sent(7, put(2))], [marker_of(7, commit=True)])
    assert Outcomes(Disk(), closed_segments(Disk(), tmp_path, end)).stable_offset == 2
    assert Outcomes(Disk(), closed_segments(Disk(), tmp_path, end - 1)).stable_offset == 1


def test_no_marker(tmp_path: Path) -> None:
    """A control batch with too short a key is damage."""
    end = write(tmp_path, [Batch([Record(b"", b"", 1)], 7, 0, 0x30)])
    with pytest.raises(Damaged, match="a marker's key of 0 bytes"):
        Outcomes(Disk(), closed_segments(Disk(), tmp_path, end))
