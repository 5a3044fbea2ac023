"""Lag in time in words, for people who have no page."""

from __future__ import annotations

from coordinator.story.lag_time import GroupLag, LagTime, Rates
from coordinator.story.lag_words import lag_lines, lag_text


def test_a_group_that_falls_behind() -> None:
    """The line has records, age, rates, and that it does not catch up."""
    slow = LagTime(1_200, 1_200, 200_000, is_least=False, rates=Rates(20, 0.5), catch_up_s=None)
    text = (
        "1,200 records behind, the oldest came 3 minutes ago; 20.0 records come and 0.5 are read in a second; "
        "it does not catch up"
    )
    assert lag_text(slow) == text
    lines = list(lag_lines("g", GroupLag({}, {None: slow, "bills": slow, "idle": LagTime()}, {})))
    assert lines == [f"group g: {text}", f"  bills: {text}"]


def test_the_topic_partition_that_does_not_catch_up_is_named() -> None:
    """The sums may read faster than records come: the sentence has the numbers that it is about."""
    stands = LagTime(40, 40, 20_000, rates=Rates(2, 0), catch_up_s=None)
    reads = LagTime(6, 6, 2_000, rates=Rates(2, 5), catch_up_s=2.0)
    whole = LagTime(46, 46, 20_000, rates=Rates(4, 5), catch_up_s=None)
    known = GroupLag({("t", 0): stands, ("t", 1): reads}, {None: whole, "t": whole}, {})
    text = "; it does not catch up in t-0 (2.0 records come and 0.0 are read in a second)"
    assert [line.endswith(text) for line in lag_lines("g", known)] == [True, True]
    elsewhere = GroupLag({("t", 0): stands, ("u", 0): reads}, {None: whole, "u": whole}, {})
    assert list(lag_lines("g", elsewhere))[1].endswith("; it does not catch up")


def test_a_group_that_keeps_up() -> None:
    """Its lag is what it commits next."""
    assert lag_text(LagTime(6, 6, 3_000, rates=Rates(2, 2), catch_up_s=0.0)).endswith("in a second; it keeps up")


def test_a_group_that_catches_up() -> None:
    """The line says when it has read all."""
    text = lag_text(LagTime(100, 100, 5_000, is_least=True, rates=Rates(0, 10), catch_up_s=10.0))
    assert "the oldest came at least 5.0 s ago" in text
    assert text.endswith("; it has read all in 10.0 s")


def test_an_open_transaction_makes_two_lags() -> None:
    """Nobody knows which readers the group has."""
    assert (
        lag_text(LagTime(5, 0, 700))
        == "5 records behind (0 for readers of committed records), the oldest came 700 ms ago"
    )


def test_a_group_that_has_read_all() -> None:
    """Its rates are there if looks tell them; a group that no look shows is said to be one."""
    assert lag_text(LagTime()) == "it has read all"
    assert lag_text(LagTime(rates=Rates(3, 3))) == "it has read all; 3.0 records come and 3.0 are read in a second"
    assert list(lag_lines("g", GroupLag({}, {}, {}))) == ["group g: no look shows how far it is"]
