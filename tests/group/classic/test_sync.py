"""SyncGroup beyond what the KIPs say."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.group.causes import CauseKind
from coordinator.group.notes import GroupTooLarge, MembersDropped, RebalanceCompleted, RebalanceStarted
from protocol.records.packing import PACKED_FROM
from schemas.errors import ErrorCode
from tests.group.harness import INITIAL_DELAY_MS, REBALANCE_MS, Bench, Peer


def joined(**settings: object) -> tuple[Bench, Peer, Peer]:
    """A static leader and a static follower that have joined and not synced."""
    bench = Bench(**settings)
    leader, follower = (bench.static(name, version=7) for name in "ab")
    leader.enter()
    follower.enter()
    bench.advance(2 * INITIAL_DELAY_MS)
    assert leader.leads
    return bench, leader, follower


def test_whoever_the_leader_forgets_gets_nothing() -> None:
    """A member without an assignment from the leader gets an empty one, and a note names the member."""
    bench, leader, follower = joined()
    leader.sync(assignments={leader.member_id: b"all", "ghost": b"x"})
    assert follower.sync().response.assignment == b""
    (note,) = bench.said(RebalanceCompleted)
    assert note.without_assignment == (follower.member_id,)


def test_a_sync_sent_again_supersedes_the_first() -> None:
    """The first SyncGroup gets NOT_COORDINATOR; the second waits and gets the assignment (KAFKA-20938)."""
    _, leader, follower = joined()
    first, second = follower.sync(), follower.sync()
    assert (first.error, second.waits) == (ErrorCode.NOT_COORDINATOR, True)
    leader.sync()
    assert second.error is ErrorCode.NONE


def test_whoever_leaves_while_it_syncs_is_answered() -> None:
    """The waiting SyncGroup gets UNKNOWN_MEMBER_ID. Kafka would let it wait."""
    bench, _, follower = joined()
    waits = follower.sync()
    bench.leave(members=[("", "b")])
    assert waits.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_assignments_that_do_not_fit_a_record() -> None:
    """Every waiting SyncGroup gets an error, nothing is written, and the members may try once more (KAFKA-19760)."""
    bench, leader, follower = joined(message_max_bytes=1_000)
    waits = follower.sync()
    tried = leader.sync(assignments={leader.member_id: bytes(2_000)})
    for refused in (tried, waits):
        assert (refused.error, refused.response.assignment) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
    assert (bench.written(), bench.state()) == ([], "PreparingRebalance")
    assert bench.said(RebalanceStarted)[-1].cause.kind is CauseKind.ASSIGNMENT_TOO_LARGE
    (note,) = bench.said(GroupTooLarge)
    assert note.size > note.limit == 1_000
    for peer in (follower, leader):
        peer.join()
    for peer in (leader, follower):
        assert peer.sync(assignments={}).error is ErrorCode.NONE
    assert bench.state() == "Stable"


def test_assignments_that_the_store_of_a_cluster_does_not_take() -> None:
    """A store packs large records: one that fits then is written, another is too large, as above."""
    room = 100_000
    bench, leader, follower = joined(message_max_bytes=10_000_000, stored_max_bytes=room)
    follower.sync()
    noise = Random(7).randbytes(PACKED_FROM)
    assert leader.sync(assignments={leader.member_id: noise}).error is ErrorCode.UNKNOWN_SERVER_ERROR
    (note,) = bench.said(GroupTooLarge)
    assert (note.limit, note.size > PACKED_FROM) == (room, True)
    for peer in (follower, leader):
        peer.join()
    follower.sync()
    assert leader.sync(assignments={leader.member_id: bytes(2 * PACKED_FROM)}).error is ErrorCode.NONE
    assert bench.state() == "Stable"


@pytest.mark.parametrize("silent", ["leader", "follower"])
def test_whoever_does_not_sync_is_dropped(silent: str) -> None:
    """At the rebalance timeout the group drops it, static or not, in spite of its heartbeats (KAFKA-12890)."""
    bench, leader, follower = joined()
    quiet, other = (leader, follower) if silent == "leader" else (follower, leader)
    waits = other.sync()
    for _ in range(REBALANCE_MS // 5_000 - 1):
        bench.advance(5_000)
        assert quiet.heartbeat().error is ErrorCode.NONE
        other.heartbeat()
    bench.advance(5_000)
    assert [note.member_ids for note in bench.said(MembersDropped)] == [(quiet.member_id,)]
    assert waits.error is (ErrorCode.REBALANCE_IN_PROGRESS if silent == "leader" else ErrorCode.NONE)
    assert bench.state() == "PreparingRebalance"
