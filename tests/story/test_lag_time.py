"""Lag in time is what a stopwatch would show, as far as looks and timestamps of records tell."""

from __future__ import annotations

import pytest

from coordinator.story.described import Member
from coordinator.story.lag_time import (
    AGE_MAX_MS,
    NARROW,
    PAST_MAX,
    PAST_MS,
    POINTS_MAX,
    RATE_MS,
    SAMPLES_MAX,
    LagTime,
    LagTimes,
    Rates,
)
from coordinator.story.offsets import OffsetLine
from coordinator.story.progress import FORGOTTEN_MS, Progress
from tests.story.test_diagnosis import NOW_MS
from tests.story.test_progress_diagnosis import PAIR
from tests.support.placed import placed

MEMBER: Member = PAIR.members[0]
ORDERS = ("orders", 0)


def lag_times(*looks: tuple[int, int, int | None]) -> LagTimes:
    """Looks at orders-0: seconds, committed offset, and the end of its log; None where it can't be seen."""
    times, progress = LagTimes(), Progress()
    for at_s, offset, end in looks:
        line = OffsetLine("orders", 0, offset, end, MEMBER)
        times.take("g", progress.look(PAIR, placed([line]), {"orders": 1}, NOW_MS + at_s * 1000))
    return times


def lag(*looks: tuple[int, int, int | None]) -> LagTime:
    """The lag after these looks."""
    return lag_times(*looks).of("g").partitions[ORDERS]


def answer(times: LagTimes, ages_s: dict[int, int], end: int, now_s: int = 0) -> int:
    """Answer questions for a log whose records have these ages, in seconds by offset; returns how many there were."""
    count = 0
    while asked := times.questions(["g"]):
        count += 1
        since_ms = asked[ORDERS]
        young = [offset for offset in range(end) if NOW_MS + now_s * 1000 - ages_s[offset] * 1000 >= since_ms]
        times.learn(asked, {ORDERS: min(young, default=-1)})
    return count


def test_the_record_at_the_offset_came_between_two_looks() -> None:
    """A group that stands at 100 while 10 records come each second is as far behind as the record 100 is old."""
    found = lag((0, 100, 100), (10, 100, 200), (20, 100, 300), (30, 100, 400))
    assert found == LagTime(300, 300, 30_000, is_least=False, rates=Rates(10, 0), catch_up_s=None)
    assert lag((0, 100, 100), (10, 100, 200), (20, 150, 300)).behind_ms == 15_000


def test_a_group_that_reads_faster_catches_up() -> None:
    """The time until then is the lag by the difference of the two rates."""
    found = lag((0, 0, 0), (10, 0, 1000), (20, 500, 1000), (30, 900, 1000))
    assert found.rates is not None
    assert (found.lag, round(found.rates.in_s, 1), found.rates.out_s) == (100, 33.3, 30)
    assert lag((0, 0, 1000), (10, 500, 1100)).catch_up_s == 15


def test_a_group_that_reads_records_as_they_come_keeps_up() -> None:
    """Its lag is what its client commits next, whichever of the two rates a look sees a little higher."""
    for commits in ((20, 40), (24, 42), (20, 44)):
        found = lag((0, 0, 6), (10, commits[0], 26), (20, commits[1], 46))
        assert (found.catch_up_s, found.keeps_up) == (0, True)
    assert lag((0, 10, 11), (60, 11, 12)).keeps_up, "a record a minute"
    for slow in (lag((0, 0, 6), (10, 9, 26)), lag((0, 0, 60), (10, 20, 80)), lag((0, 20, 20), (4, 20, 24))):
        assert (slow.catch_up_s, slow.keeps_up) == (None, False)


