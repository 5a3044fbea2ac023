"""How a leader without a client assigns, and what a member does after answers that no test makes a server give.

The life of members beside a real server is in test_members.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.testing.member import Doing, NotSeated, encoded, ranges
from coordinator.testing.members import fill
from protocol.consumer import CONSUMER, decode_assignment
from protocol.messages import (
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    MetadataResponse,
    SyncGroupResponse,
)
from schemas.errors import ErrorCode
from tests.client.scripted import HANG_UP, SILENCE, Scripted
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until


def test_ranges_are_those_of_kafka() -> None:
    """Of each topic the members have neighbouring partitions, the first ones one more, in the order of keys."""
    everyone = {("b", "1"): frozenset({"orders"}), ("a", "2"): frozenset({"orders"}), ("c", "0"): frozenset({"orders"})}
    assert ranges({"orders": 8}, everyone) == {
        ("a", "2"): {"orders": [0, 1, 2]},
        ("b", "1"): {"orders": [3, 4, 5]},
        ("c", "0"): {"orders": [6, 7]},
    }


def test_only_members_that_want_a_topic_get_it() -> None:
    """Topics are assigned one by one; a topic that nobody wants or that has no partitions goes to nobody."""
    wanted = {("", "x"): frozenset({"orders", "bills"}), ("", "y"): frozenset({"bills", "gone"})}
    assert ranges({"orders": 2, "bills": 1, "gone": 0, "other": 5}, wanted) == {
        ("", "x"): {"orders": [0, 1], "bills": [0]},
        ("", "y"): {},
    }


def test_an_assignment_is_what_consumers_read() -> None:
    """Encoded as a consumer's assignment, and read back as one."""
    assert decode_assignment(CONSUMER, encoded({"orders": [0, 2], "bills": []})) == {"bills": [], "orders": [0, 2]}


JOINED = JoinGroupResponse(
    generation_id=7, protocol_type="consumer", protocol_name="range", leader="else", member_id="m", members=[]
)
OVER = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
SYNCED = SyncGroupResponse(assignment=encoded({"orders": [3]}))


def answers(**changes: Any) -> dict[str, Any]:
    """By API, what a server answers to a member that it takes as a follower, with these changes."""
    return {"JoinGroup": [JOINED], "SyncGroup": [SYNCED], "Heartbeat": [HeartbeatResponse()], **changes}


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
)
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_a_coordinator_that_moves_is_looked_up_again(api: str, code: ErrorCode) -> None:
    """A member connects anew and finds its coordinator, then joins."""
    refusal = JoinGroupResponse(error_code=code) if api == "JoinGroup" else SyncGroupResponse(error_code=code)
    given = answers()
    with Scripted(given | {api: [refusal, *given[api]]}) as server, fill(server.bootstrap, "g", 1) as members:
        assert members.wait_until_seated(within_s=WITHIN_S) == 7
        assert members[0].assignment == {"orders": [3]}
        assert len(server.asked("FindCoordinator")) == 2


