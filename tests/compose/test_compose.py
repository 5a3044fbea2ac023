"""docker/docker-compose.yml: consumers restart, the coordinator is killed, and no partition moves.

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


def test_the_harm_was_done(story: Story) -> None:
    """Each consumer was restarted and came back to its seat, and the coordinator, killed twice, loaded the group."""
    services = sorted(line["service"] for line in story.harm if line["did"] == "restarted")
    assert services == sorted([*CONSUMERS, "coordinator", "coordinator"])
    assert {event["group_instance_id"] for event in named(story.after, "member_replaced")} == set(CONSUMERS)
    assert [(event["state"], event["members"]) for event in named(story.after, "group_loaded")] == [("Stable", 3)] * 2


def test_no_rebalance(story: Story) -> None:
    """From the first harm until a session timeout after the last one no rebalance starts, and no member expires."""
    assert named(story.before, "rebalance_completed")
    assert named(story.after, "rebalance_started") == []
    assert named(story.after, "member_expired") == []
    generations = {event["generation"] for event in story.after if event.get("group") == GROUP}
    assert generations == {named(story.before, "rebalance_completed")[-1]["generation"]}


def test_every_consumer_has_its_seat(story: Story) -> None:
    """At the end the three seats are taken, by the members of restarted consumers."""
    first, last = story.harm[0], story.harm[-1]
    assert (first["did"], last["did"]) == ("found", "done")
    assert sorted(last["seats"]) == sorted(CONSUMERS)
    assert not set(first["seats"].values()) & set(last["seats"].values())


def test_no_message_is_lost(story: Story) -> None:
    """No two messages were acknowledged at one offset, and each of them was consumed."""
    assert {partition for partition, _ in story.acknowledged} == set(range(6))
    assert len(set(story.acknowledged)) == len(story.acknowledged)
    assert set(story.consumed) >= set(story.acknowledged)


def test_the_audit_is_clean(story: Story) -> None:
    """The audit finds nothing, and its history has the same: every seat came back, no rebalance but the first."""
    assert story.audited.returncode == 0, story.audited.stdout + story.audited.stderr
    assert story.found["findings"] == {}
    group = story.found["groups"][GROUP]
    assert group["members"] == len(CONSUMERS)
    assert group["generation"] == named(story.before, "rebalance_completed")[-1]["generation"]
    # A consumer that returns to a coordinator that was killed meanwhile may count as one that only joined again, and a
    # kill may take the event of a return along.
    returns = Counter(group["static_restarts"]) + Counter(group["static_rejoins"]) + Counter(group["returns"])
    assert returns == Counter(CONSUMERS)


def test_the_coordinator_is_healthy(story: Story) -> None:
    """The coordinator's health check passes."""
    assert story.health == "healthy"
