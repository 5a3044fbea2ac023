"""A story keeps a limited number of facts to draw, and they match the log."""

from __future__ import annotations

import pytest

from coordinator.audit.check import drawing
from tests.audit.histories import story_of
from tests.audit.scenes import HOUR_MS, Scene, static, static_members


def test_seats_are_drawn_in_the_order_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the seats exceed the limit, the drawing keeps the first ones in the order of the group's record."""
    monkeypatch.setattr(drawing, "LANES_MAX", 3)
    names = ["m-9", "m-10", "m-11", "m-1"]
    members = [static(name, 1, {"orders": [at]}) for at, name in enumerate(names)]
    assert list(story_of(Scene().group(members, 1))[0].lanes) == names[:3]


def test_what_is_drawn_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawing of a group stays within its limits, however many members the group had."""
    monkeypatch.setattr(drawing, "LANES_MAX", 2)
    monkeypatch.setattr(drawing, "MARKS_MAX", 3)
    scene = Scene().group(static_members(a=1, b=1, c=1), 1)
    for life in range(2, 9):
        scene.tick(HOUR_MS).group(static_members(a=life, b=1, c=1), 1)
    story = story_of(scene)[0]
    assert (list(story.lanes), len(story.lanes["a"].marks), story.seats_left_out) == (["a", "b"], 3, True)
    assert story.returns == {"a": 7}