def test_a_lost_answer_is_asked_for_again() -> None:
    """A server that hangs up instead of an answer, to whichever request, gets the member on a new connection."""
    given = {name: [HANG_UP, *more] for name, more in answers().items()}
    with Scripted(given) as server, fill(server.bootstrap, "g", 1, heartbeat_interval_ms=1) as members:
        assert members.wait_until_seated(within_s=WITHIN_S) == 7
        server.answers("Heartbeat", HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        server.answers("JoinGroup", JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        with pytest.raises(NotSeated, match="member-0: JoinGroup: GROUP_AUTHORIZATION_FAILED"):
            members.wait_until_seated(8, within_s=WITHIN_S)
        assert server.asked("JoinGroup")[-1].member_id == ""


def test_a_refused_search_for_the_coordinator_is_named() -> None:
    """A FindCoordinator that is refused for good ends the member."""
    refusal = FindCoordinatorResponse.Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    given = {"FindCoordinator": [FindCoordinatorResponse(coordinators=[refusal])]}
    named = pytest.raises(NotSeated, match="member-0: FindCoordinator: GROUP_AUTHORIZATION_FAILED")
    with Scripted(given) as server, fill(server.bootstrap, "g", 1) as members, named:
        members.wait_until_seated(within_s=WITHIN_S)


def test_another_node_is_asked() -> None:
    """Where FindCoordinator names another node, the member joins there."""
    with Scripted(answers()) as other:
        where = FindCoordinatorResponse.Coordinator(key="g", node_id=8, host="127.0.0.1", port=other.port)
        given = {"FindCoordinator": [FindCoordinatorResponse(coordinators=[where])]}
        with Scripted(given) as server, fill(server.bootstrap, "g", 1) as members:
            assert members.wait_until_seated(within_s=WITHIN_S) == 7
            assert not server.asked("JoinGroup")
            assert len(other.asked("JoinGroup")) == 1


def leads(generation_id: int, *, skips: bool) -> JoinGroupResponse:
    """The answer to a member that leads a group of its own. skips: whether it keeps the group's assignment."""
    me = JoinGroupResponse.JoinGroupResponseMember(member_id="m", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")
    return JoinGroupResponse(
        generation_id=generation_id,
        protocol_type="consumer",
        protocol_name="range",
        leader="m",
        skip_assignment=skips,
        member_id="m",
        members=[me],
    )


def test_a_leader_that_restarted_assigns_nothing() -> None:
    """KIP-814: a leader that is asked to skip the assignment keeps the one of its group; another leader assigns."""
    given = answers(JoinGroup=[leads(7, skips=True), leads(8, skips=False)], Heartbeat=[OVER, HeartbeatResponse()])
    with Scripted(given | {"Metadata": [MetadataResponse()]}) as server:
        with fill(server.bootstrap, "g", 1, heartbeat_interval_ms=1) as members:
            members.wait_until_seated(8, within_s=WITHIN_S)
        first, second = server.asked("SyncGroup")
        assert (first.generation_id, first.assignments) == (7, [])
        assert [each.member_id for each in second.assignments] == ["m"]


def test_a_slow_member_sends_heartbeats() -> None:
    """A member that hears of a rebalance and is slow asks on, at its interval, and doesn't join."""
    with Scripted(answers()) as server, fill(server.bootstrap, "g", 1, heartbeat_interval_ms=1) as members:
        members.wait_until_seated(within_s=WITHIN_S)
        members.be_slow(0, 3_600)
        server.answers("Heartbeat", OVER)
        before = len(server.asked("Heartbeat"))
        wait_until(lambda: len(server.asked("Heartbeat")) > before + 10, "more heartbeats", WITHIN_S)
        assert len(server.asked("JoinGroup")) == 1
        members.be_slow(0, 0)
        wait_until(lambda: len(server.asked("JoinGroup")) > 1, "a JoinGroup", WITHIN_S)


def test_a_silent_member_sends_nothing() -> None:
    """It sends no heartbeat while another member sends many, and one as soon as it speaks."""

    def heartbeats(index: int) -> int:
        return [request.group_instance_id for request in server.asked("Heartbeat")].count(f"member-{index}")

    with Scripted(answers()) as server, fill(server.bootstrap, "g", 2, heartbeat_interval_ms=1) as members:
        members.wait_until_seated(within_s=WITHIN_S)
        wait_until(lambda: heartbeats(0) > 0, "a heartbeat", WITHIN_S)
        members.fall_silent(0)
        before, others = heartbeats(0), heartbeats(1)
        wait_until(lambda: heartbeats(1) > others + 20, "heartbeats of the other one", WITHIN_S)
        assert heartbeats(0) <= before + 1  # one may have been on its way
        members.speak_again(0)
        wait_until(lambda: heartbeats(0) > before + 1, "a heartbeat", WITHIN_S)


def test_a_member_that_speaks_again_says_so_at_once() -> None:
    """Its first heartbeat doesn't wait for the interval, which is an hour here."""
    with Scripted(answers()) as server, fill(server.bootstrap, "g", 1, heartbeat_interval_ms=3_600_000) as members:
        members.wait_until_seated(within_s=WITHIN_S)
        members.fall_silent(0)
        assert not server.asked("Heartbeat")
        members.speak_again(0)
        wait_until(lambda: bool(server.asked("Heartbeat")), "a heartbeat", WITHIN_S)


def test_members_join_when_all_have_found_their_coordinator() -> None:
    """Members that begin together make one rebalance, and not one for each few of them."""
    with Scripted(answers()) as server, fill(server.bootstrap, "g", 9) as members:
        members.wait_until_seated(within_s=WITHIN_S)
        names = [name for name, _version, _message in server.requests]
        assert names.index("JoinGroup") > max(at for at, name in enumerate(names) if name == "FindCoordinator")


def test_nobody_waits_for_a_member_that_left_on_its_way() -> None:
    """A member that ends before it has found its coordinator keeps the others from nothing."""
    left = LeaveGroupResponse(members=[LeaveGroupResponse.MemberResponse(member_id="", group_instance_id="member-0")])
    with Scripted(answers(LeaveGroup=[left])) as server:
        server.answers("FindCoordinator", SILENCE, SILENCE, server._FindCoordinator)
        with fill(server.bootstrap, "g", 2) as members:
            wait_until(lambda: len(server.asked("FindCoordinator")) == 2, "both ask", WITHIN_S)
            members.leave(0)
            members.restart(1)
            assert members.wait_until_seated(within_s=WITHIN_S) == 7


@pytest.mark.parametrize("api", ["ApiVersions", "FindCoordinator", "SyncGroup"])
def test_a_request_without_an_answer_is_sent_again(api: str) -> None:
    """After the request timeout the member connects again; the other one isn't kept from its seat for ever."""
    with Scripted(answers()) as server:
        server.answers(api, SILENCE, SYNCED if api == "SyncGroup" else getattr(server, f"_{api}"))
        with fill(server.bootstrap, "g", 2, request_timeout_ms=100) as members:
            assert members.wait_until_seated(within_s=WITHIN_S) == 7
        assert len(server.asked("FindCoordinator")) >= 2 + (api != "ApiVersions")


def test_an_answer_to_a_join_may_take_longer() -> None:
    """A rebalance may last longer than the request timeout: a member waits on while another one tries three times."""
    given = answers(JoinGroup=[SILENCE, JOINED], SyncGroup=[SILENCE, SILENCE, SILENCE, SYNCED])
    with Scripted(given) as server, fill(server.bootstrap, "g", 2, request_timeout_ms=100) as members:
        wait_until(lambda: Doing.SEATED in {member.doing for member in members}, "a seat", WITHIN_S)
        waits = next(member.instance_id for member in members if member.doing is Doing.JOINING)
        assert [request.group_instance_id for request in server.asked("JoinGroup")].count(waits) == 1


def test_members_ask_soon_while_one_waits_in_a_join() -> None:
    """A heartbeat may come before the JoinGroup that it is about: more follow soon, though the interval is an hour."""
    given = answers(JoinGroup=[JOINED, SILENCE])
    with Scripted(given) as server, fill(server.bootstrap, "g", 2, heartbeat_interval_ms=3_600_000):
        wait_until(lambda: len(server.asked("Heartbeat")) >= 3, "three heartbeats", WITHIN_S)
        assert len({request.member_id for request in server.asked("Heartbeat")}) == 1
