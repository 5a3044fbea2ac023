"""Groups as their coordinators describe them; tests/client/test_groups.py asks for them."""

from __future__ import annotations

from coordinator.story.described import CoordinatorNode, group_json, group_of, streams_group_of
from tests.support.requests import response

NODE = CoordinatorNode(7, "h", 1)


def test_tasks_read_the_partitions_that_topics_have() -> None:
    """A member of a streams group has the partitions that its active tasks read, of topics that have as many."""
    part = {"subtopology_id": "0", "source_topics": ["wide", "narrow"]}
    tasks, nobodys = ({"subtopology_id": of, "partitions": read} for of, read in (("0", [1, 0]), ("unknown", [0])))
    assignment = {"active_tasks": [tasks, nobodys], "standby_tasks": [tasks]}
    known = {
        "topology": {"epoch": 2, "subtopologies": [part]},
        "members": [{"member_id": "m", "process_id": "p", "assignment": assignment}],
    }
    (described,) = response("StreamsGroupDescribe", groups=[{"group_id": "g", **known}]).groups
    group = streams_group_of(described, NODE, {"wide": 2, "narrow": 1})
    assert group.members[0].assignment == {"narrow": [0], "wide": [0, 1]}
    told = group_json(group)
    assert told["topology"]["subtopologies"][0]["source_topics"] == ["narrow", "wide"]
    assert told["members"][0]["tasks"] == {
        "active": {"0": [0, 1], "unknown": [0]},
        "standby": {"0": [0, 1]},
        "warmup": {},
    }
    described.topology.subtopologies = None
    assert streams_group_of(described, group.coordinator, {}).members[0].subscription is None


def test_members_are_in_order_and_odd_assignments_are_harmless() -> None:
    """Members are sorted by instance id, then member id; a member with unreadable bytes is listed too."""
    members = [
        {"member_id": "2", "group_instance_id": "b", "member_assignment": b"\0"},
        {"member_id": "1", "group_instance_id": "a"},
        {"member_id": "9"},
    ]
    known = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer", "members": members}
    (group,) = response("DescribeGroups", groups=[known]).groups
    answer = group_of(group, NODE)
    assert [(one.member_id, one.assignment) for one in answer.members] == [("9", {}), ("1", {}), ("2", None)]
    assert answer.members[2].topic_partitions == []
    assert answer.coordinator == NODE


def test_whom_a_group_waits_for_is_named_with_the_client_that_has_its_seat_now() -> None:
    """The wait names the client that has the seat now; the members keep the first client, as in Kafka's description."""
    seat = {"member_id": "h1-2", "group_instance_id": "h1", "client_id": "old-pod", "client_host": "/127.0.0.1"}
    awaited = {"member_id": "h1-2", "client_id": "new-pod", "client_host": "/127.0.0.2"}
    known = {"members": [seat], "waiting": {"since_ms": 7, "members": [awaited]}}
    (group,) = response("DescribeGroups", groups=[{"group_id": "g", **known}]).groups
    told = group_of(group, NODE)
    assert told.waiting is not None
    (member,) = told.waiting.members
    assert (member.client_id, member.client_host, member.group_instance_id) == ("new-pod", "/127.0.0.2", "h1")
    assert [each.client_id for each in told.members] == ["old-pod"]
