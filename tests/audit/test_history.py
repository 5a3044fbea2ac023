"""The history of a group is what the scenario's script says, and no check cries wolf."""

from __future__ import annotations

import json

import pytest

from coordinator.audit import history
from coordinator.audit.checks import Finding
from coordinator.audit.history import Lane, Limits, Step, Story, tell
from coordinator.audit.parse import Row, parse_record
from protocol.record_batch import Record, decode_batches
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    PARTS,
    SECOND_MS,
    START_MS,
    Member,
    Scene,
    clean,
    group_value,
    member,
    static,
    static_members,
    subscription,
)


def rows_of(scene: Scene) -> list[Row]:
    """The rows of `records` of a scene."""
    return [
        row
        for batch in decode_batches(b"".join(scene.batches))
        for offset, record in zip(batch.offsets, batch.records, strict=True)
        for row in parse_record(0, offset, record)["records"]
    ]


def told(scene: Scene, limits: Limits | None = None) -> tuple[Story, list[Finding]]:
    """What is told of the scene's group."""
    return tell(0, GROUP, limits or Limits(), rows_of(scene))


def checks(scene: Scene) -> list[str]:
    """The names of what is found."""
    return [finding.check for finding in told(scene)[1]]


def test_history_is_the_script() -> None:
    """Every generation, restart, commit and end of the clean scene is told as it was written."""
    story, findings = told(clean())
    assert findings == []
    assert (story.generation, story.member_count, story.deleted) == (1, 2, False)
    assert (story.rebalances, story.rebalances_unseen, story.rebalances_per_hour) == (2, 0, 2)
    assert story.causes == {"joined": 1, "left or expired": 1}
    assert story.static_restarts == {"a": 1, "b": 1}
    assert story.committed == {}
    later_ms = START_MS + HOUR_MS + 4 * SECOND_MS
    assert list(story.steps) == [
        Step(START_MS, "generation", 1, 2, "first seen"),
        Step(START_MS + 3 * SECOND_MS, "restart", 1, 2, "restarted"),
        Step(later_ms, "restart", 1, 2, "restarted"),
        Step(later_ms + 2 * SECOND_MS, "generation", 2, 3, "joined"),
        Step(later_ms + 3 * SECOND_MS, "empty", 3, 0, "left or expired"),
        Step(later_ms + 4 * SECOND_MS, "deleted", None, 0, "deleted"),
        Step(later_ms + 5 * SECOND_MS, "generation", 1, 2, "first seen"),
    ]
    assert story.lanes == {
        "a": Lane([(START_MS, later_ms + 3 * SECOND_MS), (later_ms + 5 * SECOND_MS, None)], [START_MS + 3 * SECOND_MS]),
        "b": Lane([(START_MS, later_ms + 3 * SECOND_MS), (later_ms + 5 * SECOND_MS, None)], [later_ms]),
        "c": Lane([(later_ms + 2 * SECOND_MS, later_ms + 3 * SECOND_MS)], []),
    }
    assert (story.first_ms, story.last_ms) == (START_MS, later_ms + 5 * SECOND_MS)


def test_jump_of_the_generation_counts_what_was_not_seen() -> None:
    """Rebalances that were never completed, or whose records are compacted away, leave their numbers."""
    story, findings = told(Scene().group(static_members(a=1), 3).group(static_members(a=1, b=1), 7))
    assert (story.rebalances, story.rebalances_unseen, findings) == (4, 3, [])


def test_first_record_counts_nothing() -> None:
    """What led to it lies before what the log covers."""
    assert told(Scene().group(static_members(a=1), 57))[0].rebalances == 0


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
    assert told(Scene().group(before, 1).group(after, 2))[0].causes == {cause: 1}


def test_deleted_group_has_no_state() -> None:
    """It is told of, with what it was until then."""
    story, findings = told(Scene().group(static_members(a=1), 1).delete())
    assert (story.deleted, story.generation, story.member_count, findings) == (True, None, 0, [])


def test_group_of_offsets_alone_has_no_generation() -> None:
    """A simple group commits and has no record of its own."""
    story, findings = told(Scene().commit(5).commit(7, partition=1))
    assert story.committed == {"orders-0": 5, "orders-1": 7}
    assert (story.generation, story.deleted, findings) == (None, False, [])


def test_storms_are_told_one_by_one() -> None:
    """A quiet hour ends a storm; the next one is another finding."""
    scene = Scene()
    generation = 1
    for _ in range(2):
        for _ in range(12):
            scene.tick(60_000).group([member(f"m-{generation}", PARTS["a"])], generation)
            generation += 1
        scene.tick(2 * HOUR_MS)
    found = told(scene)[1]
    assert [finding.check for finding in found] == ["rebalance_storm"] * 2
    assert json.loads(found[0].detail)["causes"] == {"joined, left or expired": 11}
    assert [json.loads(finding.detail)["rebalances"] for finding in found] == [11, 12]


def test_quiet_day_is_no_storm() -> None:
    """As many rebalances over a day are none."""
    scene = Scene()
    for generation in range(1, 25):
        scene.tick(HOUR_MS).group([member(f"m-{generation}", PARTS["a"])], generation)
    story, findings = told(scene)
    assert (findings, story.rebalances_per_hour) == ([], 1)


@pytest.mark.parametrize(
    ("minutes", "within_the_hour"), [(1, 37), (59, 37), (61, 19), (119, 19), (30 * 24 * 60, 1)], ids=str
)
def test_rebalances_that_nobody_saw_count_where_they_must_have_been(minutes: int, within_the_hour: int) -> None:
    """Compaction leaves a group's last record: its generation may have grown for a month."""
    scene = Scene().group([member("m-3", PARTS["a"])], 3)
    scene.tick(minutes * 60_000).group([member("m-40", PARTS["a"])], 40)
    story, findings = told(scene)
    assert (story.rebalances, story.rebalances_per_hour) == (37, within_the_hour)
    assert [finding.check for finding in findings] == ["rebalance_storm"] * (within_the_hour > 10)


