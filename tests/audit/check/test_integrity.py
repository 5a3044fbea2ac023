"""The audit checks order and completeness of a partition's batches, row by row."""

from __future__ import annotations

import json

import pytest

from coordinator.audit.check.checks import Finding
from coordinator.audit.check.integrity import Integrity
from coordinator.audit.read.parse import Row


def batch(first: int, last: int, *, position: int, segment: int = 0, epoch: int = 1, crc_ok: bool = True) -> Row:
    """A row of `batches`, 100 bytes long."""
    return (0, segment, position, 100, first, last, 0, "none", -1, epoch, 0, 0, crc_ok, -1, last - first + 1)


WHOLE = [batch(0, 4, position=0), batch(5, 5, position=100), batch(6, 9, position=200)]


def check_batches(partition: int, uncleaned_from: int | None, rows: list[Row], *, is_replica: bool) -> list[Finding]:
    """Return all findings about a partition's batches."""
    integrity = Integrity(partition, uncleaned_from, is_replica=is_replica)
    for row in rows:
        integrity.add(row)
    return integrity.finish()


def checks(rows: list[Row], uncleaned_from: int | None = 0) -> list[str]:
    """Return the names of the findings' checks."""
    return [finding.check for finding in check_batches(0, uncleaned_from, rows, is_replica=False)]


def test_batches_in_order_are_right() -> None:
    """Batches that follow each other are correct, within a segment and from one to the next."""
    assert checks([*WHOLE, batch(10, 10, position=0, segment=10)]) == []


@pytest.mark.parametrize(("uncleaned_from", "found"), [(0, ["offset_gap"]), (1, []), (None, [])])
def test_gap_counts_where_nothing_was_cleaned(uncleaned_from: int | None, found: list[str]) -> None:
    """A gap is a finding only behind the offset that a compaction has reached."""
    assert checks([batch(0, 4, position=0), batch(6, 9, position=100)], uncleaned_from) == found


@pytest.mark.parametrize(
    ("uncleaned_from", "expected"), [(0, [10]), (3, [10]), (10, [10]), (14, [14]), (15, []), (20, []), (None, [])]
)
def test_segment_that_is_missing_between_two_is_a_gap(uncleaned_from: int | None, expected: list[int]) -> None:
    """A missing segment is a finding only if it begins behind the offset that the cleaner has reached."""
    found = check_batches(0, uncleaned_from, [*WHOLE, batch(15, 15, position=0, segment=15)], is_replica=False)
    reported = [(each.check, each.offset, json.loads(each.detail)["expected"]) for each in found]
    assert reported == [("offset_gap", None, offset) for offset in expected]


def test_lost_segments_are_reported_one_by_one() -> None:
    """The audit reports each lost segment, also right behind another gap."""
    rows = [batch(0, 4, position=0), batch(6, 9, position=100), batch(15, 15, position=0, segment=15)]
    rows.append(batch(20, 20, position=0, segment=20))
    found = check_batches(0, 0, rows, is_replica=False)
    assert [(each.check, each.offset, json.loads(each.detail)["expected"]) for each in found] == [
        ("offset_gap", 6, 5), ("offset_gap", None, 10), ("offset_gap", None, 16),
    ]  # fmt: skip


def test_what_damage_hides_is_no_lost_segment() -> None:
    """Behind a batch with a wrong CRC the next segment's start is unknown, and the audit reports no gap."""
    rows = [*WHOLE, batch(10, 12, position=300, crc_ok=False), batch(13, 13, position=0, segment=13)]
    assert checks(rows) == []


def test_segment_that_begins_behind_its_name_has_a_gap() -> None:
    """If no cleaner has been in a segment, its first batch has the offset in its name."""
    assert checks([batch(3, 4, position=0)]) == ["offset_gap"]


def test_step_back_is_one_finding() -> None:
    """After a batch that is in the log twice, the next batches are in order again."""
    assert checks([*WHOLE, batch(5, 5, position=300), batch(6, 9, position=400)]) == ["offset_order"]


