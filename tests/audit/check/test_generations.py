"""The comparison of two records names what changed between them, and its time never falls."""

from __future__ import annotations

import pytest

from coordinator.audit.check.generations import Clock, words_of
from coordinator.group.causes import CauseKind
from coordinator.story.inference.classic import ENDED, RETURNED
from coordinator.story.inference.told import unknown
from tests.audit.histories import story_of
from tests.audit.scenes import (
    HOUR_MS,
    PARTS,
    Member,
    Scene,
    clean,
    member,
    static_members,
    subscription,
    two_consumers,
)
from tests.story.inference.observing import events_of


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ([member("x", {"orders": [0, 1, 2]})], [member("x", PARTS["a"]), member("y", PARTS["b"])], "joined"),
        (static_members(a=1, b=1), static_members(a=1), "removed"),
        ([member("x", PARTS["a"])], [member("y", PARTS["a"])], "joined, left"),
        ([member("x")], [member("x", topics=["orders", "refunds"])], "subscription changed"),
        (static_members(a=1), static_members(a=1), "leader rejoined"),
    ],
)
def test_cause_is_the_difference(before: list[Member], after: list[Member], cause: str) -> None:
    """The cause of a rebalance is the difference between two records' members and subscriptions."""
    assert story_of(Scene().group(before, 1).group(after, 2))[0].causes == {cause: 1}


def test_a_cause_that_the_log_does_not_tell_names_all_that_fit() -> None:
    """A static member that is back in a new generation."""
    words = " or ".join(CauseKind(kind).words.short for kind in RETURNED)
    assert story_of(Scene().group(static_members(a=1), 1).group(static_members(a=2), 2))[0].causes == {words: 1}
    assert words_of([unknown(())]) == "unknown"
    assert words_of([unknown(ENDED)]) == "left or removed or expired or no sync in time"


def test_subscriptions_are_compared_by_topics() -> None:
    """Only a change of topics is a changed subscription; another version or other user data isn't."""
    other = member("x")
    other.subscription = subscription(["orders"], 3)
    assert story_of(Scene().group([member("x")], 1).group([other], 2))[0].causes == {"leader rejoined": 1}


def test_same_log_same_causes() -> None:
    """The audit and an observer share one inference: each step's words are those of the observer's causes."""
    scene = clean().group(static_members(a=3), 2).tick(HOUR_MS).group([], 3).group([member("x", PARTS["a"])], 4)
    for second in range(4):
        scene.commit(second)
    scene.tick(20_000).group([member("y", PARTS["a"])], 5).tick(20_000).group([member("z", PARTS["a"])], 7)
    steps = [step for step in story_of(scene)[0].steps if step.kind in {"generation", "empty"}]
    seen = [each for each in events_of(scene) if each.type == "rebalance_ended" and each.outcome != "superseded"]
    assert [step.generation for step in steps] == [event.generation for event in seen]
    for step, event in zip(steps, seen, strict=True):
        assert step.cause in {"first seen", words_of(event.causes)}
    assert len({step.cause for step in steps}) > 4
    play = two_consumers()
    play.beat("m", -1).beat("n", 4, {"t": [0, 1, 2, 3]})
    words = [step.cause for step in story_of(play.scene)[0].steps if step.kind == "generation"]
    inferred = [each for each in events_of(play.scene) if each.type in {"rebalance_started", "rebalance_cause"}]
    assert words == [words_of([each.cause]) for each in inferred]
    assert words[-1] == "left or expired"  # nobody knows the session timeout


def test_time_never_falls() -> None:
    """A clock that is behind shortens one step; a record without a time, or with a time ahead, changes no other."""
    clock = Clock()
    times = [1_000, 1_500, -1, 400, 600, 90_000, 700, 800]
    assert [clock.tick(ts) for ts in times] == [0, 500, 500, 500, 700, 90_100, 90_100, 90_200]


HELD = [member("x", PARTS["a"]), member("y", PARTS["b"])]


def test_a_standby_that_takes_a_seat_is_no_finding() -> None:
    """One member is another one with the assignment of the one that is gone; the step names both."""
    story, findings = story_of(Scene().group(HELD, 4).group([HELD[0], member("z", PARTS["b"])], 4))
    assert "membership_changed" not in {finding.check for finding in findings}
    assert story.steps[-1].cause == "standby z took the seat of y"


@pytest.mark.parametrize(
    "after",
    [
        [HELD[0], member("z", PARTS["a"])],
        [HELD[0], HELD[1], member("z", PARTS["b"])],
        [HELD[0]],
        [member("v", PARTS["a"]), member("z", PARTS["b"])],
        [member("x", PARTS["c"]), member("z", PARTS["b"])],
    ],
)
def test_any_other_change_of_members_is_impossible(after: list[Member]) -> None:
    """Another assignment, one member more or fewer, two others at once, or a change of a member that stays."""
    findings = story_of(Scene().group(HELD, 4).group(after, 4))[1]
    assert "membership_changed" in {finding.check for finding in findings}


def test_a_standby_may_lead_only_in_place_of_the_leader() -> None:
    """The lead stays where it was, or goes with its seat."""
    z = member("z", PARTS["a"])
    heir = story_of(Scene().group(HELD, 4, leader="x").group([HELD[1], z], 4, leader="z"))[1]
    usurper = story_of(Scene().group(HELD, 4, leader="x").group([HELD[0], member("z", PARTS["b"])], 4, leader="z"))[1]
    assert "membership_changed" not in {finding.check for finding in heir}
    assert "membership_changed" in {finding.check for finding in usurper}
