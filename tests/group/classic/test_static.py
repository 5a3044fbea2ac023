"""Static restarts beyond what KIP-345 says."""

from __future__ import annotations

from typing import Any

from coordinator.group.causes import JoinReason
from coordinator.group.client import Client
from coordinator.group.effects import TimerKey, TimerKind
from coordinator.group.notes import (
    GroupTooLarge,
    MemberExpired,
    MemberLeft,
    MemberReplaced,
    RebalanceEnded,
    RebalanceStarted,
)
from schemas.errors import ErrorCode
from tests.group.harness import GROUP, REBALANCE_MS, SESSION_MS, Bench, Peer, subscription


def test_a_restart_costs_one_record_and_says_who(bench: Bench) -> None:
    """A static restart writes one record and makes one note, with the old and the new member id."""
    peers = [bench.static(name) for name in "ab"]
    bench.settle(*peers)
    old_id, written = peers[1].member_id, len(bench.records)
    peers[1].restart()
    assert len(bench.records) == written + 1
    (note,) = bench.said(MemberReplaced)
    assert (note.old_member_id, note.member_id, note.group_instance_id) == (old_id, peers[1].member_id, "b")
    assert bench.rebalances == 1


def test_a_restart_that_wants_other_topics_says_so() -> None:
    """The note says it if no rebalance follows (KAFKA-12759), and only if the topics differ, not other bytes."""
    for fixes in (frozenset[str](), frozenset({"kafka-12759"})):
        bench = Bench(fixes=fixes)
        _a, b = bench.seated("a", "b", protocols=[("range", subscription("t"))])
        b.restart()
        b.restart(protocols=[("range", subscription("t") + b"owned")])
        b.restart(protocols=[("range", subscription("t", "u"))])
        b.restart()
        changed = [note.subscription_changed for note in bench.said(MemberReplaced)]
        assert changed == ([False, False, True, True] if not fixes else [False] * 4)


def test_a_return_of_a_seat_that_nobody_heard_of_since_the_load_says_so() -> None:
    """Only the client knows if it restarted. A request of the old member id, or the client's word, makes it sure."""

    def loaded() -> tuple[Bench, Peer]:
        bench = Bench()
        _a, b = bench.seated("a", "b", version=9)
        bench.advance(1)
        bench.restart()
        return bench, b

    bench, b = loaded()
    b.restart()
    b.restart()
    assert [note.after_load for note in bench.said(MemberReplaced)] == [True, False]
    bench, b = loaded()
    bench.advance(1)
    b.heartbeat()
    b.restart()
    assert [note.after_load for note in bench.said(MemberReplaced)] == [False]
    bench, b = loaded()
    b.restart(join_reason=JoinReason.RESTART)
    assert [note.after_load for note in bench.said(MemberReplaced)] == [False]
    bench = Bench()
    _a, b = bench.seated("a", "b", version=9)
    b.restart()
    assert [note.after_load for note in bench.said(MemberReplaced)] == [False]


def test_a_restart_says_how_long_the_seat_was_silent(bench: Bench) -> None:
    """It counts from the last request of the old member id, as the session timeout does; unknown after a load."""
    _a, b = bench.seated("a", "b", version=9)
    bench.advance(700)
    b.heartbeat()
    bench.advance(300)
    b.restart()
    bench.restart()
    bench.advance(5)
    b.restart()
    assert [note.silent_ms for note in bench.said(MemberReplaced)] == [300, None]


def test_what_no_consumer_says_is_no_subscription(bench: Bench) -> None:
    """The coordinator can't read metadata of a protocol type other than `consumer`, so it reports no change."""
    _a, b = bench.seated("a", "b", protocol_type="connect", protocols=[("range", subscription("t"))])
    b.restart(protocols=[("range", subscription("u"))])
    assert [note.subscription_changed for note in bench.said(MemberReplaced)] == [False]


def test_a_seat_keeps_the_client_that_took_it_first(bench: Bench) -> None:
    """DescribeGroups and the record keep the first client, as in Kafka."""
    bench.settle(bench.static("a"))
    bench.peer("other program", instance="a").join()
    assert [member.client_id for member in bench.describe().response.members] == ["a"]


A = Client("a", "/127.0.0.1")
NEW_POD = Client("new-pod", "/127.0.0.2")


