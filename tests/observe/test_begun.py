"""Begins of rebalances come from looks at live state, once each, and never from a look that is older than the log."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.observe import begun as begins
from coordinator.observe.begun import Begun
from coordinator.observe.live import Look
from coordinator.story.described import ConsumerState, CoordinatorNode, Group
from coordinator.story.entries import Timeline
from coordinator.story.events import GroupLoaded, RebalanceStarted
from tests.support.told import cause, shown, told

NODE = CoordinatorNode(1, "127.0.0.1", 9092)


def look(state: str, sent_s: float) -> Look:
    """A look at group `g` in this state."""
    return Look(sent_s, int(sent_s * 1_000), Group("g", state, "consumer", "", NODE, []))


def ended(generation: int, at_ms: int) -> Any:
    """The end of a rebalance, as the inference makes it."""
    return told(
        "rebalance_ended", at_ms=at_ms, generation=generation, generation_before=generation - 1, began_ms=at_ms,
        causes=[cause("member_joined", "m")], outcome="completed",
    )  # fmt: skip


def test_a_rebalance_begins_once_and_its_end_tells_the_cause() -> None:
    """A group that is seen preparing has one open entry; its end takes over."""
    begun = Begun()
    begun.add([ended(4, 1_000)], 1.0)
    assert begun.begins([look("Stable", 2.0)]) == []
    (began,) = begun.begins([look("PreparingRebalance", 3.0)])
    assert isinstance(began, RebalanceStarted)
    assert (began.at_ms, began.generation, began.state, began.cause.kind) == (3_000, 4, "Stable", "unknown")
    assert begun.begins([look("CompletingRebalance", 4.0)]) == []
    begun.add([ended(5, 4_500)], 5.0)
    timeline = Timeline("g").add_all([ended(4, 1_000), began, ended(5, 4_500)])
    assert [(entry["generation"], entry["cause"]["kind"]) for entry in shown(timeline)] == [
        (4, "member_joined"), (5, "member_joined"),
    ]  # fmt: skip
    (again,) = begun.begins([look("PreparingRebalance", 6.0)])
    assert isinstance(again, RebalanceStarted)
    assert again.generation == 5


def test_a_look_older_than_the_log_begins_nothing() -> None:
    """A look whose answer was on the way while the end was read is no begin of the next rebalance."""
    begun = Begun()
    begun.add([ended(4, 1_000)], 1.0)
    late = look("PreparingRebalance", 2.0)
    begun.add([ended(5, 2_100)], 2.2)
    assert not begun.is_current(late)
    assert begun.begins([late]) == []


def test_a_rebalance_without_an_end_was_lost_by_its_coordinator() -> None:
    """A group that is stable again, without a record, was read anew: the open entry is over."""
    begun = Begun()
    begun.add([ended(4, 1_000)], 1.0)
    (began,) = begun.begins([look("PreparingRebalance", 2.0)])
    (loaded,) = begun.begins([look("Stable", 3.0)])
    assert isinstance(loaded, GroupLoaded)
    assert loaded.generation == 4
    entries = shown(Timeline("g").add_all([ended(4, 1_000), began, loaded]))
    assert [(entry["type"], entry.get("outcome")) for entry in entries] == [
        ("rebalance", "completed"), ("rebalance", "interrupted"), ("loaded", None),
    ]  # fmt: skip


def test_a_look_at_a_group_of_the_consumer_protocol_begins_nothing() -> None:
    """The log has the begin of its rebalances, with the cause: one more would never end."""
    begun = Begun()
    for epoch in (2, 3):
        group = Group("g", "Reconciling", "consumer", "", NODE, [], consumer=ConsumerState(epoch, epoch))
        assert begun.begins([Look(epoch, epoch, group)]) == []


def test_a_deleted_group_is_forgotten() -> None:
    """A group of the same name begins anew."""
    begun = Begun()
    begun.add([ended(4, 1_000), told("group_deleted", generation=4, at_ms=2_000)], 1.0)
    (began,) = begun.begins([look("PreparingRebalance", 2.0)])
    assert isinstance(began, RebalanceStarted)
    assert (began.generation, began.state) == (0, "Empty")


def test_states_of_groups_that_come_and_go_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group that was seen longest ago goes first."""
    monkeypatch.setattr(begins, "STATES_MAX", 2)
    seen = Begun()
    for number, name in enumerate(("a", "b", "a", "c")):
        seen.begins([Look(number, number, Group(name, "Empty", "consumer", "", NODE, []))])
    assert list(seen._states) == ["a", "c"]
