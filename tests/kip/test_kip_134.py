"""KIP-134, group.initial.rebalance.delay.ms: a test per clause. tests/kip/clauses.md has the clauses.

The members of a fleet start one by one. An empty group holds its first rebalance open for a while, and longer if
members arrive, so that the group forms once. The tests follow Kafka's own form (InitialDelayedJoin).

House rule: as in test_kip_345.py.
"""

from __future__ import annotations

import pytest

from coordinator.config import GroupConfig
from schemas.errors import ErrorCode
from tests.group.harness import Bench

DELAY_MS = 3_000


def test_three_seconds_by_default() -> None:
    """This is the default of Kafka's code; the configuration files that ship with Kafka set 0."""
    assert GroupConfig().group_initial_rebalance_delay_ms == DELAY_MS


@pytest.mark.parametrize("version", range(10))
def test_first_rebalance_waits(bench: Bench, version: int) -> None:
    """The first member of an empty group gets its answer when the delay has passed, in any version."""
    joined = bench.dynamic("a", version=version).enter()
    bench.advance(DELAY_MS - 1)
    assert joined.waits
    bench.advance(1)
    assert joined.response.generation_id == 1


def test_one_generation_for_all_who_come_in_time(bench: Bench) -> None:
    """Members that start shortly one after the other share the first generation: one rebalance for all."""
    joins = []
    for name in "abcde":
        joins.append(bench.static(name).join())
        bench.advance(DELAY_MS // 5)
    bench.advance(2 * DELAY_MS)
    assert {join.response.generation_id for join in joins} == {1}
    assert len(joins[0].response.members) == 5
    assert bench.rebalances == 1


def test_arrival_extends_the_delay(bench: Bench) -> None:
    """If a member arrives during the delay, another delay follows."""
    first = bench.join(instance="a")
    bench.advance(DELAY_MS - 1)
    bench.join(instance="b")
    bench.advance(DELAY_MS)
    assert first.waits
    bench.advance(1)
    assert first.response.generation_id == 1


def test_each_delay_is_extended_by_its_own_arrivals(bench: Bench) -> None:
    """Delays follow each other while members arrive, and end with the first delay without an arrival."""
    joins = [bench.join(instance="first")]
    for number in range(4):
        bench.advance(DELAY_MS // 2)
        joins.append(bench.join(instance=str(number)))
        bench.advance(DELAY_MS // 2)
        assert joins[-1].waits
    bench.advance(DELAY_MS)
    assert {join.response.generation_id for join in joins} == {1}


def test_several_arrivals_extend_it_once(bench: Bench) -> None:
    """However many members arrive during the delay, one more delay follows."""
    joins = [bench.join(instance=name) for name in "abcd"]
    bench.advance(2 * DELAY_MS)
    assert {join.response.generation_id for join in joins} == {1}


def test_rebalance_timeout_caps_the_delays(bench: Bench) -> None:
    """After the first member's rebalance timeout the group forms, although more members arrive."""
    rebalance_ms = 2 * DELAY_MS + 1_000
    first = bench.join(instance="first", rebalance_ms=rebalance_ms)
    for number in range(7):
        assert first.waits
        bench.join(instance=str(number))
        bench.advance(1_000)
    assert bench.now_ms == rebalance_ms
    assert first.response.generation_id == 1
    assert len(first.response.members) == 8


def test_rebalance_timeout_below_the_delay_does_not_shorten_it(bench: Bench) -> None:
    """The first delay always passes; the rebalance timeout limits only further delays, as in Kafka."""
    first = bench.join(instance="a", rebalance_ms=DELAY_MS // 2)
    bench.join(instance="b", rebalance_ms=DELAY_MS // 2)
    bench.advance(DELAY_MS - 1)
    assert first.waits
    bench.advance(1)
    assert first.response.generation_id == 1


def test_zero_turns_it_off() -> None:
    """Without a delay the first member gets its generation at once."""
    bench = Bench(group_initial_rebalance_delay_ms=0)
    assert bench.join(instance="a").response.generation_id == 1


def test_later_rebalances_do_not_wait(bench: Bench) -> None:
    """A group with members rebalances as fast as its members join."""
    a, b = bench.seated("a", "b")
    at_ms = bench.now_ms
    c = bench.static("c")
    joins = [c.join(), a.join(), b.join()]
    assert {join.response.generation_id for join in joins} == {2}
    assert bench.now_ms == at_ms


def test_emptied_group_waits_again(bench: Bench) -> None:
    """A group that lost its last member starts like a new one, with the delay."""
    (a,) = bench.seated("a")
    a.leave()
    joined = a.restart()
    bench.advance(DELAY_MS - 1)
    assert joined.waits
    bench.advance(1)
    assert joined.response.generation_id == 3


def test_emptied_group_is_not_extended(bench: Bench) -> None:
    """As in Kafka, arrivals add a delay only before a group's very first generation."""
    (a,) = bench.seated("a")
    a.leave()
    joined = a.restart()
    bench.advance(DELAY_MS - 1)
    other = bench.join(instance="b")
    bench.advance(1)
    assert [joined.response.generation_id, other.response.generation_id] == [3, 3]


def test_nothing_ends_the_delay_early(bench: Bench) -> None:
    """The delay runs to its end when all members have joined, when one joins again, and when one leaves."""
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


def test_pending_member_is_not_waited_for(bench: Bench) -> None:
    """The first generation does not wait for an unused member id; later ones do (KIP-394)."""
    joined = bench.join(instance="a")
    bench.join()
    bench.advance(DELAY_MS)
    assert joined.response.generation_id == 1


def test_all_gone_during_the_delay(bench: Bench) -> None:
    """If the group has no members when the delay ends, it is Empty again."""
    bench.join(instance="a")
    bench.leave(members=[("", "a")])
    bench.advance(DELAY_MS)
    assert bench.state() == "Empty"
