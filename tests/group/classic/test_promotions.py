"""A standby gets a seat, and something else happens in the middle of it: answers are lost, others come, go or return.

`test_seats` and `test_standby` say what happens when nothing does.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group.causes import CauseKind
from coordinator.group.classic.seats import STANDBY_GENERATION
from coordinator.group.notes import MemberExpired, RebalanceStarted, SeatTaken
from coordinator.group.state import State
from protocol.consumer import NO_PARTITIONS
from protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, encode
from schemas.errors import ErrorCode
from tests.group.classic.standbys import HEARTBEAT_MS, beats, take_seat, with_standby
from tests.group.harness import SESSION_MS, Bench, Peer, Protocols, subscription

GENERATION_SINCE = 2


def says_generation(generation: int) -> Protocols:
    """The metadata of a consumer that names its generation (KIP-792), as the Java client does."""
    said = ConsumerProtocolSubscription(topics=["t"], user_data=None, generation_id=generation)
    return [("range", GENERATION_SINCE.to_bytes(2) + encode(said, GENERATION_SINCE))]


def assigns(*partitions: int) -> bytes:
    """An assignment of these partitions of topic t."""
    owned = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=list(partitions))
    return b"\x00\x00" + encode(ConsumerProtocolAssignment(assigned_partitions=[owned], user_data=None), 0)


# Answers are lost.


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_answer_to_a_sync_that_takes_a_seat_is_lost(*, leads: bool) -> None:
    """The client joins again, with the new generation in its metadata: the others notice nothing."""
    bench, (a, b, c) = with_standby("a", "b", "c", protocols=says_generation(-1))
    lost, other = (a, b) if leads else (b, a)
    lost.leave()
    take_seat(c)
    beats(other, c, ms=0)
    assert not c.join(protocols=says_generation(1)).waits
    c.sync(assignments={})
    assert (c.generation, c.assignment) == (1, lost.name.encode())
    assert (bench.rebalances, other.heartbeat().error) == (1, ErrorCode.NONE)


def test_member_that_has_its_seat_rejoins_as_any_other() -> None:
    """Its heartbeat says that it has the answer to its sync. A leader's next JoinGroup starts a rebalance, as in Kafka.

    A heartbeat before the sync says nothing of that.
    """
    bench, (a, b, c) = with_standby("a", "b", "c")
    a.leave()
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    c.join()
    assert c.heartbeat().error is ErrorCode.NONE
    c.sync(assignments={})
    assert bench.group().members[c.member_id].beat is None, "its next heartbeat would not be looked at"
    assert not c.join().waits
    c.sync(assignments={})
    assert c.heartbeat().error is ErrorCode.NONE
    assert c.join().waits
    assert (bench.rebalances, b.heartbeat().error) == (2, ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
@pytest.mark.parametrize("first", [says_generation(-1), [("range", subscription("t"))]], ids=["names", "says none"])
def test_answer_to_a_join_that_takes_a_seat_is_lost_in_a_crash(first: Protocols, *, leads: bool) -> None:
    """The next coordinator hears a JoinGroup first, and no heartbeat. The metadata tell it that this was a standby."""
    bench, (a, b, c) = with_standby("a", "b", "c", protocols=first)
    lost, other = (a, b) if leads else (b, a)
    lost.leave()
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.restart()
    is_named = first == says_generation(-1)
    assert not c.join(protocols=says_generation(STANDBY_GENERATION) if is_named else first).waits
    c.sync(assignments={})
    assert (c.generation, c.assignment) == (1, lost.name.encode())
    assert (bench.rebalances, other.heartbeat().error) == (1, ErrorCode.NONE)


def test_leader_from_before_a_crash_starts_a_rebalance() -> None:
    """Its metadata name a generation in which it had its seat, so it was no standby."""
    bench, (a, b) = with_standby("a", "b", protocols=says_generation(-1))
    bench.restart()
    assert a.join(protocols=says_generation(1)).waits
    assert (bench.rebalances, b.heartbeat().error) == (2, ErrorCode.REBALANCE_IN_PROGRESS)


def test_standby_called_by_its_join_after_a_crash_has_limited_time() -> None:
    """It joins and doesn't sync: the next standby has the seat."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d", protocols=says_generation(-1), rebalance_ms=12_000)
    b.leave()
    bench.restart()
    c.join(protocols=says_generation(STANDBY_GENERATION))
    d.restart()
    d.sync()
    beats(a, c, d, ms=15_000)
    take_seat(d)
    assert (d.assignment, bench.rebalances) == (b"b", 1)


# The new leader looks at the topics.


