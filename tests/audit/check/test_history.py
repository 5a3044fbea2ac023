"""A group's history agrees with the script of its scenario, and no check reports a false alarm."""

from __future__ import annotations

import pytest

from coordinator.audit.check import history
from coordinator.audit.check.consumer_groups import words_of
from coordinator.audit.check.history import Clock, History, Step
from coordinator.audit.check.limits import Limits
from coordinator.group.causes import CauseKind
from coordinator.story.inference.classic import ENDED, RETURNED
from coordinator.story.inference.told import unknown
from coordinator.story.lanes import Lane, Mark
from tests.audit.histories import rows_of, story_of
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    PARTS,
    SECOND_MS,
    START_MS,
    Member,
    Scene,
    clean,
    group_key,
    member,
    newer_key,
    newer_value,
    offset_key,
    static,
    static_members,
    subscription,
    two_consumers,
)
from tests.story.inference.observing import events_of


def test_history_is_the_script() -> None:
    """The history has each generation, restart, commit and end of the clean scene."""
    story, findings = story_of(clean())
    assert findings == []
    assert (story.generation, story.member_count, story.deleted) == (1, 2, False)
    assert (story.rebalances, story.rebalances_unseen, story.rebalances_per_hour) == (4, 0, 3)
    assert story.causes == {"joined": 1, "removed": 1}
    assert (story.static_restarts, story.returns, story.at_least) == ({}, {"a": 1, "b": 1}, True)
    assert story.committed == {}
    later_ms = START_MS + HOUR_MS + 4 * SECOND_MS
    assert list(story.steps) == [
        Step(START_MS, "generation", 1, 2, "first seen"),
        Step(START_MS + 3 * SECOND_MS, "return", 1, 2, "return"),
        Step(later_ms, "return", 1, 2, "return"),
        Step(later_ms + 2 * SECOND_MS, "generation", 2, 3, "joined"),
        Step(later_ms + 3 * SECOND_MS, "empty", 3, 0, "removed"),
        Step(later_ms + 4 * SECOND_MS, "deleted", None, 0, "deleted"),
        Step(later_ms + 5 * SECOND_MS, "generation", 1, 2, "first seen"),
    ]
    spans: list[tuple[int | None, int | None]] = [
        (START_MS, later_ms + 3 * SECOND_MS),
        (later_ms + 5 * SECOND_MS, None),
    ]
    assert story.lanes == {
        "a": Lane(spans, [Mark("return", START_MS + 3 * SECOND_MS, START_MS + 3 * SECOND_MS)]),
        "b": Lane(spans, [Mark("return", later_ms, later_ms)]),
        "c": Lane([(later_ms + 2 * SECOND_MS, later_ms + 3 * SECOND_MS)], []),
    }
    assert (story.first_ms, story.last_ms) == (START_MS, later_ms + 5 * SECOND_MS)


def test_jump_of_the_generation_counts_what_was_not_seen() -> None:
    """The history counts generations that the log doesn't show: aborted rebalances, and compacted records."""
    story, findings = story_of(Scene().group(static_members(a=1), 3).group(static_members(a=1, b=1), 7))
    assert (story.rebalances, story.rebalances_unseen, findings) == (5, 3, [])


def test_first_record_counts_its_own_rebalance() -> None:
    """The log doesn't cover the time before the first record, but a rebalance led to it; to generation 0 none did."""
    story = story_of(Scene().group(static_members(a=1), 57))[0]
    assert (story.rebalances, story.at_least) == (1, True)
    assert story_of(Scene().group([], 0).group(static_members(a=1), 1))[0].rebalances == 1


def test_member_that_was_gone_is_no_return() -> None:
    """A static member that left or expired has no seat: if it comes back, it joins anew."""
    scene = Scene().group(static_members(a=1, b=1), 1).group(static_members(a=1), 2)
    assert story_of(scene.group(static_members(a=1, b=2), 3))[0].return_count == 0


