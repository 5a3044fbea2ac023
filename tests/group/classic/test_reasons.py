"""Causes of rebalances: the member, and whether the client or the coordinator gave the reason."""

from __future__ import annotations

import pytest

from coordinator.group.causes import Cause, CauseKind, Origin
from coordinator.group.notes import RebalanceCause, RebalanceStarted
from tests.group.harness import SESSION_MS, Bench, Peer, subscription


def settled(version: int = 5) -> tuple[Bench, Peer, Peer]:
    """A Stable group of a static leader and a static follower."""
    bench = Bench()
    leader, follower = (bench.static(name, version=version) for name in "ab")
    bench.settle(leader, follower)
    bench.notes.clear()
    return bench, leader, follower


def only_cause(bench: Bench) -> Cause:
    """The cause of the only rebalance."""
    (started,) = bench.said(RebalanceStarted)
    return started.cause


def test_a_new_member() -> None:
    """The cause has the member's instance id, its client and the version of its request."""
    bench, _, _ = settled()
    bench.static("c").enter()
    cause = only_cause(bench)
    assert (cause.kind, cause.group_instance_id, cause.client_id) == (CauseKind.MEMBER_JOINED, "c", "c")
    assert (cause.client_host, cause.api_version, cause.source) == ("/127.0.0.1", 5, Origin.INFERRED)


def test_a_leader_that_rejoins() -> None:
    """A leader that rejoins with the same metadata causes LEADER_REJOINED, with its member id."""
    bench, leader, _ = settled()
    leader.join()
    assert only_cause(bench).kind is CauseKind.LEADER_REJOINED
    assert only_cause(bench).member_ids == (leader.member_id,)


def test_a_follower_with_other_metadata() -> None:
    """A follower that rejoins with another subscription causes METADATA_CHANGED."""
    bench, _, follower = settled()
    follower.join(protocols=[("range", subscription("other"))])
    assert only_cause(bench).kind is CauseKind.METADATA_CHANGED


def test_a_leader_with_another_subscription() -> None:
    """Its change is the cause: METADATA_CHANGED, not LEADER_REJOINED."""
    bench, leader, _ = settled()
    leader.join(protocols=[("range", subscription("other"))])
    assert only_cause(bench).kind is CauseKind.METADATA_CHANGED


@pytest.mark.parametrize(
    ("protocols", "kind"),
    [
        ([("range", subscription("topic") + b"what it owns")], CauseKind.MEMBER_REJOINED),
        ([("range", b"not a subscription")], CauseKind.METADATA_CHANGED),
        ([("range", subscription("topic")), ("sticky", subscription("topic"))], CauseKind.METADATA_CHANGED),
    ],
)
def test_what_a_follower_owns_is_no_change(bench: Bench, protocols: list[tuple[str, bytes]], kind: CauseKind) -> None:
    """Owned partitions stand behind the topics in the metadata and differ with each rebalance (KIP-429, KIP-792)."""
    leader, follower = (bench.static(name, protocols=[("range", subscription("topic"))]) for name in "ab")
    bench.settle(leader, follower)
    bench.notes.clear()
    follower.join(protocols=protocols)
    assert only_cause(bench).kind is kind


def test_what_the_log_does_not_keep_is_no_change(bench: Bench) -> None:
    """A loaded group knows the chosen protocol only, so a member that rejoins with all of them changed nothing."""
    both = [("range", subscription("topic")), ("roundrobin", subscription("topic"))]
    leader, follower, third = peers = [bench.static(name, protocols=both) for name in "abc"]
    bench.settle(*peers)
    bench.restart()
    bench.notes.clear()
    follower.join()
    leader.join()
    third.join(protocols=[("range", subscription("other")), ("roundrobin", subscription("other"))])
    assert only_cause(bench).kind is CauseKind.MEMBER_REJOINED
    assert [(note.cause.kind, note.cause.member_ids) for note in bench.said(RebalanceCause)] == [
        (CauseKind.METADATA_CHANGED, (third.member_id,))
    ]


def test_a_static_restart_that_changes_the_protocol(bench: Bench) -> None:
    """The restarted member votes for another protocol, so the group rebalances with PROTOCOL_CHANGED."""
    both = [("range", b"1"), ("roundrobin", b"1")]
    peers = [bench.static(name, protocols=both) for name in "ab"]
    bench.settle(*peers)
    bench.notes.clear()
    peers[1].restart(protocols=[("range" if bench.group().protocol_name != "range" else "roundrobin", b"1")])
    assert only_cause(bench).kind is CauseKind.PROTOCOL_CHANGED


def test_a_member_that_leaves_says_why() -> None:
    """The cause has the client's text, and its source is the client (KIP-800)."""
    bench, _, follower = settled(version=9)
    member_id = follower.member_id
    follower.leave(reason="going home")
    cause = only_cause(bench)
    assert (cause.kind, cause.member_ids, cause.reason) == (CauseKind.MEMBER_LEFT, (member_id,), "going home")
    assert (cause.source, cause.api_version) == (Origin.CLIENT, 5)


def test_a_member_that_falls_silent() -> None:
    """No request caused the rebalance, so the cause has no API version."""
    bench, leader, follower = settled()
    bench.advance(SESSION_MS - 1)
    leader.heartbeat()
    bench.advance(1)
    cause = only_cause(bench)
    assert (cause.kind, cause.member_ids) == (CauseKind.MEMBER_EXPIRED, (follower.member_id,))
    assert cause.api_version is None


def test_a_second_cause_in_one_rebalance() -> None:
    """A note of its own names the second cause; the first stays the trigger."""
    bench, _, _ = settled()
    bench.static("c").enter()
    bench.static("d").enter()
    assert len(bench.said(RebalanceStarted)) == 1
    (further,) = bench.said(RebalanceCause)
    assert further.cause.group_instance_id == "d"


@pytest.mark.parametrize(
    ("reason", "join_reason", "source"),
    [(None, -1, Origin.INFERRED), ("rolling", -1, Origin.CLIENT), (None, 0, Origin.CLIENT)],
)
def test_who_says_so(reason: str | None, join_reason: int, source: Origin) -> None:
    """With a text (KIP-800) or a number (KIP-423) the source is the client, without both the coordinator."""
    bench, _, _ = settled(version=9)
    bench.static("c", version=9).join(reason=reason, join_reason=join_reason)
    cause = only_cause(bench)
    assert (cause.reason, cause.source) == (reason or "", source)
    assert cause.join_reason == (None if join_reason < 0 else join_reason)
