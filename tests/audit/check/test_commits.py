"""The audit finds committed offsets that nobody uses, and reports no others."""

from __future__ import annotations

import json

from coordinator.audit.check.limits import Limits
from tests.audit.histories import checks, rows_of, run_history, story_of
from tests.audit.scenes import (
    GROUP,
    HOUR_MS,
    SECOND_MS,
    START_MS,
    Scene,
    member,
    offset_key,
    offset_value,
    static_members,
)


def test_commit_that_may_stay_longer_does() -> None:
    """A commit's own retention counts; offsets of a topic with a subscriber don't expire before it."""
    scene = Scene().append((offset_key(GROUP, "refunds"), offset_value(5, START_MS, 1, START_MS + HOUR_MS)))
    scene.group(static_members(a=1), 1).tick(2 * HOUR_MS).group(static_members(a=2), 1)
    assert checks(scene) == ["orphan_offsets"]


def test_offsets_of_a_group_that_is_empty_for_too_long_are_orphans() -> None:
    """The last record of the partition gives the current time, since an empty group writes nothing."""
    scene = Scene().commit(5).group([], 2)
    retention_ms = Limits().offsets_retention_ms + Limits().offsets_check_ms
    empty_ms = START_MS + SECOND_MS
    assert run_history(0, GROUP, Limits(), rows_of(scene), empty_ms + retention_ms)[1] == []
    found = run_history(0, GROUP, Limits(), rows_of(scene), empty_ms + retention_ms + 1)[1]
    assert [finding.check for finding in found] == ["orphan_offsets"]
    limits = Limits(offsets_retention_ms=2 * Limits().offsets_retention_ms)
    assert run_history(0, GROUP, limits, rows_of(scene), empty_ms + retention_ms + 1)[1] == []


def test_old_offsets_of_a_topic_nobody_wants_are_orphans() -> None:
    """Offsets of a topic without a subscriber are kept for a week; with a subscriber, as long as the group lives."""
    scene = Scene().commit(5, topic="refunds").commit(5)
    scene.group(static_members(a=1), 1).tick(Limits().offsets_retention_ms - HOUR_MS).group(static_members(a=2), 1)
    assert checks(scene) == []
    scene.tick(2 * HOUR_MS).group(static_members(a=3), 1)
    (finding,) = story_of(scene)[1]
    detail = json.loads(finding.detail)
    assert (detail["count"], detail["topic_partitions"]) == (1, ["refunds-0"])
    scene.group([*static_members(a=3), member("m", topics=())], 2)
    assert checks(scene) == []  # nobody knows what m is to read


def test_an_offset_below_0_is_none() -> None:
    """It didn't go back, and the next commit can't go back behind it; an offset from before it counts no more."""
    scene = Scene().group(static_members(a=1), 1)
    for offset in (5, -2, 3, -1, -2):
        scene.commit(offset)
    story, found = story_of(scene)
    assert (story.committed, found) == ({}, [])
    assert checks(scene.commit(2**63 - 1).commit(7)) == ["commit_back"]


def test_an_offset_below_0_can_be_an_orphan() -> None:
    """A coordinator drops its record as any other."""
    assert checks(Scene().group(static_members(a=1), 1).commit(-1).group([], 2).delete()) == ["orphan_offsets"]