def test_rates_are_those_of_the_last_minutes() -> None:
    """A group that stood still for an hour and reads again catches up, though it read little in that hour."""
    stood = [(second, 0, 10 * second) for second in range(0, 3600, 10)]
    reads = [(3600 + second, 40 * second, 36_000 + 10 * second) for second in range(0, RATE_MS // 1000 + 60, 10)]
    found = lag(*stood, *reads)
    assert found.rates is not None
    assert found.rates.out_s == pytest.approx(40, rel=0.2)
    assert found.catch_up_s is not None


def test_records_from_before_the_first_look() -> None:
    """Without an answer about their timestamps, nobody knows when they came: at least as long ago as that look."""
    assert lag((0, 5, 100), (10, 6, 100)) == LagTime(94, 94, 10_000, is_least=True, rates=Rates(0, 0.1), catch_up_s=940)
    assert lag((0, 5, 100)).behind_ms == 0


@pytest.mark.parametrize("age_s", [2, 90, 4_000, 90_000, 2_000_000])
def test_timestamps_tell_how_old_records_are_that_were_there(age_s: int) -> None:
    """A few answers tell the age to a tenth, and then there is no further question."""
    ages_s = dict.fromkeys(range(5), 2 * age_s) | dict.fromkeys(range(5, 100), age_s)
    times = lag_times((0, 5, 100))
    assert 0 < answer(times, ages_s, 100) <= POINTS_MAX
    found = times.of("g").partitions[ORDERS]
    assert not found.is_least
    assert found.behind_ms / 1000 == pytest.approx(age_s, rel=NARROW - 1, abs=1)


def test_timestamps_that_lie_say_less_than_looks() -> None:
    """Records from the future came at the first look, and those without a time as long ago as can be asked."""
    times = lag_times((0, 5, 100), (30, 5, 100))
    answer(times, dict.fromkeys(range(100), -1_000_000), 100, 30)
    assert 30_000 <= times.of("g").partitions[ORDERS].behind_ms <= 30_000 * NARROW
    times = lag_times((0, 5, 100))
    assert answer(times, dict.fromkeys(range(100), 100 * AGE_MAX_MS), 100) <= POINTS_MAX
    found = times.of("g").partitions[ORDERS]
    assert found.is_least
    assert found.behind_ms >= AGE_MAX_MS / NARROW**2


def test_what_has_nothing_to_read_has_no_lag() -> None:
    """It is left out, and so is one whose end can't be seen; what comes later counts from the look before."""
    assert not lag_times((0, 100, 100)).of("g").partitions
    assert not lag_times((0, 5, None)).of("g").partitions
    assert lag((0, 5, 100), (10, 100, 100), (20, 100, 110)).behind_ms == 10_000


def test_a_partition_that_appears_behind_is_as_old_as_nobody_knows() -> None:
    """The look before, which didn't show it, says nothing of when its records came."""
    times, progress = LagTimes(), Progress()
    bills = OffsetLine("bills", 0, 5, 5, MEMBER)
    for at_s, lines in ((0, [bills]), (10, [bills, OffsetLine("orders", 0, 5, 100, MEMBER)])):
        times.take("g", progress.look(PAIR, placed(lines), {}, NOW_MS + at_s * 1000))
    found = times.of("g").partitions[ORDERS]
    assert (found.lag, found.behind_ms, found.is_least) == (95, 0, True)


def test_an_offset_that_goes_back_begins_anew() -> None:
    """An admin moved it: the history of what was committed says nothing of its rate."""
    assert lag((0, 90, 100), (10, 50, 100)) == LagTime(50, 50, 0, is_least=True, rates=None, catch_up_s=None)
    read_all = lag((0, 100, 100), (10, 20, 100))
    assert (read_all.behind_ms, read_all.is_least, read_all.rates) == (0, True, None)


def test_topics_and_the_group_are_sums_of_their_partitions() -> None:
    """Lag and rates add up; the oldest record and the slowest topic partition count for all of them."""
    times, progress = LagTimes(), Progress()
    for at_s in (0, 10, 20):
        lines = [
            OffsetLine("orders", 0, at_s, 10 * at_s, MEMBER),
            OffsetLine("orders", 1, 5 + at_s, 5 + at_s, MEMBER),
            OffsetLine("bills", 0, 0 if at_s < 20 else 30, 40 if at_s else 0, MEMBER),
        ]
        times.take("g", progress.look(PAIR, placed(lines), {}, NOW_MS + at_s * 1000))
    found = times.of("g")
    assert found.sums["orders"] == LagTime(180, 180, 18_889, is_least=False, rates=Rates(11, 2), catch_up_s=None)
    assert (found.sums["bills"].lag, found.sums["bills"].rates) == (10, Rates(2, 1.5))
    assert found.sums[None] == LagTime(190, 190, 18_889, is_least=False, rates=Rates(13, 3.5), catch_up_s=None)
    assert [each.lag for each in found.past[None].moments] == [0, 130, 190]


def test_memory_has_a_bound() -> None:
    """A day of looks fits into a few, the age stays right, and the past for graphs is an hour."""
    found = lag_times((0, 0, 0), *((second, 0, 10 * second) for second in range(2, 20_000, 2)))
    assert len(found._samples["g"][ORDERS]) <= SAMPLES_MAX + 1
    assert found.of("g").partitions[ORDERS].behind_ms == 19_998_000
    past = found.of("g").past["orders"].moments
    assert PAST_MAX / 2 <= len(past) <= PAST_MAX
    assert PAST_MS * 0.9 <= past[-1].at_ms - past[0].at_ms <= PAST_MS
    assert found.groups == ["g"]
    found.forget({"other"})
    assert found.groups == []
    assert (found._pasts, found._past_count, found._points) == ({}, 0, {})


def test_a_group_that_nobody_looks_at_is_forgotten() -> None:
    """Memory has a bound, also where nobody names the groups that exist."""
    times, progress = lag_times((0, 5, 100)), Progress()
    line = OffsetLine("orders", 0, 5, 100, MEMBER)
    times.take("other", progress.look(PAIR, placed([line]), {}, NOW_MS + FORGOTTEN_MS + 1))
    assert times.groups == ["other"]
