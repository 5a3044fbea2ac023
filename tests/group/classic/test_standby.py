"""Standbys: members beyond target.group.size, and what each of their requests gets."""

from __future__ import annotations

import pytest

from coordinator.group.classic.seats import STANDBY_GENERATION
from coordinator.group.notes import MemberFenced, MemberReplaced, SeatTaken, StandbyGone, StandbyJoined
from coordinator.group.state import State
from protocol.consumer import NO_PARTITIONS
from schemas.errors import ErrorCode
from tests.group.classic.standbys import beats, take_seat, with_standby
from tests.group.harness import SESSION_MS, Bench, subscription


def test_member_beyond_the_size_is_a_standby() -> None:
    """It gets answers that a client accepts: a generation as a follower, and no partitions. Nobody else notices."""
    bench, (a, _, c) = with_standby("a", "b", "c")
    assert c.joined is not None
    assert (c.generation, c.joined.leader, c.joined.members) == (STANDBY_GENERATION, a.member_id, [])
    assert c.joined.protocol_name == "range"
    assert c.assignment == NO_PARTITIONS
    assert c.heartbeat().error is ErrorCode.NONE
    assert bench.rebalances == 1
    assert (bench.group().generation, list(bench.group().standbys)) == (1, [c.member_id])
    assert [note.member_id for note in bench.said(StandbyJoined)] == [c.member_id]


def test_without_the_setting_every_member_has_a_seat(bench: Bench) -> None:
    """The setting is off by default."""
    a, b = bench.dynamic("a"), bench.dynamic("b")
    bench.settle(a)
    b.enter()
    assert bench.state() == State.PREPARING_REBALANCE.value


@pytest.mark.parametrize("version", [5, 9])
def test_standby_of_a_leader_leads(version: int) -> None:
    """Its answer says that it leads, and lists the members; the coordinator ignores its assignments.

    It doesn't ask to skip the assignment: franz-go would compare its own one with the seat's, and ask for a rebalance.
    """
    bench, (a, b, c) = with_standby("a", "b", "c", version=version)
    beats(b, c)
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    c.join()
    c.sync(assignments={b.member_id: b"other", c.member_id: b"other"})
    assert c.joined is not None
    assert c.joined.leader == c.member_id
    assert {member.member_id for member in c.joined.members} == {b.member_id, c.member_id}
    assert not c.joined.skip_assignment
    assert c.assignment == b"a"
    assert (bench.rebalances, bench.group().members[b.member_id].assignment) == (1, b"b")
    c.join(protocols=[("range", subscription("t", "u"))])
    assert bench.state() == State.PREPARING_REBALANCE.value, "the leader may ask for a rebalance"
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_owned_partitions_in_metadata_are_no_change() -> None:
    """A cooperative client's second join has other bytes (its generation, what it owns); that starts no rebalance."""
    bench, (a, _, c) = with_standby("a", "b", "c")
    beats(a, c)
    other = b"\x00\x01" + subscription("t")[2:] + bytes(4)
    assert not c.join(protocols=[("range", other)]).waits
    assert (c.generation, bench.rebalances) == (1, 1)


def test_standby_with_other_assignors_is_refused() -> None:
    """A client that doesn't list the group's assignor can't wait for one of its seats."""
    bench, _ = with_standby("a", "b")
    other = bench.dynamic("c", protocols=[("roundrobin", subscription("t"))])
    assert other.enter().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not bench.group().standbys


def test_lost_member_comes_back_as_a_standby(bench: Bench) -> None:
    """Its member id is unknown; it joins anew and waits, static or dynamic."""
    bench.seats(2)
    a, b, c = bench.static("a"), bench.static("b"), bench.static("c")
    bench.settle(a, b)
    c.enter()
    c.sync()
    beats(a, c)
    take_seat(c)
    assert b.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.commit(7).errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    b.restart()
    assert b.generation == STANDBY_GENERATION
    assert (bench.rebalances, bench.group().generation) == (1, 1)


