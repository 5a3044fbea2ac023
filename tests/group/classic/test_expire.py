"""Timers: members that expire, members that only wait, and timers that fire too late."""

from __future__ import annotations

from coordinator.group.classic.join import NEW_MEMBER_JOIN_TIMEOUT_MS
from coordinator.group.notes import MemberExpired, PendingExpired
from schemas.errors import ErrorCode
from tests.group.harness import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, Bench


def test_whoever_waits_outlives_its_session(bench: Bench) -> None:
    """A member whose JoinGroup or SyncGroup waits doesn't expire."""
    leader, follower = bench.dynamic("a", session_ms=6_000), bench.dynamic("b", session_ms=6_000)
    leader.enter()
    follower.enter()
    bench.advance(2 * INITIAL_DELAY_MS)
    waits = follower.sync()
    for _ in range(5):
        bench.advance(5_000)
        leader.heartbeat()
    assert waits.waits
    leader.sync()
    assert waits.error is ErrorCode.NONE


def test_a_new_members_join_does_not_wait_for_ever(bench: Bench) -> None:
    """The group drops a new member whose JoinGroup waits too long: its client may have joined anew (KAFKA-7610)."""
    first = bench.dynamic("a", rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    bench.settle(first)
    ghost = bench.dynamic("b", version=3).join()
    while bench.now_ms < NEW_MEMBER_JOIN_TIMEOUT_MS + INITIAL_DELAY_MS:
        bench.advance(SESSION_MS - 1)
        first.heartbeat()
    assert (ghost.error, ghost.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(bench.group().members) == [first.member_id]


def test_a_pending_member_lapses(bench: Bench) -> None:
    """A pending member id lapses after the session timeout that its client asked for."""
    peer = bench.dynamic("a")
    assert peer.join().error is ErrorCode.MEMBER_ID_REQUIRED
    bench.advance(SESSION_MS - 1)
    assert list(bench.group().pending) == [peer.member_id]
    bench.advance(1)
    assert not bench.group().pending
    (note,) = bench.said(PendingExpired)
    assert (note.member_id, note.left) == (peer.member_id, False)
    assert peer.join().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_timer_that_comes_early_only_looks(bench: Bench) -> None:
    """A timer that fires before the deadline expires no member."""
    peer = bench.static("a")
    bench.settle(peer)
    bench.advance(SESSION_MS // 2)
    peer.heartbeat()
    bench.advance(SESSION_MS - 1)
    assert bench.said(MemberExpired) == []
    bench.advance(1)
    assert [note.member_id for note in bench.said(MemberExpired)] == [peer.member_id]


def test_sessions_start_in_full_after_a_load(bench: Bench) -> None:
    """Members don't pay for the time that the coordinator was away."""
    peer = bench.static("a")
    bench.settle(peer)
    bench.advance(SESSION_MS - 1)
    bench.restart()
    bench.advance(SESSION_MS - 1)
    assert peer.heartbeat().error is ErrorCode.NONE
    bench.advance(REBALANCE_MS)
    assert not bench.group().members
