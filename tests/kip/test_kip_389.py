"""KIP-389, group.max.size: the clauses that no script shows. tests/kip/clauses.md has the clauses in a table.

The number of members in a group has a limit. A full group refuses new members and does not disturb its own. The tests
follow what Kafka made of the KIP (GroupCoordinator.acceptJoiningMember).

House rule: as in test_kip_345.py.
"""

from __future__ import annotations

from coordinator.config import GroupConfig
from coordinator.group.causes import CauseKind
from coordinator.group.notes import RebalanceStarted
from schemas.errors import ErrorCode
from tests.group.harness import SESSION_MS, Bench

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
NONE = ErrorCode.NONE


def full_group(version: int = 5) -> Bench:
    """A Stable group of two members with room for two."""
    bench = Bench(group_max_size=2)
    bench.seated("a", "b", version=version)
    return bench


def test_unlimited_by_default() -> None:
    """The default limit is the largest int32."""
    assert GroupConfig().group_max_size == 2**31 - 1


def test_static_restart_in_a_full_stable_group_is_turned_away() -> None:
    """Kafka 3.9 treats a restart without a member id as a new member; the fix for KAFKA-20601 gives it its seat."""
    assert full_group().join(instance="b").error is FULL
    bench = Bench(group_max_size=2, fixes=frozenset({"kafka-20601"}))
    _a, b = bench.seated("a", "b")
    assert b.restart().response.generation_id == 1


def test_room_is_given_to_the_next() -> None:
    """When a member leaves, another may join."""
    bench = full_group()
    bench.leave(members=[("", "b")])
    assert bench.join(instance="c").waits


def test_limit_is_for_each_group() -> None:
    """A full group does not stop a member from joining another group."""
    bench = full_group()
    assert bench.join(group="other", instance="a").waits


def test_id_of_a_client_that_comes_too_late_is_dropped() -> None:
    """In an Empty group more clients may get an id than can join. No rebalance waits for the ids of the others."""
    bench = Bench(group_max_size=2)
    *early, late = [bench.join().response.member_id for _ in range(3)]
    joins = [bench.join(member=member_id) for member_id in early]
    assert bench.join(member=late).error is FULL
    assert not bench.group().pending
    bench.advance(2 * bench.config.group_initial_rebalance_delay_ms)
    assert [join.error for join in joins] == [NONE, NONE]


def test_who_waits_already_may_join_again() -> None:
    """A member that waits in JoinGroup keeps its seat when it sends the request again."""
    bench = Bench(group_max_size=2)
    a, b = bench.seated("a", "b")
    a.join()
    again = a.join()
    joined = b.join()
    assert [again.error, joined.error] == [NONE, NONE]


def test_group_above_a_lowered_limit_rebalances_when_loaded(bench: Bench) -> None:
    """The next coordinator applies a lowered limit by a rebalance, so that members can commit first."""
    a, b, c = bench.seated("a", "b", "c")
    bench.restart(group_max_size=2)
    assert bench.said(RebalanceStarted)[-1].cause.kind is CauseKind.GROUP_OVER_CAPACITY
    assert bench.state() == "PreparingRebalance"
    assert c.commit(7).errors == [NONE]
    for peer in (a, b, c):
        assert peer.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_empty_group_takes_the_first_comer() -> None:
    """A limit of one works: when the only member is gone, another may join."""
    bench = Bench(group_max_size=1)
    (a,) = bench.seated("a")
    assert bench.join(instance="b").error is FULL
    bench.advance(SESSION_MS)
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(instance="b").waits
