"""The audit finds contested, renamed and too early expired static members, and reports no others."""

from __future__ import annotations

import json

import pytest

from coordinator.audit.check import instances
from tests.audit.histories import checks, story_of
from tests.audit.scenes import HOUR_MS, PARTS, Scene, static, static_members


def test_service_that_was_stopped_is_one_finding() -> None:
    """If all members stop and return together, the audit reports one finding for the group, not one for each member."""
    scene = Scene().group(static_members(a=1, b=1, c=1), 1).group([], 2).tick(300_000)
    scene.group(static_members(a=2, b=2), 3).group(static_members(a=2, b=2, c=2), 4)
    (found,) = story_of(scene)[1]
    assert found.check == "session_shorter_than_gap"
    assert json.loads(found.detail) == {
        "count": 3, "gap_ms": 312_000, "instances": ["a", "b", "c"], "left_or_expired": "all at once",
        "session_ms": 10_000,
    }  # fmt: skip


def test_weekend_is_no_rename() -> None:
    """Static members that return after days have the same instance ids: the audit reports no rename."""
    parts = {f"seat-{number}": {"orders": [number]} for number in range(30)}
    scene = Scene().group([static(seat, 1, part) for seat, part in parts.items()], 1)
    scene.tick(HOUR_MS).group([static("seat-0", 1, {"orders": [0]})], 2).tick(48 * HOUR_MS)
    scene.group([static(seat, 2, part) for seat, part in parts.items()], 3)
    assert checks(scene) == []


def test_roll_is_no_fight() -> None:
    """One quick return of each member is a deployment, and three within a minute are no loop yet."""
    scene = Scene().group(static_members(a=1, b=1, c=1), 1)
    for lives in ({"a": 2}, {"b": 2}, {"c": 2}, {"a": 3}, {"a": 4}):
        scene.group(static_members(**{"a": 2, "b": 1, "c": 1, **lives}), 1)
    assert checks(scene) == []


def test_loop_is_reported_once_with_its_true_numbers() -> None:
    """A loop is one finding with all its returns, in the doctor's words; one that ended is another than the next."""
    scene = Scene().group(static_members(a=1), 1)
    for life in range(2, 12):
        scene.group(static_members(a=life), 1)
    (found,) = story_of(scene)[1]
    assert (found.check, found.severity) == ("restarts_in_a_loop", "warning")
    assert json.loads(found.detail) == {
        "found": "a returns in a loop: 10 returns in 9.0 s, the shortest gap 1.0 s", "group_instance_id": "a",
        "times": 10, "within_ms": 9_000,
    }  # fmt: skip
    scene.tick(HOUR_MS)
    for life in range(12, 17):
        scene.group(static_members(a=life), 1)
    assert len(checks(scene)) == 1
    scene.group(static_members(a=17), 1).group([], 2)
    assert [json.loads(each.detail)["times"] for each in story_of(scene)[1]] == [10, 6]


def test_scaling_is_no_deployment() -> None:
    """Members that go without successors, and members that are new, are no deployment."""
    scene = Scene().group(static_members(a=1), 1).group(static_members(a=1, b=1, c=1), 3)
    assert checks(scene.tick(HOUR_MS).group(static_members(a=1), 5)) == []


def test_member_that_was_away_for_long_needed_no_seat() -> None:
    """A gap longer than any session timeout is no reason to ask for a longer session timeout."""
    scene = Scene().group(static_members(a=1, b=1), 1).group(static_members(a=1), 2)
    assert checks(scene.tick(HOUR_MS).group(static_members(a=1, b=2), 3)) == []


def test_who_is_gone_is_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename finding lists the last instance ids that went, up to a limit, and counts all of them."""
    monkeypatch.setattr(instances, "GONE_MAX", 3)
    scene = Scene()
    for rollout in range(10):
        scene.tick(2 * HOUR_MS).group([static(f"pod-{rollout}", 1, PARTS["a"])], 2 * rollout + 1)
    (found,) = story_of(scene)[1]
    detail = json.loads(found.detail)
    assert (detail["gone_count"], detail["gone"], detail["new_count"]) == (9, ["pod-6", "pod-7", "pod-8"], 3)
