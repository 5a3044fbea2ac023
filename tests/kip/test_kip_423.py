"""KIP-423, why a member joins, as a number: a test per clause. tests/kip/clauses.md has the clauses.

Kafka never adopted the KIP. The number is a tagged field of this project (tag 423). Other programs skip the field, and
no program of Kafka's sends it. A client that sends it asks for the KIP's rules; for other clients nothing changes.

House rule: as in test_kip_345.py.
"""

from __future__ import annotations

import pytest

from coordinator.group.causes import Cause, CauseKind, JoinReason, Origin
from coordinator.group.notes import RebalanceStarted
from protocol.messages import JoinGroupRequest, decode, encode
from schemas.errors import ErrorCode
from tests.group.harness import Bench, Peer, subscription

RESTART, TOPIC_METADATA_CHANGE, UPGRADE = JoinReason.RESTART, JoinReason.TOPIC_METADATA_CHANGE, JoinReason.UPGRADE
NOBODY_KNOWS = 7
"""A number without a meaning."""


def last_cause(bench: Bench) -> Cause:
    """The cause of the last rebalance."""
    return bench.said(RebalanceStarted)[-1].cause


def completing(version: int = 9) -> tuple[Bench, Peer, Peer]:
    """A leader and a follower that have joined generation 2 and wait for the assignments."""
    bench = Bench()
    a, b = bench.seated("a", "b", version=version)
    a.join()
    b.join()
    return bench, a, b


# The field.


def test_join_reason_is_a_tagged_field_since_version_6() -> None:
    """Flexible versions have the number as tag 423, only if it is set."""
    body = JoinGroupRequest(join_reason=UPGRADE)
    assert decode(JoinGroupRequest, encode(body, 6), 6).join_reason == UPGRADE
    assert decode(JoinGroupRequest, encode(body, 5), 5).join_reason == -1
    unset = JoinGroupRequest()
    assert len(encode(body, 6)) > len(encode(unset, 6))
    assert decode(JoinGroupRequest, encode(unset, 6), 6).join_reason == -1


def test_the_three_reasons_have_their_numbers() -> None:
    """The numbers follow the KIP's order."""
    assert [(reason.name, reason.value) for reason in JoinReason] == [
        ("RESTART", 0),
        ("TOPIC_METADATA_CHANGE", 1),
        ("UPGRADE", 2),
    ]


@pytest.mark.parametrize("number", [TOPIC_METADATA_CHANGE, UPGRADE, NOBODY_KNOWS])
def test_join_reason_is_in_the_cause(bench: Bench, number: int) -> None:
    """The cause of the rebalance has the client's number, its text and its instance id."""
    a, _b = bench.seated("a", "b", version=9)
    a.join(join_reason=number, reason="in words")
    cause = last_cause(bench)
    assert (cause.join_reason, cause.reason, cause.source) == (number, "in words", Origin.CLIENT)
    assert (cause.group_instance_id, cause.member_ids) == ("a", (a.member_id,))


# RESTART.


@pytest.mark.parametrize("name", ["a", "b"])
def test_restart_with_a_known_member_id_rebalances_nothing(bench: Bench, name: str) -> None:
    """Leader and follower are answered at once with the current generation."""
    a, b = bench.seated("a", "b", version=9)
    peer = a if name == "a" else b
    answer = peer.join(join_reason=RESTART).response
    assert (answer.error_code, answer.generation_id, answer.member_id) == (ErrorCode.NONE, 1, peer.member_id)
    assert (bench.state(), bench.rebalances) == ("Stable", 1)


def test_restart_of_a_dynamic_leader_that_kept_its_id(bench: Bench) -> None:
    """A known member id is enough; the leader needs no instance id."""
    a, b = bench.dynamic("a", version=9), bench.dynamic("b", version=9)
    bench.settle(a, b)
    assert a.join(join_reason=RESTART).response.generation_id == 1
    assert bench.rebalances == 1


@pytest.mark.parametrize("name", ["a", "b"])
def test_restart_with_a_known_instance_id_rebalances_nothing(bench: Bench, name: str) -> None:
    """With an empty member id and a known instance id the result is KIP-345's."""
    a, b = bench.seated("a", "b", version=9)
    peer = a if name == "a" else b
    assert peer.restart(join_reason=RESTART).error is ErrorCode.NONE
    assert (bench.state(), bench.rebalances) == ("Stable", 1)


def test_restarted_leader_is_told_to_skip_the_assignment(bench: Bench) -> None:
    """From v9 on the answer has a flag for that (KIP-814), and still lists the members."""
    a, b = bench.seated("a", "b", version=9)
    answer = a.join(join_reason=RESTART).response
    assert (answer.leader, answer.skip_assignment, len(answer.members)) == (a.member_id, True, 2)
    assert not b.join(join_reason=RESTART).response.skip_assignment


def test_restarted_leader_that_assigns_all_the_same_changes_nothing(bench: Bench) -> None:
    """Before v9 there is no flag; the answer to its SyncGroup is the assignment that it has."""
    a, b = bench.seated("a", "b", version=6)
    assert not a.join(join_reason=RESTART).response.skip_assignment
    assert a.sync(assignments={a.member_id: b"other", b.member_id: b"other"}).response.assignment == b"a"
    assert b.sync().response.assignment == b"b"
    assert bench.rebalances == 1


