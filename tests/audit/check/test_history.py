"""A group's history agrees with the script of its scenario, and no check reports a false alarm."""

from __future__ import annotations

from coordinator.audit.check.drawing import Step
from coordinator.audit.check.history import History
from coordinator.audit.check.limits import Limits
from coordinator.story.lanes import Lane, Mark
from tests.audit.histories import rows_of, story_of
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    PARTS,
    SECOND_MS,
    START_MS,
    Scene,
    clean,
    group_key,
    member,
    newer_key,
    newer_value,
    offset_key,
    static,
    static_members,
)


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
