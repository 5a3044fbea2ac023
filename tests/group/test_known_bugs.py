"""Bugs that other coordinators had, and that no script of tests/oracle shows: a test for each, named after its ticket.

Tickets are Apache Kafka's; the last one is of a re-implementation of the protocol, with its name. Each test plays the
trigger and checks the correct result. If released Kafka (3.9) still has the bug, Tenure's default has it as well, and a
setting in `GroupConfig.fixes` switches the better rule on: such a test shows both. Scripts name further tickets.

House rule: a test's name starts with its ticket; the docstring says what must hold, not what went wrong elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.group import events
from coordinator.group.client import Client
from coordinator.group.effects import TimerKey, TimerKind
from coordinator.group.notes import MemberFenced
from schemas.errors import ErrorCode
from tests.group.harness import (
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


@pytest.mark.parametrize("instance, error", [("b", ErrorCode.FENCED_INSTANCE_ID), ("z", ErrorCode.UNKNOWN_MEMBER_ID)])
@pytest.mark.parametrize("operation", ["join-group", "sync-group", "heartbeat", "offset-commit", "leave-group"])
def test_kafka_8225_every_request_checks_the_pair(
    bench: Bench, operation: str, instance: str, error: ErrorCode
) -> None:
    """An old member id gets FENCED_INSTANCE_ID with a known instance id, UNKNOWN_MEMBER_ID with an unknown one.

    A note of each fenced request has Kafka's name of the operation.
    """
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


def test_one_group_alone_may_have_the_better_rule(bench: Bench) -> None:
    """The server has Kafka's rule; the group's own setting wins."""
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


# Persistence: the part that the core decides.


def test_kafka_10284_restart_that_is_not_written_keeps_the_old_id(bench: Bench) -> None:
    """If the write fails, the restart is refused, the old id stays valid, and the next attempt succeeds."""
    _a, b = bench.seated("a", "b")
    twin = b.twin()
    with bench.failing_disk():
        assert twin.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert b.heartbeat().error is ErrorCode.NONE
    assert twin.join().error is ErrorCode.NONE
    assert b.heartbeat().error is ErrorCode.FENCED_INSTANCE_ID


def test_kafka_10401_time_of_the_state_is_written_and_read(bench: Bench) -> None:
    """The record has the time since when the group is in its state, and the next coordinator keeps that time."""
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


def test_kafka_10401_restart_keeps_the_time_of_the_state(bench: Bench) -> None:
    """A static restart writes the group in the same state, so the record keeps the time."""
    (a,) = bench.seated("a")
    since = bench.now.wall_ms
    bench.advance(SESSION_MS // 2)
    a.restart()
    written = bench.written()[-1]
    assert written is not None
    assert written.current_state_timestamp == since


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


def long_rebalance(bench: Bench) -> Peer:
    """A static member that never rejoins and so keeps a rebalance open for half an hour; its session is as long."""
    (a,) = bench.seated("a", version=5, session_ms=6 * NEW_MEMBER_MS, rebalance_ms=6 * NEW_MEMBER_MS)
    return a


def test_kafka_7610_retried_joins_leave_no_ghosts(bench: Bench) -> None:
    """A v3 client's JoinGroup times out again and again, and each time the client joins as a new member.

    Each of its abandoned members is gone after five minutes, so that the group does not grow without end.
    """
    long_rebalance(bench)
    sizes = []
    for _ in range(20):
        bench.join(version=3, rebalance_ms=6 * NEW_MEMBER_MS)
        bench.advance(60_000)
        sizes.append(len(bench.group().members))
    assert bench.state() == "PreparingRebalance"
    assert max(sizes) <= 1 + NEW_MEMBER_MS // 60_000


def test_kafka_7610_new_member_that_heartbeats_while_it_joins(bench: Bench) -> None:
    """A new member's heartbeat while it joins, possible since KIP-394, starts its session, as in Kafka."""
    long_rebalance(bench)
    d = bench.dynamic("d")
    joined = d.enter()
    assert d.heartbeat(generation=1).error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(SESSION_MS - 1)
    assert joined.waits
    bench.advance(1)
    assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_kafka_9232_first_generation_lasts_longer_than_five_minutes(bench: Bench) -> None:
    """The group does not drop a member five minutes after its first join."""
    d = bench.dynamic("d", version=3, session_ms=2 * NEW_MEMBER_MS)
    bench.settle(d)
    bench.advance(NEW_MEMBER_MS + 1)
    assert d.heartbeat().error is ErrorCode.NONE


def test_kafka_9752_rebalance_goes_on_without_the_new_member_that_timed_out(bench: Bench) -> None:
    """If a new member's join times out and all other members have joined, the rebalance completes."""
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


def test_kafka_8487_commit_while_preparing(bench: Bench) -> None:
    """The commit of a member for the ending generation is stored, and renews the member's session."""
    a, b = bench.seated("a", "b")
    a.join()
    for offset in range(4):
        bench.advance(SESSION_MS - 1)
        assert b.commit(offset).errors == [ErrorCode.NONE]
    assert bench.committed("t", 0) == 3


def test_kafka_8386_dead_group(bench: Bench) -> None:
    """A group of an unloaded partition answers COORDINATOR_NOT_AVAILABLE to each request, not UNKNOWN_MEMBER_ID."""
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


@pytest.mark.parametrize("kind", list(TimerKind))
@pytest.mark.parametrize("group", ["g", "gone"])
def test_kafka_8896_timer_of_somebody_who_is_gone(bench: Bench, kind: TimerKind, group: str) -> None:
    """A timer that fires after its member, pending id, rebalance or group is gone changes nothing."""
    bench.seated("a", "b")
    before = repr((bench.group().members, bench.group().state, bench.group().generation))
    effects = bench.handle(events.TimerFired(TimerKey(kind, group, "gone")))
    assert (effects.responses, effects.records, effects.timers, effects.notes) == ([], [], [], [])
    assert repr((bench.group().members, bench.group().state, bench.group().generation)) == before


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


# A mistake of a re-implementation.


def test_kop_380_every_join_is_answered(bench: Bench) -> None:
    """While a rebalance is open, members join, leave, restart and expire: each JoinGroup gets an answer in the end."""
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
