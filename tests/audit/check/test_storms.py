"""The audit finds too many rebalances within an hour, and reports no slower ones."""

from __future__ import annotations

import json

import pytest

from coordinator.audit.check.checks import Findings
from coordinator.audit.check.storms import Storms
from tests.audit.histories import story_of
from tests.audit.scenes import GROUP, HOUR_MS, PARTS, START_MS, Scene, member


def test_storms_are_reported_one_by_one() -> None:
    """An hour below the limit ends a storm; the next storm is a finding of its own."""
    scene = Scene()
    generation = 1
    for _ in range(2):
        for _ in range(12):
            scene.tick(60_000).group([member(f"m-{generation}", PARTS["a"])], generation)
            generation += 1
        scene.tick(2 * HOUR_MS)
    found = story_of(scene)[1]
    assert [finding.check for finding in found] == ["rebalance_storm"] * 2
    assert json.loads(found[0].detail)["causes"] == {"joined, left or expired": 11}
    assert [json.loads(finding.detail)["rebalances"] for finding in found] == [12, 12]


def test_quiet_day_is_no_storm() -> None:
    """Rebalances that are spread over a day are no storm."""
    scene = Scene()
    for generation in range(1, 25):
        scene.tick(HOUR_MS).group([member(f"m-{generation}", PARTS["a"])], generation)
    story, findings = story_of(scene)
    assert (findings, story.rebalances_per_hour) == ([], 1)


@pytest.mark.parametrize(
    ("minutes", "within_the_hour"), [(1, 38), (59, 38), (61, 19), (119, 19), (30 * 24 * 60, 1)], ids=str
)
def test_rebalances_that_nobody_saw_count_where_they_must_have_been(minutes: int, within_the_hour: int) -> None:
    """A jump in the generation adds its rebalances to an hour only as far as they must have been in it."""
    scene = Scene().group([member("m-3", PARTS["a"])], 3)
    scene.tick(minutes * 60_000).group([member("m-40", PARTS["a"])], 40)
    story, findings = story_of(scene)
    assert (story.rebalances, story.rebalances_per_hour) == (38, within_the_hour)
    assert [finding.check for finding in findings] == ["rebalance_storm"] * (within_the_hour > 10)


def test_storm_of_a_moment_takes_no_room() -> None:
    """Ten thousand rebalances within one second take the memory of one entry."""
    findings = Findings(0, GROUP)
    storms = Storms(findings, 10)
    for number in range(10_000):
        storms.add(number // 10, START_MS, 1, "joined", number, number)
    assert (len(storms._bursts), storms.most) == (1, 10_000)
    storms.report(findings)
    assert [json.loads(each.detail)["causes"] for each in findings.found] == [{"joined": 10_000}]
