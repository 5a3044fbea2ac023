"""Static restarts beyond what KIP-345 says."""

from __future__ import annotations

import pytest

from coordinator.group.effects import TimerKey, TimerKind
from coordinator.group.notes import GroupTooLarge, MemberReplaced
from schemas.errors import ErrorCode
from tests.group.harness import GROUP, SESSION_MS, Bench


def test_a_restart_costs_one_record_and_says_who() -> None:
    """Nothing else is written, and one note tells of it."""
    bench = Bench()
    peers = [bench.static(name) for name in "ab"]
    bench.settle(*peers)
    old_id, written = peers[1].member_id, len(bench.records)
    peers[1].restart()
    assert len(bench.records) == written + 1
    (note,) = bench.said(MemberReplaced)
    assert (note.old_member_id, note.member_id, note.group_instance_id) == (old_id, peers[1].member_id, "b")
    assert bench.rebalances == 1


def test_a_seat_keeps_the_client_that_took_it_first() -> None:
    """In Describe and on disk, as in Kafka (kafka-behaviour, log 7)."""
    bench = Bench()
    bench.settle(bench.static("a"))
    bench.peer("other program", instance="a").join()
    assert [member.client_id for member in bench.describe().response.members] == ["a"]


def test_the_old_session_timeout_runs_until_the_first_heartbeat() -> None:
    """The new one counts from then on."""
    bench = Bench()
    bench.settle(bench.static("a", session_ms=6_000))
    again = bench.static("a", session_ms=30_000)
    again.join()
    bench.advance(5_999)
    again.heartbeat()
    bench.advance(29_999)
    assert again.heartbeat().error is ErrorCode.NONE
    once_more = bench.static("a", session_ms=6_000)
    once_more.join()
    bench.advance(29_999)
    assert bench.group().members
    bench.advance(1)
    assert not bench.group().members


def test_timers_follow_the_new_id() -> None:
    """None is left for an id that is no member."""
    bench = Bench()
    peer = bench.static("a")
    bench.settle(peer)
    peer.restart()
    assert list(bench.timers) == [TimerKey(TimerKind.SESSION, GROUP, peer.member_id)]


def test_a_restart_that_would_not_fit_leaves_the_seat_as_it_was() -> None:
    """The old id goes on, the new one was never heard of (KAFKA-10284, KAFKA-14009)."""
    bench = Bench(message_max_bytes=1_000)
    old = bench.static("a", protocols=[("range", b"small")])
    bench.settle(old)
    call = old.twin().join(protocols=[("range", bytes(2_000))], session_ms=20_000, rebalance_ms=1)
    assert (call.error, call.response.member_id, call.response.generation_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "", 1)
    assert [note.limit for note in bench.said(GroupTooLarge)] == [1_000]
    assert bench.said(MemberReplaced) == []
    assert old.heartbeat().error is ErrorCode.NONE
    (member,) = bench.group().members.values()
    assert (member.session_timeout_ms, member.protocols) == (SESSION_MS, [("range", b"small")])
    assert len(bench.written()) == 1


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_followers_restart_names_the_leader(version: int) -> None:
    """In every version it learns the true one, and no members."""
    bench = Bench()
    leader, follower = bench.static("a", version=version), bench.static("b", version=version)
    bench.settle(leader, follower)
    answer = follower.restart().response
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader.member_id, [], False)
