"""Rebalances beyond what the KIPs say."""

from __future__ import annotations

from coordinator.group.notes import LeaderElected, MembersDropped, RebalanceStuck
from schemas.errors import ErrorCode
from tests.group.harness import INITIAL_DELAY_MS, REBALANCE_MS, Bench


def test_the_generation_grows_when_a_group_empties() -> None:
    """Members work in generation 1, all leave (generation 2), a member joins: generation 3."""
    bench = Bench()
    peer = bench.static("a")
    bench.settle(peer)
    peer.leave()
    assert bench.written()[-1].generation == 2  # type: ignore[union-attr]
    again = bench.static("a")
    bench.settle(again)
    assert again.generation == 3


def test_late_dynamic_members_go_and_late_static_ones_stay() -> None:
    """This happens at the rebalance timeout (KAFKA-8220); the static member has to rejoin in the new generation."""
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
    """A static leader that misses the rebalance stays a member."""
    bench = Bench()
    leader, follower = bench.static("a", session_ms=300_000), bench.static("b")
    bench.settle(leader, follower)
    follower.join(protocols=[("range", b"changed")])
    bench.advance(REBALANCE_MS)
    (note,) = bench.said(LeaderElected)
    assert (note.old_leader, note.leader) == (leader.member_id, follower.member_id)
    assert follower.leads


def test_a_group_of_which_nobody_rejoins_waits_on() -> None:
    """The group keeps its generation until a member rejoins or the sessions end."""
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
    """A group that was emptied waits one delay, however many members arrive (KIP-134, as Kafka does it)."""
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
    """The delay runs to its end, also after every member joined, or every member left."""
    bench = Bench()
    peer = bench.static("a")
    join = peer.join()
    bench.leave(members=[("", "a")])
    assert join.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state() == "PreparingRebalance"
    bench.advance(INITIAL_DELAY_MS)
    assert (bench.state(), bench.group().generation) == ("Empty", 1)


def test_a_seat_that_never_synced_is_waited_for_under_its_old_id() -> None:
    """As in Kafka, a member that restarts in Stable before its first sync causes a rebalance in the end."""
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
    """A group of which no member rejoins looks again at most once a second, however short the timeouts are."""
    for rebalance_ms in (0, -5):
        bench = Bench()
        peers = [bench.static(name) for name in "ab"]
        bench.settle(*peers)
        for peer in peers:
            peer.restart(rebalance_ms=rebalance_ms)
        bench.leave(members=[("", "b")])
        bench.advance(5_000)
        assert 1 <= len(bench.said(RebalanceStuck)) <= 6
