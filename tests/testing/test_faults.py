"""The plan of faults, as a test's own thread sees it."""

from __future__ import annotations

import pytest

from coordinator.server.faults.faults import Faults
from coordinator.testing.faults import FAULTS_MAX, PlanError, PlannedFaults, drop_response, kill


def planned(can_kill: bool = False) -> PlannedFaults:
    """A plan without a server."""
    return PlannedFaults([Faults()], lambda work: work(), can_kill=can_kill)


def test_text_and_values_are_planned_alike() -> None:
    """One text may have several lines; the plan's own text can be planned again."""
    plan, again = planned(), planned()
    added = plan.add("JoinGroup nth=2 -> disconnect\n* client_id=x -> delay 5", drop_response("OffsetCommit"))
    assert list(plan) == added
    assert str(plan) == "JoinGroup nth=2 -> disconnect\n* client_id=x -> delay 5\nOffsetCommit -> drop-response\n"
    again.add(str(plan))
    assert str(again) == str(plan)
    plan.remove(added[1])
    assert list(plan) == plan.never_fired == [added[0], added[2]]
    plan.clear()
    assert str(plan) == ""


def test_random_faults_are_drawn_by_their_seed() -> None:
    """Without a seed each plan is another one; its text is enough to repeat it."""
    plans = [planned() for _ in range(4)]
    for plan, seed in zip(plans, (7, 7, None, None), strict=True):
        assert len(plan.add_random(seed, 20, ["one", "other"])) == 20
    assert str(plans[0]) == str(plans[1])
    assert str(plans[2]) != str(plans[3])


def test_mistakes_are_refused() -> None:
    """A text that is no plan, and a kill that nothing would survive; neither is planned."""
    plan = planned()
    with pytest.raises(PlanError, match="there is no action explode"):
        plan.add("JoinGroup -> explode")
    with pytest.raises(ValueError, match="data_dir"):
        plan.add("JoinGroup -> disconnect", kill("SyncGroup"))
    assert list(plan) == []
    assert len(planned(can_kill=True).add(kill("SyncGroup"))) == 1


def test_a_plan_has_a_limit() -> None:
    """A fault above the limit is refused, and none of its text is planned."""
    plan = planned()
    plan.add_random(7, FAULTS_MAX - 1)
    with pytest.raises(ValueError, match=f"2 faults beside {FAULTS_MAX - 1} are more than {FAULTS_MAX}"):
        plan.add("JoinGroup -> disconnect\nSyncGroup -> disconnect")
    plan.add("JoinGroup -> disconnect")
    assert len(list(plan)) == FAULTS_MAX
