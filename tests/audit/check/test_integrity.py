"""Order and completeness of the batches of a partition, told row by row."""

from __future__ import annotations

import json

import pytest

from coordinator.audit.check.integrity import check_batches
from coordinator.audit.read.parse import Row


def batch(first: int, last: int, *, position: int, segment: int = 0, epoch: int = 1, crc_ok: bool = True) -> Row:
    """A row of `batches`, 100 bytes long."""
    return (0, segment, position, 100, first, last, 0, "none", -1, epoch, 0, 0, crc_ok, -1, last - first + 1)


WHOLE = [batch(0, 4, position=0), batch(5, 5, position=100), batch(6, 9, position=200)]


def checks(rows: list[Row], uncleaned_from: int | None = 0) -> list[str]:
    """The names of what is found."""
    return [finding.check for finding in check_batches(0, uncleaned_from, rows, is_replica=False)]


def test_batches_in_order_are_right() -> None:
    """Each goes on where the one before ends, over segments too."""
    assert checks([*WHOLE, batch(10, 10, position=0, segment=10)]) == []


@pytest.mark.parametrize(("uncleaned_from", "found"), [(0, ["offset_gap"]), (1, []), (None, [])])
def test_gap_counts_where_nothing_was_cleaned(uncleaned_from: int | None, found: list[str]) -> None:
    """A compaction leaves gaps in the segments that it was in."""
    assert checks([batch(0, 4, position=0), batch(6, 9, position=100)], uncleaned_from) == found


def test_segment_that_begins_behind_its_name_has_a_gap() -> None:
    """The first batch of a segment that was never cleaned is the one that it is named for."""
    assert checks([batch(3, 4, position=0)]) == ["offset_gap"]


def test_step_back_is_one_finding() -> None:
    """What comes behind a batch that was written twice is in order again."""
    assert checks([*WHOLE, batch(5, 5, position=300), batch(6, 9, position=400)]) == ["offset_order"]


def test_segment_inside_another_is_out_of_order() -> None:
    """A segment begins behind all that is in those before it."""
    assert checks([*WHOLE, batch(8, 8, position=0, segment=8)]) == ["offset_order"]


def test_damage_is_not_a_gap_too() -> None:
    """Behind a batch with a wrong CRC, or bytes that are none, nobody knows which offset should come."""
    assert checks([WHOLE[0], batch(5, 5, position=100, crc_ok=False), WHOLE[2]]) == []
    assert checks([WHOLE[0], WHOLE[2]]) == []


def test_epoch_that_falls_is_found_once() -> None:
    """The owner of an epoch may write on after that."""
    rows = [*WHOLE, batch(10, 10, position=300, epoch=0), batch(11, 11, position=400, epoch=0)]
    assert checks(rows) == ["epoch_order"]


def test_replica_of_a_cleaned_leader_has_gaps() -> None:
    """Whatever was fetched from a leader that had compacted: its traces are told from a batch that is lost."""
    lost = [*WHOLE, batch(20, 20, position=300)]
    shrunk = (*batch(10, 14, position=300)[:-1], 3)
    behind = batch(12, 12, position=0, segment=10)
    for rows in ([*WHOLE, shrunk, batch(20, 20, position=400)], [*lost, batch(23, 23, position=0, segment=21)]):
        assert check_batches(0, 0, rows, is_replica=True) == []
        assert {each.check for each in check_batches(0, 0, rows, is_replica=False)} == {"offset_gap"}
    assert check_batches(0, 0, [*WHOLE, behind], is_replica=True) == []
    (found,) = check_batches(0, 0, lost, is_replica=True)
    assert (found.check, json.loads(found.detail)["replica"]) == ("offset_gap", True)
