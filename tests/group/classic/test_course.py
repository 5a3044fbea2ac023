"""The note at a rebalance's end: the causes, the member that the group waited for, the members before and after."""

from __future__ import annotations

from coordinator.group.causes import CauseKind
from coordinator.group.course import CAUSES_MAX, Outcome, Phase, Waited
from coordinator.group.notes import MemberFenced, MemberPending, MemberReplaced, RebalanceEnded, RebalanceStarted
from coordinator.group.state import State
from tests.group.harness import INITIAL_DELAY_MS, REBALANCE_MS, SESSION_MS, WALL_MS, Bench, Peer, subscription


def settled(*names: str) -> tuple[Bench, list[Peer]]:
    """A Stable group of static members; the first leads, and the notes so far are cleared."""
    bench = Bench()
    peers = bench.seated(*names)
    bench.notes.clear()
    return bench, peers


def test_the_first_rebalance_of_a_group(bench: Bench) -> None:
    """A new group had no members before; the initial delay holds it open, so it waited for no member."""
    a, b = bench.seated("a", "b")
    (ended,) = bench.said(RebalanceEnded)
    assert (ended.outcome, ended.state, ended.generation_before, ended.generation) == (
        Outcome.COMPLETED,
        State.EMPTY.value,
        0,
        1,
    )
    assert [cause.member_ids for cause in ended.causes] == [(a.member_id,), (b.member_id,)]
    assert (ended.preparing_ms, ended.completing_ms, ended.waited_for) == (2 * INITIAL_DELAY_MS, 0, None)
    assert ended.began_ms == WALL_MS
    assert (ended.before, [seat.group_instance_id for seat in ended.after]) == ((), ["a", "b"])


def test_who_leaves_was_there_before() -> None:
    """A member that leaves is among the members before, with its assignment, and not among the members after."""
    bench, (a, b) = settled("a", "b")
    gone = b.member_id
    b.leave()
    bench.advance(40)
    a.join()
    bench.advance(5)
    bench.assign(a)
    (ended,) = bench.said(RebalanceEnded)
    assert [(seat.member_id, seat.assignment) for seat in ended.before] == [(a.member_id, b"a"), (gone, b"b")]
    assert [seat.member_id for seat in ended.after] == [a.member_id]
    assert (ended.preparing_ms, ended.completing_ms) == (40, 5)
    assert ended.waited_for == Waited(a.member_id, Phase.PREPARING, 40)
    assert ended.leader == a.member_id


def test_who_comes_was_not_there_before() -> None:
    """A new member is only among the members after, although its own JoinGroup began the rebalance."""
    bench, (a,) = settled("a")
    c = bench.static("c")
    c.enter()
    a.join()
    bench.assign(a, c)
    (ended,) = bench.said(RebalanceEnded)
    assert [seat.group_instance_id for seat in ended.before] == ["a"]
    assert [seat.group_instance_id for seat in ended.after] == ["a", "c"]


def test_the_leader_that_takes_its_time_is_waited_for() -> None:
    """In CompletingRebalance the group waits for the leader, which sends the assignments."""
    bench, (a, b) = settled("a", "b")
    a.join()
    bench.advance(10)
    b.join()
    bench.advance(200)
    bench.assign(a, b)
    (ended,) = bench.said(RebalanceEnded)
    assert ended.waited_for == Waited(a.member_id, Phase.COMPLETING, 200)


def test_who_never_joined_is_told(bench: Bench) -> None:
    """The rebalance timeout ended the wait: the note names the silent member, with the whole time."""
    a, b = bench.dynamic("a", session_ms=2 * REBALANCE_MS), bench.dynamic("b", session_ms=2 * REBALANCE_MS)
    bench.settle(a, b)
    bench.notes.clear()
    silent = b.member_id
    a.join()
    bench.advance(REBALANCE_MS)
    bench.assign(a)
    (ended,) = bench.said(RebalanceEnded)
    assert ended.late == (silent,)
    assert ended.waited_for == Waited(silent, Phase.PREPARING, REBALANCE_MS)


def test_a_pending_id_that_lapses_was_waited_for(bench: Bench) -> None:
    """Notes name the pending id when a client gets it, when a rebalance begins, and when its lapse ends the wait."""
    a = bench.dynamic("a")
    bench.settle(a)
    bench.notes.clear()
    asked = bench.dynamic("ghost", session_ms=SESSION_MS).join()
    (pending,) = bench.said(MemberPending)
    assert (pending.member_id, pending.lapses_ms) == (asked.response.member_id, WALL_MS + bench.now_ms + SESSION_MS)
    bench.advance(1_000)
    a.join()
    (started,) = bench.said(RebalanceStarted)
    ((member_id, client_id, client_host, lapses_ms),) = started.pending
    assert (member_id, client_id, client_host, lapses_ms) == (
        pending.member_id,
        "ghost",
        "/127.0.0.1",
        pending.lapses_ms,
    )
    bench.advance(SESSION_MS - 1_000)
    bench.assign(a)
    (ended,) = bench.said(RebalanceEnded)
    assert ended.lapsed == (pending.member_id,)
    assert ended.waited_for == Waited(pending.member_id, Phase.PREPARING, SESSION_MS - 1_000)


