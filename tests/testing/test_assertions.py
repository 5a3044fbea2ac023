"""Assertions about groups: each passes, and each fails with its reason."""

from __future__ import annotations

import pytest

from coordinator.testing import (
    Tenure,
    assert_moved_at_most,
    assert_no_rebalance,
    assert_nothing_moved,
    assert_rebalances,
    assert_same_seats,
)
from coordinator.testing.assertions import assert_at_rest
from tests.support.scripted import STAYS_MS, settle
from tests.testing.conftest import Join, join_in


def restart(member: Join, name: str) -> None:
    """Let a static member come back as a new program."""
    again = member(name, instance=name)
    again.send_join()
    assert again.receive_join().error_code == 0


def test_a_restart_of_a_static_member_passes_all(server: Tenure, member: Join) -> None:
    """No rebalance, no move, the same seats."""
    settle(member("a", instance="a"), member("b", instance="b"))
    group = server.group("workers")
    since, before = group.mark(), group.assignment
    restart(member, "a")
    assert len(group.restarts) == 1
    assert_no_rebalance(group, since)
    assert_rebalances(group, since, exactly=0)
    assert_nothing_moved(group, since)
    assert_same_seats(group, before)


def test_a_rebalance_is_told_with_member_request_reason_and_the_member_that_was_waited_for(
    server: Tenure, member: Join
) -> None:
    """The text has the words of `tenure explain`, the request with its version, and the client's own reason."""
    one, other = member("one", version=9, instance="one"), member("other", version=9)
    settle(one, other)
    group = server.group("workers")
    since = group.mark()
    other.leave("the consumer is being closed")
    server.advance(10)  # a wait of 0 ms is not told
    settle(one)
    with pytest.raises(AssertionError) as caught:
        assert_no_rebalance(group, since)
    text = str(caught.value)
    assert text.startswith("group workers rebalanced once, expected none\n")
    assert "leaves; client reason: the consumer is being closed (other at 127.0.0.1)" in text
    assert "\n    on LeaveGroup v5" in text
    assert "waited longest for one-" in text
    assert "members 2 -> 1, 1 topic partition moved" not in text


def test_a_rebalance_without_a_request_is_told_as_the_coordinators_own(server: Tenure, member: Join) -> None:
    """The text names no request, and no words of another sentence."""
    one, other = member("one", instance="one"), member("other")
    settle(one, other)
    group = server.group("workers")
    since = group.mark()
    server.advance(STAYS_MS / 1_000, unheard=[("workers", other.member_id)])
    with pytest.raises(AssertionError) as caught:
        assert_no_rebalance(group, since)
    told = "\n    by the coordinator itself: a time was over, a setting changed, or it loaded the group\n"
    assert f"expired, no heartbeat (other at 127.0.0.1){told}" in str(caught.value)


def test_an_open_rebalance_is_told_with_the_members_that_it_waits_for(server: Tenure, member: Join) -> None:
    """The text ends with the member that has not joined yet."""
    one, other = member("one"), member("other")
    settle(one)
    group = server.group("workers")
    since = group.mark()
    assert_at_rest(group)
    other.send_join()
    group.wait_until(state="PreparingRebalance")
    with pytest.raises(AssertionError, match=f"under way[^$]*it waits for {one.member_id}"):
        assert_no_rebalance(group, since)
    with pytest.raises(AssertionError, match=f"rebalances already; wait first[^$]*it waits for {one.member_id}"):
        assert_at_rest(group)


def test_rebalances_are_counted_and_their_cause_is_compared(server: Tenure, member: Join) -> None:
    """Too few, too many, and another cause fail; the cause is that of the trigger."""
    one, other = member("one"), member("other")
    group = server.group("workers")
    settle(one)
    since = group.mark()
    join_in(server, other, one)
    assert_rebalances(group, since, exactly=1, cause="member_joined")
    assert_rebalances(group, since, at_least=1)
    assert_rebalances(group, since, at_most=1)
    with pytest.raises(AssertionError, match="rebalanced once, expected 2\n"):
        assert_rebalances(group, since, exactly=2)
    with pytest.raises(AssertionError, match="rebalanced once, expected 2 or more\n"):
        assert_rebalances(group, since, at_least=2)
    with pytest.raises(AssertionError, match="rebalanced once, expected 0\n"):
        assert_rebalances(group, since, at_most=0)
    with pytest.raises(AssertionError, match="because of member_joined, expected member_expired\n"):
        assert_rebalances(group, since, exactly=1, cause="member_expired")
    with pytest.raises(ValueError, match=r"no cause 'expired'; causes are .*member_expired"):
        assert_rebalances(group, since, cause="expired")


def test_moved_topic_partitions_are_counted_once_each(server: Tenure, member: Join) -> None:
    """Moved is what another member got, also if the first has it again; a first assignment is no move."""
    one, other = member("b", instance="b"), member("a")
    group = server.group("workers")
    since = group.mark()
    settle(one)
    assert_nothing_moved(group, since)
    join_in(server, other, one)
    assert_moved_at_most(group, since, 1)
    with pytest.raises(AssertionError, match=r"moved 1 topic partition, expected none[^$]*t-0 nobody -> b -> a-"):
        assert_nothing_moved(group, since)
    other.leave()
    settle(one)
    with pytest.raises(AssertionError, match=r"moved 2 topic partitions, expected at most 1[^$]*-> a-\w+ -> b"):
        assert_moved_at_most(group, since, 1)


def test_a_seat_that_nobody_has_any_more_has_moved(server: Tenure, member: Join) -> None:
    """The last member leaves: its topic partition has none."""
    one = member("one")
    settle(one)
    group = server.group("workers")
    since = group.mark()
    one.leave()
    with pytest.raises(AssertionError, match=r"t-0 one-\w+ -> nobody"):
        assert_nothing_moved(group, since)


def test_assignments_that_are_no_consumers_can_not_be_compared(server: Tenure, member: Join) -> None:
    """Nobody can say whether something moved, so the assertion fails."""
    one = member("one")
    settle(one)
    server.flush()
    told = server.history._told[-1]
    server.history._told[-1] = told._replace(moves=None)
    with pytest.raises(AssertionError, match="not a consumer's"):
        assert_nothing_moved(server.group("workers"), 0)


def test_other_seats_are_named(server: Tenure, member: Join) -> None:
    """A member that is gone, a new one, and one with other topic partitions have a line each."""
    one, other = member("b", instance="b"), member("c", instance="c")
    settle(one, other)
    group = server.group("workers")
    before = group.assignment
    new = member("a", instance="a")
    join_in(server, new, one, other)
    with pytest.raises(AssertionError) as caught:
        assert_same_seats(group, before | {"gone": {"t": [2]}})
    text = str(caught.value)
    assert "gone is gone; it had {'t': [2]}" in text
    assert "a is new; it has {'t': [0]}" in text
    assert "b has {'t': [1]}; it had {'t': [0]}" in text