def test_restart_is_for_stable_groups() -> None:
    """While a group prepares the restart waits; before the assignments are known it starts the rebalance over."""
    bench, a, b = completing()
    assert a.join(join_reason=RESTART).response.generation_id == 2
    assert b.restart(join_reason=RESTART).waits
    assert bench.state() == "PreparingRebalance"
    assert a.join(join_reason=RESTART).response.generation_id == 3


# TOPIC_METADATA_CHANGE.


def test_topic_metadata_change_from_the_leader_rebalances(bench: Bench) -> None:
    """A leader rejoins for this reason."""
    a, _b = bench.seated("a", "b", version=9)
    assert a.join(join_reason=TOPIC_METADATA_CHANGE).waits
    assert (last_cause(bench).kind, last_cause(bench).join_reason) == (CauseKind.LEADER_REJOINED, TOPIC_METADATA_CHANGE)


def test_topic_metadata_change_before_the_assignments_starts_over() -> None:
    """The leader's assignments would be outdated; without the reason it would get the same generation."""
    bench, a, _b = completing()
    assert a.join().response.generation_id == 2
    assert a.join(join_reason=TOPIC_METADATA_CHANGE).waits
    assert bench.state() == "PreparingRebalance"


def test_topic_metadata_change_from_a_restarted_leader_rebalances(bench: Bench) -> None:
    """The leader's seat is taken again, and the topics changed while the leader was away."""
    a, _b = bench.seated("a", "b", version=9)
    assert a.restart(join_reason=TOPIC_METADATA_CHANGE).waits
    assert last_cause(bench).kind is CauseKind.LEADER_REJOINED


def test_topic_metadata_change_must_be_from_the_leader(bench: Bench) -> None:
    """From a follower the reason counts for nothing: it gets the generation, or keeps its seat."""
    _a, b = bench.seated("a", "b", version=9)
    assert b.join(join_reason=TOPIC_METADATA_CHANGE).response.generation_id == 1
    assert b.restart(join_reason=TOPIC_METADATA_CHANGE).response.generation_id == 1
    assert (bench.state(), bench.rebalances) == ("Stable", 1)


# UPGRADE.


@pytest.mark.parametrize("name", ["a", "b"])
def test_upgrade_rebalances(name: str) -> None:
    """Leader and follower may ask for it, with a member id or as a restarted static member."""
    for restarts in (False, True):
        bench = Bench()
        a, b = bench.seated("a", "b", version=9)
        peer = a if name == "a" else b
        call = peer.restart(join_reason=UPGRADE) if restarts else peer.join(join_reason=UPGRADE)
        assert call.waits
        kind = CauseKind.LEADER_REJOINED if name == "a" else CauseKind.MEMBER_REJOINED
        assert (last_cause(bench).kind, last_cause(bench).join_reason) == (kind, UPGRADE)


def test_upgrade_before_the_assignments_starts_over() -> None:
    """The client needs a rebalance that takes its upgrade into account."""
    bench, _a, b = completing()
    assert b.join(join_reason=UPGRADE).waits
    assert bench.state() == "PreparingRebalance"


# Unknown.


@pytest.mark.parametrize("number", [-1, NOBODY_KNOWS])
def test_absent_join_reason_is_unknown(bench: Bench, number: int) -> None:
    """Without a number, or with an unknown one, a leader's rejoin rebalances and a follower's does not."""
    a, b = bench.seated("a", "b", version=9)
    assert b.join(join_reason=number).response.generation_id == 1
    assert a.join(join_reason=number).waits
    assert last_cause(bench).join_reason == (None if number < 0 else number)


def test_older_joins_have_no_reason(bench: Bench) -> None:
    """Up to v5 the field does not exist, so KIP-423 changes nothing."""
    a, _b = bench.seated("a", "b", version=5)
    assert a.join(join_reason=RESTART).waits


# Precedence.


def test_protocol_change_goes_before_any_reason() -> None:
    """Changed metadata of a leader or follower rebalances the group, whatever the reason."""
    for name in "ab":
        bench = Bench()
        a, b = bench.seated("a", "b", version=9)
        peer = a if name == "a" else b
        assert peer.join(join_reason=RESTART, protocols=[("range", subscription("other"))]).waits


def test_changed_protocol_of_a_restart_goes_before_its_reason(bench: Bench) -> None:
    """A static restart that changes the selected protocol rebalances the group, whatever the reason."""
    both = [("range", b"1"), ("roundrobin", b"1")]
    _a, b = bench.seated("a", "b", version=9, protocols=both)
    other = "range" if bench.group().protocol_name != "range" else "roundrobin"
    assert b.restart(join_reason=RESTART, protocols=[(other, b"1")]).waits
    assert last_cause(bench).kind is CauseKind.PROTOCOL_CHANGED


def test_unknown_member_goes_before_any_reason(bench: Bench) -> None:
    """A client without a member id, or with a new instance id, is a new member and rebalances the group."""
    a, b = bench.seated("a", "b", version=9)
    assert bench.dynamic("c", version=9).enter(join_reason=RESTART).waits
    a.join()
    assert bench.static("d", version=9).enter(join_reason=RESTART).waits
    assert b.join().waits is False


def test_unknown_member_id_is_refused_whatever_the_reason(bench: Bench) -> None:
    """A member id that the group doesn't know gets UNKNOWN_MEMBER_ID."""
    bench.seated("a", "b", version=9)
    assert bench.join(member="nobody", version=9, join_reason=RESTART).error is ErrorCode.UNKNOWN_MEMBER_ID