def test_roll_is_no_fight() -> None:
    """Each member replaced once in quick succession is a deployment; and twice in a minute still no fight."""
    scene = Scene().group(static_members(a=1, b=1, c=1), 1)
    for lives in ({"a": 2}, {"b": 2}, {"c": 2}, {"a": 3}):
        scene.group(static_members(**{"a": 2, "b": 1, "c": 1, **lives}), 1)
    assert checks(scene) == []


def test_fight_is_told_once() -> None:
    """While an instance id goes back and forth it is one finding."""
    scene = Scene().group(static_members(a=1), 1)
    for life in range(2, 12):
        scene.group(static_members(a=life), 1)
    assert checks(scene) == ["instance_contested"]


def test_scaling_is_no_deployment() -> None:
    """Members that go without others in their place, and members that come, are meant."""
    scene = Scene().group(static_members(a=1), 1).group(static_members(a=1, b=1, c=1), 3)
    assert checks(scene.tick(HOUR_MS).group(static_members(a=1), 5)) == []


def test_member_that_was_away_for_long_needed_no_seat() -> None:
    """No session timeout could have bridged it."""
    scene = Scene().group(static_members(a=1, b=1), 1).group(static_members(a=1), 2)
    assert checks(scene.tick(HOUR_MS).group(static_members(a=1, b=2), 3)) == []


def test_assignments_of_other_groups_are_theirs() -> None:
    """Only consumers agree on what the bytes mean."""
    members = [member("w1", PARTS["a"]), member("w2", PARTS["a"])]
    members[0].subscription = b"anything"
    assert checks(Scene().group(members, 1, protocol_type="connect")) == []


def test_group_in_which_nothing_is_assigned_is_right() -> None:
    """A topic may not exist yet, or the leader may not have assigned it yet."""
    assert checks(Scene().group([member("x"), member("y")], 1)) == []


def test_same_fault_in_each_record_is_told_once() -> None:
    """A member with too long a session is one finding, whatever it is written for."""
    scene = Scene()
    for generation in range(1, 5):
        scene.group([static("a", 1, PARTS["a"], session_timeout=2_000_000)], generation)
    assert checks(scene) == ["session_above_cap"]


def test_limits_are_the_brokers() -> None:
    """With a higher cap, and a higher limit for storms, they are none."""
    scene = Scene()
    for generation in range(1, 15):
        scene.group([static("a", 1, PARTS["a"], session_timeout=2_000_000)], generation)
    limits = Limits(session_ms_max=3_000_000, rebalances_per_hour_max=13)
    assert told(scene, limits)[1] == []


def test_old_offsets_of_a_topic_nobody_wants_are_orphans() -> None:
    """They are kept for a week; and those of a topic that somebody subscribes to for as long as the group lives."""
    scene = Scene().commit(5, topic="refunds").commit(5)
    scene.group(static_members(a=1), 1).tick(history.OFFSETS_RETENTION_MS - HOUR_MS).group(static_members(a=2), 1)
    assert checks(scene) == []
    scene.tick(2 * HOUR_MS).group(static_members(a=3), 1)
    found = told(scene)[1]
    assert [json.loads(finding.detail)["topic_partitions"] for finding in found] == [["refunds-0"]]


def test_clients_that_can_not_be_fenced_are_named() -> None:
    """aiokafka's default client id tells it, and only a static member needs the instance id."""
    scene = Scene().group([member("x", PARTS["a"], client_id="aiokafka-0.14.0")], 1)
    assert told(scene)[0].old_clients == {}
    scene.group([member("x", PARTS["a"], client_id="aiokafka-0.14.0", instance_id="a")], 2)
    assert list(told(scene)[0].old_clients) == ["aiokafka-0.14.0"]


def test_what_is_drawn_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many members a group has seen."""
    monkeypatch.setattr(history, "LANES_MAX", 2)
    monkeypatch.setattr(history, "MARKS_MAX", 3)
    scene = Scene().group(static_members(a=1, b=1, c=1), 1)
    for life in range(2, 9):
        scene.tick(HOUR_MS).group(static_members(a=life, b=1, c=1), 1)
    story = told(scene)[0]
    assert (list(story.lanes), len(story.lanes["a"].restarts), story.seats_left_out) == (["a", "b"], 3, True)
    assert story.static_restarts == {"a": 7}


def test_member_id_twice_is_undecodable() -> None:
    """No coordinator can load such a group."""
    assert checks(Scene().group([member("x", PARTS["a"]), member("x", PARTS["b"])], 1)) == ["undecodable"]


def test_value_of_a_member_without_a_protocol_is_undecodable() -> None:
    """As group.records says of it."""
    value = group_value([member("x", PARTS["a"])], 1).replace(b"\0\5range", b"\xff\xff", 1)
    row = parse_record(0, 0, Record(rows_of(Scene().group([], 1))[0][5], value, START_MS))["records"]
    assert [finding.check for finding in tell(0, GROUP, Limits(), row)[1]] == ["undecodable"]


def test_subscriptions_are_compared_by_topics() -> None:
    """What a member says beside them, its version too, is no change."""
    other = member("x")
    other.subscription = subscription(["orders"], 3)
    assert told(Scene().group([member("x")], 1).group([other], 2))[0].causes == {"leader or member rejoined": 1}
