"""KIP-345, static membership: a test per clause. tests/kip/kip-345.md has the clauses in a table.

The tests follow the KIP from top to bottom: rebalances, what static membership changes about them, fields on the wire
and in the log, joining, leaving, and the life of a fleet.

House rule: the docstring states the clause in our words. Where released Kafka decided otherwise, the docstring says so
and the test checks Kafka's decision.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.config import GroupConfig
from coordinator.group.notes import MemberExpired, MemberFenced, MemberJoined, MemberReplaced, MembersDropped
from protocol.messages import (
    DescribeGroupsResponse,
    GroupMetadataValue,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    Message,
    OffsetCommitRequest,
    SyncGroupRequest,
    decode,
    encode,
)
from schemas.errors import ErrorCode
from tests.group.harness import REBALANCE_MS, SESSION_MS, Bench, Peer, subscription

STATIC_JOIN_VERSIONS = range(5, 10)


# Rebalances without static membership.


def test_new_member_starts_a_rebalance(bench: Bench) -> None:
    """A new consumer takes a Stable group to PreparingRebalance."""
    bench.seated("a", "b")
    assert bench.static("c").join().waits
    assert bench.state() == "PreparingRebalance"


def test_leader_that_rejoins_by_its_member_id_starts_a_rebalance(bench: Bench) -> None:
    """The leader may have seen new topics, so its JoinGroup rebalances a Stable group, even with the same metadata."""
    a, _b = bench.seated("a", "b")
    assert a.join().waits
    assert bench.state() == "PreparingRebalance"


def test_follower_that_rejoins_unchanged_leaves_the_state_alone(bench: Bench) -> None:
    """A follower that joins again with the same metadata gets the generation, and nothing else happens."""
    _a, b = bench.seated("a", "b")
    assert b.join().response.generation_id == 1
    assert bench.state() == "Stable"


def test_first_to_join_leads(bench: Bench) -> None:
    """The first member to join is the leader, and every member's answer names it."""
    a, b = bench.seated("a", "b")
    assert bench.group().leader == a.member_id
    assert b.joined is not None
    assert b.joined.leader == a.member_id