def led_by_standby() -> tuple[Bench, Peer, Peer]:
    """A group of two members with a partition each. The leader has left; a standby has its seat, and has joined."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    a.join()
    b.join()
    a.sync(assignments={a.member_id: assigns(0), b.member_id: assigns(1)})
    b.sync()
    a.leave()
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    c.join()
    return bench, b, c


def test_new_leader_that_sees_more_partitions_starts_a_rebalance() -> None:
    """The lost leader had not seen that a topic grew. Nobody else would ever assign the new partitions."""
    bench, b, c = led_by_standby()
    grown = {b.member_id: assigns(0, 1), c.member_id: assigns(2)}
    assert c.sync(assignments=grown).error is ErrorCode.REBALANCE_IN_PROGRESS
    cause = bench.said(RebalanceStarted)[-1].cause
    assert (cause.kind, cause.member_ids) == (CauseKind.LEADER_REJOINED, (c.member_id,))
    b.join()
    c.join()
    c.sync(assignments=grown)
    b.sync()
    assert (b.assignment, c.assignment, bench.state()) == (assigns(0, 1), assigns(2), State.STABLE.value)


@pytest.mark.parametrize(
    "given",
    [(assigns(1), assigns(0)), (assigns(0), b""), (assigns(0), b"unreadable")],
    ids=["others", "fewer", "bytes"],
)
def test_new_leader_that_sees_no_more_partitions_starts_none(given: tuple[bytes, bytes]) -> None:
    """It assigns them to other members, or knows fewer, or assigns what nobody can read: the assignments stay."""
    bench, b, c = led_by_standby()
    c.sync(assignments={b.member_id: given[0], c.member_id: given[1]})
    assert (c.assignment, bench.rebalances, b.heartbeat().error) == (assigns(0), 2, ErrorCode.NONE)


# The lost member returns.

MOMENTS: dict[str, Callable[[Peer], object]] = {
    "before the standby has heard": lambda _: None,
    "after it has heard": lambda c: c.heartbeat(),
    "after it has joined": lambda c: (c.heartbeat(), c.join()),
    "after it has synced": take_seat,
}


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_lost_member_returns_and_gets_nothing(bench: Bench, moment: str, *, static: bool) -> None:
    """Each of its requests fails, whatever the standby has done so far. It joins anew, and waits as a standby."""
    bench.seats(2)
    a, b, c = (bench.static(name) if static else bench.dynamic(name) for name in "abc")
    bench.settle(a, b)
    c.enter()
    c.sync()
    beats(a, c)
    assert [note.member_id for note in bench.said(MemberExpired)] == [b.member_id]
    MOMENTS[moment](c)
    assert b.commit(7).errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    for answer in (b.heartbeat(), b.sync(), b.join()):
        assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.leave().errors == [ErrorCode.UNKNOWN_MEMBER_ID]
    b.restart()
    b.sync()
    assert (b.generation, bench.committed("t", 0)) == (STANDBY_GENERATION, -1)
    c.heartbeat()
    c.join()
    c.sync()
    assert (c.generation, c.assignment, bench.rebalances) == (1, b"b", 1)
    c.leave()
    take_seat(b)
    assert (b.assignment, bench.rebalances, a.heartbeat().error) == (b"b", 1, ErrorCode.NONE)


# Several at once.


def test_two_seats_lost_in_one_moment_and_one_standby() -> None:
    """It takes the first seat, and the second loss starts one rebalance, in which it takes part."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d", size=3)
    beats(a, d)
    assert (len(bench.said(SeatTaken)), bench.rebalances) == (1, 2)
    assert d.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    d.join()
    bench.assign(a, d)
    assert (list(bench.group().members), bench.rebalances) == ([a.member_id, d.member_id], 2)
    assert (d.assignment, bench.state()) == (b"d", State.STABLE.value)
    assert {b.heartbeat().error, c.heartbeat().error} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_two_seats_lost_in_one_moment_and_two_standbys() -> None:
    """Each takes one of them, and nobody rebalances."""
    bench, (a, b, c, d, e) = with_standby("a", "b", "c", "d", "e", size=3)
    beats(a, d, e)
    take_seat(d)
    take_seat(e)
    assert {d.assignment, e.assignment} == {b.name.encode(), c.name.encode()}
    assert (bench.rebalances, a.heartbeat().error) == (1, ErrorCode.NONE)


