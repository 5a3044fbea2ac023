"""Requests about groups, and the differences between servers; tests/cli runs them against real servers."""

from __future__ import annotations

import pytest

from coordinator.client.errors import OtherKind, Refused
from coordinator.client.groups import (
    LEAVE_REASON,
    committed_offsets,
    delete_groups,
    describe_groups,
    described_group,
    is_unknown,
    list_groups,
    list_known_groups,
    remove_seats,
)
from coordinator.story.described import Group, group_json
from schemas.errors import ErrorCode
from tests.client.scripted import Clock, of_another_kind, served

GONE = {"groups": [{"group_id": "g", "group_state": "Dead", "error_code": ErrorCode.GROUP_ID_NOT_FOUND}]}
UNAUTHORIZED = {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_list_joins_all_nodes() -> None:
    """Only its coordinator lists a group, so the client asks every node and sorts the whole list."""
    listed = [{"groups": [{"group_id": group_id, "group_state": "Stable"}]} for group_id in ("b", "a")]
    with served({"ListGroups": listed}) as (server, client):
        nodes = [{"node_id": node_id, "host": "127.0.0.1", "port": server.port} for node_id in (1, 2)]
        server.answer_first("Metadata", {"brokers": nodes})
        assert [group.group_id for group in list_groups(client)] == ["a", "b"]


def test_list_by_state_needs_a_server_that_can() -> None:
    """Before version 4 (KIP-518) the filter can't be sent, so the client refuses."""
    with served(versions={"ListGroups": (0, 3)}) as (_, client):
        assert list_groups(client) == []
        with pytest.raises(Refused, match="UNSUPPORTED_VERSION"):
            list_groups(client, ["Stable"])


def test_list_refused_by_one_node() -> None:
    """If one node refuses, there is no list, because half of it would mislead."""
    with (
        served({"ListGroups": [UNAUTHORIZED]}) as (_, client),
        pytest.raises(Refused, match=r"list of groups on .*CLUSTER_AUTHORIZATION_FAILED"),
    ):
        list_groups(client)


def test_a_list_waits_for_a_node_that_loads() -> None:
    """A node that loads its groups is asked again until it has them, or until the deadline."""
    loads = {"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    with served({"ListGroups": [loads, loads, {}]}) as (_, client):
        assert list_groups(client) == []
    with (
        served({"ListGroups": [loads]}, clock=Clock()) as (_, client),
        pytest.raises(Refused, match="COORDINATOR_LOAD_IN_PROGRESS"),
    ):
        list_groups(client)


def test_the_groups_that_a_node_has_while_others_load() -> None:
    """They come with the node's error; an error that says something else is raised."""
    group = {"group_id": "a", "group_state": "Stable"}
    loads = {"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups": [group]}
    with served({"ListGroups": [loads]}, clock=Clock()) as (server, client):
        groups, problems = list_known_groups(client)
    assert [group.group_id for group in groups] == ["a"]
    assert [str(problem) for problem in problems] == [
        f"list of groups on {server.bootstrap}: COORDINATOR_LOAD_IN_PROGRESS"
    ]
    with (
        served({"ListGroups": [UNAUTHORIZED]}) as (_, client),
        pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"),
    ):
        list_known_groups(client)


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_absent_group_is_not_found_on_every_version(version: int, error: ErrorCode) -> None:
    """An unknown group is GROUP_ID_NOT_FOUND, also on servers that return a dead group (before KIP-1043)."""
    dead = {"groups": [{"group_id": "g", "group_state": "Dead", "error_code": error}]}
    with served({"DescribeGroups": [dead]}, {"DescribeGroups": (0, version)}) as (_, client):
        answer = describe_groups(client, ["g"])["g"]
    assert isinstance(answer, Refused)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_of_the_consumer_protocol_is_described() -> None:
    """DescribeGroups doesn't know it, so it is asked for by the other request; its assignor is the protocol name."""
    held = {"topic_partitions": [{"topic_name": "t", "partitions": [2, 0]}]}
    members = [
        {"member_id": "2", "instance_id": "b", "subscribed_topic_names": ["t"]},
        {"member_id": "1", "instance_id": "a", "assignment": held},
    ]
    group = {"group_id": "g", "group_state": "Reconciling", "assignor_name": "range", "members": members}
    with served({"DescribeGroups": [GONE], "ConsumerGroupDescribe": [{"groups": [group]}]}) as (_, client):
        answer = describe_groups(client, ["g"])["g"]
    assert isinstance(answer, Group)
    assert (answer.state, answer.protocol_type, answer.protocol_name) == ("Reconciling", "consumer", "range")
    assert [(one.member_id, one.assignment) for one in answer.members] == [("1", {"t": [0, 2]}), ("2", {})]
    assert answer.members[1].subscription == frozenset({"t"})


def test_a_group_refused_for_its_topics_is_not_taken_for_a_topic() -> None:
    """The answer doesn't name the topic that the user may not describe, and the group's id is no topic."""
    absent = {"group_id": "g", "group_state": "Dead", "error_code": ErrorCode.GROUP_ID_NOT_FOUND}
    refused = {"group_id": "g", "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    answers = {"DescribeGroups": [{"groups": [absent]}], "ConsumerGroupDescribe": [{"groups": [refused]}]}
    with served(answers) as (_, client):
        answer = describe_groups(client, ["g"])["g"]
    assert str(answer) == "group 'g': TOPIC_AUTHORIZATION_FAILED: User:ANONYMOUS lacks Describe on a topic"


@pytest.mark.parametrize("versions", [{}, {"ConsumerGroupDescribe": (0, -1)}, {"ListGroups": (0, 4)}])
def test_server_without_the_consumer_protocol_has_no_such_group(versions: dict[str, tuple[int, int]]) -> None:
    """An older server lacks the requests; one that has the protocol switched off says UNSUPPORTED_VERSION."""
    off = {"groups": [{"group_id": "g", "error_code": ErrorCode.UNSUPPORTED_VERSION}]}
    with served({"DescribeGroups": [GONE], "ConsumerGroupDescribe": [off]}, versions) as (_, client):
        answer = describe_groups(client, ["g"])["g"]
    assert isinstance(answer, Refused)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_a_group_of_another_kind_is_described(kind: str) -> None:
    """Each kind of group has a request of its own; a question that fits no such group gets its kind as the answer."""
    with served(of_another_kind(kind)) as (_, client):
        found = describe_groups(client, ["g", "none"])
        with pytest.raises(OtherKind, match=rf"group g is a {kind} group \(Stable\)"):
            described_group(client, "g", besides=(kind,))
    group = found["g"]
    assert isinstance(group, Group)
    assert (group.group_type, group.state, group_json(group)["group_epoch"]) == (kind, "Stable", 3)
    assert is_unknown(found["none"])


def test_delete_answers_for_each_group() -> None:
    """Each group has its own result: the error of one doesn't hide the deletion of another."""
    results = [{"group_id": "a"}, {"group_id": "b", "error_code": ErrorCode.NON_EMPTY_GROUP}]
    with served({"DeleteGroups": [{"results": results}]}) as (_, client):
        answers = delete_groups(client, ["a", "b"])
    assert answers["a"] is None
    assert isinstance(answers["b"], Refused)


def test_members_are_removed_by_instance_id_alone() -> None:
    """The request has empty member ids, each instance id once, and a reason (KIP-345); unknown ones have an error."""
    members = [{"group_instance_id": "a"}, {"group_instance_id": "b", "error_code": ErrorCode.UNKNOWN_MEMBER_ID}]
    with served({"LeaveGroup": [{"members": members}]}) as (server, client):
        assert remove_seats(client, "g", {"a": "", "b": ""}) == {"a": 0, "b": ErrorCode.UNKNOWN_MEMBER_ID}
    (request,) = server.asked("LeaveGroup")
    assert request.group_id == "g"
    assert [(one.member_id, one.group_instance_id, one.reason) for one in request.members] == [
        ("", "a", LEAVE_REASON),
        ("", "b", LEAVE_REASON),
    ]


def test_removal_refused_as_a_whole() -> None:
    """An error of the whole response raises Refused, and is no member's error."""
    with (
        served({"LeaveGroup": [{"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}]}) as (_, client),
        pytest.raises(Refused, match="group 'g': GROUP_AUTHORIZATION_FAILED"),
    ):
        remove_seats(client, "g", {"a": ""})


def test_removal_needs_a_server_with_static_members() -> None:
    """Before version 3 LeaveGroup has no instance ids, so the client refuses and sends nothing."""
    with (
        served(versions={"LeaveGroup": (0, 2)}) as (server, client),
        pytest.raises(Refused, match=r"LeaveGroup.*3 or later is needed"),
    ):
        remove_seats(client, "g", {"a": ""})
    assert server.asked("LeaveGroup") == []


def test_a_committed_offset_below_0_is_none() -> None:
    """It means that there is none (KAFKA-9507), whatever the number. A topic partition with an error is left out."""
    told = [(5, ErrorCode.NONE), (-1, 0), (-2, 0), (-(2**63), 0), (2**63 - 1, 0), (5, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    partitions = [
        {"partition_index": index, "committed_offset": offset, "error_code": error}
        for index, (offset, error) in enumerate(told)
    ]
    group = {"group_id": "g", "topics": [{"name": "t", "partitions": partitions}]}
    with served({"OffsetFetch": [{"groups": [group]}]}) as (server, client):
        (offsets,) = committed_offsets(client, ["g"]).values()
    assert offsets == {"t": {0: 5, 1: -1, 2: -1, 3: -1, 4: 2**63 - 1}}
    (request,) = server.asked("OffsetFetch")
    assert [(one.group_id, one.topics) for one in request.groups] == [("g", None)]


def test_a_group_of_the_consumer_protocol_is_described_by_its_own_request() -> None:
    """What DescribeGroups doesn't find may be such a group: it has epochs, targets, and who holds the others up."""
    member = {
        "member_id": "m-1",
        "instance_id": "i-1",
        "client_id": "c",
        "client_host": "/h",
        "member_epoch": 4,
        "subscribed_topic_names": ["t"],
        "assignment": {"topic_partitions": [{"topic_name": "t", "partitions": [0]}]},
        "target_assignment": {"topic_partitions": [{"topic_name": "t", "partitions": [0, 1]}]},
        "member_type": 1,
    }
    awaited = {"member_id": "m-1", "phase": "acknowledging", "until_ms": 9}
    group = {
        "group_id": "g",
        "group_state": "Reconciling",
        "group_epoch": 5,
        "assignment_epoch": 5,
        "assignor_name": "uniform",
        "members": [member],
        "waiting": {"since_ms": 7, "members": [awaited]},
    }
    with served({"DescribeGroups": [GONE], "ConsumerGroupDescribe": [{"groups": [group]}]}) as (_, client):
        told = describe_groups(client, ["g"])["g"]
    assert isinstance(told, Group)
    body = group_json(told)
    assert list(body)[:2] == ["group_id", "state"]
    assert (body["group_type"], body["protocol_name"]) == ("consumer", "uniform")
    assert (body["group_epoch"], body["assignment_epoch"]) == (5, 5)
    (seat,) = body["members"]
    assert (seat["assignment"], seat["target_assignment"]) == ({"t": [0]}, {"t": [0, 1]})
    assert (seat["member_epoch"], seat["is_away"], seat["member_type"]) == (4, False, "consumer")
    (held,) = body["held_up_by"]
    assert (held["group_instance_id"], held["phase"]) == ("i-1", "acknowledging")
    assert (held["since_ms"], held["until_ms"]) == (None, 9)
