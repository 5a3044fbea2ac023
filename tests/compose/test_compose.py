"""The compose files: consumers restart, the coordinator is killed, and no partition moves, with and without TLS.

House rule: every fact comes from the services themselves: the coordinator's log, the clients, the audit.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.compose.project import CONSUMERS, GROUP, JsonLine, Story

pytestmark = pytest.mark.compose


def named(events: list[JsonLine], name: str) -> list[JsonLine]:
    """Return the group's events of that name."""
    return [event for event in events if event["event"] == name and event.get("group") == GROUP]


def test_the_harm_was_done(each_story: Story) -> None:
    """Each consumer was restarted and came back to its seat, and the coordinator, killed twice, loaded the group."""
    services = sorted(line["service"] for line in each_story.harm if line["did"] == "restarted")
    assert services == sorted([*CONSUMERS, "coordinator", "coordinator"])
    assert {event["group_instance_id"] for event in named(each_story.after, "member_replaced")} == set(CONSUMERS)
    assert [(event["state"], event["members"]) for event in named(each_story.after, "group_loaded")] == [
        ("Stable", 3)
    ] * 2


def test_no_rebalance(each_story: Story) -> None:
    """From the first harm until a session timeout after the last one no rebalance starts, and no member expires."""
    assert named(each_story.before, "rebalance_completed")
    assert named(each_story.after, "rebalance_started") == []
    assert named(each_story.after, "member_expired") == []
    generations = {event["generation"] for event in each_story.after if event.get("group") == GROUP}
    assert generations == {named(each_story.before, "rebalance_completed")[-1]["generation"]}


def test_every_consumer_has_its_seat(each_story: Story) -> None:
    """At the end the three seats are taken, by the members of restarted consumers."""
    first, last = each_story.harm[0], each_story.harm[-1]
    assert (first["did"], last["did"]) == ("found", "done")
    assert sorted(last["seats"]) == sorted(CONSUMERS)
    assert not set(first["seats"].values()) & set(last["seats"].values())


def test_no_message_is_lost(each_story: Story) -> None:
    """No two messages were acknowledged at one offset, and each of them was consumed."""
    assert {partition for partition, _ in each_story.acknowledged} == set(range(6))
    assert len(set(each_story.acknowledged)) == len(each_story.acknowledged)
    assert set(each_story.consumed) >= set(each_story.acknowledged)


def test_the_audit_is_clean(story: Story) -> None:
    """The audit finds nothing, and its history has the same: every seat came back, no rebalance but the first."""
    assert story.audited is not None
    assert story.audited.returncode == 0, story.audited.stdout + story.audited.stderr
    assert story.found["findings"] == {}
    group = story.found["groups"][GROUP]
    assert group["members"] == len(CONSUMERS)
    assert group["generation"] == named(story.before, "rebalance_completed")[-1]["generation"]
    # A consumer that returns to a coordinator that was killed meanwhile may count as one that only joined again, and a
    # kill may take the event of a return along.
    returns = Counter(group["static_restarts"]) + Counter(group["static_rejoins"]) + Counter(group["returns"])
    assert returns == Counter(CONSUMERS)


def test_the_coordinator_is_healthy(each_story: Story) -> None:
    """The coordinator's health check passes."""
    assert each_story.health == "healthy"
