"""Requests about groups, and the differences between servers; tests/cli runs them against real servers."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client.client import Client
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
    remove_members,
)
from coordinator.story.described import Group, group_json
from protocol.messages import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    MetadataResponse,
    OffsetFetchResponse,
)
from schemas.errors import ErrorCode
from tests.client.scripted import Clock, Scripted, of_another_kind
from tests.support.patience import WITHIN_S

Described = DescribeGroupsResponse.DescribedGroup


def test_list_joins_all_nodes() -> None:
    """Only its coordinator lists a group, so the client asks every node and sorts the whole list."""
    listed = [
        ListGroupsResponse(groups=[ListGroupsResponse.ListedGroup(group_id=group_id, group_state="Stable")])
        for group_id in ("b", "a")
    ]
    with Scripted({"ListGroups": listed}) as server, Client(server.bootstrap, WITHIN_S) as client:
        nodes = [
            MetadataResponse.MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=server.port)
            for node_id in (1, 2)
        ]
        server.answer_first("Metadata", MetadataResponse(brokers=nodes))
        assert [group.group_id for group in list_groups(client)] == ["a", "b"]


def test_list_by_state_needs_a_server_that_can() -> None:
    """Before version 4 (KIP-518) the filter can't be sent, so the client refuses."""
    with (
        Scripted({"ListGroups": [ListGroupsResponse()]}, {"ListGroups": (0, 3)}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
    ):
        assert list_groups(client) == []
        with pytest.raises(Refused, match="UNSUPPORTED_VERSION"):
            list_groups(client, ["Stable"])


def test_list_refused_by_one_node() -> None:
    """If one node refuses, there is no list, because half of it would mislead."""
    refused = ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with (
        Scripted({"ListGroups": [refused]}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
        pytest.raises(Refused, match=r"list of groups on .*CLUSTER_AUTHORIZATION_FAILED"),
    ):
        list_groups(client)


def test_a_list_waits_for_a_node_that_loads() -> None:
    """A node that loads its groups is asked again until it has them, or until the deadline."""
    loads = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answers = [loads, loads, ListGroupsResponse()]
    with Scripted({"ListGroups": answers}) as server, Client(server.bootstrap, WITHIN_S) as client:
        assert list_groups(client) == []
    clock = Clock()
    with (
        Scripted({"ListGroups": [loads]}) as server,
        Client(server.bootstrap, WITHIN_S, clock=clock, pause=clock.pause) as client,
        pytest.raises(Refused, match="COORDINATOR_LOAD_IN_PROGRESS"),
    ):
        list_groups(client)


def test_the_groups_that_a_node_has_while_others_load() -> None:
    """They come with the node's error; an error that says something else is raised."""
    group = ListGroupsResponse.ListedGroup(group_id="a", group_state="Stable")
    loads = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[group])
    refused = ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    clock = Clock()
    with (
        Scripted({"ListGroups": [loads]}) as server,
        Client(server.bootstrap, WITHIN_S, clock=clock, pause=clock.pause) as client,
    ):
        groups, problems = list_known_groups(client)
    assert [group.group_id for group in groups] == ["a"]
    assert [str(problem) for problem in problems] == [
        f"list of groups on {server.bootstrap}: COORDINATOR_LOAD_IN_PROGRESS"
    ]
    with (
        Scripted({"ListGroups": [refused]}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
        pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"),
    ):
        list_known_groups(client)


@pytest.mark.parametrize(
    ("version", "group"),
    [
        (5, Described(group_id="g", group_state="Dead")),
        (6, Described(group_id="g", group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND)),
    ],
)
def test_absent_group_is_not_found_on_every_version(version: int, group: DescribeGroupsResponse.DescribedGroup) -> None:
    """An unknown group is GROUP_ID_NOT_FOUND, also on servers that return a dead group (before KIP-1043)."""
    with (
        Scripted(
            {"DescribeGroups": [DescribeGroupsResponse(groups=[group])]}, {"DescribeGroups": (0, version)}
        ) as server,
        Client(server.bootstrap, WITHIN_S) as client,
    ):
        answer = describe_groups(client, ["g"])["g"]
    assert isinstance(answer, Refused)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_group_of_the_consumer_protocol_is_described() -> None:
    """DescribeGroups doesn't know it, so it is asked for by the other request; its assignor is the protocol name."""
    told = ConsumerGroupDescribeResponse
    held = told.TopicPartitions(topic_name="t", partitions=[2, 0])
    members = [
        told.Member(member_id="2", instance_id="b", subscribed_topic_names=["t"]),
        told.Member(member_id="1", instance_id="a", assignment=told.Assignment(topic_partitions=[held])),
    ]
    group = told.DescribedGroup(group_id="g", group_state="Reconciling", assignor_name="range", members=members)
    absent = Described(group_id="g", group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    answers: dict[str, list[Any]] = {
        "DescribeGroups": [DescribeGroupsResponse(groups=[absent])],
        "ConsumerGroupDescribe": [told(groups=[group])],
    }
    with Scripted(answers) as server, Client(server.bootstrap, WITHIN_S) as client:
        answer = describe_groups(client, ["g"])["g"]
    assert isinstance(answer, Group)
    assert (answer.state, answer.protocol_type, answer.protocol_name) == ("Reconciling", "consumer", "range")
    assert [(one.member_id, one.assignment) for one in answer.members] == [("1", {"t": [0, 2]}), ("2", {})]
    assert answer.members[1].subscription == frozenset({"t"})


def test_a_group_refused_for_its_topics_is_not_taken_for_a_topic() -> None:
    """The answer doesn't name the topic that the user may not describe, and the group's id is no topic."""
    absent = Described(group_id="g", group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    kind = ConsumerGroupDescribeResponse.DescribedGroup
    refused = kind(group_id="g", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with (
        Scripted(
            {
                "DescribeGroups": [DescribeGroupsResponse(groups=[absent])],
                "ConsumerGroupDescribe": [ConsumerGroupDescribeResponse(groups=[refused])],
            }
        ) as server,
        Client(server.bootstrap, WITHIN_S) as client,
    ):
        answer = describe_groups(client, ["g"])["g"]
    assert str(answer) == "group 'g': TOPIC_AUTHORIZATION_FAILED: User:ANONYMOUS lacks Describe on a topic"


@pytest.mark.parametrize("versions", [{}, {"ConsumerGroupDescribe": (0, -1)}, {"ListGroups": (0, 4)}])
def test_server_without_the_consumer_protocol_has_no_such_group(versions: dict[str, tuple[int, int]]) -> None:
    """An older server lacks the requests; one that has the protocol switched off says UNSUPPORTED_VERSION."""
    absent = Described(group_id="g", group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    off = ConsumerGroupDescribeResponse.DescribedGroup(group_id="g", error_code=ErrorCode.UNSUPPORTED_VERSION)
    answers: dict[str, list[Any]] = {
        "DescribeGroups": [DescribeGroupsResponse(groups=[absent])],
        "ConsumerGroupDescribe": [ConsumerGroupDescribeResponse(groups=[off])],
    }
    with Scripted(answers, versions) as server, Client(server.bootstrap, WITHIN_S) as client:
        answer = describe_groups(client, ["g"])["g"]
    assert isinstance(answer, Refused)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_a_group_of_another_kind_is_described(kind: str) -> None:
    """Each kind of group has a request of its own; a question that fits no such group gets its kind as the answer."""
    with Scripted(of_another_kind(kind)) as server, Client(server.bootstrap, WITHIN_S) as client:
        found = describe_groups(client, ["g", "none"])
        with pytest.raises(OtherKind, match=rf"group g is a {kind} group \(Stable\)"):
            described_group(client, "g", besides=(kind,))
    group = found["g"]
    assert isinstance(group, Group)
    assert (group.group_type, group.state, group_json(group)["group_epoch"]) == (kind, "Stable", 3)
    assert is_unknown(found["none"])


def test_delete_answers_for_each_group() -> None:
    """Each group has its own result: the error of one doesn't hide the deletion of another."""
    result = DeleteGroupsResponse.DeletableGroupResult
    response = DeleteGroupsResponse(
        results=[result(group_id="a"), result(group_id="b", error_code=ErrorCode.NON_EMPTY_GROUP)]
    )
    with Scripted({"DeleteGroups": [response]}) as server, Client(server.bootstrap, WITHIN_S) as client:
        answers = delete_groups(client, ["a", "b"])
    assert answers["a"] is None
    assert isinstance(answers["b"], Refused)


def test_members_are_removed_by_instance_id_alone() -> None:
    """The request has empty member ids, each instance id once, and a reason (KIP-345); unknown ones have an error."""
    left = LeaveGroupResponse.MemberResponse
    response = LeaveGroupResponse(
        members=[left(group_instance_id="a"), left(group_instance_id="b", error_code=ErrorCode.UNKNOWN_MEMBER_ID)]
    )
    with Scripted({"LeaveGroup": [response]}) as server, Client(server.bootstrap, WITHIN_S) as client:
        assert remove_members(client, "g", ["a", "b", "a"]) == {"a": 0, "b": ErrorCode.UNKNOWN_MEMBER_ID}
    (request,) = server.asked("LeaveGroup")
    assert request.group_id == "g"
    assert [(one.member_id, one.group_instance_id, one.reason) for one in request.members] == [
        ("", "a", LEAVE_REASON),
        ("", "b", LEAVE_REASON),
    ]


def test_removal_refused_as_a_whole() -> None:
    """An error of the whole response raises Refused, and is no member's error."""
    response = LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with (
        Scripted({"LeaveGroup": [response]}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
        pytest.raises(Refused, match="group 'g': GROUP_AUTHORIZATION_FAILED"),
    ):
        remove_members(client, "g", ["a"])


def test_removal_needs_a_server_with_static_members() -> None:
    """Before version 3 LeaveGroup has no instance ids, so the client refuses and sends nothing."""
    with (
        Scripted(versions={"LeaveGroup": (0, 2)}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
        pytest.raises(Refused, match=r"LeaveGroup.*3 or later is needed"),
    ):
        remove_members(client, "g", ["a"])
    assert server.asked("LeaveGroup") == []


def test_a_committed_offset_below_0_is_none() -> None:
    """It means that there is none (KAFKA-9507), whatever the number. A topic partition with an error is left out."""
    partition = OffsetFetchResponse.OffsetFetchResponsePartitions
    partitions = [
        partition(partition_index=0, committed_offset=5),
        partition(partition_index=1, committed_offset=-1),
        partition(partition_index=2, committed_offset=-2),
        partition(partition_index=3, committed_offset=-(2**63)),
        partition(partition_index=4, committed_offset=2**63 - 1),
        partition(partition_index=5, committed_offset=5, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ]
    topic = OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=partitions)
    group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic])
    with (
        Scripted({"OffsetFetch": [OffsetFetchResponse(groups=[group])]}) as server,
        Client(server.bootstrap, WITHIN_S) as client,
    ):
        (offsets,) = committed_offsets(client, ["g"]).values()
    assert offsets == {"t": {0: 5, 1: -1, 2: -1, 3: -1, 4: 2**63 - 1}}
    (request,) = server.asked("OffsetFetch")
    assert [(one.group_id, one.topics) for one in request.groups] == [("g", None)]


def test_a_group_of_the_consumer_protocol_is_described_by_its_own_request() -> None:
    """What DescribeGroups doesn't find may be such a group: it has epochs, targets, and who holds the others up."""
    taken = ConsumerGroupDescribeResponse.TopicPartitions(topic_name="t", partitions=[0])
    wanted = ConsumerGroupDescribeResponse.TopicPartitions(topic_name="t", partitions=[0, 1])
    member = ConsumerGroupDescribeResponse.Member(
        member_id="m-1",
        instance_id="i-1",
        client_id="c",
        client_host="/h",
        member_epoch=4,
        subscribed_topic_names=["t"],
        assignment=ConsumerGroupDescribeResponse.Assignment(topic_partitions=[taken]),
        target_assignment=ConsumerGroupDescribeResponse.Assignment(topic_partitions=[wanted]),
        member_type=1,
    )
    awaited = ConsumerGroupDescribeResponse.AwaitedMember(member_id="m-1", phase="acknowledging", until_ms=9)
    group = ConsumerGroupDescribeResponse.DescribedGroup(
        group_id="g",
        group_state="Reconciling",
        group_epoch=5,
        assignment_epoch=5,
        assignor_name="uniform",
        members=[member],
        waiting=ConsumerGroupDescribeResponse.ConsumerGroupWaiting(since_ms=7, members=[awaited]),
    )
    absent = Described(group_id="g", group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    script: dict[str, list[Any]] = {
        "DescribeGroups": [DescribeGroupsResponse(groups=[absent])],
        "ConsumerGroupDescribe": [ConsumerGroupDescribeResponse(groups=[group])],
    }
    with Scripted(script) as server, Client(server.bootstrap, WITHIN_S) as client:
        told = describe_groups(client, ["g"])["g"]
    assert isinstance(told, Group)
    body = group_json(told)
    assert list(body)[:2] == ["group_id", "state"]
    assert (body["group_type"], body["protocol_name"], body["group_epoch"], body["assignment_epoch"]) == (
        "consumer",
        "uniform",
        5,
        5,
    )
    (seat,) = body["members"]
    assert (seat["assignment"], seat["target_assignment"]) == ({"t": [0]}, {"t": [0, 1]})
    assert (seat["member_epoch"], seat["is_away"], seat["member_type"]) == (4, False, "consumer")
    (held,) = body["held_up_by"]
    assert (held["group_instance_id"], held["phase"], held["since_ms"], held["until_ms"]) == (
        "i-1",
        "acknowledging",
        None,
        9,
    )
