"""KIP-800, reasons as text: a test per clause. tests/kip/clauses.md has the clauses in a table.

The cause of a rebalance has the client's reason for joining or leaving. People read it; it decides nothing.

House rule: as in test_kip_345.py.
"""

from __future__ import annotations

import pytest

from coordinator.group.causes import Cause, CauseKind, Meaning, Origin
from coordinator.group.notes import MemberLeft, RebalanceCause, RebalanceStarted
from protocol.messages import JoinGroupRequest, LeaveGroupRequest, decode, encode
from schemas.errors import ErrorCode
from tests.group.harness import Bench


def last_cause(bench: Bench) -> Cause:
    """The cause of the last rebalance."""
    return bench.said(RebalanceStarted)[-1].cause


def test_join_says_why_since_version_8() -> None:
    """JoinGroup has a reason from v8 on; an older version drops it without an error."""
    body = JoinGroupRequest(reason="because")
    assert decode(JoinGroupRequest, encode(body, 8), 8).reason == "because"
    assert decode(JoinGroupRequest, encode(body, 7), 7).reason is None


def test_leave_says_why_since_version_5() -> None:
    """Each member of a LeaveGroup has a reason from v5 on; an older version drops it without an error."""
    body = LeaveGroupRequest(members=[LeaveGroupRequest.MemberIdentity(member_id="m", reason="because")])
    assert decode(LeaveGroupRequest, encode(body, 5), 5).members[0].reason == "because"
    assert decode(LeaveGroupRequest, encode(body, 4), 4).members[0].reason is None


def test_reason_of_a_join_is_the_rebalances(bench: Bench) -> None:
    """The cause has the text of the member whose join starts the rebalance, and the client as its source."""
    a, _b = bench.seated("a", "b", version=9)
    a.join(reason="cached metadata has changed")
    cause = last_cause(bench)
    assert (cause.kind, cause.reason, cause.api_version) == (
        CauseKind.LEADER_REJOINED,
        "cached metadata has changed",
        9,
    )
    assert cause.source is Origin.CLIENT
    assert (cause.member_ids, cause.group_instance_id, cause.client_id) == ((a.member_id,), "a", "a")


def test_reason_of_a_leave_is_the_rebalances(bench: Bench) -> None:
    """The cause has the text of the member that leaves, and so has the note about the member."""
    _a, b = bench.seated("a", "b", version=9)
    b.leave(reason="the consumer is being closed")
    cause = last_cause(bench)
    assert (cause.kind, cause.reason, cause.source) == (
        CauseKind.MEMBER_LEFT,
        "the consumer is being closed",
        Origin.CLIENT,
    )
    assert bench.said(MemberLeft)[-1].reason == "the consumer is being closed"


def test_each_member_of_a_batch_has_its_reason(bench: Bench) -> None:
    """An operator's removal has a reason for each member."""
    bench.seated("a", "b", "c")
    bench.leave(members=[("", "b"), ("", "c")], version=5, reason="member was removed by an admin")
    assert [note.reason for note in bench.said(MemberLeft)] == ["member was removed by an admin"] * 2


def test_absent_reason_is_inferred() -> None:
    """If the client gives no reason, the coordinator writes what it saw, and marks the cause as inferred."""
    for version in (5, 9):
        bench = Bench()
        _a, b = bench.seated("a", "b", version=version)
        b.join(protocols=[("range", b"other")])
        cause = last_cause(bench)
        assert (cause.kind, cause.reason, cause.source) == (CauseKind.METADATA_CHANGED, "", Origin.INFERRED)


def test_reason_changes_nothing(bench: Bench) -> None:
    """The answers are the same with and without a reason."""
    _a, b = bench.seated("a", "b", version=9)
    plain, reasoned = b.join().response, b.join(reason="rebalance, please").response
    assert plain == reasoned
    assert bench.rebalances == 1


def test_later_causes_are_kept_as_well(bench: Bench) -> None:
    """A note also has the reason of a member that joins while a rebalance is open."""
    a, b = bench.seated("a", "b", version=9)
    a.join(reason="first")
    b.join(reason="second")
    assert bench.said(RebalanceStarted)[-1].cause.reason == "first"
    assert bench.said(RebalanceCause)[-1].cause.reason == "second"


