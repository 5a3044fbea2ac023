"""Heartbeats renew a member's session and tell the member about changes in its group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group.classic.heartbeat import again
from coordinator.group.effects import TimerKey, TimerKind
from schemas.errors import ErrorCode
from tests.group.harness import GROUP, SESSION_MS, Bench, Peer


def test_a_heartbeat_arms_no_timer(bench: Bench) -> None:
    """A heartbeat moves the deadline; the timer looks at the deadline when it fires."""
    peer = bench.static("a")
    bench.settle(peer)
    key = TimerKey(TimerKind.SESSION, GROUP, peer.member_id)
    bench.advance(SESSION_MS - 1)
    before = bench.timers[key]
    peer.heartbeat()
    assert bench.timers[key] == before
    bench.advance(SESSION_MS - 1)
    assert peer.heartbeat().error is ErrorCode.NONE
    bench.advance(SESSION_MS)
    assert peer.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_shortened_session_timeout_is_kept_to(bench: Bench) -> None:
    """A member that restarts with a shorter timeout, and sends one heartbeat, expires after the shorter time."""
    bench.settle(bench.static("a", session_ms=60_000))
    again = bench.static("a", session_ms=6_000)
    again.join()
    bench.advance(100)
    assert again.heartbeat().error is ErrorCode.NONE
    bench.advance(5_999)
    assert bench.group().members
    bench.advance(1)
    assert not bench.group().members


def leaves(bench: Bench, peer: Peer) -> None:
    """The peer leaves."""
    peer.leave()


def expires(bench: Bench, peer: Peer) -> None:
    """The peer's session times out."""
    bench.advance(SESSION_MS)


def restarts(bench: Bench, peer: Peer) -> None:
    """A twin takes the peer's seat."""
    peer.twin().join()


def rebalances(bench: Bench, peer: Peer) -> None:
    """Another member joins; the peer hasn't rejoined."""
    bench.static("z").join()


def rebalanced(bench: Bench, peer: Peer) -> None:
    """Another member joins and the peer rejoins: the generation is the next one."""
    bench.static("z").join()
    peer.join()


def is_unloaded(bench: Bench, peer: Peer) -> None:
    """The group becomes Dead."""
    bench.unload()


def syncs_again(bench: Bench, peer: Peer) -> None:
    """The peer repeats its SyncGroup, which changes nothing."""
    peer.sync()


@pytest.mark.parametrize("accompanied", [True, False])
@pytest.mark.parametrize(
    ("happens", "goes_on"),
    [
        (leaves, False),
        (expires, False),
        (restarts, False),
        (rebalances, False),
        (rebalanced, False),
        (is_unloaded, False),
        (syncs_again, True),
    ],
)
def test_what_was_answered_with_yes_once_is_not_when_it_no_longer_holds(
    bench: Bench, happens: Callable[[Bench, Peer], None], goes_on: bool, accompanied: bool
) -> None:
    """The member itself knows whether its last heartbeat still gets NONE; if not, its session is not renewed."""
    peer = bench.static("a")
    others = [bench.static("b")] if accompanied else []
    bench.settle(peer, *others)
    assert peer.heartbeat().error is ErrorCode.NONE
    member = bench.group().members[peer.member_id]
    beat = member.beat
    assert beat is not None
    happens(bench, peer)
    before = member.deadline_ms
    assert again(member, beat, bench.now.ms + 1) is goes_on
    assert member.deadline_ms == (bench.now.ms + 1 + SESSION_MS if goes_on else before)
