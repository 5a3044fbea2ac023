"""The figures of a roll, from the server's log and responses; test_command.py plays the whole story."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from examples.demo.display import Figures
from examples.demo.roll import rebalancing_s

STILL = Figures(
    kind="static",
    restarts=5,
    rebalances=0,
    rebalancing_s=0.0,
    generation_before=1,
    generation_after=1,
    partitions=12,
    unchanged=12,
)


def event(name: str, second: float) -> dict[str, Any]:
    """A log line at this second of a minute."""
    return {"event": name, "ts": f"2025-06-01T12:00:{second:06.3f}Z"}


@pytest.mark.parametrize(
    ("changes", "still"),
    [({}, True), ({"rebalances": 1}, False), ({"unchanged": 11}, False), ({"generation_after": 2}, True)],
)
def test_nothing_moved_means_no_rebalance_and_every_assignment(changes: dict[str, Any], still: bool) -> None:
    """Nothing moved only if both figures say so; a higher generation alone is no move."""
    assert replace(STILL, **changes).moved_nothing is still


def test_time_of_rebalances_is_from_begin_to_end() -> None:
    """Each rebalance counts from its start to its end; an event in between, or a second end, doesn't count twice."""
    events = [
        event("rebalance_started", 1.0),
        event("member_joined", 1.2),
        event("generation_started", 1.4),
        event("rebalance_completed", 1.5),
        event("member_left", 9.0),
        event("rebalance_started", 10.0),
        event("rebalance_started", 10.5),
        event("rebalance_completed", 12.0),
        event("rebalance_ended", 13.0),
        event("rebalance_started", 20.0),
        event("rebalance_ended", 21.0),
    ]
    assert rebalancing_s(events) == pytest.approx(3.5)


def test_no_rebalance_takes_no_time() -> None:
    """No rebalance takes 0 seconds, and so does the end of a rebalance that began earlier."""
    assert rebalancing_s([event("rebalance_completed", 1.0), event("member_replaced", 2.0)]) == 0.0
