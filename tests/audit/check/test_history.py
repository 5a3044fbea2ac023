"""The history of a group is what the scenario's script says, and no check cries wolf."""

from __future__ import annotations

from coordinator.audit.check.checks import CHECKS
from coordinator.audit.check.drawing import Step
from coordinator.audit.check.history import CHECK_OF_RULE, History
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.parse import parse_record
from coordinator.group.invariants import RecordRule
from coordinator.timeline.lanes import Lane, Mark
from protocol.records.batch import Record
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    PARTS,
    SECOND_MS,
    START_MS,
    Scene,
    clean,
    group_key,
    group_value,
    member,
    newer_key,
    newer_value,
    offset_key,
    static,
    static_members,
)
from tests.audit.telling import checks, rows_of, tell, told


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
    spans: list[tuple[int | None, int | None]] = [
        (START_MS, later_ms + 3 * SECOND_MS),
        (later_ms + 5 * SECOND_MS, None),
    ]
    assert story.lanes == {
        "a": Lane(spans, [Mark("restart", START_MS + 3 * SECOND_MS, START_MS + 3 * SECOND_MS)]),
        "b": Lane(spans, [Mark("restart", later_ms, later_ms)]),
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


def test_deleted_group_has_no_state() -> None:
    """It is told of, with what it was until then."""
    story, findings = told(Scene().group(static_members(a=1), 1).delete())
    assert (story.deleted, story.generation, story.member_count, findings) == (True, None, 0, [])


def test_group_of_offsets_alone_has_no_generation() -> None:
    """A simple group commits and has no record of its own."""
    story, findings = told(Scene().commit(5).commit(7, partition=1))
    assert story.committed == {"orders-0": 5, "orders-1": 7}
    assert (story.generation, story.deleted, findings) == (None, False, [])


def test_group_that_went_to_another_protocol_lives() -> None:
    """What members it has isn't in its records; a simple group that commits after a deletion isn't deleted either."""
    scene = Scene().group(static_members(a=1), 4).commit(5)
    scene.append((group_key(GROUP), None), (newer_key(GROUP), newer_value()))
    story, findings = told(scene)
    assert (story.deleted, story.group_type, story.generation, story.member_count) == (False, "consumer", None, 0)
    assert (story.committed, findings) == ({"orders-0": 5}, [])
    assert story.lanes["a"].spans[-1][1] is not None
    story, findings = told(scene.append((newer_key(GROUP), None)))
    assert (story.deleted, [finding.check for finding in findings]) == (True, ["orphan_offsets"])
    story, _ = told(scene.append((offset_key(GROUP), None)).commit(6))
    assert (story.deleted, story.group_type) == (False, "classic")


def test_topic_of_a_cooperative_member_that_nobody_has_is_found() -> None:
    """A partition that moves was somebody's; one of a topic that was added to a subscription (KAFKA-12759) was not."""
    x = member("x", {"t0": [0]}, topics=["t0", "new"], owned={"t0": [0]})
    assert checks(Scene().group([x], 2)) == ["subscribed_unassigned"]


def test_what_goes_on_is_told_once() -> None:
    """A topic that doesn't exist, an assignor that gives a partition to two: a finding each, now and later."""
    x, y = member("x", {"t": [0]}, topics=["t", "none"]), member("y", {"t": [0]}, topics=["t"])
    scene = Scene()
    for generation in range(1, 6):
        scene.group([x, y], generation)
    assert sorted(checks(scene)) == ["partition_assigned_twice", "subscribed_unassigned"]
    scene.group([member("y", {"t": [0]}, topics=["t"])], 6).group([], 7).group([x, y], 8)
    assert sorted(checks(scene)) == ["partition_assigned_twice"] * 2 + ["subscribed_unassigned"] * 2


def test_record_without_a_time_covers_none() -> None:
    """The timestamp -1 stands for none."""
    scene = Scene().group(static_members(a=1), 1)
    row = rows_of(Scene().commit(5))[0]
    again = rows_of(scene.group(static_members(a=2), 1))[1]
    history = History(0, GROUP, Limits())
    for each in [*rows_of(scene)[:1], (*row[:2], -1, *row[3:]), (*again[:2], -1, *again[3:])]:
        history.add(each)
    story, _ = history.finish(START_MS)
    assert (story.first_ms, story.last_ms) == (START_MS, START_MS)
    assert [step.ts for step in story.steps] == [START_MS] * 2


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


def test_clients_that_can_not_be_fenced_are_named() -> None:
    """aiokafka's default client id tells it, and only a static member needs the instance id."""
    scene = Scene().group([member("x", PARTS["a"], client_id="aiokafka-0.14.0")], 1)
    assert told(scene)[0].old_clients == {}
    scene.group([member("x", PARTS["a"], client_id="aiokafka-0.14.0", instance_id="a")], 2)
    assert list(told(scene)[0].old_clients) == ["aiokafka-0.14.0"]


def test_member_id_twice_is_undecodable() -> None:
    """No coordinator can load such a group."""
    assert checks(Scene().group([member("x", PARTS["a"]), member("x", PARTS["b"])], 1)) == ["undecodable"]


def test_value_of_a_member_without_a_protocol_is_undecodable() -> None:
    """As group.records says of it."""
    value = group_value([member("x", PARTS["a"])], 1).replace(b"\0\5range", b"\xff\xff", 1)
    row = parse_record(0, 0, Record(rows_of(Scene().group([], 1))[0][5], value, START_MS))["records"]
    assert [finding.check for finding in tell(0, GROUP, Limits(), row, START_MS)[1]] == ["undecodable"]


def test_each_rule_of_a_record_has_its_check() -> None:
    """A rule that is added in the core is found here, by a check that there is."""
    assert CHECK_OF_RULE.keys() == set(RecordRule)
    assert {check for check, _ in CHECK_OF_RULE.values()} <= CHECKS.keys()
