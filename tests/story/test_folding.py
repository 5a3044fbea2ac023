"""Restarts that repeat each other become one fold, and no entry is lost."""

from __future__ import annotations

from coordinator.story.entries import Entry
from coordinator.story.folding import FOLDED_MIN, PAUSE_MS, folded, newest, whole
from tests.support.told import entries_of, told


def restarts(instance: str, *times_ms: int) -> list[Entry]:
    """Entries of one seat that restarts at these times."""
    return entries_of(*(told("member_replaced", at_ms=at_ms, group_instance_id=instance) for at_ms in times_ms))


def rebalance(at_ms: int) -> Entry:
    """An entry of another type."""
    return Entry(told("rebalance_started", at_ms=at_ms))


def test_restarts_of_one_seat_in_a_row_are_one() -> None:
    """The fold stands where the first one stands. Fewer than FOLDED_MIN restarts, and other entries, are not folded."""
    many, few = restarts("i", 1, 3, 5, 7), restarts("j", 2, 4, 6)
    assert len(many) == FOLDED_MIN
    run = sorted(many + few, key=lambda entry: entry.at_ms)
    before, after = rebalance(0), rebalance(8)
    folds = [[before], many, *([each] for each in few), [after]]
    assert folded([before, *run, after]) == folds
    assert folded([before, after, before]) == [[before], [after], [before]]
    assert folded([]) == []


def test_what_comes_between_and_a_pause_end_a_row() -> None:
    """A seat that restarts once a day makes no fold."""
    first, second = restarts("i", 1, 2, 3), restarts("i", 5, 6, 7)
    assert len(folded([*first, *second])) == 1
    assert len(folded([*first, rebalance(4), *second])) == 7
    near = restarts("i", *(PAUSE_MS * number for number in range(FOLDED_MIN)))
    apart = restarts("i", *((PAUSE_MS + 1) * number for number in range(FOLDED_MIN)))
    assert (len(folded(near)), len(folded(apart))) == (1, FOLDED_MIN)


def test_the_newest_are_counted_as_they_are_told() -> None:
    """A fold counts as one; its entries stay in order."""
    many, few = restarts("i", 1, 3, 5, 7), restarts("j", 2, 4, 6)
    run = sorted(many + few, key=lambda entry: entry.at_ms)
    entries = [rebalance(0), *run, rebalance(8)]
    assert newest(entries, 1) == entries[-1:]
    assert newest(entries, 4) == [*few, entries[-1]]
    assert newest(entries, 5) == [*run, entries[-1]]
    assert newest(entries, 9) == newest(entries, None) == entries


def test_what_stays_whatever_was_before() -> None:
    """A restart near unknown events may belong to an earlier fold, and so may the restarts that follow it."""
    run, other = restarts("i", 100, 200), rebalance(300)
    assert whole([*run, other], 99) == [[other]]
    assert whole([*run, other], 100) == [[other]]
    assert whole([*run, other], 300) == []
    assert whole([other, *run], 99) == [[other], *([each] for each in run)]
    late = restarts("i", PAUSE_MS + 100, PAUSE_MS + 101)
    assert whole(late, 100) == []
    assert whole(late, 99) == [[each] for each in late]
