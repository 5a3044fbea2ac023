"""Bugs that other coordinators had: a test for each, named after its ticket.

Tickets are Apache Kafka's; the last part has mistakes of re-implementations of the protocol, with their names. Each
test plays the trigger and checks the correct result. If released Kafka (3.9) still has the bug, Tenure's default has it
as well, and a setting in `GroupConfig.fixes` switches the better rule on: such a test shows both.

House rule: a test's name starts with its ticket; the docstring says what must hold, not what went wrong elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group import events
from coordinator.group.client import Client
from coordinator.group.effects import TimerKey, TimerKind
from coordinator.group.notes import GroupTooLarge, LeaderElected, MemberFenced, RebalanceStuck
from schemas.errors import ErrorCode
from tests.group.harness import (
    REBALANCE_MS,
    SESSION_MS,
    WALL_MS,
    Bench,
    Peer,
    subscription,
)

NEW_MEMBER_MS = 5 * 60 * 1_000
DAY_MS = 24 * 60 * 60 * 1_000
OTHER = [("range", subscription("other"))]


# Static identity and fencing.


def test_kafka_7862_first_static_join_keeps_its_instance_id() -> None:
    """A first static join never gets MEMBER_ID_REQUIRED; afterwards the instance id maps to the member id."""
    bench = Bench()
    (a,) = bench.seated("a")
    assert bench.member_ids() == {"a": a.member_id}
    assert not bench.group().pending


@pytest.mark.parametrize("instance, error", [("b", ErrorCode.FENCED_INSTANCE_ID), ("z", ErrorCode.UNKNOWN_MEMBER_ID)])
@pytest.mark.parametrize("operation", ["join-group", "sync-group", "heartbeat", "offset-commit", "leave-group"])
def test_kafka_8225_every_request_checks_the_pair(operation: str, instance: str, error: ErrorCode) -> None:
    """An old member id gets FENCED_INSTANCE_ID with a known instance id, UNKNOWN_MEMBER_ID with an unknown one.

    A note of each fenced request has Kafka's name of the operation.
    """
    bench = Bench()
    a, b = bench.seated("a", "b")
    old = b.member_id
    b.restart()
    who: dict[str, Any] = {"member": old, "instance": instance}
    seen = {
        "join-group": lambda: bench.join(**who).error,
        "sync-group": lambda: bench.sync(**who, generation=1).error,
        "heartbeat": lambda: bench.heartbeat(**who, generation=1).error,
        "offset-commit": lambda: bench.commit(**who, generation=1, offsets={("t", 0): 1}).errors[0],
        "leave-group": lambda: bench.leave(members=[(old, instance)]).errors[0],
    }[operation]()
    assert seen is error
    fenced = [(note.member_id, note.current_member_id, note.operation) for note in bench.said(MemberFenced)]
    assert fenced == ([(old, b.member_id, operation)] if error is ErrorCode.FENCED_INSTANCE_ID else [])
    assert bench.member_ids() == {"a": a.member_id, "b": b.member_id}
    assert bench.state() == "Stable"


def test_kafka_8500_restart_while_preparing_fences_the_waiting_join() -> None:
    """The old id's JoinGroup gets FENCED_INSTANCE_ID at once, and the new one waits in its place."""
    bench = Bench()
    bench.seated("a", "b")
    c = bench.static("c")
    first = c.join()
    again = c.restart()
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    assert again.waits


def test_kafka_8500_restart_while_completing_fences_the_waiting_sync() -> None:
    """The old id's SyncGroup gets FENCED_INSTANCE_ID at once, the other members' REBALANCE_IN_PROGRESS."""
    bench = Bench()
    a, b, c = bench.seated("a", "b", "c")
    for peer in (a, b, c):
        peer.join()
    syncs = [b.sync(), c.sync()]
    again = b.restart()
    assert [sync.error for sync in syncs] == [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.REBALANCE_IN_PROGRESS]
    assert again.waits


@pytest.mark.parametrize("version", range(5, 9))
def test_kafka_8500_leader_restart_names_the_old_leader(version: int) -> None:
    """Up to v8 a restarted leader gets its old id as leader, so it does not assign; later restarts get the new id."""
    bench = Bench()
    a, b = bench.seated("a", "b", version=version)
    old = a.member_id
    assert a.restart().response.leader == old
    assert b.restart().response.leader == a.member_id


