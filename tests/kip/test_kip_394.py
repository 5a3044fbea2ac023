"""KIP-394, MEMBER_ID_REQUIRED: the clauses that no script shows. tests/kip/clauses.md has the clauses in a table.

A dynamic member first gets a member id, and becomes a member when it joins with that id. A client that never does so
costs the coordinator a short string, until the session timeout that the client asked for has passed.

House rule: as in test_kip_345.py.
"""

from __future__ import annotations

from coordinator.group.notes import MemberPending, PendingExpired
from schemas.errors import ErrorCode
from tests.group.harness import SESSION_MS, Bench


def test_id_of_another_group_is_refused(bench: Bench) -> None:
    """A pending id is valid in its own group only."""
    member_id = bench.join(group="one").response.member_id
    bench.join(group="other")
    assert bench.join(group="other", member=member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_unused_id_lapses_with_the_session_timeout(bench: Bench) -> None:
    """The coordinator drops an id that is unused for the session timeout that its client asked for."""
    member_id = bench.join(session_ms=SESSION_MS).response.member_id
    bench.advance(SESSION_MS - 1)
    assert list(bench.group().pending) == [member_id]
    bench.advance(1)
    assert not bench.group().pending
    assert bench.join(member=member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [note.member_id for note in bench.said(PendingExpired)] == [member_id]


def test_clients_that_never_come_back_leave_nothing(bench: Bench) -> None:
    """A client that restarts again and again before its second join leaves no member, and in the end no id."""
    given = {bench.join().response.member_id for _ in range(200)}
    assert len(given) == 200
    assert bench.group().members == {}
    bench.advance(SESSION_MS)
    assert not bench.group().pending
    assert bench.timers == {}


def test_joining_member_is_no_longer_timed_by_its_id(bench: Bench) -> None:
    """The time limit of the pending id ends when its client joins."""
    d = bench.dynamic("d")
    bench.settle(d)
    for _ in range(4):
        bench.advance(SESSION_MS // 2)
        assert d.heartbeat().error is ErrorCode.NONE


def test_giving_out_an_id_creates_the_group(bench: Bench) -> None:
    """As in Kafka the group then exists, Empty and without a protocol type."""
    bench.join()
    (listed,) = bench.list_groups().response
    assert (listed.group_id, listed.group_state, listed.protocol_type) == ("g", "Empty", "")


def test_giving_out_an_id_is_noted(bench: Bench) -> None:
    """The note has the client and the id that it got."""
    member_id = bench.join().response.member_id
    (pending,) = bench.said(MemberPending)
    assert (pending.member_id, pending.client_id, pending.client_host) == (member_id, "client", "/127.0.0.1")
