"""KIP-134, group.initial.rebalance.delay.ms: a test per clause. docs/kip-others.md has the clauses in a table.

A fleet that starts does so member by member. The first rebalance of an empty group is held open for a while, and a
while longer for each arrival, so that the group forms once. Kafka's own form is followed (InitialDelayedJoin).

House rule: test_kip_345.py's.
"""

from __future__ import annotations

import pytest

from coordinator.config import GroupConfig
from schemas.errors import ErrorCode
from tests.group.harness import Bench

DELAY_MS = 3_000


def test_three_seconds_by_default() -> None:
    """Kafka's default, and the configurations that ship with it set 0."""
    assert GroupConfig().group_initial_rebalance_delay_ms == DELAY_MS


@pytest.mark.parametrize("version", range(10))
def test_first_rebalance_waits(version: int) -> None:
    """The first member of an empty group is answered when the delay has passed, whatever version it speaks."""
    bench = Bench()
    joined = bench.dynamic("a", version=version).enter()
    bench.advance(DELAY_MS - 1)
    assert joined.waits
    bench.advance(1)
    assert joined.response.generation_id == 1


def test_one_generation_for_all_who_come_in_time() -> None:
    """Members that start shortly one after the other share the first generation: one rebalance for the fleet."""
    bench = Bench()
    joins = []
    for name in "abcde":
        joins.append(bench.static(name).join())
        bench.advance(DELAY_MS // 5)
    bench.advance(2 * DELAY_MS)
    assert {join.response.generation_id for join in joins} == {1}
    assert len(joins[0].response.members) == 5
    assert bench.rebalances == 1


def test_arrival_extends_the_delay() -> None:
    """If somebody came during the delay, another one follows it."""
    bench = Bench()
    first = bench.join(instance="a")
    bench.advance(DELAY_MS - 1)
    bench.join(instance="b")
    bench.advance(DELAY_MS)
    assert first.waits
    bench.advance(1)
    assert first.response.generation_id == 1


def test_each_delay_is_extended_by_its_own_arrivals() -> None:
    """It goes on as long as members keep coming, and ends with the first delay in which nobody came."""
    bench = Bench()
    joins = [bench.join(instance="first")]
    for number in range(4):
        bench.advance(DELAY_MS // 2)
        joins.append(bench.join(instance=str(number)))
        bench.advance(DELAY_MS // 2)
        assert joins[-1].waits
    bench.advance(DELAY_MS)
    assert {join.response.generation_id for join in joins} == {1}


def test_several_arrivals_extend_it_once() -> None:
    """The delay is extended by one delay, not by one for each that came."""
    bench = Bench()
    joins = [bench.join(instance=name) for name in "abcd"]
    bench.advance(2 * DELAY_MS)
    assert {join.response.generation_id for join in joins} == {1}


def test_rebalance_timeout_caps_the_delays() -> None:
    """However many keep coming: after the rebalance timeout of the first member the group forms."""
    bench = Bench()
    rebalance_ms = 2 * DELAY_MS + 1_000
    first = bench.join(instance="first", rebalance_ms=rebalance_ms)
    for number in range(7):
        assert first.waits
        bench.join(instance=str(number))
        bench.advance(1_000)
    assert bench.now_ms == rebalance_ms
    assert first.response.generation_id == 1
    assert len(first.response.members) == 8


def test_rebalance_timeout_below_the_delay_does_not_shorten_it() -> None:
    """The delay itself always passes; only its extensions are capped, as in Kafka."""
    bench = Bench()
    first = bench.join(instance="a", rebalance_ms=DELAY_MS // 2)
    bench.join(instance="b", rebalance_ms=DELAY_MS // 2)
    bench.advance(DELAY_MS - 1)
    assert first.waits
    bench.advance(1)
    assert first.response.generation_id == 1


def test_zero_turns_it_off() -> None:
    """Without a delay the first member has its generation at once."""
    bench = Bench(group_initial_rebalance_delay_ms=0)
    assert bench.join(instance="a").response.generation_id == 1


def test_later_rebalances_do_not_wait() -> None:
    """A group with members rebalances as fast as they join."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    at_ms = bench.now_ms
    c = bench.static("c")
    joins = [c.join(), a.join(), b.join()]
    assert {join.response.generation_id for join in joins} == {2}
    assert bench.now_ms == at_ms


def test_emptied_group_waits_again() -> None:
    """A group that lost its last member starts like a new one, with the delay."""
    bench = Bench()
    (a,) = bench.seated("a")
    a.leave()
    joined = a.restart()
    bench.advance(DELAY_MS - 1)
    assert joined.waits
    bench.advance(1)
    assert joined.response.generation_id == 3


def test_emptied_group_is_not_extended() -> None:
    """In Kafka arrivals extend the delay only before a group's very first generation."""
    bench = Bench()
    (a,) = bench.seated("a")
    a.leave()
    joined = a.restart()
    bench.advance(DELAY_MS - 1)
    other = bench.join(instance="b")
    bench.advance(1)
    assert [joined.response.generation_id, other.response.generation_id] == [3, 3]


def test_nothing_ends_the_delay_early() -> None:
    """Neither that all have joined, nor one who joins again, nor one who leaves."""
    bench = Bench()
    a, b = bench.static("a"), bench.static("b")
    first = a.join()
    b.join()
    bench.leave(members=[("", "b")])
    a.restart()
    bench.advance(DELAY_MS - 1)
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.state() == "PreparingRebalance"
    bench.advance(DELAY_MS + 1)
    assert bench.state() == "CompletingRebalance"


def test_pending_member_is_not_waited_for() -> None:
    """Who only asked for an id does not hold up the first generation (KIP-394 has it waited for in later ones)."""
    bench = Bench()
    joined = bench.join(instance="a")
    bench.join()
    bench.advance(DELAY_MS)
    assert joined.response.generation_id == 1


def test_all_gone_during_the_delay() -> None:
    """If nobody is left when the delay has passed, the group is Empty again."""
    bench = Bench()
    bench.join(instance="a")
    bench.leave(members=[("", "a")])
    bench.advance(DELAY_MS)
    assert bench.state() == "Empty"
