"""The values that a test sees of a group."""

from __future__ import annotations

from coordinator.testing import Fencing, Rebalance, Return, Tenure
from coordinator.testing.values import MEMBERS_SHOWN, OFFSETS_SHOWN, Look
from protocol.messages import DescribeGroupsResponse
from schemas.errors import ErrorCode
from tests.support.scripted import settle
from tests.testing.conftest import Join


def test_a_look_has_state_members_and_assignment_of_one_moment(server: Tenure, member: Join) -> None:
    """Static members stand under their instance ids, dynamic ones under their member ids."""
    static, dynamic = member("a", instance="seat"), member("b")
    settle(static, dynamic)
    look = server.group("workers").look()
    assert (look.state, look.generation, look.committed, look.waiting) == ("Stable", 1, {}, [])
    assert look.assignment == {"seat": {"t": [0]}, dynamic.member_id: {"t": [1]}}
    assert {each.client_id for each in look.members} == {"a", "b"}
    assert look.lines[0] == "it is Stable in generation 1, members: 2"


def test_a_look_at_no_group_says_so(server: Tenure) -> None:
    """A group that nobody joined is Dead, as Kafka says it, and has generation 0."""
    look = server.group("nobody").look()
    assert (look.state, look.generation, look.members) == ("Dead", 0, [])
    assert look.lines == ["there is no such group: no member has joined, and no offset is committed"]


def test_a_group_that_can_not_be_described_has_its_error_as_state() -> None:
    """While a partition loads, the state is the name of the error."""
    described = DescribeGroupsResponse.DescribedGroup(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, members=[])
    assert Look(described, 0, {}, 0).state == "COORDINATOR_LOAD_IN_PROGRESS"


def test_an_error_names_a_limited_number_of_members() -> None:
    """The others are a number."""
    members = [
        DescribeGroupsResponse.DescribedGroupMember(
            member_id=f"m-{index:03}", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b""
        )
        for index in range(MEMBERS_SHOWN + 3)
    ]
    described = DescribeGroupsResponse.DescribedGroup(group_id="g", group_state="Empty", members=members)
    lines = Look(described, 4, {}, 0).lines
    assert lines[0] == "it is Empty in generation 4, members: 23"
    assert lines[-2:] == ["    and 3 more; group.members has all of them", "committed: nothing"]
    assert len(lines) == MEMBERS_SHOWN + 3
    committed = {("t", index): index for index in range(OFFSETS_SHOWN + 2)}
    last = Look(described, 4, committed, 0).lines[-1]
    assert last.startswith("committed: t-0 at 0, t-1 at 1, ")
    assert last.endswith(", t-19 at 19 and 2 more; group.committed has all of them")


def test_what_happened_is_a_value_with_the_words_of_explain(server: Tenure, member: Join) -> None:
    """A rebalance, a takeover and a fencing have their parties as fields, and their text as `str`."""
    first = member("first", instance="seat")
    settle(first)
    second = member("second", instance="seat")
    second.send_join()
    second.receive_join()
    assert first.heartbeat() != 0
    group = server.group("workers")
    (rebalance,) = group.rebalances
    assert isinstance(rebalance, Rebalance)
    assert (rebalance.cause, rebalance.member_ids) == ("member_joined", (first.member_id,))
    assert (rebalance.outcome, rebalance.generation_before, rebalance.generation) == ("completed", 0, 1)
    assert str(rebalance) in group.explain()
    (takeover,) = group.takeovers
    assert isinstance(takeover, Return)
    assert (takeover.group_instance_id, takeover.old_member_id) == ("seat", first.member_id)
    assert (takeover.member_id, takeover.client_id, takeover.rebalances) == (second.member_id, "second", False)
    (fencing,) = group.fencings
    assert isinstance(fencing, Fencing)
    assert (fencing.member_id, fencing.current_member_id) == (first.member_id, second.member_id)
    assert (fencing.is_conflict, fencing.operation) == (True, "heartbeat")
    assert "conflict: two programs are seat" in str(fencing)