def test_batch_whose_own_offset_is_wrong_is_named() -> None:
    """If only one batch has a wrong offset, the audit names that batch, and reports no gap and no other batch."""
    rows = [batch(0, 4, position=0), batch(261, 261, position=100), batch(6, 9, position=200)]
    (found,) = check_batches(0, 0, rows, is_replica=False)
    assert (found.check, found.offset) == ("offset_order", 261)
    assert json.loads(found.detail) == {"expected": 5, "position": 100, "segment": 0}


def test_gap_at_the_end_waits_for_what_follows() -> None:
    """A gap at the end of a log is reported once, after the audit knows that no batch follows."""
    integrity = Integrity(0, 0, is_replica=False)
    for row in [batch(0, 4, position=0), batch(6, 9, position=100)]:
        integrity.add(row)
    assert integrity.faults == []
    assert [each.check for each in integrity.finish()] == ["offset_gap"]
    integrity.add(batch(10, 10, position=200))
    assert [each.check for each in integrity.finish()] == ["offset_gap"]


def test_segment_named_for_an_offset_of_the_one_before_is_out_of_order() -> None:
    """A segment named for an offset in the segment before it is one finding about the segment, and no gap."""
    (found,) = check_batches(0, 0, [*WHOLE, batch(10, 10, position=0, segment=8)], is_replica=False)
    assert (found.check, found.offset, json.loads(found.detail)["expected"]) == ("offset_order", None, 10)


def test_segments_that_were_joined_meanwhile_are_in_order() -> None:
    """In a growing log, the next batch may come from a segment with a lower name, because a compaction joined them."""
    rows = [batch(50, 59, position=0, segment=50), batch(60, 60, position=300, segment=0)]
    assert checks(rows, uncleaned_from=60) == []
    assert checks([rows[0], batch(60, 60, position=0, segment=0)], uncleaned_from=60) == []


def test_offset_that_a_segment_can_not_hold_is_out_of_order() -> None:
    """An offset must fit into Kafka's index, which stores it relative to the segment's name."""
    assert checks([*WHOLE, batch(2**31, 2**31, position=300), batch(10, 10, position=400)]) == ["offset_order"]


def test_segment_inside_another_is_out_of_order() -> None:
    """A segment must begin behind the last offset of the segments before it."""
    assert checks([*WHOLE, batch(8, 8, position=0, segment=8)]) == ["offset_order"]


def test_damage_is_not_a_gap_too() -> None:
    """Behind damaged bytes the next offset is unknown, and the audit reports no gap."""
    assert checks([WHOLE[0], batch(5, 5, position=100, crc_ok=False), WHOLE[2]]) == []
    assert checks([WHOLE[0], WHOLE[2]]) == []


def test_epoch_that_falls_is_found_once() -> None:
    """One fall of the leader epoch is one finding, although the owner of the lower epoch writes on."""
    rows = [*WHOLE, batch(10, 10, position=300, epoch=0), batch(11, 11, position=400, epoch=0)]
    assert checks(rows) == ["epoch_order"]


def test_replica_of_a_cleaned_leader_has_gaps() -> None:
    """A replica's gap is no finding if it shows traces of the leader's compaction; a gap without them is one."""
    lost = [*WHOLE, batch(20, 20, position=300)]
    shrunk = (*batch(10, 14, position=300)[:-1], 3)
    behind = batch(12, 12, position=0, segment=10)
    for rows in ([*WHOLE, shrunk, batch(20, 20, position=400)], [*lost, batch(23, 23, position=0, segment=21)]):
        assert check_batches(0, 0, rows, is_replica=True) == []
        assert {each.check for each in check_batches(0, 0, rows, is_replica=False)} == {"offset_gap"}
    assert check_batches(0, 0, [*WHOLE, behind], is_replica=True) == []
    (found,) = check_batches(0, 0, lost, is_replica=True)
    assert (found.check, json.loads(found.detail)["replica"]) == ("offset_gap", True)