def test_rebalance_waits_for_every_member(bench: Bench) -> None:
    """Until every member has joined again, or the rebalance timeout has passed, no JoinGroup is answered."""
    a, b = bench.seated("a", "b")
    joins = [bench.static("c").join(), a.join()]
    bench.advance(SESSION_MS // 2)
    assert [join.waits for join in joins] == [True, True]
    b.join()
    assert [join.error for join in joins] == [ErrorCode.NONE, ErrorCode.NONE]


def test_all_joined_completes_the_join_phase(bench: Bench) -> None:
    """The last member's JoinGroup takes the group to CompletingRebalance, and every JoinGroup is answered."""
    a, b = bench.seated("a", "b")
    joins = [a.join(), b.join()]
    assert bench.state() == "CompletingRebalance"
    assert [join.response.generation_id for join in joins] == [2, 2]


def test_only_the_leader_learns_the_members(bench: Bench) -> None:
    """The leader's JoinGroup answer lists all members with their metadata, a follower's lists none."""
    a, b = bench.seated("a", "b")
    lead, follow = a.join(protocols=[("range", b"of a")]), b.join(protocols=[("range", b"of b")])
    assert {member.member_id: member.metadata for member in lead.response.members} == {
        a.member_id: b"of a",
        b.member_id: b"of b",
    }
    assert follow.response.members == []


def test_assignments_come_from_the_leader_by_sync(bench: Bench) -> None:
    """A follower's SyncGroup waits for the leader's, which has the assignments of all members."""
    a, b = bench.seated("a", "b")
    a.join()
    b.join()
    follower = b.sync()
    assert follower.waits
    leader = a.sync(assignments={a.member_id: b"left", b.member_id: b"right"})
    assert (leader.response.assignment, follower.response.assignment) == (b"left", b"right")
    assert bench.state() == "Stable"


def test_each_rebalance_raises_the_generation_by_one(bench: Bench) -> None:
    """Each rebalance leads to the next generation."""
    a, b = bench.seated("a", "b")
    for generation in (2, 3, 4):
        a.join()
        assert b.join().response.generation_id == generation
        bench.assign(a, b)


@pytest.mark.parametrize("version", range(10))
def test_restart_of_a_dynamic_member_is_a_new_member(bench: Bench, version: int) -> None:
    """Without an instance id the coordinator can't recognize a restart: the new process becomes another member."""
    a, b = (bench.dynamic(name, version=version) for name in "ab")
    bench.settle(a, b)
    old, rebalances = b.member_id, bench.rebalances
    b.restart()
    assert len(bench.group().members) == 3
    assert bench.rebalances == rebalances + 1
    a.join()
    bench.advance(SESSION_MS)
    assert bench.group().members.keys() == {a.member_id, b.member_id}
    assert b.member_id != old


def test_member_ids_are_the_coordinators_and_unique(bench: Bench) -> None:
    """The coordinator makes each member id from the instance id or the client id, and never the same id twice."""
    a, d = bench.static("a"), bench.dynamic("d")
    bench.settle(a, d)
    assert a.member_id.startswith("a-")
    assert d.member_id.startswith("d-")
    ids = [a.restart().response.member_id for _ in range(5)]
    assert len({*ids, d.member_id}) == len(ids) + 1


# Changes by static membership.


def test_static_restart_within_its_session_moves_nothing(bench: Bench) -> None:
    """A static member that restarts before its session timeout causes no rebalance, leader or follower."""
    a, b, c = bench.seated("a", "b", "c")
    for peer in (c, b, a):
        before = peer.assignment
        bench.advance(SESSION_MS // 2)
        for other in {a, b, c} - {peer}:
            assert other.heartbeat().error is ErrorCode.NONE
        assert peer.restart().response.generation_id == 1
        assert peer.sync().response.assignment == before
    assert bench.rebalances == 1
    assert bench.state() == "Stable"


def test_silence_beyond_the_session_timeout_rebalances(bench: Bench) -> None:
    """A static member that is silent for longer than its session timeout is removed; the others get its partitions."""
    a, b = bench.seated("a", "b")
    bench.advance(SESSION_MS - 1)
    assert a.heartbeat().error is ErrorCode.NONE
    bench.advance(1)
    assert a.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.member_ids() == {"a": a.member_id}
    assert a.join().response.generation_id == 2
    assert b.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_of_instance_ids_rebalances(bench: Bench) -> None:
    """A LeaveGroup with instance ids rebalances the group at once."""
    a, b, c = bench.seated("a", "b", "c")
    bench.leave(members=[("", "b"), ("", "c")])
    assert bench.state() == "PreparingRebalance"
    assert bench.member_ids() == {"a": a.member_id}
    assert {b.member_id, c.member_id}.isdisjoint(bench.group().members)


def test_null_instance_id_is_a_dynamic_member(bench: Bench) -> None:
    """A member without an instance id is dynamic, also in versions that have the field."""
    d = bench.dynamic("d", version=9)
    bench.settle(d)
    assert bench.member_ids() == {}
    assert bench.describe().response.members[0].group_instance_id is None


def test_any_instance_id_that_is_not_null_is_static(bench: Bench) -> None:
    """Only null means dynamic; as in Kafka, even an empty instance id makes a member static."""
    (nameless,) = bench.seated("")
    assert nameless.restart().response.generation_id == 1
    assert bench.rebalances == 1


# Fields on the wire.


@pytest.mark.parametrize(
    "message, since",
    [
        (JoinGroupRequest(group_instance_id="a"), 5),
        (SyncGroupRequest(group_instance_id="a"), 3),
        (HeartbeatRequest(group_instance_id="a"), 3),
        (OffsetCommitRequest(group_instance_id="a"), 7),
        (JoinGroupResponse.JoinGroupResponseMember(group_instance_id="a"), 5),
        (DescribeGroupsResponse.DescribedGroupMember(group_instance_id="a"), 4),
        (LeaveGroupRequest.MemberIdentity(group_instance_id="a"), 3),
    ],
    ids=lambda value: type(value).__qualname__ if isinstance(value, Message) else f"v{value}",
)
def test_instance_id_is_on_the_wire_since(message: Any, since: int) -> None:
    """Each message has the instance id from one version on; an older version drops it or can't be encoded."""
    assert decode(type(message), encode(message, since), since).group_instance_id == "a"
    try:
        before = encode(message, since - 1)
    except AssertionError:
        return
    assert decode(type(message), before, since - 1).group_instance_id is None


def test_leave_request_has_a_list_in_place_of_the_member_id() -> None:
    """LeaveGroup v2 has one member id; v3 has a list of (member id, instance id) instead."""
    batch = LeaveGroupRequest(members=[LeaveGroupRequest.MemberIdentity(member_id="m", group_instance_id="a")])
    assert decode(LeaveGroupRequest, encode(batch, 3), 3) == batch
    one = LeaveGroupRequest(member_id="m")
    assert decode(LeaveGroupRequest, encode(one, 2), 2) == one
    with pytest.raises(AssertionError):
        encode(one, 3)


def test_leader_is_told_the_instance_ids(bench: Bench) -> None:
    """The leader's JoinGroup answer has the members' instance ids, so that an assignor can sort by them."""
    a, _b = bench.seated("a", "b")
    assert a.joined is not None
    assert [member.group_instance_id for member in a.joined.members] == ["a", "b"]


def test_describe_shows_instance_ids(bench: Bench) -> None:
    """DescribeGroups shows the instance id of static members, and none for dynamic members."""
    a, d = bench.static("a"), bench.dynamic("d")
    bench.settle(a, d)
    shown = {member.member_id: member.group_instance_id for member in bench.describe().response.members}
    assert shown == {a.member_id: "a", d.member_id: None}


def test_fenced_instance_id_is_error_82() -> None:
    """The error says that the instance id belongs to another member id. The KIP numbers it 78, Kafka 82."""
    assert ErrorCode(82) is ErrorCode.FENCED_INSTANCE_ID


# Settings and records.


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


# Joining with an instance id and an empty member id.


@pytest.mark.parametrize("version", STATIC_JOIN_VERSIONS)
def test_known_instance_is_answered_at_once_when_stable(bench: Bench, version: int) -> None:
    """In a Stable group a known instance id without a member id gets a new member id in the current generation."""
    _a, b = bench.seated("a", "b", version=version)
    old = b.member_id
    again = b.restart()
    assert again.error is ErrorCode.NONE
    assert again.response.generation_id == 1
    assert again.response.member_id not in ("", old)
    assert bench.member_ids()["b"] == again.response.member_id


@pytest.mark.parametrize("version", STATIC_JOIN_VERSIONS)
def test_known_instance_gets_its_assignment_back(bench: Bench, version: int) -> None:
    """The seat keeps the assignment: the next SyncGroup returns it, also to a leader."""
    a, b = bench.seated("a", "b", version=version)
    for peer in (b, a):
        peer.restart()
        assert peer.sync().response.assignment == peer.name.encode()
    assert bench.rebalances == 1


def test_unknown_instance_is_added(bench: Bench) -> None:
    """A new instance id gets a member id and an entry in the map, and the group rebalances."""
    a, _b = bench.seated("a", "b")
    joined = bench.static("c").join()
    a.join()
    _b.join()
    assert bench.member_ids()["c"] == joined.response.member_id
    assert joined.response.generation_id == 2


@pytest.mark.parametrize("version", STATIC_JOIN_VERSIONS)
def test_static_member_is_never_asked_for_a_member_id(bench: Bench, version: int) -> None:
    """Neither a new nor a known instance id gets MEMBER_ID_REQUIRED or a pending member id."""
    a = bench.static("a", version=version)
    first = a.join()
    assert not bench.group().pending
    bench.advance(bench.config.group_initial_rebalance_delay_ms)
    assert first.error is ErrorCode.NONE
    bench.assign(a)
    assert a.restart().error is ErrorCode.NONE
    assert not bench.group().pending


def test_map_follows_each_join(bench: Bench) -> None:
    """Each join without a member id maps the instance id to a new member id; the earlier ids are fenced."""
    a, _b = bench.seated("a", "b")
    stale = [a.member_id, a.restart().response.member_id]
    newest = a.restart().response.member_id
    for member_id in stale:
        assert bench.join(member=member_id, instance="a").error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.join(member=newest, instance="a", protocols=[("range", b"other")]).waits


def test_replacing_is_noted(bench: Bench) -> None:
    """The note names the seat, the old and the new member id, and the client that took the seat."""
    _a, b = bench.seated("a", "b")
    old = b.member_id
    b.restart()
    (replaced,) = bench.said(MemberReplaced)
    assert (replaced.group_instance_id, replaced.old_member_id, replaced.member_id) == ("b", old, b.member_id)
    assert (replaced.state, replaced.client_id, replaced.client_host) == ("Stable", "b", "/127.0.0.1")


def test_restart_while_preparing_waits_with_the_others(bench: Bench) -> None:
    """During the join phase a restarted static member takes its seat and is answered with the others."""
    a, b = bench.seated("a", "b")
    a.join()
    again = b.restart()
    assert again.response.generation_id == 2
    assert bench.member_ids()["b"] == again.response.member_id
    assert bench.rebalances == 2


def test_restart_while_completing_starts_over(bench: Bench) -> None:
    """The leader would assign to the old id and the new one would get nothing, so the group rebalances once more."""
    a, b = bench.seated("a", "b")
    a.join()
    b.join()
    assert b.restart().waits
    assert bench.state() == "PreparingRebalance"
    assert a.sync(assignments={}).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.join().response.generation_id == 3


# Joining with an instance id and a member id.


def test_right_member_id_is_accepted(bench: Bench) -> None:
    """A member may join again with the instance id and the member id that belong together."""
    _a, b = bench.seated("a", "b")
    assert b.join().error is ErrorCode.NONE
    assert b.join(protocols=[("range", b"other")]).waits


def test_replaced_member_id_is_fenced_on_join(bench: Bench) -> None:
    """A join with an instance id and an outdated member id gets FENCED_INSTANCE_ID, and nothing changes."""
    _a, b = bench.seated("a", "b")
    twin = b.twin()
    twin.join()
    refused = b.join()
    assert refused.error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.member_ids()["b"] == twin.member_id
    assert bench.state() == "Stable"


def test_dynamic_member_that_takes_a_used_instance_id_is_fenced(bench: Bench) -> None:
    """The coordinator refuses the dynamic member; the member that holds the instance id goes on."""
    a, d = bench.static("a"), bench.dynamic("d")
    bench.settle(a, d)
    assert bench.join(member=d.member_id, instance="a").error is ErrorCode.FENCED_INSTANCE_ID
    assert a.heartbeat().error is ErrorCode.NONE
    assert d.heartbeat().error is ErrorCode.NONE


def replaced() -> tuple[Bench, Peer]:
    """A peer whose seat another process has taken."""
    bench = Bench()
    _a, b = bench.seated("a", "b")
    b.twin().join()
    return bench, b


def test_replaced_member_is_fenced_on_sync() -> None:
    """SyncGroup of a replaced member id with its instance id gets FENCED_INSTANCE_ID."""
    _, b = replaced()
    assert b.sync().error is ErrorCode.FENCED_INSTANCE_ID


def test_replaced_member_is_fenced_on_heartbeat() -> None:
    """Heartbeat of a replaced member id gets FENCED_INSTANCE_ID: so a program usually learns of a twin."""
    _, b = replaced()
    assert b.heartbeat().error is ErrorCode.FENCED_INSTANCE_ID


def test_replaced_member_is_fenced_on_commit() -> None:
    """OffsetCommit of a replaced member id gets FENCED_INSTANCE_ID, and stores nothing."""
    bench, b = replaced()
    assert b.commit(7).errors == [ErrorCode.FENCED_INSTANCE_ID]
    assert bench.committed("t", 0) == -1


def test_fencing_goes_before_the_generation() -> None:
    """A replaced member id gets FENCED_INSTANCE_ID, whatever the generation in its request."""
    _, b = replaced()
    assert b.sync(generation=0).error is ErrorCode.FENCED_INSTANCE_ID
    assert b.heartbeat(generation=0).error is ErrorCode.FENCED_INSTANCE_ID
    assert b.commit(7, generation=0).errors == [ErrorCode.FENCED_INSTANCE_ID]


def test_replaced_member_that_waits_is_fenced_at_once(bench: Bench) -> None:
    """A JoinGroup or SyncGroup that waits under the old id gets FENCED_INSTANCE_ID when the twin joins."""
    a, b = bench.seated("a", "b")
    a.join()
    b.join()
    waiting_sync = b.sync()
    twin = b.twin()
    waiting_join = twin.join()
    assert waiting_sync.error is ErrorCode.FENCED_INSTANCE_ID
    b.twin().join()
    assert waiting_join.error is ErrorCode.FENCED_INSTANCE_ID


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


def test_join_without_instance_id_is_handled_as_ever(bench: Bench) -> None:
    """A dynamic member in a group of static members first gets an id, then joins, and its join rebalances."""
    a, b = bench.seated("a", "b")
    d = bench.dynamic("d")
    assert d.join().error is ErrorCode.MEMBER_ID_REQUIRED
    assert bench.state() == "Stable"
    joined = d.join()
    assert joined.waits
    a.join()
    b.join()
    assert joined.response.generation_id == 2


@pytest.mark.parametrize("version", range(5))
def test_older_joins_are_handled_as_before(bench: Bench, version: int) -> None:
    """Up to v4 JoinGroup has no instance id: the member is dynamic, whatever its configuration says."""
    a = bench.static("a", version=version)
    bench.settle(a)
    assert bench.member_ids() == {}
    first = a.member_id
    a.restart()
    assert a.member_id != first
    assert len(bench.group().members) == 2


# The leader's restart.


@pytest.mark.parametrize("version", STATIC_JOIN_VERSIONS)
def test_leader_with_an_empty_member_id_is_a_restart(bench: Bench, version: int) -> None:
    """An empty member id means that the leader restarted and saw no new topics: no rebalance."""
    a, _b = bench.seated("a", "b", version=version)
    assert a.restart().response.generation_id == 1
    assert bench.state() == "Stable"


def test_leader_with_its_member_id_means_something_else(bench: Bench) -> None:
    """A member id means that the leader was running and wants a rebalance."""
    a, b = bench.seated("a", "b")
    a.restart()
    bench.assign(a)
    assert a.join().waits
    assert b.join().response.generation_id == 2


@pytest.mark.parametrize("version", STATIC_JOIN_VERSIONS)
def test_restarted_leader_leads_the_next_generation(bench: Bench, version: int) -> None:
    """The seat leads: under its new member id the leader assigns at the next rebalance."""
    a, b = bench.seated("a", "b", version=version)
    a.restart()
    b.join(protocols=[("range", b"other")])
    lead = a.join()
    assert lead.response.leader == a.member_id
    assert {member.member_id for member in lead.response.members} == {a.member_id, b.member_id}


def test_restart_reaches_the_leader_with_the_next_rebalance(bench: Bench) -> None:
    """The leader goes on with the member ids that it knows until something else rebalances the group.

    Then it gets the new id of a restarted member with the same instance id, and can assign the same partitions.
    """
    a, b, c = bench.seated("a", "b", "c")
    old = b.member_id
    b.restart()
    assert a.joined is not None
    assert old in {member.member_id for member in a.joined.members}
    joins = [a.join(), b.join(), c.join()]
    seen = {member.group_instance_id: member.member_id for member in joins[0].response.members}
    assert seen == {"a": a.member_id, "b": b.member_id, "c": c.member_id}
    assert seen["b"] != old


# Leaving.


@pytest.mark.parametrize("version", range(3))
def test_older_leaves_are_handled_as_before(bench: Bench, version: int) -> None:
    """Up to v2 a LeaveGroup names one member id, and its answer has one error."""
    a, b = (bench.dynamic(name, version=0) for name in "ab")
    bench.settle(a, b)
    assert bench.leave(member=b.member_id, version=version).error is ErrorCode.NONE
    assert list(bench.group().members) == [a.member_id]
    assert bench.leave(member=b.member_id, version=version).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_by_instance_id_alone(bench: Bench) -> None:
    """If the member id is empty, the instance id alone names the member."""
    a, _b = bench.seated("a", "b")
    assert bench.leave(members=[("", "b")]).errors == [ErrorCode.NONE]
    assert bench.member_ids() == {"a": a.member_id}


def test_leave_by_instance_id_and_matching_member_id(bench: Bench) -> None:
    """A member id with an instance id must match it, and does here."""
    a, b = bench.seated("a", "b")
    assert bench.leave(members=[(b.member_id, "b")]).errors == [ErrorCode.NONE]
    assert bench.member_ids() == {"a": a.member_id}


def test_leave_with_another_member_id_removes_nobody() -> None:
    """If the member id does not match the instance id, the entry gets FENCED_INSTANCE_ID and no member leaves."""
    bench, b = replaced()
    assert bench.leave(members=[(b.member_id, "b")]).errors == [ErrorCode.FENCED_INSTANCE_ID]
    assert bench.member_ids().keys() == {"a", "b"}
    assert bench.state() == "Stable"


@pytest.mark.parametrize("version", [3, 4, 5])
def test_dynamic_member_leaves_by_a_list_of_one(bench: Bench, version: int) -> None:
    """A consumer that closes sends its member id with a null instance id, and is removed."""
    a, d = bench.static("a"), bench.dynamic("d")
    bench.settle(a, d)
    assert bench.leave(members=[(d.member_id, None)], version=version).errors == [ErrorCode.NONE]
    assert list(bench.group().members) == [a.member_id]
    assert bench.state() == "PreparingRebalance"


def test_leave_of_an_unknown_instance(bench: Bench) -> None:
    """An instance id of no member gets UNKNOWN_MEMBER_ID, with or without a member id."""
    a, _b = bench.seated("a", "b")
    left = bench.leave(members=[("", "z"), (a.member_id, "z")])
    assert left.errors == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.state() == "Stable"


@pytest.mark.parametrize("instance", ["", None])
def test_leave_that_names_nobody(bench: Bench, instance: str | None) -> None:
    """An entry without member id and instance id gets UNKNOWN_MEMBER_ID."""
    bench.seated("a", "b")
    left = bench.leave(members=[("", instance), ("", instance)])
    assert left.errors == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert bench.state() == "Stable"


def test_batch_has_an_answer_for_each(bench: Bench) -> None:
    """An entry that fails does not stop the others; each has its own error, with the order and ids of the request."""
    a, b, _c = bench.seated("a", "b", "c")
    left = bench.leave(members=[("", "z"), (a.member_id, "b"), ("", "c"), (b.member_id, None)])
    assert left.error is ErrorCode.NONE
    assert [
        (member.member_id, member.group_instance_id, ErrorCode(member.error_code)) for member in left.response.members
    ] == [
        ("", "z", ErrorCode.UNKNOWN_MEMBER_ID),
        (a.member_id, "b", ErrorCode.FENCED_INSTANCE_ID),
        ("", "c", ErrorCode.NONE),
        (b.member_id, None, ErrorCode.NONE),
    ]
    assert bench.member_ids() == {"a": a.member_id}


def test_batch_takes_one_rebalance(bench: Bench) -> None:
    """If one request removes several members, the others rebalance once."""
    a, *_ = bench.seated("a", "b", "c", "d")
    bench.leave(members=[("", "b"), ("", "c"), ("", "d")])
    assert bench.rebalances == 2
    assert a.join().response.generation_id == 2


def test_removal_for_a_group_that_does_not_exist(bench: Bench) -> None:
    """An operator who names a wrong group gets an error.

    The KIP says INVALID_GROUP_ID. Kafka answers UNKNOWN_MEMBER_ID for each member, and INVALID_GROUP_ID only for the
    empty group id.
    """
    left = bench.leave(group="nowhere", members=[("", "a"), ("", "b")])
    assert left.error is ErrorCode.NONE
    assert left.errors == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert bench.leave(group="", members=[("", "a")]).error is ErrorCode.INVALID_GROUP_ID
    assert bench.coordinator.groups == {}


def test_removal_needs_no_membership(bench: Bench) -> None:
    """The request does not name its sender, so every client that may join the group may remove members."""
    a, b = bench.seated("a", "b")
    bench.leave(members=[("", "a"), ("", "b")])
    assert bench.state() == "Empty"
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_that_names_a_static_member_by_its_member_id(bench: Bench) -> None:
    """A member id with a null instance id also removes a static member, with its entry in the map."""
    _a, b = bench.seated("a", "b")
    old = b.member_id
    assert bench.leave(members=[(old, None)]).errors == [ErrorCode.NONE]
    assert "b" not in bench.member_ids()
    assert b.restart().waits
    assert [note.group_instance_id for note in bench.said(MemberJoined)] == ["a", "b", "b"]


# The life of a fleet.


def test_rebalance_timeout_keeps_static_members(bench: Bench) -> None:
    """The rebalance timeout ends the join phase; a static member that did not join stays, also in the leader's list."""
    a, b = bench.seated("a", "b", session_ms=2 * REBALANCE_MS)
    join = a.join()
    bench.advance(REBALANCE_MS)
    assert {member.group_instance_id for member in join.response.members} == {"a", "b"}
    assert bench.member_ids() == {"a": a.member_id, "b": b.member_id}


def test_rebalance_timeout_drops_dynamic_members(bench: Bench) -> None:
    """A dynamic member that did not join in time is removed."""
    a, d = bench.static("a", session_ms=2 * REBALANCE_MS), bench.dynamic("d", session_ms=2 * REBALANCE_MS)
    bench.settle(a, d)
    join = a.join()
    bench.advance(REBALANCE_MS)
    assert [member.member_id for member in join.response.members] == [a.member_id]
    assert d.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_laggard_within_its_session_needs_no_rebalance(bench: Bench) -> None:
    """A static member that joins late, but within its session, gets the current generation without a rebalance."""
    a, b = bench.seated("a", "b", session_ms=2 * REBALANCE_MS)
    a.join()
    bench.advance(REBALANCE_MS)
    bench.assign(a)
    assert b.heartbeat().error is ErrorCode.ILLEGAL_GENERATION
    assert b.join().response.generation_id == 2
    assert b.sync().response.assignment == b"b"
    assert bench.rebalances == 2


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


def test_expiry_clears_the_map(bench: Bench) -> None:
    """An expired member's entry in the map is gone: its instance id is free, and its old id unknown, not fenced."""
    a, b = bench.seated("a", "b")
    bench.advance(SESSION_MS // 2)
    a.heartbeat()
    bench.advance(SESSION_MS // 2)
    assert bench.member_ids() == {"a": a.member_id}
    assert bench.group().static_members == {"a": a.member_id}
    assert b.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_that_never_syncs_is_removed(bench: Bench) -> None:
    """A member that joined and did not sync within the rebalance timeout is removed, in spite of its heartbeats.

    The KIP would leave a static member until its session timeout; Kafka does not.
    """
    a, b = bench.seated("a", "b", session_ms=2 * REBALANCE_MS)
    a.join()
    b.join()
    a.sync()
    bench.advance(REBALANCE_MS - 1)
    assert b.heartbeat().error is ErrorCode.NONE
    bench.advance(1)
    assert bench.member_ids() == {"a": a.member_id}
    assert bench.state() == "PreparingRebalance"


def test_scale_down_takes_effect_at_once(bench: Bench) -> None:
    """After a removal the group rebalances at once and does not wait for the session timeout."""
    a, b, c = bench.seated("a", "b", "c", session_ms=30 * 60 * 1_000)
    bench.leave(members=[("", "c")])
    joins = [a.join(), b.join()]
    assert [join.response.generation_id for join in joins] == [2, 2]
    assert bench.now_ms < 30 * 60 * 1_000
    assert c.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_survive_the_coordinator(bench: Bench) -> None:
    """The next coordinator reads the map from the log: members go on, and restarts get their seats."""
    a, b = bench.seated("a", "b")
    before = bench.member_ids()
    bench.restart()
    assert bench.member_ids() == before
    assert a.heartbeat().error is ErrorCode.NONE
    assert b.restart().response.generation_id == 1
    assert b.sync().response.assignment == b"b"


def test_replacement_survives_the_coordinator(bench: Bench) -> None:
    """A restart is in the log before its answer: after a crash the new id has the seat, and the old one is fenced."""
    _a, b = bench.seated("a", "b")
    old, records = b.member_id, len(bench.records)
    b.restart()
    assert len(bench.records) == records + 1
    bench.restart()
    assert b.heartbeat().error is ErrorCode.NONE
    fenced = bench.heartbeat(member=old, instance="b", generation=1)
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID


def test_static_and_dynamic_members_share_a_group(bench: Bench) -> None:
    """A group can have both kinds: a static member's restart causes no rebalance, a dynamic member's does."""
    a, d = bench.static("a"), bench.dynamic("d")
    bench.settle(a, d)
    a.restart()
    a.sync()
    assert bench.rebalances == 1
    d.restart()
    assert bench.rebalances == 2


def test_downgrade_gives_a_new_member_id(bench: Bench) -> None:
    """A consumer that lost its instance id joins as a new dynamic member; the static member stays for now."""
    a, b = bench.seated("a", "b")
    former = b.member_id
    downgraded = bench.dynamic("b")
    downgraded.enter()
    assert downgraded.member_id != former
    assert {a.member_id, former, downgraded.member_id} == bench.group().members.keys()


def test_downgrade_leaves_nothing_behind(bench: Bench) -> None:
    """The old static members expire after their session timeout, and the next record is without them."""
    a, b = bench.seated("a", "b")
    dynamic = [bench.dynamic("a"), bench.dynamic("b")]
    for peer in dynamic:
        peer.enter()
    bench.advance(SESSION_MS)
    assert {a.member_id, b.member_id}.isdisjoint(bench.group().members)
    bench.assign(*dynamic)
    written = bench.written()[-1]
    assert isinstance(written, GroupMetadataValue)
    assert [member.group_instance_id for member in written.members] == [None, None]


def test_changed_subscription_alone_does_not_rebalance(bench: Bench) -> None:
    """A static member that restarts with other topics, but the same selected protocol, only takes its seat.

    This is Kafka's decision; KAFKA-12759 disagrees. DescribeGroups shows the new topics all the same.
    """
    _a, b = bench.seated("a", "b")
    other = subscription("t", "u")
    assert b.restart(protocols=[("range", other)]).response.generation_id == 1
    assert bench.state() == "Stable"
    shown = {member.group_instance_id: member.member_metadata for member in bench.describe().response.members}
    assert shown["b"] == other


def test_restart_that_changes_the_protocol_rebalances() -> None:
    """If the restart makes the members choose another protocol name, the group rebalances."""
    both = [("range", subscription("t")), ("roundrobin", subscription("t"))]
    bench = Bench()
    a, b = bench.seated("a", "b", protocols=both)
    assert a.joined is not None
    kept = a.joined.protocol_name
    other = [pair for pair in both if pair[0] != kept]
    again = b.restart(protocols=other)
    assert again.waits
    a.join()
    assert again.response.protocol_name == other[0][0]
