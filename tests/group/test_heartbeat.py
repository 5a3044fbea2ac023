"""Heartbeats keep a member, and tell it what it has to know."""

from __future__ import annotations

import pytest

from coordinator.group.effects import TimerKey, TimerKind
from coordinator.group.notes import MemberFenced
from schemas.errors import ErrorCode
from tests.group.harness import GROUP, SESSION_MS, Bench


def test_a_heartbeat_arms_no_timer() -> None:
    """It moves a deadline; the timer that runs looks at it when it goes off."""
    bench = Bench()
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


def test_a_shortened_session_timeout_is_kept_to() -> None:
    """A member that restarts with a shorter one, and beats once, is gone when that has passed, not the old one."""
    bench = Bench()
    bench.settle(bench.static("a", session_ms=60_000))
    again = bench.static("a", session_ms=6_000)
    again.join()
    bench.advance(100)
    assert again.heartbeat().error is ErrorCode.NONE
    bench.advance(5_999)
    assert bench.group().members
    bench.advance(1)
    assert not bench.group().members


@pytest.mark.parametrize(
    ("member", "instance", "generation", "expected"),
    [
        ("real", "a", 1, ErrorCode.NONE),
        ("real", None, 1, ErrorCode.NONE),
        ("real", "a", 2, ErrorCode.ILLEGAL_GENERATION),
        ("real", "b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("ghost", "a", 1, ErrorCode.FENCED_INSTANCE_ID),
        ("ghost", "a", 9, ErrorCode.FENCED_INSTANCE_ID),
        ("", "a", 1, ErrorCode.FENCED_INSTANCE_ID),
        ("ghost", None, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_order_of_checks(member: str, instance: str | None, generation: int, expected: ErrorCode) -> None:
    """Instance id, member id, generation."""
    bench = Bench()
    peer = bench.static("a")
    bench.settle(peer)
    member_id = peer.member_id if member == "real" else member
    assert bench.heartbeat(member=member_id, instance=instance, generation=generation).error is expected


def test_unknown_and_impossible_groups() -> None:
    """No group has an empty id here."""
    bench = Bench()
    assert bench.heartbeat(group="nowhere", member="m", generation=1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(group="", member="m", generation=1).error is ErrorCode.INVALID_GROUP_ID


def test_a_fenced_heartbeat_is_noted() -> None:
    """Which process was fenced by which is what its operator needs to know."""
    bench = Bench()
    old = bench.static("a")
    bench.settle(old)
    old_id = old.member_id
    new = old.twin()
    new.join()
    assert old.heartbeat().error is ErrorCode.FENCED_INSTANCE_ID
    (note,) = bench.said(MemberFenced)
    assert (note.member_id, note.current_member_id, note.operation) == (old_id, new.member_id, "heartbeat")
