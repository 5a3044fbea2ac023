"""KIP-394, MEMBER_ID_REQUIRED: a test per clause. tests/kip/clauses.md has the clauses in a table.

A dynamic member first gets a member id, and becomes a member when it joins with that id. A client that never does so
costs the coordinator a short string, until the session timeout that the client asked for has passed.

House rule: as in test_kip_345.py.
"""

from __future__ import annotations

import pytest

from coordinator.group.notes import MemberPending, PendingExpired
from schemas.errors import ErrorCode
from tests.group.harness import SESSION_MS, Bench

SINCE = 4
ALL_VERSIONS = range(10)


@pytest.mark.parametrize("version", range(SINCE, 10))
def test_first_join_gets_a_member_id_and_an_error(bench: Bench, version: int) -> None:
    """A join without a member id gets MEMBER_ID_REQUIRED at once, with the id for the second join."""
    answer = bench.join(version=version)
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.response.member_id.startswith("client-")
    assert (answer.response.generation_id, answer.response.leader, answer.response.members) == (-1, "", [])


def test_member_id_required_is_error_79() -> None:
    """The error has its own number."""
    assert ErrorCode(79) is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", range(SINCE))
def test_older_joins_are_accepted_at_once(bench: Bench, version: int) -> None:
    """A client with v3 or less does not know the error, so its first join makes it a member."""
    first = bench.join(version=version)
    assert first.waits
    bench.advance(bench.config.group_initial_rebalance_delay_ms)
    assert first.error is ErrorCode.NONE
    assert list(bench.group().members) == [first.response.member_id]


@pytest.mark.parametrize("version", range(SINCE, 10))
def test_second_join_with_the_id_is_accepted(bench: Bench, version: int) -> None:
    """A join with the pending id makes the client a member with this id."""
    member_id = bench.join(version=version).response.member_id
    joined = bench.join(version=version, member=member_id)
    bench.advance(bench.config.group_initial_rebalance_delay_ms)
    assert joined.error is ErrorCode.NONE
    assert joined.response.member_id == member_id
    assert not bench.group().pending


def test_id_that_was_not_given_out_is_refused(bench: Bench) -> None:
    """Only the coordinator's ids are accepted, in a group with pending members and in one that does not exist."""
    bench.join()
    assert bench.join(member="client-invented").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.join(group="nowhere", member="client-invented").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert "nowhere" not in bench.coordinator.groups


