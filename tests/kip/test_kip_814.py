"""KIP-814, SkipAssignment: a test per clause. tests/kip/clauses.md has the clauses in a table.

A static leader that restarts must know that it leads, or no member watches the topics. But it must not assign, because
a Stable group takes no assignment. JoinGroup v9 can say both.

House rule: as in test_kip_345.py.
"""

from __future__ import annotations

import pytest

from protocol.messages import JoinGroupResponse, decode, encode
from tests.group.harness import Bench

SINCE = 9


def test_flag_is_on_the_wire_since_version_9() -> None:
    """JoinGroup's answer has the flag from v9 on; an older version can't encode it."""
    answer = JoinGroupResponse(skip_assignment=True, protocol_name="range")
    assert decode(JoinGroupResponse, encode(answer, SINCE), SINCE).skip_assignment
    with pytest.raises(AssertionError):
        encode(answer, SINCE - 1)


def test_restarted_leader_is_told_that_it_leads_and_not_to_assign(bench: Bench) -> None:
    """In v9 the answer has the new member id as leader, all members, and skip_assignment."""
    a, b = bench.seated("a", "b", version=SINCE)
    again = a.restart().response
    assert again.leader == again.member_id == a.member_id
    assert again.skip_assignment
    assert {member.member_id for member in again.members} == {a.member_id, b.member_id}


@pytest.mark.parametrize("version", range(5, SINCE))
def test_before_version_9_the_old_leader_id_is_named(bench: Bench, version: int) -> None:
    """An older leader gets its old id as leader and no members, so that it does not assign."""
    a, _b = bench.seated("a", "b", version=version)
    old = a.member_id
    again = a.restart().response
    assert again.leader == old != again.member_id
    assert again.members == []
    assert not again.skip_assignment


def test_restarted_leader_gets_its_assignment_by_an_empty_sync(bench: Bench) -> None:
    """It syncs without assignments and gets the assignment that it had; the others keep theirs."""
    a, b = bench.seated("a", "b", version=SINCE)
    a.restart()
    assert not a.leads
    assert a.sync().response.assignment == b"a"
    assert b.sync().response.assignment == b"b"


def test_assignments_that_come_all_the_same_are_ignored(bench: Bench) -> None:
    """A Stable group takes no assignment from any member."""
    a, b = bench.seated("a", "b", version=SINCE)
    a.restart()
    records = len(bench.records)
    assert a.sync(assignments={a.member_id: b"all", b.member_id: b"nothing"}).response.assignment == b"a"
    assert b.sync().response.assignment == b"b"
    assert len(bench.records) == records


def test_restarted_leader_can_ask_for_a_rebalance(bench: Bench) -> None:
    """It knows that it leads and watches the topics; its next join with its member id rebalances the group."""
    a, b = bench.seated("a", "b", version=SINCE)
    a.restart()
    lead = a.join()
    b.join()
    assert lead.response.generation_id == 2
    assert lead.response.leader == a.member_id
    assert not lead.response.skip_assignment


def test_followers_never_skip(bench: Bench) -> None:
    """A follower gets no flag, no members, and the leader's id."""
    a, b = bench.seated("a", "b", version=SINCE)
    again = b.restart().response
    assert not again.skip_assignment
    assert again.members == []
    assert again.leader == a.member_id


def test_flag_is_for_stable_groups_only(bench: Bench) -> None:
    """A leader that restarts during a rebalance must assign."""
    a, b = bench.seated("a", "b", version=SINCE)
    b.join(protocols=[("range", b"other")])
    lead = a.restart().response
    assert lead.generation_id == 2
    assert lead.leader == a.member_id
    assert not lead.skip_assignment


def test_ordinary_generations_do_not_skip(bench: Bench) -> None:
    """No answer of an ordinary rebalance has the flag."""
    for peer in bench.seated("a", "b", version=SINCE):
        assert peer.joined is not None
        assert not peer.joined.skip_assignment