def restarted(session_ms: int = SESSION_MS) -> tuple[Bench, Peer, Peer]:
    """A leader, and a follower that restarted on another host with another client id."""
    bench = Bench()
    a, b = (bench.static(name, session_ms=session_ms) for name in "ab")
    bench.settle(a, b)
    b.says["client"] = NEW_POD
    b.restart()
    bench.notes.clear()
    return bench, a, b


def client_of(told: Any) -> Client:
    """The client that a note, a cause or a snapshot names."""
    return Client(told.client_id, told.client_host)


def test_whoever_has_the_seat_now_is_told_to_have_expired() -> None:
    """Note, cause and members before name the client that has the seat, not the client that first took it."""
    bench, a, _ = restarted()
    bench.advance(SESSION_MS - 1)
    a.heartbeat()
    bench.advance(1)
    a.join()
    a.sync()
    (expired,), (started,), (ended,) = (
        bench.said(MemberExpired),
        bench.said(RebalanceStarted),
        bench.said(RebalanceEnded),
    )
    assert client_of(expired) == NEW_POD
    assert client_of(started.cause) == NEW_POD
    assert {seat.group_instance_id: client_of(seat) for seat in ended.before} == {"a": A, "b": NEW_POD}
    assert [client_of(seat) for seat in ended.after] == [A]


def test_whoever_has_the_seat_now_is_told_to_have_left() -> None:
    """The note and the cause name the client that has the seat."""
    bench, _, b = restarted()
    b.leave()
    (left,), (started,) = bench.said(MemberLeft), bench.said(RebalanceStarted)
    assert client_of(left) == NEW_POD
    assert client_of(started.cause) == NEW_POD


def test_whoever_has_the_seats_now_are_told_not_to_have_synced() -> None:
    """If several members cause a rebalance together, the cause names the clients that have their seats."""
    bench, a, b = restarted(session_ms=2 * REBALANCE_MS)
    a.join()
    b.join()
    bench.advance(REBALANCE_MS)
    parties = bench.said(RebalanceStarted)[-1].cause.members
    assert {party.group_instance_id: client_of(party) for party in parties} == {"a": A, "b": NEW_POD}


def test_of_a_seat_that_was_read_from_the_log_the_first_client_is_known() -> None:
    """The log has the first client only, as Kafka's has. A JoinGroup brings the current client."""
    bench, _, b = restarted()
    bench.restart()
    assert bench.group().members[b.member_id].client == ("b", "/127.0.0.1")
    b.join()
    assert bench.group().members[b.member_id].client == NEW_POD[:2]


def test_a_member_that_comes_back_elsewhere_under_its_own_id_has_the_seat() -> None:
    """A rejoin from another host with the same member id makes that client the seat's, also without a rebalance."""
    bench, _, b = restarted()
    b.join(client=Client("newer-pod", "/127.0.0.3"))
    assert not bench.said(RebalanceStarted)
    assert bench.group().members[b.member_id].client == ("newer-pod", "/127.0.0.3")


def test_the_old_session_timeout_runs_until_the_first_heartbeat(bench: Bench) -> None:
    """The new session timeout counts from the first heartbeat on."""
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


def test_timers_follow_the_new_id(bench: Bench) -> None:
    """After a restart no timer has the old member id."""
    peer = bench.static("a")
    bench.settle(peer)
    peer.restart()
    assert list(bench.timers) == [TimerKey(TimerKind.SESSION, GROUP, peer.member_id)]


def test_a_restart_that_would_not_fit_leaves_the_seat_as_it_was() -> None:
    """The old member id stays valid and the new one never becomes a member (KAFKA-10284, KAFKA-14009)."""
    bench = Bench(message_max_bytes=1_000)
    old = bench.static("a", protocols=[("range", b"small")])
    bench.settle(old)
    call = old.twin().join(client=NEW_POD, protocols=[("range", bytes(2_000))], session_ms=20_000, rebalance_ms=1)
    assert (call.error, call.response.member_id, call.response.generation_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "", 1)
    assert [note.limit for note in bench.said(GroupTooLarge)] == [1_000]
    assert bench.said(MemberReplaced) == []
    assert old.heartbeat().error is ErrorCode.NONE
    (member,) = bench.group().members.values()
    assert (member.session_timeout_ms, member.protocols) == (SESSION_MS, [("range", b"small")])
    assert member.client == ("a", "/127.0.0.1"), "whoever was refused has no seat"
    assert len(bench.written()) == 1