def test_kafka_8715_ids_differ_within_one_moment() -> None:
    """Restarts at the same moment get different member ids, also after a restart of the coordinator."""
    bench = Bench()
    (a,) = bench.seated("a")
    ids = [a.member_id, *(a.restart().response.member_id for _ in range(3))]
    bench.restart()
    ids += [a.restart().response.member_id for _ in range(3)]
    assert len(set(ids)) == len(ids)


def test_kafka_8220_static_member_that_misses_the_join_phase_stays() -> None:
    """The rebalance timeout does not drop it; the coordinator refuses its old generation, and it may join."""
    bench = Bench()
    a, b = bench.seated("a", "b", session_ms=2 * REBALANCE_MS)
    a.join()
    bench.advance(REBALANCE_MS)
    assert bench.member_ids() == {"a": a.member_id, "b": b.member_id}
    assert b.heartbeat().error is ErrorCode.ILLEGAL_GENERATION
    assert b.join().response.generation_id == 2


def test_kafka_8220_missing_leader_loses_the_lead() -> None:
    """If the leader misses the join phase, a member that joined leads the generation."""
    bench = Bench()
    a, b = bench.seated("a", "b", session_ms=2 * REBALANCE_MS)
    lead = b.join(protocols=OTHER)
    bench.advance(REBALANCE_MS)
    assert lead.response.leader == b.member_id
    assert {member.member_id for member in lead.response.members} == {a.member_id, b.member_id}
    assert bench.said(LeaderElected)[-1].leader == b.member_id


def test_kafka_8220_nobody_rejoined() -> None:
    """If no member joins within the rebalance timeout, the group keeps its generation and waits until one joins."""
    bench = Bench()
    _a, b = bench.seated("a", "b", session_ms=5 * REBALANCE_MS)
    bench.leave(members=[("", "a")])
    bench.advance(2 * REBALANCE_MS)
    assert bench.state() == "PreparingRebalance"
    assert bench.group().generation == 1
    assert len(bench.said(RebalanceStuck)) == 2
    assert b.join().response.generation_id == 2


def test_kafka_9801_restart_while_completing_gets_an_assignment() -> None:
    """The leader must know the new id before it assigns, so all join once more and every member gets an assignment."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    a.join()
    b.join()
    b.restart()
    a.join()
    bench.assign(a, b)
    assert (a.generation, b.generation, b.assignment) == (3, 3, b"b")


def test_kafka_13435_restarted_leader_skips_the_assignment() -> None:
    """In v9 the restarted leader gets itself as leader, all members, and skip_assignment."""
    bench = Bench()
    a, _b = bench.seated("a", "b", version=9)
    again = a.restart().response
    assert (again.leader, again.skip_assignment, len(again.members)) == (a.member_id, True, 2)


def test_kafka_14009_restart_brings_its_timeouts() -> None:
    """A restart with other timeouts changes the member and its record.

    The old session timeout counts until the member's next heartbeat, as in Kafka.
    """
    bench = Bench()
    a, b = bench.seated("a", "b")
    b.restart(session_ms=3 * SESSION_MS, rebalance_ms=2 * REBALANCE_MS)
    written = bench.written()[-1]
    assert written is not None
    assert {
        (member.group_instance_id, member.session_timeout, member.rebalance_timeout) for member in written.members
    } == {
        ("a", SESSION_MS, REBALANCE_MS),
        ("b", 3 * SESSION_MS, 2 * REBALANCE_MS),
    }
    assert b.heartbeat().error is ErrorCode.NONE
    bench.advance(2 * SESSION_MS)
    assert bench.member_ids() == {"b": b.member_id}
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_kafka_14009_old_session_timeout_runs_until_the_next_heartbeat() -> None:
    """A restart alone does not bring the new session timeout into force."""
    bench = Bench()
    _a, b = bench.seated("a", "b")
    b.restart(session_ms=3 * SESSION_MS)
    bench.advance(SESSION_MS)
    assert "b" not in bench.member_ids()


def test_kafka_14009_timeouts_are_as_before_if_the_write_fails() -> None:
    """A restart that can't be written changes nothing: the member keeps its timeouts and its id."""
    bench = Bench(message_max_bytes=1_000)
    a, b = bench.seated("a", "b")
    bench.static("b").join(
        session_ms=3 * SESSION_MS, rebalance_ms=2 * REBALANCE_MS, protocols=[("range", b"x" * 1_000)]
    )
    member = bench.group().members[b.member_id]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    bench.advance(SESSION_MS)
    assert {a.member_id, b.member_id}.isdisjoint(bench.group().members)