def test_standby_that_is_lost_too_passes_the_seat_on() -> None:
    """It got the seat and is silent: after its own session the next standby has the seat, with the same assignment."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d")
    b.leave()
    beats(a, d, ms=SESSION_MS + HEARTBEAT_MS)
    take_seat(d)
    assert (d.assignment, bench.rebalances) == (b"b", 1)
    assert c.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


# An operator changes the number of seats meanwhile.


@pytest.mark.parametrize("moment", MOMENTS)
def test_fewer_seats_while_a_standby_takes_one(moment: str) -> None:
    """It is the last member: it joins the rebalance with the others, waits again, and holds nothing."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    b.leave()
    MOMENTS[moment](c)
    bench.seats(1)
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    c.join()
    bench.assign(a)
    c.sync()
    assert (c.generation, c.assignment) == (STANDBY_GENERATION, NO_PARTITIONS)
    assert (bench.state(), bench.rebalances, list(bench.group().members)) == ("Stable", 2, [a.member_id])
    assert c.heartbeat().error is ErrorCode.NONE
    a.leave()
    take_seat(c)
    assert (c.assignment, bench.rebalances) == (b"a", 2)


def test_member_that_misses_the_rebalance_in_which_it_loses_its_seat_hears_so(bench: Bench) -> None:
    """It is a standby by then. Its heartbeat names a generation, so it has to join again, and gets no partitions."""
    bench.seats(2)
    a, b = (bench.static(name, rebalance_ms=12_000, session_ms=30_000) for name in "ab")
    bench.settle(a, b)
    bench.seats(1)
    a.join()
    beats(b, ms=12_000)
    bench.assign(a)
    assert b.commit(7).errors == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert b.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    b.join()
    b.sync()
    assert (b.generation, b.assignment, b.heartbeat().error) == (STANDBY_GENERATION, NO_PARTITIONS, ErrorCode.NONE)


def test_fewer_and_more_seats_while_a_standby_that_takes_one_is_silent(bench: Bench) -> None:
    """It waits again, and then has a seat of the rebalance that it joins: the time that it had before is forgotten."""
    bench.seats(2)
    a, b, c = (bench.static(name, rebalance_ms=12_000, session_ms=30_000) for name in "abc")
    bench.settle(a, b)
    c.enter()
    c.sync()
    b.leave()
    bench.seats(1)
    a.join()
    beats(c, ms=12_000)
    bench.assign(a)
    assert list(bench.group().standbys) == [c.member_id]
    beats(a, c, ms=12_000)
    bench.seats(2)
    c.join()
    a.join()
    beats(a, c, ms=9_000)
    bench.assign(a, c)
    beats(a, c, ms=60_000)
    assert (c.assignment, bench.rebalances, bench.state()) == (b"c", 3, "Stable")
    assert c.heartbeat().error is ErrorCode.NONE


@pytest.mark.parametrize("moment", MOMENTS)
def test_more_seats_while_a_standby_takes_one(moment: str) -> None:
    """One rebalance, in which it joins with the others; the next standby has the new seat."""
    bench, (a, b, c, d) = with_standby("a", "b", "c", "d")
    b.leave()
    MOMENTS[moment](c)
    bench.seats(3)
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    c.join()
    bench.assign(a, c)
    take_seat(d)
    assert (c.assignment, d.assignment, bench.rebalances, bench.state()) == (b"c", b"d", 2, "Stable")


@pytest.mark.parametrize("moment", MOMENTS)
def test_setting_goes_while_a_standby_takes_a_seat(moment: str) -> None:
    """The seat stays its seat, at no rebalance, if nobody else waits."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    b.leave()
    MOMENTS[moment](c)
    bench.seats(0)
    c.heartbeat()
    c.join()
    c.sync()
    assert (c.generation, c.assignment, bench.rebalances) == (1, b"b", 1)
    assert a.heartbeat().error is ErrorCode.NONE


# Other members.


def test_standby_that_changes_its_topics_before_the_loss_takes_no_seat_without_a_rebalance() -> None:
    """What it said last counts."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    c.join(protocols=[("range", subscription("u"))])
    c.sync()
    b.leave()
    assert (bench.said(SeatTaken), bench.state()) == ([], State.PREPARING_REBALANCE.value)
    assert a.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS


def test_standby_that_changes_its_topics_while_it_takes_a_seat_starts_a_rebalance() -> None:
    """The seat's assignment doesn't fit its topics; the leader has to hear of them."""
    bench, (a, b, c) = with_standby("a", "b", "c")
    b.leave()
    assert c.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert c.join(protocols=[("range", subscription("u"))]).waits
    assert bench.said(RebalanceStarted)[-1].cause.kind is CauseKind.METADATA_CHANGED
    a.join()
    bench.assign(a, c)
    assert (c.generation, c.assignment) == (2, b"c")
