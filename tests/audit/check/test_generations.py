"""Two records of a group differ in who and in what they want, and time never falls."""

from __future__ import annotations

import pytest

from coordinator.audit.check.generations import Clock
from tests.audit.histories import story_of
from tests.audit.scenes import PARTS, Member, Scene, member, static_members, subscription


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (static_members(a=1), static_members(a=1, b=1), "joined"),
        (static_members(a=1, b=1), static_members(a=1), "left or expired"),
        ([member("x", PARTS["a"])], [member("y", PARTS["a"])], "joined, left or expired"),
        ([member("x")], [member("x", topics=["orders", "refunds"])], "subscription changed"),
        (static_members(a=1), static_members(a=2), "static member restarted"),
        (static_members(a=1), static_members(a=1), "leader or member rejoined"),
    ],
)
def test_cause_is_the_difference(before: list[Member], after: list[Member], cause: str) -> None:
    """Two generations differ in who and in what they want."""
    assert story_of(Scene().group(before, 1).group(after, 2))[0].causes == {cause: 1}


def test_subscriptions_are_compared_by_topics() -> None:
    """What a member says beside them, its version too, is no change."""
    other = member("x")
    other.subscription = subscription(["orders"], 3)
    assert story_of(Scene().group([member("x")], 1).group([other], 2))[0].causes == {"leader or member rejoined": 1}


def test_time_never_falls() -> None:
    """A clock behind costs one step, a record without a time none, and a clock ahead its own step alone."""
    clock = Clock()
    times = [1_000, 1_500, -1, 400, 600, 90_000, 700, 800]
    assert [clock.tick(ts) for ts in times] == [0, 500, 500, 500, 700, 90_100, 90_100, 90_200]
