"""What a rebalance and a return of a static member are, and how their numbers are said."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from coordinator.story.counts import (
    REJOIN,
    RESTART,
    TAKEOVER,
    Rebalances,
    counts,
    number_text,
    return_type,
    returns_text,
)
from coordinator.story.entries import Timeline


def started(at_ms: int, generation: int) -> dict[str, Any]:
    """The beginning of a rebalance."""
    return {"type": "rebalance_started", "at_ms": at_ms, "generation": generation, "cause": {"member_ids": []}}


def ended(at_ms: int, before: int) -> dict[str, Any]:
    """The end of a rebalance that began a moment before."""
    event = {"type": "rebalance_ended", "at_ms": at_ms, "began_ms": at_ms - 1, "outcome": "completed"}
    return event | {"generation_before": before, "generation": before + 1, "causes": [{"member_ids": []}]}


@pytest.mark.parametrize(
    "events,number",
    [
        ([started(1, 0), ended(2, 0)], 1),
        ([ended(2, 0)], 1),
        ([started(1, 0), {"type": "group_loaded", "at_ms": 2, "generation": 0}, started(3, 0), ended(4, 0)], 2),
        ([started(1, 0), ended(2, 0), started(2, 1)], 2),
        ([started(1, 0), ended(5, 3)], 2),
    ],
    ids=["the first one", "its end alone", "interrupted", "not over", "an end of another"],
)
def test_a_rebalance_counts_from_its_beginning(events: list[dict[str, Any]], number: int) -> None:
    """A rebalance counts once, however it ends, and as often as its group's timeline has an entry of one."""
    counted = Rebalances()
    for event in events:
        counted.add(event)
    assert counted.count == number
    entries = Timeline("g").add_all({"version": 1, "group": "g", "node": 1} | event for event in events).entries
    assert counts(entries)["rebalance"] == number


def test_rebalances_since_a_time() -> None:
    """A rebalance that began earlier doesn't count, also if it ended later."""
    counted = Rebalances(since_ms=5)
    for event in (started(4, 0), ended(6, 0), started(5, 1), ended(9, 1)):
        counted.add(event)
    assert counted.count == 1


def test_a_return_is_a_restart_unless_nobody_heard_of_the_seat_since_the_load() -> None:
    """Older records don't say it: then it is a restart."""
    assert return_type({"after_load": True}) == REJOIN
    assert return_type({"after_load": False}) == return_type({}) == RESTART


def test_numbers_in_words() -> None:
    """One thing, several, and a lower bound."""
    assert number_text(1, "rebalance") == "1 rebalance"
    assert number_text(2_000, "rebalance", at_least=True) == "at least 2,000 rebalances"
    assert returns_text(Counter({RESTART: 4, REJOIN: 3, TAKEOVER: 1})) == (
        "4 static restarts, 3 rejoins after an outage, 1 takeover"
    )
    assert returns_text(Counter()) == ""