def test_a_pending_id_may_have_less_time() -> None:
    """tenure.group.pending.timeout.ms counts if it is shorter than the session timeout that the client asked for."""
    bench = Bench(group_pending_timeout_ms=500)
    a = bench.dynamic("a")
    bench.settle(a)
    bench.dynamic("ghost").join()
    a.join()
    bench.advance(499)
    assert bench.state() == State.PREPARING_REBALANCE.value
    bench.advance(1)
    assert bench.state() == State.COMPLETING_REBALANCE.value


def test_two_causes_in_one_phase_are_told_in_their_order() -> None:
    """The first cause is the trigger. A member that joins because the group rebalances is no cause."""
    bench, (a, b) = settled("a", "b")
    b.leave()
    bench.static("c").enter()
    a.join()
    bench.assign(a, bench.peers[-1])
    (ended,) = bench.said(RebalanceEnded)
    assert [cause.kind for cause in ended.causes] == [CauseKind.MEMBER_LEFT, CauseKind.MEMBER_JOINED]


def test_causes_are_kept_up_to_a_number() -> None:
    """The note has CAUSES_MAX causes and the number of the others."""
    bench, (a,) = settled("a")
    peers = [bench.static(str(number)) for number in range(CAUSES_MAX + 2)]
    for peer in peers:
        peer.enter()
    a.join()
    bench.assign(a, *peers)
    (ended,) = bench.said(RebalanceEnded)
    assert (len(ended.causes), ended.further_causes) == (CAUSES_MAX, 2)


def test_a_rebalance_that_starts_over_is_two() -> None:
    """The second supersedes the first; both compare with the members of the last completed generation."""
    bench, (a, b) = settled("a", "b")
    a.join()
    b.join()
    bench.advance(7)
    c = bench.static("c")
    c.enter()
    a.join()
    b.join()
    bench.assign(a, b, c)
    first, second = bench.said(RebalanceEnded)
    assert (first.outcome, second.outcome) == (Outcome.SUPERSEDED, Outcome.COMPLETED)
    assert (first.completing_ms, first.after) == (7, ())
    assert first.before == second.before
    assert [seat.assignment for seat in second.before] == [b"a", b"b"]
    assert (first.generation_before, second.generation_before, second.generation) == (1, 2, 3)


def test_the_last_to_leave_empties_the_group() -> None:
    """The rebalance ends: its outcome is EMPTIED."""
    bench, (a,) = settled("a")
    a.leave()
    (ended,) = bench.said(RebalanceEnded)
    assert (ended.outcome, ended.generation, len(ended.before), ended.after) == (Outcome.EMPTIED, 2, 1, ())


def test_the_partition_goes_away_meanwhile() -> None:
    """An unload ends the open rebalance: its outcome is UNLOADED."""
    bench, (a, _b) = settled("a", "b")
    a.join()
    bench.unload()
    (ended,) = bench.said(RebalanceEnded)
    assert (ended.outcome, ended.completing_ms, ended.after) == (Outcome.UNLOADED, None, ())


def test_a_removal_by_instance_id_is_an_operators() -> None:
    """LeaveGroup with an instance id alone is an operator's removal; a member that leaves sends its member id."""
    bench, (_a, b, c) = settled("a", "b", "c")
    bench.leave(members=[("", "b")])
    c.leave()
    kinds = [cause.kind for cause in bench.group().course.causes]  # type: ignore[union-attr]
    assert kinds == [CauseKind.MEMBER_REMOVED, CauseKind.MEMBER_LEFT]
    assert b.name == "b"


def test_a_static_restart_says_whether_it_rebalances() -> None:
    """A static restart causes no rebalance in a Stable group, but one while the group completes."""
    bench, (a, b) = settled("a", "b")
    b.restart()
    assert [note.rebalances for note in bench.said(MemberReplaced)] == [False]
    assert not bench.said(RebalanceStarted)
    a.join()
    b.join()
    b.restart()
    assert [note.rebalances for note in bench.said(MemberReplaced)] == [False, True]


