"""Rebalances and returns are counted from events as a timeline shows them."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.story.counts import REJOIN, RESTART
from coordinator.story.entries import Timeline, counts
from coordinator.story.events import RebalanceEvent
from coordinator.story.rebalances import Rebalances, return_type
from tests.support.told import cause, told


def started(at_ms: int, generation: int) -> Any:
    """The beginning of a rebalance."""
    return told("rebalance_started", at_ms=at_ms, generation=generation)


def ended(at_ms: int, before: int) -> Any:
    """The end of a rebalance that began a moment before."""
    return told(
        "rebalance_ended", at_ms=at_ms, began_ms=at_ms - 1, outcome="completed", generation_before=before,
        generation=before + 1, causes=[cause()],
    )  # fmt: skip


@pytest.mark.parametrize(
    "events,number",
    [
        ([started(1, 0), ended(2, 0)], 1),
        ([ended(2, 0)], 1),
        ([started(1, 0), told("group_loaded", at_ms=2, generation=0), started(3, 0), ended(4, 0)], 2),
        ([started(1, 0), ended(2, 0), started(2, 1)], 2),
        ([started(1, 0), ended(5, 3)], 2),
    ],
    ids=["the first one", "its end alone", "interrupted", "not over", "an end of another"],
)
def test_a_rebalance_counts_from_its_beginning(events: list[RebalanceEvent], number: int) -> None:
    """A rebalance counts once, however it ends, and as often as its group's timeline has an entry of one."""
    counted = Rebalances()
    for event in events:
        counted.add(event)
    assert counted.count == number
    entries = Timeline("g").add_all(events).entries
    assert counts(entries)["rebalance"] == number


def test_rebalances_since_a_time() -> None:
    """A rebalance that began earlier doesn't count, also if it ended later."""
    counted = Rebalances(since_ms=5)
    for event in (started(4, 0), ended(6, 0), started(5, 1), ended(9, 1)):
        counted.add(event)
    assert counted.count == 1


def test_a_return_is_a_restart_unless_nobody_heard_of_the_seat_since_the_load() -> None:
    """Older records don't say it: then it is a restart."""
    assert return_type(told("member_replaced", after_load=True)) == REJOIN
    assert return_type(told("member_replaced", after_load=False)) == return_type(told("member_replaced")) == RESTART