def test_rejoining_for_the_rebalance_is_no_cause(bench: Bench) -> None:
    """A member that joins because the group rebalances adds no cause, with or without a text that says so."""
    a, b, c = bench.seated("a", "b", "c", version=9)
    a.join(reason="cached metadata has changed")
    b.join(reason="group is already rebalancing")
    c.join()
    assert bench.said(RebalanceCause) == bench.said(RebalanceCause)[:2], "those of the first rebalance"
    assert bench.state() == "CompletingRebalance"


def test_a_member_that_was_asked_to_rejoin_adds_no_cause_whatever_it_says(bench: Bench) -> None:
    """By a heartbeat, or by a SyncGroup that another rebalance ended. The reasons of other members count."""
    a, b, c = bench.seated("a", "b", "c", version=9)
    a.join(reason="first")
    assert b.heartbeat().response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.notes.clear()
    b.join(reason="rejoining from normal rebalance")
    assert bench.said(RebalanceCause) == []
    c.join(reason="an own reason")
    assert [note.cause.reason for note in bench.said(RebalanceCause)] == ["an own reason"]
    assert bench.state() == "CompletingRebalance"
    b.sync()
    bench.notes.clear()
    a.join(reason="second", protocols=[("range", b"another")])
    b.join(reason="cooperative rejoin")
    assert bench.said(RebalanceCause) == [], "its sync was answered with REBALANCE_IN_PROGRESS"
    c.join(reason="third")
    assert [note.cause.reason for note in bench.said(RebalanceCause)] == ["third"]


def test_a_member_that_was_asked_to_rejoin_may_have_changed() -> None:
    """Another subscription is a cause, and so is a number (KIP-423): a new process has its own reason."""
    for says, kind in (
        ({"protocols": [("range", b"another")]}, CauseKind.METADATA_CHANGED),
        ({"join_reason": 0}, CauseKind.MEMBER_REJOINED),
    ):
        bench = Bench()
        a, b = bench.seated("a", "b", version=9)
        a.join(reason="first")
        b.heartbeat()
        b.join(reason="mine", **says)
        assert bench.said(RebalanceCause)[-1].cause.kind is kind


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("cached metadata has changed", Meaning.TOPIC_METADATA_CHANGE),
        ("subscription has changed", Meaning.SUBSCRIPTION_CHANGE),
        ("need to revoke partitions and re-join", Meaning.PARTITIONS_REVOKED),
        ("the consumer is being closed", Meaning.CLOSED),
        ("the consumer unsubscribed from all topics", Meaning.UNSUBSCRIBED),
        ("consumer poll timeout has expired.", Meaning.POLL_TIMEOUT),
        ("member was removed by an admin: host is gone", Meaning.REMOVED_BY_ADMIN),
        ("group is already rebalancing", Meaning.ALREADY_REBALANCING),
        ("rebalance failed due to RebalanceInProgressException", Meaning.REBALANCE_FAILED),
        ("need to re-join with the given member-id: c-1", Meaning.MEMBER_ID_GIVEN),
        ("rejoining from normal rebalance", Meaning.ALREADY_REBALANCING),
        ("rejoining after we previously errored and backed off", Meaning.REBALANCE_FAILED),
        ("cooperative rejoin after revoking what we lost from a rebalance", Meaning.PARTITIONS_REVOKED),
        ("client leaving group per normal operation", Meaning.CLOSED),
        ("triggered followup rebalance scheduled for 0", None),
        ("the cached metadata has changed, I think", None),
    ],
)
def test_words_of_clients_have_a_meaning(bench: Bench, reason: str, meaning: Meaning | None) -> None:
    """The coordinator knows fixed texts of Kafka's Java client and of franz-go; a program's own text has no meaning."""
    a, _b = bench.seated("a", "b", version=9)
    a.join(reason=reason)
    assert last_cause(bench).meaning is meaning
    assert last_cause(bench).reason == reason
