"""Lag in time is what a stopwatch would show, as far as looks saw the records come."""

from __future__ import annotations

from coordinator.story.described import Member, OffsetLine
from coordinator.story.lag_time import SAMPLES_MAX, LagTime, LagTimes
from coordinator.story.progress import Progress
from tests.story.test_diagnosis import NOW_MS
from tests.story.test_progress_diagnosis import PAIR

MEMBER: Member = PAIR.members[0]


def lag_times(*looks: tuple[int, int, int | None]) -> LagTimes:
    """Looks at orders-0: seconds, committed offset, and the end of its log; None where it can't be seen."""
    times, progress = LagTimes(), Progress()
    for at_s, offset, end in looks:
        line = OffsetLine("orders", 0, offset, end, MEMBER)
        times.take("g", progress.look(PAIR, [line], {"orders": 1}, NOW_MS + at_s * 1000))
    return times


def lag(*looks: tuple[int, int, int | None]) -> LagTime:
    """The lag after these looks."""
    return lag_times(*looks).of("g")["orders", 0]


def test_the_record_at_the_offset_came_between_two_looks() -> None:
    """A group that stands at 100 while 10 records come each second is as far behind as the record 100 is old."""
    found = lag((0, 100, 100), (10, 100, 200), (20, 100, 300), (30, 100, 400))
    assert found == LagTime(300, 30_000, is_least=False, in_s=10, out_s=0)
    assert found.catch_up_s is None
    assert lag((0, 100, 100), (10, 100, 200), (20, 150, 300)).behind_ms == 15_000


def test_a_group_that_reads_faster_catches_up() -> None:
    """The time until then is the lag by the difference of the two rates."""
    found = lag((0, 0, 0), (10, 0, 1000), (20, 500, 1000), (30, 900, 1000))
    assert (found.lag, round(found.in_s, 1), found.out_s) == (100, 33.3, 30)
    assert lag((0, 0, 1000), (10, 500, 1100)).catch_up_s == 15


def test_records_from_before_the_first_look() -> None:
    """Nobody knows when they came: it is at least as long ago as that look."""
    assert lag((0, 5, 100), (10, 6, 100)) == LagTime(94, 10_000, is_least=True, in_s=0, out_s=0.1)
    assert lag((0, 5, 100)).behind_ms == 0


def test_what_has_nothing_to_read_has_no_lag() -> None:
    """It is left out, and so is one whose end can't be seen; what comes later counts from the look before."""
    assert not lag_times((0, 100, 100)).of("g")
    assert not lag_times((0, 5, None)).of("g")
    assert lag((0, 5, 100), (10, 100, 100), (20, 100, 110)).behind_ms == 10_000


def test_an_offset_that_goes_back_begins_anew() -> None:
    """An admin moved it: the history of what was committed says nothing of its rate."""
    assert lag((0, 90, 100), (10, 50, 100)) == LagTime(50, 0, is_least=True, in_s=0, out_s=0, is_rate_known=False)
    read_all = lag((0, 100, 100), (10, 20, 100))
    assert (read_all.behind_ms, read_all.is_least, read_all.is_rate_known) == (0, True, False)


def test_memory_has_a_bound() -> None:
    """A day of looks fits into a few, and the age stays right."""
    found = lag_times((0, 0, 0), *((second, 0, 10 * second) for second in range(1, 2_000)))
    assert len(found._samples["g"]["orders", 0]) <= SAMPLES_MAX + 1
    assert found.of("g")["orders", 0].behind_ms == 1_999_000
    assert found.groups == ["g"]
    found.forget({"other"})
    assert found.groups == []
