"""The checks of a group's record, alone and compared with the record before it."""

from __future__ import annotations

from coordinator.audit.check.checks import CHECKS
from coordinator.audit.check.limits import Limits
from coordinator.audit.check.records import CHECK_OF_RULE
from coordinator.audit.read.parse import parse_record
from coordinator.group.invariants import RecordRule
from protocol.records.batch import Record
from tests.audit.histories import checks, rows_of, run_history
from tests.audit.scenes import GROUP, PARTS, START_MS, Scene, group_value, member, static


def test_topic_of_a_cooperative_member_that_nobody_has_is_found() -> None:
    """The audit reports a newly subscribed topic whose partitions no cooperative member owns (KAFKA-12759)."""
    x = member("x", {"t0": [0]}, topics=["t0", "new"], owned={"t0": [0]})
    assert checks(Scene().group([x], 2)) == ["subscribed_unassigned"]


def test_fault_that_goes_on_is_reported_once() -> None:
    """A fault that goes on over many generations is one finding; when it returns later, it is another one."""
    x, y = member("x", {"t": [0]}, topics=["t", "none"]), member("y", {"t": [0]}, topics=["t"])
    scene = Scene()
    for generation in range(1, 6):
        scene.group([x, y], generation)
    assert sorted(checks(scene)) == ["partition_assigned_twice", "subscribed_unassigned"]
    scene.group([member("y", {"t": [0]}, topics=["t"])], 6).group([], 7).group([x, y], 8)
    assert sorted(checks(scene)) == ["partition_assigned_twice"] * 2 + ["subscribed_unassigned"] * 2


def test_assignments_of_other_groups_are_theirs() -> None:
    """The audit reads assignments only in groups of consumers: others may use any bytes."""
    members = [member("w1", PARTS["a"]), member("w2", PARTS["a"])]
    members[0].subscription = b"anything"
    assert checks(Scene().group(members, 1, protocol_type="connect")) == []


def test_group_in_which_nothing_is_assigned_is_right() -> None:
    """A group without any assignment has no finding: its topic may not exist yet."""
    assert checks(Scene().group([member("x"), member("y")], 1)) == []


def test_same_fault_in_each_record_is_reported_once() -> None:
    """A session timeout above the cap is one finding, although each record of the group repeats it."""
    scene = Scene()
    for generation in range(1, 5):
        scene.group([static("a", 1, PARTS["a"], session_timeout=2_000_000)], generation)
    assert checks(scene) == ["session_above_cap"]


def test_member_id_twice_is_undecodable() -> None:
    """A record with one member id twice is undecodable, because no coordinator can load it."""
    assert checks(Scene().group([member("x", PARTS["a"]), member("x", PARTS["b"])], 1)) == ["undecodable"]


def test_value_of_a_member_without_a_protocol_is_undecodable() -> None:
    """A member without a protocol makes a record undecodable, as in group.records."""
    value = group_value([member("x", PARTS["a"])], 1).replace(b"\0\5range", b"\xff\xff", 1)
    row = parse_record(0, 0, Record(rows_of(Scene().group([], 1))[0][5], value, START_MS))["records"]
    assert [finding.check for finding in run_history(0, GROUP, Limits(), row, START_MS)[1]] == ["undecodable"]


def test_each_rule_of_a_record_has_its_check() -> None:
    """Each rule of the core for a record has a check of the audit."""
    assert CHECK_OF_RULE.keys() == set(RecordRule)
    assert {check for check, _ in CHECK_OF_RULE.values()} <= CHECKS.keys()
