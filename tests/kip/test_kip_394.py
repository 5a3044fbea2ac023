"""KIP-394, MEMBER_ID_REQUIRED: a test per clause. docs/kip-others.md has the clauses in a table.

A dynamic member first gets a member id, and becomes a member only when it comes back with it. Whoever never comes back
costs a short string until the session timeout that it asked for has passed.

House rule: test_kip_345.py's.
"""

from __future__ import annotations

import pytest

from coordinator.group.notes import MemberPending, PendingExpired
from schemas.errors import ErrorCode
from tests.group.harness import SESSION_MS, Bench

SINCE = 4
ALL_VERSIONS = range(10)


@pytest.mark.parametrize("version", range(SINCE, 10))
def test_first_join_gets_a_member_id_and_an_error(version: int) -> None:
    """A join without a member id is answered at once: MEMBER_ID_REQUIRED, and the id to come back with."""
    bench = Bench()
    answer = bench.join(version=version)
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.response.member_id.startswith("client-")
    assert (answer.response.generation_id, answer.response.leader, answer.response.members) == (-1, "", [])


def test_member_id_required_is_error_79() -> None:
    """The error has a number of its own."""
    assert ErrorCode(79) is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", range(SINCE))
def test_older_joins_are_accepted_at_once(version: int) -> None:
    """A client that speaks v3 or less does not know the error: it becomes a member with its first join."""
    bench = Bench()
    first = bench.join(version=version)
    assert first.waits
    bench.advance(bench.config.group_initial_rebalance_delay_ms)
    assert first.error is ErrorCode.NONE
    assert list(bench.group().members) == [first.response.member_id]


@pytest.mark.parametrize("version", range(SINCE, 10))
def test_second_join_with_the_id_is_accepted(version: int) -> None:
    """The id that was given out lets its holder in, under that id."""
    bench = Bench()
    member_id = bench.join(version=version).response.member_id
    joined = bench.join(version=version, member=member_id)
    bench.advance(bench.config.group_initial_rebalance_delay_ms)
    assert joined.error is ErrorCode.NONE
    assert joined.response.member_id == member_id
    assert not bench.group().pending


def test_id_that_was_not_given_out_is_refused() -> None:
    """Only ids of the coordinator count, in a group that has pending members and in one that does not exist."""
    bench = Bench()
    bench.join()
    assert bench.join(member="client-invented").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(group="nowhere", member="client-invented").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert "nowhere" not in bench.coordinator.groups