def test_kafka_14422_old_leader_of_static_members() -> None:
    """A leader whose version has no instance ids gets all members, without their instance ids."""
    bench = Bench()
    old, a = bench.dynamic("old", version=4), bench.static("a", version=9)
    bench.settle(old, a)
    assert old.leads
    assert old.joined is not None
    assert [(member.member_id, member.group_instance_id) for member in old.joined.members] == [
        (old.member_id, None),
        (a.member_id, None),
    ]


def test_kafka_14201_simple_commit_with_an_instance_id() -> None:
    """A commit with an instance id alone is stored in a new or Empty group, and fenced if that member exists."""
    bench = Bench()
    assert bench.commit(instance="a", offsets={("t", 0): 1}).errors == [ErrorCode.NONE]
    assert bench.commit(instance="a", offsets={("t", 0): 2}).errors == [ErrorCode.NONE]
    bench.seated("a")
    assert bench.commit(instance="a", offsets={("t", 0): 3}).errors == [ErrorCode.FENCED_INSTANCE_ID]
    assert bench.committed("t", 0) == 2
    bench.leave(members=[("", "a")])
    assert bench.commit(instance="a", offsets={("t", 0): 4}).errors == [ErrorCode.NONE]


@pytest.mark.parametrize("fixed", [False, True])
def test_kafka_20601_restart_in_a_full_group(fixed: bool) -> None:
    """Kafka refuses a restart in a full Stable group; the fix gives it its seat and still refuses new members."""
    bench = Bench(group_max_size=2, fixes=frozenset({"kafka-20601"} if fixed else ()))
    _a, b = bench.seated("a", "b")
    again = b.restart()
    assert again.error is (ErrorCode.NONE if fixed else ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert bench.join(instance="c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.member_ids().keys() == {"a", "b"}
    assert bench.rebalances == 1


@pytest.mark.parametrize("fixed", [False, True])
def test_kafka_12759_restart_with_another_subscription(fixed: bool) -> None:
    """Kafka answers at once and leaves new topics unassigned; the fix rebalances, unless the metadata is the same."""
    bench = Bench(fixes=frozenset({"kafka-12759"} if fixed else ()))
    _a, b = bench.seated("a", "b")
    b.restart()
    assert bench.rebalances == 1
    again = b.restart(protocols=OTHER)
    assert again.waits is fixed
    assert bench.rebalances == (2 if fixed else 1)


def test_one_group_alone_may_have_the_better_rule() -> None:
    """The server has Kafka's rule; the group's own setting wins."""
    bench = Bench()
    bench.group_configs = {"g": bench.config.group_settings._replace(fixes=frozenset({"kafka-12759"}))}
    bench.coordinator.group_configs = bench.group_configs
    _a, b = bench.seated("a", "b")
    assert b.restart(protocols=OTHER).waits


@pytest.mark.parametrize("fixed", [False, True])
def test_kafka_20985_consumer_is_not_fenced_by_itself(fixed: bool) -> None:
    """Kafka fences the first of two open joins without a member id from one consumer, and so that consumer.

    With the fix the first gets NOT_COORDINATOR, and its client tries again. A twin on another host is always fenced.
    """
    bench = Bench(fixes=frozenset({"kafka-20985"} if fixed else ()))
    a = bench.static("a")
    first, second = a.join(), a.join()
    twin = bench.static("a", client=Client("a", "/10.0.0.1"))
    third = twin.join()
    assert first.error is (ErrorCode.NOT_COORDINATOR if fixed else ErrorCode.FENCED_INSTANCE_ID)
    assert second.error is ErrorCode.FENCED_INSTANCE_ID
    assert third.waits


@pytest.mark.parametrize("ticket", ["kafka-20747", "kafka-20754"])
def test_kafka_20747_and_20754_member_id_with_a_new_instance_id(ticket: str) -> None:
    """A known member id can't change its instance id: Kafka answers UNKNOWN_MEMBER_ID, the fix INVALID_REQUEST.

    In both cases the member keeps its instance id, and its own member id does not fence it.
    """
    for fixes, error in (
        (frozenset[str](), ErrorCode.UNKNOWN_MEMBER_ID),
        (frozenset({ticket}), ErrorCode.INVALID_REQUEST),
    ):
        bench = Bench(fixes=fixes)
        a, d = bench.static("a"), bench.dynamic("d")
        bench.settle(a, d)
        for peer in (a, d):
            assert bench.join(member=peer.member_id, instance="new").error is error
            assert peer.heartbeat().error is ErrorCode.NONE
        assert bench.state() == "Stable"


def test_kafka_8221_and_18188_leave_echoes_what_was_asked() -> None:
    """Each entry of a batch gets its own answer with the ids exactly as sent; a bad entry affects no other."""
    bench = Bench()
    a, b, c, d = bench.seated("a", "b", "c", "d")
    asked = [("", "a"), (b.member_id, None), ("stranger", None), (c.member_id, "d"), ("", None), (d.member_id, "d")]
    left = bench.leave(members=asked)
    assert left.error is ErrorCode.NONE
    assert [(member.member_id, member.group_instance_id) for member in left.response.members] == asked
    assert left.errors == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert bench.member_ids() == {"c": c.member_id}
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_kafka_8221_instance_named_twice() -> None:
    """The first entry removes the member, the second gets UNKNOWN_MEMBER_ID."""
    bench = Bench()
    bench.seated("a", "b")
    left = bench.leave(members=[("", "b"), ("", "b")])
    assert left.errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_crabka_212_silent_static_member_expires() -> None:
    """A static member expires too: its session timeout removes it."""
    bench = Bench()
    bench.seated("a")
    bench.advance(SESSION_MS)
    assert bench.state() == "Empty"


# Persistence: the part that the core decides.


@pytest.mark.parametrize("position", [0, 1])
def test_kafka_9659_restart_of_the_coordinator_after_a_static_restart(position: int) -> None:
    """The next coordinator accepts the last member id that a restart got, for the leader and for any other member."""
    bench = Bench()
    peers = bench.seated("a", "b")
    peer = peers[position]
    old = peer.member_id
    peer.restart()
    bench.restart()
    assert peer.heartbeat().error is ErrorCode.NONE
    assert bench.heartbeat(member=old, instance=peer.name, generation=1).error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.group().leader == peers[0].member_id
    assert peer.restart().response.generation_id == 1


def test_kafka_10284_restart_that_does_not_fit_keeps_the_old_id() -> None:
    """If the restarted member makes the group's record too large, the restart is refused; the old id stays valid."""
    bench = Bench(message_max_bytes=1_000)
    _a, b = bench.seated("a", "b")
    before = list(bench.records)
    refused = bench.static("b").join(protocols=[("range", b"x" * 1_000)])
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refused.response.member_id == ""
    assert b.heartbeat().error is ErrorCode.NONE
    assert b.sync().response.assignment == b"b"
    assert bench.records == before


def test_kafka_10284_restart_that_is_not_written_keeps_the_old_id() -> None:
    """If the write fails, the restart is refused, the old id stays valid, and the next attempt succeeds."""
    bench = Bench()
    _a, b = bench.seated("a", "b")
    twin = b.twin()
    with bench.failing_disk():
        assert twin.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert b.heartbeat().error is ErrorCode.NONE
    assert twin.join().error is ErrorCode.NONE
    assert b.heartbeat().error is ErrorCode.FENCED_INSTANCE_ID


def test_kafka_10401_time_of_the_state_is_written_and_read() -> None:
    """The record has the time since when the group is in its state, and the next coordinator keeps that time."""
    bench = Bench()
    (a,) = bench.seated("a")
    written = bench.written()[-1]
    assert written is not None
    assert written.current_state_timestamp == WALL_MS + bench.now_ms
    bench.advance(SESSION_MS // 2)
    a.leave()
    emptied = bench.now.wall_ms
    bench.advance(DAY_MS)
    bench.restart()
    assert bench.group().state_since_ms == emptied


def test_kafka_10401_restart_keeps_the_time_of_the_state() -> None:
    """A static restart writes the group in the same state, so the record keeps the time."""
    bench = Bench()
    (a,) = bench.seated("a")
    since = bench.now.wall_ms
    bench.advance(SESSION_MS // 2)
    a.restart()
    written = bench.written()[-1]
    assert written is not None
    assert written.current_state_timestamp == since


def test_kafka_19760_assignment_that_is_too_large() -> None:
    """Assignments that do not fit a record are refused with an error to every waiting member, and the group goes on.

    Nothing is written, and no rebalance repeats by itself. After the members rejoin, smaller assignments succeed.
    """
    bench = Bench(message_max_bytes=1_000)
    a, b = bench.static("a"), bench.static("b")
    joins = [a.join(), b.join()]
    bench.advance(2 * bench.config.group_initial_rebalance_delay_ms)
    assert [join.error for join in joins] == [ErrorCode.NONE, ErrorCode.NONE]
    syncs = [b.sync(), a.sync(assignments={a.member_id: b"x" * 1_000, b.member_id: b"b"})]
    assert [sync.error for sync in syncs] == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert bench.records == []
    assert bench.said(GroupTooLarge)[-1].limit == 1_000
    rebalances = bench.rebalances
    for _ in range(3):
        bench.advance(SESSION_MS // 2)
        assert {a.heartbeat().error, b.heartbeat().error} == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert bench.rebalances == rebalances
    a.join()
    b.join()
    bench.assign(a, b)
    assert (a.assignment, b.assignment, a.generation) == (b"a", b"b", 2)


def test_kafka_19760_who_was_refused_may_still_expire() -> None:
    """A member that waited in SyncGroup longer than its session, and was refused, expires if it stays silent."""
    bench = Bench(message_max_bytes=1_000)
    a, b = bench.static("a"), bench.static("b")
    a.join()
    b.join()
    bench.advance(2 * bench.config.group_initial_rebalance_delay_ms)
    waiting = b.sync()
    for _ in range(3):
        bench.advance(SESSION_MS // 2)
        assert a.heartbeat().error is ErrorCode.NONE
    a.sync(assignments={a.member_id: b"x" * 1_000})
    assert waiting.error is ErrorCode.UNKNOWN_SERVER_ERROR
    for _ in range(2):
        a.heartbeat()
        bench.advance(SESSION_MS // 2)
    assert bench.member_ids() == {"a": a.member_id}


# The state machine.


def test_kafka_7824_first_dynamic_join_is_pending() -> None:
    """From v4 on it gets an id with MEMBER_ID_REQUIRED; the id is no member and lapses after the session timeout."""
    bench = Bench()
    asked = bench.join(version=4)
    assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
    assert list(bench.group().pending) == [asked.response.member_id]
    assert bench.group().members == {}
    bench.advance(SESSION_MS)
    assert not bench.group().pending


@pytest.mark.parametrize("end", ["joins", "leaves", "lapses"])
def test_kafka_7909_completion_is_looked_at_when_a_pending_member_goes(end: str) -> None:
    """If only a pending member is missing, the join phase completes the moment it joins, leaves or lapses."""
    bench = Bench()
    a, b = bench.seated("a", "b", session_ms=2 * SESSION_MS)
    pending = bench.dynamic("d")
    pending.join(session_ms=SESSION_MS)
    joins = [a.join(), b.join()]
    assert [join.waits for join in joins] == [True, True]
    if end == "joins":
        pending.join()
    elif end == "leaves":
        pending.leave()
    else:
        bench.advance(SESSION_MS)
    assert [join.response.generation_id for join in joins] == [2, 2]


def long_rebalance(bench: Bench) -> Peer:
    """A static member that never rejoins and so keeps a rebalance open for half an hour; its session is as long."""
    (a,) = bench.seated("a", version=5, session_ms=6 * NEW_MEMBER_MS, rebalance_ms=6 * NEW_MEMBER_MS)
    return a


def test_kafka_7610_retried_joins_leave_no_ghosts() -> None:
    """A v3 client's JoinGroup times out again and again, and each time the client joins as a new member.

    Each of its abandoned members is gone after five minutes, so that the group does not grow without end.
    """
    bench = Bench()
    long_rebalance(bench)
    sizes = []
    for _ in range(20):
        bench.join(version=3, rebalance_ms=6 * NEW_MEMBER_MS)
        bench.advance(60_000)
        sizes.append(len(bench.group().members))
    assert bench.state() == "PreparingRebalance"
    assert max(sizes) <= 1 + NEW_MEMBER_MS // 60_000


def test_kafka_7610_ghost_is_told_to_start_over() -> None:
    """A new member's JoinGroup that waits too long gets UNKNOWN_MEMBER_ID, so that the client joins anew."""
    bench = Bench()
    long_rebalance(bench)
    ghost = bench.join(version=3)
    bench.advance(NEW_MEMBER_MS - 1)
    assert ghost.waits
    bench.advance(1)
    assert ghost.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost.response.member_id == ""


def test_kafka_7610_new_member_that_heartbeats_while_it_joins() -> None:
    """A new member's heartbeat while it joins, possible since KIP-394, starts its session, as in Kafka."""
    bench = Bench()
    long_rebalance(bench)
    d = bench.dynamic("d")
    joined = d.enter()
    assert d.heartbeat(generation=1).error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(SESSION_MS - 1)
    assert joined.waits
    bench.advance(1)
    assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4, 9])
def test_kafka_9232_new_member_is_an_ordinary_one_after_its_first_generation(version: int) -> None:
    """After its first JoinGroup answer its session timeout counts, not the five minutes of a new member."""
    bench = Bench()
    d = bench.dynamic("d", version=version)
    bench.settle(d)
    for _ in range(3):
        bench.advance(SESSION_MS - 1)
        assert d.heartbeat().error is ErrorCode.NONE
    bench.advance(SESSION_MS)
    assert bench.state() == "Empty"


def test_kafka_9232_first_generation_lasts_longer_than_five_minutes() -> None:
    """The group does not drop a member five minutes after its first join."""
    bench = Bench()
    d = bench.dynamic("d", version=3, session_ms=2 * NEW_MEMBER_MS)
    bench.settle(d)
    bench.advance(NEW_MEMBER_MS + 1)
    assert d.heartbeat().error is ErrorCode.NONE


def test_kafka_9752_rebalance_goes_on_without_the_new_member_that_timed_out() -> None:
    """If a new member's join times out and all other members have joined, the rebalance completes."""
    bench = Bench()
    a, b = bench.seated("a", "b", session_ms=6 * NEW_MEMBER_MS, rebalance_ms=6 * NEW_MEMBER_MS)
    ghost = bench.join(version=3)
    bench.advance(NEW_MEMBER_MS - 2)
    joins = [a.join()]
    assert joins[0].waits
    bench.advance(2)
    assert ghost.error is ErrorCode.UNKNOWN_MEMBER_ID
    joins.append(b.join())
    assert [join.response.generation_id for join in joins] == [2, 2]
    assert [len(join.response.members) for join in joins] == [2, 0]


def test_kafka_10134_heartbeat_while_preparing_renews_the_session() -> None:
    """The heartbeat gets REBALANCE_IN_PROGRESS, and the member stays however long the rebalance takes."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    a.join()
    for _ in range(4):
        bench.advance(SESSION_MS - 1)
        assert b.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_kafka_10134_heartbeat_while_completing_renews_the_session() -> None:
    """The heartbeat gets NONE: the member has its generation and waits for the leader's assignment."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    a.join()
    b.join()
    for _ in range(4):
        bench.advance(SESSION_MS - 1)
        assert [a.heartbeat().error, b.heartbeat().error] == [ErrorCode.NONE, ErrorCode.NONE]
    assert bench.state() == "CompletingRebalance"


@pytest.mark.parametrize("silent", ["leader", "follower"])
def test_kafka_12890_member_that_joins_and_never_syncs_is_dropped(silent: str) -> None:
    """Heartbeats alone don't keep it: after the rebalance timeout the group goes on without it."""
    bench = Bench()
    a, b = bench.dynamic("a"), bench.dynamic("b")
    bench.settle(a, b)
    a.join()
    b.join()
    quiet, other = (a, b) if silent == "leader" else (b, a)
    synced = other.sync()
    for _ in range(REBALANCE_MS // (SESSION_MS // 2)):
        bench.advance(SESSION_MS // 2)
        quiet.heartbeat()
        if not synced.waits:
            other.heartbeat()
    assert list(bench.group().members) == [other.member_id]
    assert synced.error is (ErrorCode.REBALANCE_IN_PROGRESS if silent == "leader" else ErrorCode.NONE)
    assert quiet.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert other.join().response.generation_id == 3


def test_kafka_8487_commit_while_completing() -> None:
    """A member without its assignment gets REBALANCE_IN_PROGRESS; a wrong generation or member gets its own error."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    a.join()
    b.join()
    assert b.commit(7).errors == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert b.commit(7, generation=1).errors == [ErrorCode.ILLEGAL_GENERATION]
    assert b.commit(7, member="stranger", instance=None).errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.committed("t", 0) == -1


def test_kafka_8487_commit_while_preparing() -> None:
    """The commit of a member for the ending generation is stored, and renews the member's session."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    a.join()
    for offset in range(4):
        bench.advance(SESSION_MS - 1)
        assert b.commit(offset).errors == [ErrorCode.NONE]
    assert bench.committed("t", 0) == 3


def test_kafka_8386_dead_group() -> None:
    """A group of an unloaded partition answers COORDINATOR_NOT_AVAILABLE to each request, not UNKNOWN_MEMBER_ID."""
    bench = Bench()
    a, _b = bench.seated("a", "b")
    member = a.member_id
    bench.unload()
    answers = [
        bench.join(instance="c").error,
        bench.join(member=member).error,
        bench.sync(member=member, generation=1).error,
        bench.heartbeat(member=member, generation=1).error,
        bench.commit(member=member, generation=1, offsets={("t", 0): 1}).errors[0],
        bench.leave(members=[(member, None)]).error,
    ]
    assert set(answers) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_kafka_8386_group_that_does_not_exist() -> None:
    """A join with a member id to a group that doesn't exist gets UNKNOWN_MEMBER_ID, so that the client joins anew."""
    assert Bench().join(member="somebody").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("kind", list(TimerKind))
@pytest.mark.parametrize("group", ["g", "gone"])
def test_kafka_8896_timer_of_somebody_who_is_gone(kind: TimerKind, group: str) -> None:
    """A timer that fires after its member, pending id, rebalance or group is gone changes nothing."""
    bench = Bench()
    bench.seated("a", "b")
    before = repr((bench.group().members, bench.group().state, bench.group().generation))
    effects = bench.handle(events.TimerFired(TimerKey(kind, group, "gone")))
    assert (effects.responses, effects.records, effects.timers, effects.notes) == ([], [], [], [])
    assert repr((bench.group().members, bench.group().state, bench.group().generation)) == before


def test_kafka_9844_pending_members_do_not_get_past_the_limit() -> None:
    """However many ids are pending, the group never has more members than group.max.size."""
    bench = Bench(group_max_size=2)
    ids = [bench.join().response.member_id for _ in range(4)]
    joins = [bench.join(member=member_id) for member_id in ids]
    bench.advance(2 * bench.config.group_initial_rebalance_delay_ms)
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [join.error for join in joins] == [ErrorCode.NONE, ErrorCode.NONE, full, full]
    assert len(bench.group().members) == 2


def test_kafka_9885_last_to_rejoin_are_turned_away_after_a_lowered_limit() -> None:
    """A group that is loaded above the limit rebalances, keeps the first that join, and becomes Stable."""
    bench = Bench()
    a, b, c, d = bench.seated("a", "b", "c", "d")
    bench.restart(group_max_size=2)
    joins = [peer.join() for peer in (d, c, b, a)]
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [join.error for join in joins] == [ErrorCode.NONE, ErrorCode.NONE, full, full]
    bench.assign(c, d)
    assert bench.state() == "Stable"
    assert bench.member_ids().keys() == {"c", "d"}


def test_kafka_13636_no_offset_expires_in_a_rebalance() -> None:
    """While a group prepares or completes, all its offsets stay, however old, subscribed or not."""
    bench = Bench(offsets_retention_ms=1)
    a, b = bench.seated("a", "b")
    a.commit(7, offsets={("t", 0): 7, ("u", 0): 8})
    a.join()
    bench.advance(SESSION_MS // 2)
    bench.remove_expired()
    assert bench.state() == "PreparingRebalance"
    assert (bench.committed("t", 0), bench.committed("u", 0)) == (7, 8)
    b.join()
    bench.advance(SESSION_MS // 2)
    bench.remove_expired()
    assert bench.state() == "CompletingRebalance"
    assert (bench.committed("t", 0), bench.committed("u", 0)) == (7, 8)
    bench.assign(a, b)
    bench.remove_expired()
    assert (bench.committed("t", 0), bench.committed("u", 0)) == (7, -1)


def test_kafka_20938_join_that_is_sent_again() -> None:
    """The first gets NOT_COORDINATOR, and clients try again; the second waits and gets the generation."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    first = a.join()
    second = a.join()
    assert first.error is ErrorCode.NOT_COORDINATOR
    b.join()
    assert second.response.generation_id == 2


def test_kafka_20938_sync_that_is_sent_again() -> None:
    """The first gets NOT_COORDINATOR, and clients try again; the second waits and gets the assignment."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    a.join()
    b.join()
    first = b.sync()
    second = b.sync()
    assert first.error is ErrorCode.NOT_COORDINATOR
    a.sync()
    assert second.response.assignment == b"b"


def test_kafka_14496_reason_that_is_absent() -> None:
    """A null reason is valid in a version that has a reason."""
    bench = Bench()
    a, b = bench.seated("a", "b", version=9)
    assert a.join(reason=None).waits
    assert b.leave(reason=None).errors == [ErrorCode.NONE]


@pytest.mark.parametrize(
    "protocol_type, protocols",
    [
        ("consumer", [("other", b"")]),
        ("consumer", []),
        ("connect", [("range", b"")]),
        ("", [("range", b"")]),
    ],
)
@pytest.mark.parametrize("member", ["newcomer", "static newcomer", "static restart", "member", "pending"])
def test_no_ticket_protocols_that_do_not_fit(
    member: str, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    """Another protocol type, or no protocol in common, gets INCONSISTENT_GROUP_PROTOCOL, and the members stay."""
    bench = Bench()
    _a, b = bench.seated("a", "b")
    pending = bench.join().response.member_id
    who: dict[str, Any] = {
        "newcomer": {},
        "static newcomer": {"instance": "c"},
        "static restart": {"instance": "b"},
        "member": {"member": b.member_id, "instance": "b"},
        "pending": {"member": pending},
    }[member]
    refused = bench.join(**who, protocol_type=protocol_type, protocols=protocols)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.state() == "Stable"
    assert b.heartbeat().error is ErrorCode.NONE
    assert b.sync().response.assignment == b"b"


# Mistakes of re-implementations.


def test_seaweedfs_9143_members_of_one_client_id_are_two() -> None:
    """Two processes with the same client id are two members, each with an assignment."""
    bench = Bench()
    same = Client("same", "/127.0.0.1")
    one, two = bench.dynamic("one", client=same), bench.dynamic("two", client=same)
    bench.settle(one, two)
    assert one.member_id != two.member_id
    assert (one.assignment, two.assignment) == (b"one", b"two")


@pytest.mark.parametrize("version", range(10))
def test_nisshi_625_second_consumer_gets_in(version: int) -> None:
    """A second consumer joins a Stable group and gets a part of the work."""
    bench = Bench()
    one, two = bench.dynamic("one", version=version), bench.dynamic("two", version=version)
    bench.settle(one)
    joined = two.enter()
    one.join()
    assert joined.response.generation_id == 2
    bench.assign(one, two)
    assert two.assignment == b"two"


def test_nisshi_679_kafka_api_8_moosestack_3885_sync_waits_for_the_leader() -> None:
    """A follower's SyncGroup never gets an empty assignment because the leader's has not come yet.

    It waits, even longer than its session timeout, and gets its assignment from the leader.
    """
    bench = Bench()
    a, b = bench.static("a"), bench.static("b")
    a.join()
    b.join()
    bench.advance(2 * bench.config.group_initial_rebalance_delay_ms)
    follower = b.sync()
    for _ in range(4):
        bench.advance(SESSION_MS - 1)
        assert follower.waits
        assert a.heartbeat().error is ErrorCode.NONE
    a.sync()
    assert follower.response.assignment == b"b"


def test_mockforge_187_silence_ends_a_member_without_anybody_joining() -> None:
    """The session timeout alone ends it, and the other members learn it with their next heartbeat."""
    bench = Bench()
    a, b = bench.dynamic("a"), bench.dynamic("b", session_ms=2 * SESSION_MS)
    bench.settle(a, b)
    bench.advance(SESSION_MS)
    assert b.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(bench.group().members) == [b.member_id]


def test_kop_380_every_join_is_answered() -> None:
    """While a rebalance is open, members join, leave, restart and expire: each JoinGroup gets an answer in the end."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    c, d = bench.static("c"), bench.dynamic("d")
    c.join()
    d.enter()
    c.restart()
    bench.leave(members=[("", "b")])
    d.leave()
    a.join()
    assert [call for call in bench.calls.values() if call.waits] == []
    assert b.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state() == "CompletingRebalance"


def test_tansu_static_restart_gets_another_member_id() -> None:
    """The new process gets another id than the old one; otherwise the old process could not be fenced."""
    bench = Bench()
    _a, b = bench.seated("a", "b")
    twin = b.twin()
    twin.join()
    assert twin.member_id != b.member_id
    assert b.heartbeat().error is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
def test_kfake_static_member_is_never_asked_for_an_id(state: str) -> None:
    """A static member never gets MEMBER_ID_REQUIRED, in any state, with a known or a new instance id."""
    bench = Bench()
    if state != "Empty":
        a, b = bench.seated("a", "b")
        if state != "Stable":
            a.join()
        if state == "CompletingRebalance":
            b.join()
    bench.join()
    assert bench.state() == state
    for instance in ("b", "new"):
        joined = bench.join(instance=instance)
        assert joined.waits or joined.error is ErrorCode.NONE


@pytest.mark.parametrize("version", range(5, 10))
def test_kfake_and_tansu_skip_assignment_is_for_version_9(version: int) -> None:
    """A restarted leader gets skip_assignment in v9 and not before."""
    bench = Bench()
    a, _b = bench.seated("a", "b", version=version)
    assert a.restart().response.skip_assignment is (version == 9)
