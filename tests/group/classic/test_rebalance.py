"""Rebalances beyond what the KIPs say."""

from __future__ import annotations

from coordinator.group.notes import LeaderElected, MembersDropped, RebalanceStuck
from schemas.errors import ErrorCode
from tests.group.harness import REBALANCE_MS, Bench


def test_late_dynamic_members_go_and_late_static_ones_stay(bench: Bench) -> None:
    """This happens at the rebalance timeout (KAFKA-8220); the static member has to rejoin in the new generation."""
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


def test_a_leader_that_stays_away_is_succeeded_by_one_who_joined(bench: Bench) -> None:
    """A static leader that misses the rebalance stays a member."""
    leader, follower = bench.static("a", session_ms=300_000), bench.static("b")
    bench.settle(leader, follower)
    follower.join(protocols=[("range", b"changed")])
    bench.advance(REBALANCE_MS)
    (note,) = bench.said(LeaderElected)
    assert (note.old_leader, note.leader) == (leader.member_id, follower.member_id)
    assert follower.leads


def test_a_group_of_which_nobody_rejoins_waits_on(bench: Bench) -> None:
    """The group keeps its generation until a member rejoins or the sessions end."""
    members = [bench.static(name, session_ms=300_000) for name in "abc"]
    bench.settle(*members)
    members[0].leave()
    bench.advance(2 * REBALANCE_MS)
    assert len(bench.said(RebalanceStuck)) == 2
    assert (bench.state(), bench.group().generation) == ("PreparingRebalance", 1)
    bench.advance(300_000)
    assert bench.state() == "Empty"


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
