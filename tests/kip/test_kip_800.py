"""KIP-800, reasons in words, and KIP-423, a reason as a number: a test per clause. docs/kip.md has them in a table.

What a client says about why it joins or leaves goes into the cause of the rebalance, for people to read, and decides
nothing. KIP-423 was never adopted by Kafka: its number is a tagged field of this project's, which other programs skip.

House rule: test_kip_345.py's.
"""

from __future__ import annotations

import pytest

from coordinator.group.causes import Cause, CauseKind, Source
from coordinator.group.notes import MemberLeft, RebalanceCause, RebalanceStarted
from protocol.messages import JoinGroupRequest, LeaveGroupRequest, decode, encode
from schemas.errors import ErrorCode
from tests.group.harness import Bench

RESTART, TOPIC_METADATA_CHANGE, UPGRADE = 0, 1, 2


def last_cause(bench: Bench) -> Cause:
    """Why the last rebalance began."""
    return bench.said(RebalanceStarted)[-1].cause


def test_join_says_why_since_version_8() -> None:
    """JoinGroup has a reason from v8 on; in older versions it is dropped, which is no error."""
    body = JoinGroupRequest(reason="because")
    assert decode(JoinGroupRequest, encode(body, 8), 8).reason == "because"
    assert decode(JoinGroupRequest, encode(body, 7), 7).reason is None


def test_leave_says_why_since_version_5() -> None:
    """Each member of a LeaveGroup has a reason from v5 on; in older versions it is dropped, which is no error."""
    body = LeaveGroupRequest(members=[LeaveGroupRequest.MemberIdentity(member_id="m", reason="because")])
    assert decode(LeaveGroupRequest, encode(body, 5), 5).members[0].reason == "because"
    assert decode(LeaveGroupRequest, encode(body, 4), 4).members[0].reason is None


def test_reason_of_a_join_is_the_rebalances() -> None:
    """The words of the member whose join starts a rebalance are in its cause, and that they are the client's."""
    bench = Bench()
    a, _b = bench.seated("a", "b", version=9)
    a.join(reason="cached metadata has changed")
    cause = last_cause(bench)
    assert (cause.kind, cause.reason, cause.api_version) == (
        CauseKind.LEADER_REJOINED,
        "cached metadata has changed",
        9,
    )
    assert cause.source is Source.CLIENT
    assert (cause.member_ids, cause.group_instance_id, cause.client_id) == ((a.member_id,), "a", "a")


def test_reason_of_a_leave_is_the_rebalances() -> None:
    """The words of a member that leaves are in the cause, and in the note that it left."""
    bench = Bench()
    _a, b = bench.seated("a", "b", version=9)
    b.leave(reason="the consumer is being closed")
    cause = last_cause(bench)
    assert (cause.kind, cause.reason, cause.source) == (
        CauseKind.MEMBER_LEFT,
        "the consumer is being closed",
        Source.CLIENT,
    )
    assert bench.said(MemberLeft)[-1].reason == "the consumer is being closed"


def test_each_member_of_a_batch_has_its_reason() -> None:
    """An operator's removal says why for each member."""
    bench = Bench()
    bench.seated("a", "b", "c")
    bench.leave(members=[("", "b"), ("", "c")], version=5, reason="member was removed by an admin")
    assert [note.reason for note in bench.said(MemberLeft)] == ["member was removed by an admin"] * 2


def test_absent_reason_is_inferred() -> None:
    """A client that gives none, or can't, is not asked for one: the coordinator says what it saw, and that it did."""
    for version in (5, 9):
        bench = Bench()
        _a, b = bench.seated("a", "b", version=version)
        b.join(protocols=[("range", b"other")])
        cause = last_cause(bench)
        assert (cause.kind, cause.reason, cause.source) == (CauseKind.METADATA_CHANGED, "", Source.INFERRED)


def test_reason_changes_nothing() -> None:
    """With a reason and without, the answers are the same."""
    bench = Bench()
    _a, b = bench.seated("a", "b", version=9)
    plain, reasoned = b.join().response, b.join(reason="rebalance, please").response
    assert plain == reasoned
    assert bench.rebalances == 1


def test_later_causes_are_kept_as_well() -> None:
    """Whoever joins while a rebalance is open already has its reason noted, too."""
    bench = Bench()
    a, b = bench.seated("a", "b", version=9)
    a.join(reason="first")
    b.join(reason="second")
    assert bench.said(RebalanceStarted)[-1].cause.reason == "first"
    assert bench.said(RebalanceCause)[-1].cause.reason == "second"


def test_join_reason_is_a_tagged_field_since_version_6() -> None:
    """KIP-423's number travels as tag 423 where versions are flexible, and is not sent unless it is set."""
    body = JoinGroupRequest(join_reason=UPGRADE)
    assert decode(JoinGroupRequest, encode(body, 6), 6).join_reason == UPGRADE
    assert decode(JoinGroupRequest, encode(body, 5), 5).join_reason == -1
    unset = JoinGroupRequest()
    assert len(encode(body, 6)) > len(encode(unset, 6))
    assert decode(JoinGroupRequest, encode(unset, 6), 6).join_reason == -1


@pytest.mark.parametrize("number", [RESTART, TOPIC_METADATA_CHANGE, UPGRADE])
def test_join_reason_is_in_the_cause(number: int) -> None:
    """The number that a client gave is in the cause of the rebalance, beside its words."""
    bench = Bench()
    a, _b = bench.seated("a", "b", version=9)
    a.join(join_reason=number, reason="in words")
    cause = last_cause(bench)
    assert (cause.join_reason, cause.reason, cause.source) == (number, "in words", Source.CLIENT)


def test_absent_join_reason_is_unknown() -> None:
    """Most clients know nothing of it: then there is none, and nothing changes."""
    bench = Bench()
    a, _b = bench.seated("a", "b", version=9)
    a.join()
    assert last_cause(bench).join_reason is None


def test_join_reason_decides_nothing_yet() -> None:
    """KIP-423 would spare the group a rebalance if a known leader says RESTART; released Kafka rebalances, so do we."""
    bench = Bench()
    a, b = bench.seated("a", "b", version=9)
    a.join(join_reason=RESTART)
    assert bench.state() == "PreparingRebalance"
    b.join()
    bench.assign(a, b)
    assert b.join(join_reason=TOPIC_METADATA_CHANGE).response.generation_id == 2
    assert bench.state() == "Stable"


def test_restart_without_a_member_id_needs_no_join_reason() -> None:
    """What KIP-423 wanted for leaders that restart, KIP-345 gives: an empty member id with a known instance id."""
    bench = Bench()
    a, _b = bench.seated("a", "b", version=9)
    assert a.restart(join_reason=RESTART).error is ErrorCode.NONE
    assert bench.rebalances == 1


def test_protocol_change_goes_before_any_reason() -> None:
    """Whatever reason is given: other metadata, or an unknown member, rebalance as ever."""
    bench = Bench()
    a, b = bench.seated("a", "b", version=9)
    assert b.join(join_reason=RESTART, protocols=[("range", b"other")]).waits
    a.join()
    bench.assign(a, b)
    assert bench.join(version=9, instance="c", join_reason=RESTART).waits