def test_static_member_that_restarts_in_time_keeps_its_seat(bench: Bench) -> None:
    """KIP-345 holds as without standbys."""
    bench.seats(1)
    a, b = bench.static("a"), bench.static("b")
    bench.settle(a)
    b.enter()
    a.restart()
    assert a.generation == 1
    assert not bench.said(SeatTaken)


def test_static_standby_that_restarts_stays_one(bench: Bench) -> None:
    """It gets a new member id and keeps its turn; its old id is fenced."""
    bench.seats(1)
    a, b, c = bench.static("a"), bench.static("b"), bench.static("c")
    bench.settle(a)
    b.enter()
    c.enter()
    old = b.member_id
    b.restart()
    b.sync()
    assert bench.heartbeat(member=old, generation=0, instance="b").error is ErrorCode.FENCED_INSTANCE_ID
    a.leave()
    take_seat(b)
    assert b.assignment == b"a"


def test_two_programs_with_the_instance_id_of_a_standby(bench: Bench) -> None:
    """The second one takes the place of the first, which is fenced by any request; notes name both, as for a seat."""
    bench.seats(1)
    a, b = bench.static("a"), bench.static("b")
    bench.settle(a)
    b.enter()
    other = b.twin()
    other.enter(protocols=[("range", subscription("t", "u"))])
    (replaced,) = bench.said(MemberReplaced)
    assert (replaced.old_member_id, replaced.member_id, replaced.group_instance_id) == (
        b.member_id,
        other.member_id,
        "b",
    )
    assert not replaced.rebalances
    assert not replaced.subscription_changed, "a standby has no assignment that it could keep"
    assert [b.heartbeat().error, b.sync().error, b.join().error] == [ErrorCode.FENCED_INSTANCE_ID] * 3
    assert b.commit(7).errors == [ErrorCode.FENCED_INSTANCE_ID]
    assert b.leave().errors == [ErrorCode.FENCED_INSTANCE_ID]
    told = bench.said(MemberFenced)
    assert {(note.member_id, note.current_member_id) for note in told} == {(b.member_id, other.member_id)}
    assert [note.operation for note in told] == [
        "heartbeat",
        "sync-group",
        "join-group",
        "offset-commit",
        "leave-group",
    ]
    assert other.heartbeat().error is ErrorCode.NONE


def test_standby_that_waits_is_fenced_by_its_twin(bench: Bench) -> None:
    """Its JoinGroup, which waits for the end of a rebalance, gets the error and a note behind that of the twin."""
    bench.seats(2)
    a, b, c = bench.static("a"), bench.static("b"), bench.static("c")
    bench.settle(a, b)
    a.join(protocols=[("range", subscription("t", "u"))])
    first = c.enter()
    assert first.waits
    c.twin().enter()
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    (fenced,) = bench.said(MemberFenced)
    assert (fenced.operation, fenced.waited, fenced.group_instance_id) == ("join-group", True, "c")


def test_standby_commits_nothing() -> None:
    """It holds no partitions."""
    bench, (_, _, c) = with_standby("a", "b", "c")
    assert c.commit(7).errors == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert bench.committed("t", 0) == -1


def test_standby_leaves_or_expires_alone() -> None:
    """Nobody else notices."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d")
    c.leave()
    beats(a, b)
    assert d.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [note.why for note in bench.said(StandbyGone)] == ["left", "expired"]
    assert bench.rebalances == 1


def test_standby_that_joins_during_a_rebalance_waits_for_its_end() -> None:
    """Its answer names the assignor of the generation that starts."""
    bench, (a, b) = with_standby("a", "b")
    a.join(protocols=[("range", subscription("t", "u"))])
    c = bench.dynamic("c", version=3)
    joined = c.enter()
    assert joined.waits
    b.join()
    assert c.generation == STANDBY_GENERATION
    assert bench.group().generation == 2


def test_describe_shows_standbys_without_partitions() -> None:
    """Kafka's tools show a member with 0 partitions."""
    bench, (_, _, c) = with_standby("a", "b", "c")
    shown = {member.member_id: member.member_assignment for member in bench.describe().response.members}
    assert shown[c.member_id] == NO_PARTITIONS
    assert len(shown) == 3
    assert bench.describe(waiting=True).response.members[2].session_timeout_ms == SESSION_MS