def test_who_is_fenced_by_whom() -> None:
    """The note has both clients: the fenced sender of the request, and the client that took the seat."""
    bench, (_a, b) = settled("a", "b")
    twin = b.twin()
    twin.restart()
    b.heartbeat()
    (fenced,) = bench.said(MemberFenced)
    assert (fenced.member_id, fenced.current_member_id, fenced.waited) == (b.member_id, twin.member_id, False)
    assert fenced.current_client is twin.says["client"]


def test_who_waits_and_is_fenced_is_told() -> None:
    """A restart fences the JoinGroup that waited under the old member id, and the note says that it waited."""
    bench, (a, b) = settled("a", "b")
    a.join()
    bench.static("a").restart()
    (fenced,) = bench.said(MemberFenced)
    assert (fenced.member_id, fenced.group_instance_id, fenced.operation) == (a.member_id, "a", "join-group")
    assert fenced.waited
    assert b.name == "b"


def test_a_changed_subscription_while_preparing_is_a_cause() -> None:
    """It comes after the cause that began the rebalance."""
    bench, (a, b) = settled("a", "b")
    a.join()
    b.join(protocols=[("range", subscription("other"))])
    bench.assign(a, b)
    (ended,) = bench.said(RebalanceEnded)
    assert [cause.kind for cause in ended.causes] == [CauseKind.LEADER_REJOINED, CauseKind.METADATA_CHANGED]


def test_a_leader_that_never_assigned_was_waited_for() -> None:
    """The note names the old leader, although another member leads when the rebalance starts over."""
    bench, (a, b) = settled("a", "b")
    a.join()
    b.join()
    b.sync()
    bench.notes.clear()
    for _ in range(REBALANCE_MS // 1_000):
        bench.advance(1_000)
        if bench.said(RebalanceEnded):
            break
        for peer in (a, b):
            peer.heartbeat()
    (ended, *_) = bench.said(RebalanceEnded)
    assert ended.outcome is Outcome.SUPERSEDED
    assert ended.completing_ms is not None
    assert ended.waited_for == Waited(a.member_id, Phase.COMPLETING, ended.completing_ms)
    assert ended.leader == a.member_id


def test_who_goes_while_others_wait_was_waited_for() -> None:
    """The group waited for the last missing member until it left. A member that left after its join doesn't count."""
    bench, (a, b, c) = settled("a", "b", "c")
    a.join()
    b.join()
    bench.advance(10)
    b.leave()
    bench.advance(20)
    c.leave()
    bench.assign(a)
    (ended,) = bench.said(RebalanceEnded)
    assert ended.waited_for == Waited(c.member_id, Phase.PREPARING, 30)


def test_a_group_that_empties_waited_for_its_last_member() -> None:
    """The last member never joined, so the group waited for it until its session timed out."""
    bench, (a, b) = settled("a", "b")
    a.leave()
    bench.advance(SESSION_MS)
    (ended,) = bench.said(RebalanceEnded)
    assert (ended.outcome, ended.waited_for) == (
        Outcome.EMPTIED,
        Waited(b.member_id, Phase.PREPARING, SESSION_MS),
    )


def test_members_before_are_told_at_the_beginning_too() -> None:
    """RebalanceStarted counts the same members before as RebalanceEnded, also if the rebalance starts over."""
    bench, (a, b) = settled("a", "b")
    b.leave()
    c, d = bench.static("c"), bench.static("d")
    c.enter()
    a.join()
    d.enter()
    a.join()
    c.join()
    bench.assign(a, c, d)
    assert [note.members_before for note in bench.said(RebalanceStarted)] == [
        len(note.before) for note in bench.said(RebalanceEnded)
    ]
    assert bench.said(RebalanceStarted)[0].members_before == 2


def test_several_that_do_not_sync_are_told_with_their_clients(bench: Bench) -> None:
    """The cause has member id, instance id and client host of each."""
    a, b, c = bench.seated("a", "b", "c", session_ms=2 * REBALANCE_MS)
    for peer in (a, b, c):
        peer.join()
    bench.advance(REBALANCE_MS)
    cause = bench.said(RebalanceStarted)[-1].cause
    assert cause.kind is CauseKind.SYNC_TIMED_OUT
    assert cause.member_ids == tuple(sorted(peer.member_id for peer in (a, b, c)))
    assert [party.group_instance_id for party in cause.members] == ["a", "b", "c"]
    assert {party.client_host for party in cause.members} == {"/127.0.0.1"}


def test_the_seat_is_taken_before_who_waited_is_fenced() -> None:
    """The note about the new member comes before the note about the fenced one."""
    bench, (a, _b) = settled("a", "b")
    a.join()
    bench.static("a").restart()
    told = [type(note) for note in bench.notes if isinstance(note, MemberFenced | MemberReplaced)]
    assert told == [MemberReplaced, MemberFenced]
