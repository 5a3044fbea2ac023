"""KIP-345, static membership: what no script of requests shows. tests/kip/kip-345.md has all clauses in a table.

Most clauses have a script in tests/oracle/scripts, which Apache Kafka and Tenure play. The tests here look at records,
notes and timers, or name each case of a rule.

House rule: the docstring states the clause in our words. Where released Kafka decided otherwise, the docstring says so
and the test checks Kafka's decision.
"""

from __future__ import annotations

import pytest

from coordinator.config import GroupConfig
from coordinator.group.notes import MemberExpired, MemberFenced, MemberReplaced, MembersDropped
from schemas.errors import ErrorCode
from tests.group.harness import REBALANCE_MS, Bench, Peer


def test_any_instance_id_that_is_not_null_is_static(bench: Bench) -> None:
    """Only null means dynamic; as in Kafka, even an empty instance id makes a member static."""
    (nameless,) = bench.seated("")
    assert nameless.restart().response.generation_id == 1
    assert bench.rebalances == 1


def test_session_timeout_may_be_half_an_hour() -> None:
    """The default maximum is 30 minutes, so that a slow restart is possible; a longer session timeout is refused."""
    assert GroupConfig().group_max_session_timeout_ms == 30 * 60 * 1_000
    bench = Bench()
    refused = bench.join(instance="a", session_ms=30 * 60 * 1_000 + 1)
    assert refused.error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert bench.coordinator.groups == {}
    assert bench.join(instance="a", session_ms=30 * 60 * 1_000).waits


def test_instance_id_is_in_the_members_record(bench: Bench) -> None:
    """GroupMetadataValue v3 has the instance id of each member, null for a dynamic member."""
    a, d = bench.static("a"), bench.dynamic("d")
    bench.settle(a, d)
    assert bench.records[-1].value is not None
    assert bench.records[-1].value[:2] == b"\x00\x03"
    written = bench.written()[-1]
    assert written is not None
    assert {member.member_id: member.group_instance_id for member in written.members} == {
        a.member_id: "a",
        d.member_id: None,
    }


def test_replacing_is_noted(bench: Bench) -> None:
    """The note names the seat, the old and the new member id, and the client that took the seat."""
    _a, b = bench.seated("a", "b")
    old = b.member_id
    b.restart()
    (replaced,) = bench.said(MemberReplaced)
    assert (replaced.group_instance_id, replaced.old_member_id, replaced.member_id) == ("b", old, b.member_id)
    assert (replaced.state, replaced.client_id, replaced.client_host) == ("Stable", "b", "/127.0.0.1")


def replaced() -> tuple[Bench, Peer]:
    """A peer whose seat another process has taken."""
    bench = Bench()
    _a, b = bench.seated("a", "b")
    b.twin().join()
    return bench, b


def test_fencing_is_noted() -> None:
    """A note names both member ids, so that an operator sees that two processes share an instance id."""
    bench, b = replaced()
    b.heartbeat()
    (fenced,) = bench.said(MemberFenced)
    assert (fenced.member_id, fenced.group_instance_id) == (b.member_id, "b")
    assert fenced.current_member_id == bench.member_ids()["b"]


@pytest.mark.parametrize(
    "member, instance, error",
    [
        ("known", None, ErrorCode.NONE),
        ("unknown", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.MEMBER_ID_REQUIRED),
        ("known", "own", ErrorCode.NONE),
        ("known", "another's", ErrorCode.FENCED_INSTANCE_ID),
        ("known", "nobody's", ErrorCode.UNKNOWN_MEMBER_ID),
        ("unknown", "another's", ErrorCode.FENCED_INSTANCE_ID),
        ("unknown", "nobody's", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "own", ErrorCode.NONE),
    ],
)
def test_member_id_and_instance_id_in_all_combinations(
    bench: Bench, member: str, instance: str | None, error: ErrorCode
) -> None:
    """The table in the KIP's discussion, as released Kafka has it.

    A member id is empty, known or unknown; an instance id absent, the member's own, another member's or unused. In the
    discussion a known member id could bring a new instance id; Kafka answers UNKNOWN_MEMBER_ID.
    """
    _a, b = bench.seated("a", "b")
    member_id = {"known": b.member_id, "unknown": "stranger", "": ""}[member]
    instance_id = {None: None, "own": "b", "another's": "a", "nobody's": "z"}[instance]
    assert bench.join(member=member_id, instance=instance_id).error is error
    assert bench.state() == "Stable"
    assert bench.group().generation == 1


def test_batch_takes_one_rebalance(bench: Bench) -> None:
    """If one request removes several members, the others rebalance once."""
    a, *_ = bench.seated("a", "b", "c", "d")
    bench.leave(members=[("", "b"), ("", "c"), ("", "d")])
    assert bench.rebalances == 2
    assert a.join().response.generation_id == 2


def test_session_timeout_alone_removes_a_silent_static_member() -> None:
    """A static member that missed a join phase stays exactly until its session ends.

    As in Kafka, the end of a join phase renews the sessions of all members, also of those that did not join.
    """
    session_ms = REBALANCE_MS - 10_000
    bench = Bench()
    a, b = bench.seated("a", "b", session_ms=session_ms)
    a.join()
    bench.advance(REBALANCE_MS // 2)
    assert b.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(REBALANCE_MS // 2)
    bench.assign(a)
    bench.advance(session_ms // 2)
    assert a.heartbeat().error is ErrorCode.NONE
    bench.advance(session_ms // 2 - 1)
    assert bench.member_ids() == {"a": a.member_id, "b": b.member_id}
    bench.advance(1)
    assert bench.member_ids() == {"a": a.member_id}
    assert bench.said(MemberExpired)[-1].group_instance_id == "b"


def test_static_member_that_misses_join_and_sync_is_removed(bench: Bench) -> None:
    """As in Kafka, a static member that never rejoins is removed although its session is longer.

    It stays after the join phase that it missed. Then it must sync within the rebalance timeout, and does not.
    """
    a, b = bench.seated("a", "b", session_ms=3 * REBALANCE_MS)
    a.join()
    bench.advance(REBALANCE_MS)
    bench.assign(a)
    bench.advance(REBALANCE_MS - 1)
    assert bench.member_ids() == {"a": a.member_id, "b": b.member_id}
    bench.advance(1)
    assert bench.member_ids() == {"a": a.member_id}
    assert bench.said(MembersDropped)[-1].member_ids == (b.member_id,)


def test_restart_before_the_first_sync_costs_a_rebalance(bench: Bench) -> None:
    """As in Kafka, the group still waits for the old id if a static member restarts in Stable before its first sync.

    So the group rebalances after the rebalance timeout, although every member has its assignment.
    """
    a, b = bench.seated("a", "b", session_ms=2 * REBALANCE_MS)
    a.join()
    b.join()
    a.sync()
    b.restart()
    assert b.sync().response.assignment == b"b"
    bench.advance(REBALANCE_MS - 1)
    assert bench.state() == "Stable"
    bench.advance(1)
    assert bench.state() == "PreparingRebalance"
    assert bench.member_ids() == {"a": a.member_id, "b": b.member_id}
