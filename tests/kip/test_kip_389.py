"""KIP-389, group.max.size: a test per clause. tests/kip/clauses.md has the clauses in a table.

The number of members in a group has a limit. A full group refuses new members and does not disturb its own. The tests
follow what Kafka made of the KIP (GroupCoordinator.acceptJoiningMember).

House rule: as in test_kip_345.py.
"""

from __future__ import annotations

import pytest

from coordinator.config import GroupConfig
from coordinator.group.causes import CauseKind
from coordinator.group.notes import RebalanceStarted
from schemas.errors import ErrorCode
from tests.group.harness import REBALANCE_MS, SESSION_MS, Bench

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


def test_full_is_error_81() -> None:
    """The error has its own number; clients treat it as fatal."""
    assert ErrorCode(81) is FULL


@pytest.mark.parametrize("version", range(10))
def test_full_group_turns_newcomers_away(version: int) -> None:
    """Every version gets the error, without a member id and without a request to join again."""
    bench = full_group()
    refused = bench.join(version=version)
    assert refused.error is FULL
    assert refused.response.member_id == ""
    assert not bench.group().pending


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members_count_as_well(version: int) -> None:
    """A new instance id is refused like any new member."""
    assert full_group(version).join(version=version, instance="c").error is FULL


def test_members_of_a_full_group_are_not_disturbed() -> None:
    """To refuse a new member causes no rebalance."""
    bench = full_group()
    bench.join(instance="c")
    bench.join()
    assert bench.state() == "Stable"
    assert bench.rebalances == 1


def test_members_of_a_full_group_may_rejoin() -> None:
    """The limit is for new members: a member of the group may join again."""
    bench = Bench(group_max_size=2)
    a, b = bench.seated("a", "b")
    joins = [a.join(), b.join()]
    assert [join.error for join in joins] == [NONE, NONE]
    bench.assign(a, b)


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


def test_last_to_come_are_turned_away() -> None:
    """While the first rebalance is open, the first members to join get the seats."""
    bench = Bench(group_max_size=2)
    joins = [bench.join(instance=name) for name in "abcd"]
    bench.advance(2 * bench.config.group_initial_rebalance_delay_ms)
    assert [join.error for join in joins] == [NONE, NONE, FULL, FULL]


def test_ids_may_be_given_out_beyond_the_limit() -> None:
    """A pending member takes no seat: in an Empty group more clients may get an id than can join.

    The clients that join too late are refused, and their ids are dropped, so that the group does not wait for them.
    """
    bench = Bench(group_max_size=2)
    ids = [bench.join().response.member_id for _ in range(3)]
    joins = [bench.join(member=member_id) for member_id in ids]
    assert joins[2].error is FULL
    assert not bench.group().pending
    bench.advance(2 * bench.config.group_initial_rebalance_delay_ms)
    assert [join.error for join in joins] == [NONE, NONE, FULL]


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


def test_last_to_rejoin_lose_their_seats(bench: Bench) -> None:
    """In a group above the limit, the first members to rejoin stay; the others are removed."""
    a, b, c = bench.seated("a", "b", "c")
    bench.restart(group_max_size=2)
    joins = [c.join(), b.join(), a.join()]
    assert [join.error for join in joins] == [NONE, NONE, FULL]
    assert bench.member_ids() == {"b": b.member_id, "c": c.member_id}
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_group_within_the_limit_is_loaded_as_it_was(bench: Bench) -> None:
    """A group that is exactly full does not rebalance."""
    bench.seated("a", "b")
    bench.restart(group_max_size=2)
    assert bench.state() == "Stable"


def test_silent_members_do_not_keep_seats_from_joining_ones() -> None:
    """While a group prepares, only members that wait in JoinGroup count, so a new member may take a free seat.

    A dynamic member that does not join in time is removed.
    """
    bench = Bench(group_max_size=2)
    a, d = bench.static("a", session_ms=2 * REBALANCE_MS), bench.dynamic("d", session_ms=2 * REBALANCE_MS)
    bench.settle(a, d)
    joins = [a.join(), bench.join(instance="c")]
    assert d.join().error is FULL
    assert [join.error for join in joins] == [NONE, NONE]
    assert d.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_empty_group_takes_the_first_comer() -> None:
    """A limit of one works: when the only member is gone, another may join."""
    bench = Bench(group_max_size=1)
    (a,) = bench.seated("a")
    assert bench.join(instance="b").error is FULL
    bench.advance(SESSION_MS)
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(instance="b").waits
