"""Tests the new file of a compaction: it starts at the first difference, and without one there is no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.log.compaction.output import Output
from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import segment_at
from coordinator.log.segments.swap import cleaned_path
from protocol.records.batch import peek_header as header_of
from tests.log.compaction.closed import (
    put,
    write,
)


def output(folder: Path, free_min: int = 0) -> tuple[Output, bytes]:
    """Return the file for a segment of two batches, and their bytes."""
    write(folder, [[put(1)], [put(2)]])
    segment = segment_at(folder, 0)
    return Output(Disk(), folder, segment, free_min), segment.path.read_bytes()


def test_no_difference_no_file(folder: Path) -> None:
    """If all batches are copied in a row, there is no file; the output counts their size."""
    made, old = output(folder)
    made.copy(old, 0, len(old))
    assert not made.finish(segment_at(folder, 0))
    assert made.size == len(old)
    assert not list(folder.glob("*.cleaned"))


def test_it_begins_with_what_was_the_same(folder: Path) -> None:
    """The first difference makes the file, which begins with the bytes copied until then."""
    made, old = output(folder)
    half = header_of(old).size
    made.copy(old, 0, half)
    made.mark_changed()
    assert made.finish(segment_at(folder, 0))
    assert cleaned_path(folder, 0).read_bytes() == old[:half]


def test_free_space_stays_free(folder: Path) -> None:
    """A write that would leave less than free_min raises OSError; `remove` leaves no file behind."""
    made, old = output(folder, free_min=2**62)
    made.mark_changed()
    made.copy(old, 0, len(old))
    with pytest.raises(OSError, match="No space left"):
        made.finish(segment_at(folder, 0))
    made.remove()
    assert not list(folder.glob("*.cleaned"))
