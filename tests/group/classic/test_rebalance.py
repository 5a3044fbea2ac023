"""Rebalances beyond what the KIPs say."""

from __future__ import annotations

from coordinator.group.notes import LeaderElected, MembersDropped, RebalanceStuck
from schemas.errors import ErrorCode
from tests.group.harness import INITIAL_DELAY_MS, REBALANCE_MS, Bench


def test_the_generation_grows_when_a_group_empties() -> None:
    """Generation 1, everybody leaves, somebody joins: that is 3."""
    bench = Bench()
    peer = bench.static("a")
    bench.settle(peer)
    peer.leave()
    assert bench.written()[-1].generation == 2  # type: ignore[union-attr]
    again = bench.static("a")
    bench.settle(again)
    assert again.generation == 3


def test_late_dynamic_members_go_and_late_static_ones_stay() -> None:
    """After the rebalance timeout (KAFKA-8220); whoever stays has to rejoin in the new generation."""
    bench = Bench()
    dynamic, static, eager = bench.dynamic("d"), bench.static("s"), bench.static("e")
    bench.settle(dynamic, static, eager)
    eager.join(protocols=[("range", b"changed")])
    for _ in range(REBALANCE_MS // 5_000 - 1):
        bench.advance(5_000)
        dynamic.heartbeat()
        static.heartbeat()
    bench.advance(5_000)
    assert [note.member_ids for note in bench.said(MembersDropped)] == [(dynamic.member_id,)]
    assert set(bench.group().members) == {static.member_id, eager.member_id}
    assert static.heartbeat().error is ErrorCode.ILLEGAL_GENERATION


def test_a_leader_that_stays_away_is_succeeded_by_one_who_joined() -> None:
    """It stays a member if it is static."""
    bench = Bench()
    leader, follower = bench.static("a", session_ms=300_000), bench.static("b")
    bench.settle(leader, follower)
    follower.join(protocols=[("range", b"changed")])
    bench.advance(REBALANCE_MS)
    (note,) = bench.said(LeaderElected)
    assert (note.old_leader, note.leader) == (leader.member_id, follower.member_id)
    assert follower.leads


def test_a_group_of_which_nobody_rejoins_waits_on() -> None:
    """In the same generation, until somebody comes or the sessions end."""
    bench = Bench()
    members = [bench.static(name, session_ms=300_000) for name in "abc"]
    bench.settle(*members)
    members[0].leave()
    bench.advance(2 * REBALANCE_MS)
    assert len(bench.said(RebalanceStuck)) == 2
    assert (bench.state(), bench.group().generation) == ("PreparingRebalance", 1)
    bench.advance(300_000)
    assert bench.state() == "Empty"


def test_the_initial_delay_is_extended_by_arrivals_only_in_generation_0() -> None:
    """A group that was emptied waits once (KIP-134, as Kafka does it)."""
    bench = Bench()
    first = bench.static("a")
    bench.settle(first)
    first.leave()
    joins = [bench.static("b").join()]
    bench.advance(INITIAL_DELAY_MS - 1)
    joins.append(bench.static("c").join())
    assert all(join.waits for join in joins)
    bench.advance(1)
    assert not any(join.waits for join in joins)


def test_nothing_but_time_ends_the_initial_delay() -> None:
    """Neither that all have joined nor that all have left."""
    bench = Bench()
    peer = bench.static("a")
    join = peer.join()
    bench.leave(members=[("", "a")])
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state() == "PreparingRebalance"
    bench.advance(INITIAL_DELAY_MS)
    assert (bench.state(), bench.group().generation) == ("Empty", 1)


def test_a_seat_that_never_synced_is_waited_for_under_its_old_id() -> None:
    """As in Kafka: a member that restarts in Stable before it synced once costs a rebalance in the end."""
    bench = Bench()
    leader, follower = bench.static("a", session_ms=300_000), bench.static("b", session_ms=300_000)
    leader.enter()
    follower.enter()
    bench.advance(2 * INITIAL_DELAY_MS)
    leader.sync()
    follower.restart()
    assert follower.sync().error is ErrorCode.NONE
    bench.advance(REBALANCE_MS)
    assert bench.rebalances == 2
    assert follower.member_id in bench.group().members


def test_a_rebalance_timeout_of_nothing_does_not_go_round() -> None:
    """A group of which nobody rejoins looks again after a while, however short its members' timeouts are."""
    for rebalance_ms in (0, -5):
        bench = Bench()
        peers = [bench.static(name) for name in "ab"]
        bench.settle(*peers)
        for peer in peers:
            peer.restart(rebalance_ms=rebalance_ms)
        bench.leave(members=[("", "b")])
        bench.advance(5_000)
        assert 1 <= len(bench.said(RebalanceStuck)) <= 6