def test_deleted_group_has_no_state() -> None:
    """The history of a deleted group keeps what happened before the deletion, and no state."""
    story, findings = story_of(Scene().group(static_members(a=1), 1).delete())
    assert (story.deleted, story.generation, story.member_count, findings) == (True, None, 0, [])


def test_group_of_offsets_alone_has_no_generation() -> None:
    """A simple group, which only commits, has no group record and so no generation."""
    story, findings = story_of(Scene().commit(5).commit(7, partition=1))
    assert story.committed == {"orders-0": 5, "orders-1": 7}
    assert (story.generation, story.deleted, findings) == (None, False, [])


def test_group_that_went_to_another_protocol_lives() -> None:
    """A group that went to another protocol isn't deleted, and neither is a simple group that commits later."""
    scene = Scene().group(static_members(a=1), 4).commit(5)
    scene.append((group_key(GROUP), None), (newer_key(GROUP), newer_value()))
    story, findings = story_of(scene)
    assert (story.deleted, story.group_type, story.generation, story.member_count) == (False, "consumer", 1, 0)
    assert (story.committed, findings) == ({"orders-0": 5}, [])
    assert story.lanes["a"].spans[-1][1] is not None
    story, findings = story_of(scene.append((newer_key(GROUP), None)))
    assert (story.deleted, [finding.check for finding in findings]) == (True, ["orphan_offsets"])
    story, _ = story_of(scene.append((offset_key(GROUP), None)).commit(6))
    assert (story.deleted, story.group_type) == (False, "classic")


def test_record_without_a_time_covers_none() -> None:
    """A record with the timestamp -1 doesn't extend the time that the history covers."""
    scene = Scene().group(static_members(a=1), 1)
    row = rows_of(Scene().commit(5))[0]
    again = rows_of(scene.group(static_members(a=2), 1))[1]
    history = History(0, GROUP, Limits())
    for each in [*rows_of(scene)[:1], (*row[:2], -1, *row[3:]), (*again[:2], -1, *again[3:])]:
        history.add(each)
    story, _ = history.finish(START_MS)
    assert (story.first_ms, story.last_ms) == (START_MS, START_MS)
    assert [step.ts for step in story.steps] == [START_MS] * 2


def test_limits_are_the_brokers() -> None:
    """With the broker's higher limits, a long session timeout and many rebalances are no findings."""
    scene = Scene()
    for generation in range(1, 15):
        scene.group([static("a", 1, PARTS["a"], session_timeout=2_000_000)], generation)
    limits = Limits(session_ms_max=3_000_000, rebalances_per_hour_max=14)
    assert story_of(scene, limits)[1] == []


def test_clients_that_can_not_be_fenced_are_named() -> None:
    """The history names aiokafka's clients by their default client id, and only static members among them."""
    scene = Scene().group([member("x", PARTS["a"], client_id="aiokafka-0.14.0")], 1)
    assert story_of(scene)[0].old_clients == {}
    scene.group([member("x", PARTS["a"], client_id="aiokafka-0.14.0", instance_id="a")], 2)
    assert list(story_of(scene)[0].old_clients) == ["aiokafka-0.14.0"]


def test_seats_are_drawn_in_the_order_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the seats exceed the limit, the drawing keeps the first ones in the order of the group's record."""
    monkeypatch.setattr(history, "LANES_MAX", 3)
    names = ["m-9", "m-10", "m-11", "m-1"]
    members = [static(name, 1, {"orders": [at]}) for at, name in enumerate(names)]
    assert list(story_of(Scene().group(members, 1))[0].lanes) == names[:3]


def test_what_is_drawn_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawing of a group stays within its limits, however many members the group had."""
    monkeypatch.setattr(history, "LANES_MAX", 2)
    monkeypatch.setattr(history, "MARKS_MAX", 3)
    scene = Scene().group(static_members(a=1, b=1, c=1), 1)
    for life in range(2, 9):
        scene.tick(HOUR_MS).group(static_members(a=life, b=1, c=1), 1)
    story = story_of(scene)[0]
    assert (list(story.lanes), len(story.lanes["a"].marks), story.seats_left_out) == (["a", "b"], 3, True)
    assert story.returns == {"a": 7}


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