def test_id_of_another_group_is_refused(bench: Bench) -> None:
    """A pending id is valid in its own group only."""
    member_id = bench.join(group="one").response.member_id
    bench.join(group="other")
    assert bench.join(group="other", member=member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_member_is_no_member_yet(bench: Bench) -> None:
    """The coordinator keeps only the id: no description, no record, and other requests with the id are refused."""
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


def test_unused_id_lapses_with_the_session_timeout(bench: Bench) -> None:
    """The coordinator drops an id that is unused for the session timeout that its client asked for."""
    member_id = bench.join(session_ms=SESSION_MS).response.member_id
    bench.advance(SESSION_MS - 1)
    assert list(bench.group().pending) == [member_id]
    bench.advance(1)
    assert not bench.group().pending
    assert bench.join(member=member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [note.member_id for note in bench.said(PendingExpired)] == [member_id]


def test_after_a_lapse_the_client_starts_over(bench: Bench) -> None:
    """After UNKNOWN_MEMBER_ID the client joins without an id, gets another one, and joins with that."""
    lapsed = bench.join().response.member_id
    bench.advance(SESSION_MS)
    assert bench.join(member=lapsed).error is ErrorCode.UNKNOWN_MEMBER_ID
    fresh = bench.join().response.member_id
    assert fresh != lapsed
    assert bench.join(member=fresh).waits


def test_clients_that_never_come_back_leave_nothing(bench: Bench) -> None:
    """A client that restarts again and again before its second join leaves no member, and in the end no id."""
    given = {bench.join().response.member_id for _ in range(200)}
    assert len(given) == 200
    assert bench.group().members == {}
    bench.advance(SESSION_MS)
    assert not bench.group().pending
    assert bench.timers == {}


def test_pending_member_does_not_disturb_a_stable_group(bench: Bench) -> None:
    """A pending id causes no rebalance."""
    bench.seated("a", "b")
    bench.join()
    assert bench.state() == "Stable"
    bench.advance(SESSION_MS - 1)
    assert bench.rebalances == 1


def test_rebalance_waits_for_a_pending_member(bench: Bench) -> None:
    """The rebalance waits for a client that is about to join, so that it needs no rebalance of its own."""
    a, b = bench.seated("a", "b")
    d = bench.dynamic("d")
    d.join()
    joins = [a.join(), b.join()]
    assert [join.waits for join in joins] == [True, True]
    joined = d.join()
    assert [join.response.generation_id for join in [*joins, joined]] == [2, 2, 2]


def test_rebalance_goes_on_when_the_pending_member_lapses(bench: Bench) -> None:
    """When the pending id lapses, the rebalance completes."""
    a, b = bench.seated("a", "b")
    bench.join(session_ms=SESSION_MS)
    joins = [a.join(), b.join()]
    bench.advance(SESSION_MS - 1)
    assert [join.waits for join in joins] == [True, True]
    bench.advance(1)
    assert [join.response.generation_id for join in joins] == [2, 2]


def test_pending_member_may_leave(bench: Bench) -> None:
    """A consumer that closes between its two joins returns its id, and the rebalance completes without it."""
    a, b = bench.seated("a", "b")
    member_id = bench.join().response.member_id
    joins = [a.join(), b.join()]
    assert bench.leave(members=[(member_id, None)]).errors == [ErrorCode.NONE]
    assert [join.response.generation_id for join in joins] == [2, 2]
    assert bench.leave(members=[(member_id, None)]).errors == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_joining_member_is_no_longer_timed_by_its_id(bench: Bench) -> None:
    """The time limit of the pending id ends when its client joins."""
    d = bench.dynamic("d")
    bench.settle(d)
    for _ in range(4):
        bench.advance(SESSION_MS // 2)
        assert d.heartbeat().error is ErrorCode.NONE


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members_need_no_second_join(bench: Bench, version: int) -> None:
    """An instance id needs no MEMBER_ID_REQUIRED and no pending id (KIP-345)."""
    assert bench.join(version=version, instance="a").waits
    assert not bench.group().pending


def test_pending_id_with_an_instance_id_is_an_error(bench: Bench) -> None:
    """As in Kafka the answer is UNKNOWN_SERVER_ERROR, and the id stays valid for a join without instance id."""
    member_id = bench.join().response.member_id
    refused = bench.join(member=member_id, instance="a")
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert refused.response.member_id == ""
    assert bench.join(member=member_id).waits


def test_giving_out_an_id_creates_the_group(bench: Bench) -> None:
    """As in Kafka the group then exists, Empty and without a protocol type."""
    bench.join()
    (listed,) = bench.list_groups().response
    assert (listed.group_id, listed.group_state, listed.protocol_type) == ("g", "Empty", "")


def test_pending_ids_are_forgotten_with_the_coordinator(bench: Bench) -> None:
    """No record has them: after a restart the client gets UNKNOWN_MEMBER_ID and joins anew."""
    bench.seated("a")
    member_id = bench.join().response.member_id
    bench.restart()
    assert bench.join(member=member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_giving_out_an_id_is_noted(bench: Bench) -> None:
    """The note has the client and the id that it got."""
    member_id = bench.join().response.member_id
    (pending,) = bench.said(MemberPending)
    assert (pending.member_id, pending.client_id, pending.client_host) == (member_id, "client", "/127.0.0.1")


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_protocols_are_checked_before_an_id_is_given_out(bench: Bench, version: int) -> None:
    """A client whose protocols do not fit gets INCONSISTENT_GROUP_PROTOCOL, not MEMBER_ID_REQUIRED."""
    bench.seated("a")
    assert bench.join(version=version, protocols=[("other", b"")]).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not bench.group().pending