def test_id_of_another_group_is_refused() -> None:
    """An id counts in the group that it was given out for."""
    bench = Bench()
    member_id = bench.join(group="one").response.member_id
    bench.join(group="other")
    assert bench.join(group="other", member=member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_member_is_no_member_yet() -> None:
    """Its id is all that is kept: it is not described, nothing is written, and no other request takes its id."""
    bench = Bench()
    member_id = bench.join().response.member_id
    assert bench.describe().response.members == []
    assert bench.state() == "Empty"
    assert bench.records == []
    for error in (
        bench.heartbeat(member=member_id, generation=0).error,
        bench.sync(member=member_id, generation=0).error,
        bench.commit(member=member_id, generation=0, offsets={("t", 0): 1}).errors[0],
    ):
        assert error is ErrorCode.UNKNOWN_MEMBER_ID


def test_unused_id_lapses_with_the_session_timeout() -> None:
    """An id whose holder does not come back within the session timeout it asked for is forgotten."""
    bench = Bench()
    member_id = bench.join(session_ms=SESSION_MS).response.member_id
    bench.advance(SESSION_MS - 1)
    assert list(bench.group().pending) == [member_id]
    bench.advance(1)
    assert not bench.group().pending
    assert bench.join(member=member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [note.member_id for note in bench.said(PendingExpired)] == [member_id]


def test_after_a_lapse_the_client_starts_over() -> None:
    """Refused with UNKNOWN_MEMBER_ID, a client asks without an id again, gets another one, and is let in with that."""
    bench = Bench()
    lapsed = bench.join().response.member_id
    bench.advance(SESSION_MS)
    assert bench.join(member=lapsed).error is ErrorCode.UNKNOWN_MEMBER_ID
    fresh = bench.join().response.member_id
    assert fresh != lapsed
    assert bench.join(member=fresh).waits


def test_clients_that_never_come_back_leave_nothing() -> None:
    """However often a client restarts before its second join, the group has no member of it, and no id in the end."""
    bench = Bench()
    given = {bench.join().response.member_id for _ in range(1_000)}
    assert len(given) == 1_000
    assert bench.group().members == {}
    bench.advance(SESSION_MS)
    assert not bench.group().pending
    assert bench.timers == {}


def test_pending_member_does_not_disturb_a_stable_group() -> None:
    """Giving out an id is no rebalance."""
    bench = Bench()
    bench.seated("a", "b")
    bench.join()
    assert bench.state() == "Stable"
    bench.advance(SESSION_MS - 1)
    assert bench.rebalances == 1


def test_rebalance_waits_for_a_pending_member() -> None:
    """A member that is about to join is waited for, so that it does not need a rebalance of its own."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    d = bench.dynamic("d")
    d.join()
    joins = [a.join(), b.join()]
    assert [join.waits for join in joins] == [True, True]
    joined = d.join()
    assert [join.response.generation_id for join in [*joins, joined]] == [2, 2, 2]


def test_rebalance_goes_on_when_the_pending_member_lapses() -> None:
    """The wait for it ends with its id."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    bench.join(session_ms=SESSION_MS)
    joins = [a.join(), b.join()]
    bench.advance(SESSION_MS - 1)
    assert [join.waits for join in joins] == [True, True]
    bench.advance(1)
    assert [join.response.generation_id for join in joins] == [2, 2]


def test_pending_member_may_leave() -> None:
    """A consumer that is closed between its two joins gives the id back, and nobody waits for it any longer."""
    bench = Bench()
    a, b = bench.seated("a", "b")
    member_id = bench.join().response.member_id
    joins = [a.join(), b.join()]
    assert bench.leave(members=[(member_id, None)]).errors == [ErrorCode.NONE]
    assert [join.response.generation_id for join in joins] == [2, 2]
    assert bench.leave(members=[(member_id, None)]).errors == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_joining_member_is_no_longer_timed_by_its_id() -> None:
    """Once it has joined, the time that its id had no longer counts."""
    bench = Bench()
    d = bench.dynamic("d")
    bench.settle(d)
    for _ in range(4):
        bench.advance(SESSION_MS // 2)
        assert d.heartbeat().error is ErrorCode.NONE


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members_need_no_second_join(version: int) -> None:
    """An instance id is identity enough (KIP-345): no error 79, nothing pending."""
    bench = Bench()
    assert bench.join(version=version, instance="a").waits
    assert not bench.group().pending


def test_pending_id_with_an_instance_id_is_an_error() -> None:
    """No correct client gets there, and Kafka fails on it: -1, and the id stays good for a join without instance id."""
    bench = Bench()
    member_id = bench.join().response.member_id
    refused = bench.join(member=member_id, instance="a")
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refused.response.member_id == ""
    assert bench.join(member=member_id).waits


def test_giving_out_an_id_creates_the_group() -> None:
    """As in Kafka the group exists from then on, Empty and without a protocol type."""
    bench = Bench()
    bench.join()
    (listed,) = bench.list_groups().response
    assert (listed.group_id, listed.group_state, listed.protocol_type) == ("g", "Empty", "")


def test_pending_ids_are_forgotten_with_the_coordinator() -> None:
    """They are in no record: after a restart the client is UNKNOWN_MEMBER_ID and starts over."""
    bench = Bench()
    bench.seated("a")
    member_id = bench.join().response.member_id
    bench.restart()
    assert bench.join(member=member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_giving_out_an_id_is_noted() -> None:
    """Who asked, and which id it got."""
    bench = Bench()
    member_id = bench.join().response.member_id
    (pending,) = bench.said(MemberPending)
    assert (pending.member_id, pending.client_id, pending.client_host) == (member_id, "client", "/127.0.0.1")


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_protocols_are_checked_before_an_id_is_given_out(version: int) -> None:
    """A client whose protocols do not fit the group hears that, not that it needs an id."""
    bench = Bench()
    bench.seated("a")
    assert bench.join(version=version, protocols=[("other", b"")]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not bench.group().pending
