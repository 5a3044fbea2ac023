"""`tenure groups` against Tenure and against Apache Kafka: the same columns, keys and exit codes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coordinator.cli.exit_codes import ExitCode
from coordinator.cli.groups import EPOCH_COLUMNS, MEMBER_COLUMNS, OFFSET_COLUMNS, SEAT_COLUMNS, app
from coordinator.client.client import Client
from coordinator.client.group_settings import change_settings
from coordinator.client.groups import remove_seats
from protocol.messages import (
    ConsumerGroupDescribeResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetFetchResponse,
)
from tests.cli.conftest import PARTITION_COUNT, TOPIC, MakeGroup, Run, at, make_app, run_app
from tests.client.scripted import Scripted, of_another_kind
from tests.support.patience import WITHIN_S
from tests.support.requests import commit_request
from tests.support.scripted import Member, hang_up
from tests.support.tenure import Tenure

if TYPE_CHECKING:
    from coordinator.client.client import Node
    from protocol.messages import OffsetCommitResponse

ABSENT = "nobody-made-this-group"
STAYS = "group {} still has members, so it is not deleted: stop them first"


@pytest.fixture(scope="session")
def shared() -> dict[str, str]:
    """Groups that tests only look at, by bootstrap."""
    return {}


@pytest.fixture
def group(bootstrap: str, make_group: MakeGroup, shared: dict[str, str]) -> str:
    """A stable group of two static members, a and b, which no test changes."""
    if bootstrap not in shared:
        shared[bootstrap] = make_group(["a", "b"])
    return shared[bootstrap]


@pytest.fixture
def emptied(bootstrap: str, make_group: MakeGroup) -> str:
    """A group without members that has committed offsets."""
    group_id = make_group(["a"])
    with Client(bootstrap, WITHIN_S) as client:
        assert remove_seats(client, group_id, {"a": ""}) == {"a": 0}
    return group_id


def commit(client: Client, group_id: str, offsets: Sequence[int]) -> None:
    """Commit these offsets of the topic partitions from 0 on, from outside the group."""
    request = commit_request(group_id, {(TOPIC, index): offset for index, offset in enumerate(offsets)})

    def results(response: OffsetCommitResponse, _node: Node) -> Iterator[tuple[str, int, None]]:
        for partition in response.topics[0].partitions:
            yield group_id, partition.error_code, None

    answers = client.ask_coordinators([group_id], lambda _asked: request, results, at_least=8, at_most=8)
    assert answers == {group_id: None}


def test_list_shows_groups_with_their_state(run: Run, group: str, emptied: str) -> None:
    """A line for each group under the headings of Kafka's tools."""
    ran = run(app, "list")
    assert (ran.code, ran.err) == (0, "")
    lines = {row["GROUP"]: row for row in ran.rows}
    assert lines[group] == {"GROUP": group, "TYPE": "classic", "PROTOCOL": "consumer", "STATE": "Stable"}
    assert lines[emptied]["STATE"] == "Empty"


def test_list_as_json(run: Run, group: str) -> None:
    """The JSON list has the same groups as objects."""
    ran = run(app, "list", "--output", "json")
    assert ran.code == 0
    assert {
        "group_id": group,
        "group_type": "classic",
        "protocol_type": "consumer",
        "state": "Stable",
    } in ran.json


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--state", "Stable"], {"group"}),
        (["--state", "empty"], {"emptied"}),
        (["--state", "STABLE,Empty"], {"group", "emptied"}),
        (["--state", "Stable", "--state", "Empty"], {"group", "emptied"}),
        (["--state", "PreparingRebalance"], set()),
    ],
)
def test_list_by_state(run: Run, group: str, emptied: str, arguments: list[str], found: set[str]) -> None:
    """States may be in any case, repeated or with commas; an empty list is no failure."""
    ran = run(app, "list", "--output", "json", *arguments)
    assert ran.code == 0
    names = {group: "group", emptied: "emptied"}
    assert {names[one["group_id"]] for one in ran.json if one["group_id"] in names} == found


def test_describe_shows_offsets_like_kafkas_tool(run: Run, group: str) -> None:
    """Each topic partition has a line; without a committed offset, the offset and the lag are "-"."""
    ran = run(app, "describe", group)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].split() == list(OFFSET_COLUMNS)
    assert [(row["TOPIC"], row["PARTITION"]) for row in ran.rows] == [(TOPIC, str(n)) for n in range(PARTITION_COUNT)]
    first, second = ran.rows[:2]
    assert (first["CURRENT-OFFSET"], first["LOG-END-OFFSET"], first["LAG"]) == ("0", "0", "0")
    assert (second["CURRENT-OFFSET"], second["LAG"]) == ("-", "-")
    assert first["CONSUMER-ID"].startswith("a-")
    assert (first["HOST"], first["CLIENT-ID"]) == ("/127.0.0.1", "client-a")


def test_describe_offsets_that_nobody_owns(run: Run, emptied: str) -> None:
    """An empty group shows its committed offsets without an owner, and a warning that it has no members."""
    ran = run(app, "describe", "--offsets", emptied)
    assert ran.code == 0
    (row,) = ran.rows
    assert (row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) == (TOPIC, "0", "0", "0")
    assert (row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"]) == ("-", "-", "-")
    assert ran.err == f"tenure: group {emptied} has no members\n"


def test_an_offset_below_0_is_none(run: Run, bootstrap: str) -> None:
    """The group has no lag there, as in Kafka's tool; 2^63-1 is a number like any other."""
    highest = 2**63 - 1
    with Client(bootstrap, WITHIN_S) as client:
        commit(client, "odd", [-1, -2, -(2**63), highest])
    rows = run(app, "describe", "odd").rows
    assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows] == [
        ("0", "-", "0", "-"),
        ("1", "-", "0", "-"),
        ("2", "-", "0", "-"),
        ("3", str(highest), "0", str(-highest)),
    ]


def test_describe_shows_members(run: Run, group: str) -> None:
    """Each member has a line, with its instance id and its assignment."""
    ran = run(app, "describe", "--members", group)
    assert ran.code == 0
    assert ran.out.splitlines()[0].split() == list(MEMBER_COLUMNS)
    assert [
        (row["GROUP-INSTANCE-ID"], row["CLIENT-ID"], row["#PARTITIONS"], row["ASSIGNMENT"]) for row in ran.rows
    ] == [
        ("a", "client-a", "2", f"{TOPIC}(0,1)"),
        ("b", "client-b", "2", f"{TOPIC}(2,3)"),
    ]


def test_describe_shows_state(run: Run, bootstrap: str, group: str) -> None:
    """One line shows the group's coordinator, its assignor, its state and the number of members."""
    ran = run(app, "describe", "--state", group)
    assert ran.code == 0
    heading, line = ran.out.splitlines()
    assert heading.split("  ")[0] == "GROUP"
    assert line.split()[:2] == [group, bootstrap]
    assert line.split()[3:] == ["range", "Stable", "2"]


def test_describe_as_json(run: Run, bootstrap: str, group: str) -> None:
    """The document has exactly the keys that scripts rely on."""
    ran = run(app, "describe", group, "--output", "json")
    assert ran.code == 0
    (described,) = ran.json
    coordinator, members, offsets = (described.pop(key) for key in ("coordinator", "members", "offsets"))
    whole, [topic] = described.pop("lag"), described.pop("topics")
    assert (whole["lag"], topic.pop("topic"), topic) == (0, TOPIC, whole)
    assert described == {
        "group_id": group,
        "state": "Stable",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "waiting": None,
    }
    assert f"{coordinator['host']}:{coordinator['port']}" == bootstrap
    member_id = members[0].pop("member_id")
    assert members[0] == {
        "group_instance_id": "a",
        "client_id": "client-a",
        "client_host": "/127.0.0.1",
        "assignment": {TOPIC: [0, 1]},
    }
    assert offsets[0] == {
        "topic": TOPIC,
        "partition": 0,
        "current_offset": 0,
        "log_end_offset": 0,
        "last_stable_offset": None,
        "lag": 0,
        "stable_lag": 0,
        "behind_ms": 0,
        "behind_is_least": False,
        "in_per_s": None,
        "out_per_s": None,
        "catch_up_ms": 0,
        "catches_up": True,
        "member_id": member_id,
    }
    assert offsets[1]["current_offset"] is None


def test_describe_tells_lag_in_time(run: Run, bootstrap: str) -> None:
    """The oldest record has the age of its timestamp; a group that reads nothing never catches up."""
    admin, producer = AdminClient({"bootstrap.servers": bootstrap}), Producer({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("lately", 2, 1)])["lately"].result()
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    for number in range(12):
        producer.produce("lately", b"late", partition=1, timestamp=hour_ago_ms + number)
    assert producer.flush(WITHIN_S) == 0
    places = [TopicPartition("lately", 0, 0), TopicPartition("lately", 1, 2)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("late", places)])["late"].result()
    [told] = run(app, "describe", "late", "--lag-time", "1", "--output", "json").json
    behind = told["offsets"][1]
    assert (behind["lag"], behind["catches_up"], behind["catch_up_ms"], behind["in_per_s"]) == (10, False, None, 0)
    assert behind["behind_ms"] == pytest.approx(3_600_000, rel=0.1)
    assert (told["lag"]["lag"], told["lag"]["behind_ms"]) == (10, behind["behind_ms"])
    ran = run(app, "describe", "late", "--lag-time", "1")
    row = ran.rows[1]
    assert (row["LAG"], row["IN/S"], row["OUT/S"], row["CATCH-UP"]) == ("10", "0.0", "0.0", "never")
    assert (ran.rows[0]["BEHIND"], ran.rows[0]["CATCH-UP"]) == ("0.0s", "0.0s")
    assert run(app, "describe", "late", "--members", "--lag-time", "1").code == ExitCode.USAGE


def test_describe_members_as_json_asks_for_no_offsets(run: Run, group: str) -> None:
    """The document has no offsets unless they were requested."""
    (described,) = run(app, "describe", group, "--members", "--output", "json").json
    assert "offsets" not in described


def test_describe_all(run: Run, group: str, emptied: str) -> None:
    """--all describes every group of the cluster."""
    ran = run(app, "describe", "--all", "--output", "json")
    assert ran.code == 0
    assert {group, emptied} <= {one["group_id"] for one in ran.json}


def test_groups_are_named_as_for_kafkas_tool(run: Run, group: str, emptied: str) -> None:
    """`--group` does the same as an argument, once or several times."""
    ran = run(app, "describe", "--group", group, "--group", emptied, "--state", "--output", "json")
    assert [each["group_id"] for each in ran.json] == [group, emptied]
    assert run(app, "delete", "--group", emptied).code == 0
    assert run(app, "describe", "--group", emptied).code == 3


def test_describe_of_an_absent_group(run: Run, group: str) -> None:
    """An unknown group is exit code 3 and one line that names it; the other group is still described."""
    ran = run(app, "describe", "--members", ABSENT, group)
    assert ran.code == 3
    assert ran.err == f"tenure: no such group: {ABSENT}\n"
    assert {row["GROUP"] for row in ran.rows} == {group}


def test_delete(run: Run, emptied: str) -> None:
    """Delete removes an empty group with its offsets."""
    ran = run(app, "delete", emptied)
    assert (ran.code, ran.err) == (0, "")
    assert ran.rows == [{"GROUP": emptied, "RESULT": "deleted"}]
    assert run(app, "describe", emptied).code == 3


def test_delete_refuses_a_group_with_members(run: Run, group: str, emptied: str) -> None:
    """A group with members gives exit code 4 and a reason; the others are deleted; the highest code wins."""
    ran = run(app, "delete", group, ABSENT, emptied, "--output", "json")
    assert ran.code == 4
    assert ran.json == [
        {"group_id": group, "error": "NON_EMPTY_GROUP"},
        {"group_id": ABSENT, "error": "GROUP_ID_NOT_FOUND"},
        {"group_id": emptied, "error": None},
    ]
    assert ran.err == f"tenure: {STAYS.format(group)}; no such group: {ABSENT}\n"
    assert run(app, "describe", group).code == 0


def test_delete_says_once_what_stays(run: Run, group: str, emptied: str) -> None:
    """The table has the deleted groups alone, and there is none without them."""
    ran = run(app, "delete", group)
    assert (ran.code, ran.out, ran.err) == (4, "", f"tenure: {STAYS.format(group)}\n")
    ran = run(app, "delete", group, emptied)
    assert (ran.code, ran.err) == (4, f"tenure: {STAYS.format(group)}\n")
    assert ran.rows == [{"GROUP": emptied, "RESULT": "deleted"}]


def test_delete_of_an_absent_group(run: Run) -> None:
    """Delete of an unknown group gives exit code 3."""
    assert run(app, "delete", ABSENT).code == 3


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["describe"], "name the groups"),
        (["describe", "--group", "g", "--all"], "exclude each other"),
        (["delete"], "name the groups to delete"),
        (["describe", "g", "--members", "--state"], "exclude each other"),
        (["list", "--state", "Sleeping"], "'Sleeping' is none of"),
        (["list", "--bootstrap-server", "nowhere"], "'nowhere' is not HOST:PORT"),
    ],
)
def test_wrong_usage(arguments: list[str], why: str) -> None:
    """Wrong usage gives exit code 2 and one line, before the command sends anything."""
    ran = run_app(app, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err
    assert ran.err.count("\n") == 1


def test_lag_and_members_without_anything() -> None:
    """The lag is the end minus the committed offset; members without a topic partition have lines at the end."""
    member = DescribeGroupsResponse.DescribedGroupMember(member_id="m", client_id="c", client_host="/h")
    described = DescribeGroupsResponse.DescribedGroup(group_id="g", group_state="Stable", members=[member])
    committed = OffsetFetchResponse.OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)
    topic = OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=[committed])
    end = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=42)
    answers: dict[str, list[Any]] = {
        "DescribeGroups": [DescribeGroupsResponse(groups=[described])],
        "OffsetFetch": [
            OffsetFetchResponse(groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic])])
        ],
        "ListOffsets": [
            ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[end])])
        ],
    }
    with Scripted(answers) as server:
        led = MetadataResponse.MetadataResponsePartition(partition_index=0, leader_id=7)
        metadata = MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=7, host="127.0.0.1", port=server.port)],
            topics=[MetadataResponse.MetadataResponseTopic(name="t", partitions=[led])],
        )
        server.answers("Metadata", metadata)
        ran = run_app(app, "describe", "g", *at(server.bootstrap))
    assert ran.code == 0
    assert [list(row.values()) for row in ran.rows] == [
        ["g", "t", "0", "5", "42", "37", "-", "-", "-"],
        ["g", "-", "-", "-", "-", "-", "m", "/h", "c"],
    ]


def test_group_that_goes_while_all_are_described() -> None:
    """A listed group that disappears before it is described is no failure: nobody named it."""
    listed = [ListGroupsResponse.ListedGroup(group_id="gone", group_type="classic")]
    gone = DescribeGroupsResponse.DescribedGroup(group_id="gone", group_state="Dead")
    answers: dict[str, list[Any]] = {
        "ListGroups": [ListGroupsResponse(groups=listed)],
        "DescribeGroups": [DescribeGroupsResponse(groups=[gone])],
    }
    with Scripted(answers) as server:
        ran = run_app(app, "describe", "--all", "--output", "json", *at(server.bootstrap))
    assert (ran.code, ran.json, ran.err) == (0, [], "")


def test_static_members_are_of_groups_of_consumers() -> None:
    """A share group has no static member: the line names its kind, and the exit code is one of its own."""
    with Scripted(of_another_kind("share")) as server:
        ran = run_app(make_app("groups"), "groups", "ready", "g", *at(server.bootstrap))
    assert (ran.code, ran.out) == (ExitCode.OTHER_KIND, "")
    assert "group g is a share group (Stable)" in ran.err


def test_all_describes_groups_of_all_kinds() -> None:
    """Each kind of group is asked for by its own request, and only if no other one knows it."""
    listed = [ListGroupsResponse.ListedGroup(group_id=kind, group_type=kind) for kind in ("classic", "Consumer")]
    classic, other = (
        DescribeGroupsResponse.DescribedGroup(group_id=kind, group_state=state)
        for kind, state in (("classic", "Empty"), ("Consumer", "Dead"))
    )
    topics = [ConsumerGroupDescribeResponse.TopicPartitions(topic_name="t", partitions=[1, 0])]
    member = ConsumerGroupDescribeResponse.Member(
        member_id="m",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        target_assignment=ConsumerGroupDescribeResponse.Assignment(topic_partitions=topics),
    )
    consumer = ConsumerGroupDescribeResponse.DescribedGroup(
        group_id="Consumer",
        group_state="Assigning",
        group_epoch=6,
        assignment_epoch=5,
        assignor_name="uniform",
        members=[member],
    )
    answers: dict[str, list[Any]] = {
        "ListGroups": [ListGroupsResponse(groups=listed)],
        "DescribeGroups": [DescribeGroupsResponse(groups=[classic, other])],
        "ConsumerGroupDescribe": [ConsumerGroupDescribeResponse(groups=[consumer])],
    }
    with Scripted(answers) as server:
        ran = run_app(app, "describe", "--all", "--state", *at(server.bootstrap))
        members = run_app(app, "describe", "--all", "--members", *at(server.bootstrap))
        assert [one.groups for one in server.asked("DescribeGroups")] == [["Consumer", "classic"]] * 2
        assert [one.group_ids for one in server.asked("ConsumerGroupDescribe")] == [["Consumer"]] * 2
    assert ran.code == 0
    assert "group Consumer is rebalancing" in ran.err
    rows = {row["GROUP"]: row for row in ran.rows}
    assert [rows["Consumer"][name] for name in ("ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")] == [
        "uniform",
        "Assigning",
        "1",
    ]
    assert [rows["Consumer"][name] for name in EPOCH_COLUMNS] == ["6", "5"]
    assert [rows["classic"][name] for name in EPOCH_COLUMNS] == ["-", "-"]
    assert [members.rows[0][name] for name in SEAT_COLUMNS] == ["4", "5", "t(0,1)", "true"]


def test_a_group_that_holds_joins_says_so() -> None:
    """It has no members, although a program runs: the join waits for an expected member."""
    with Tenure({}) as server, Client(server.bootstrap, WITHIN_S) as client:
        change_settings(client, "g", {"expected.instance.ids": "a,b"})
        Member(server.port, "g", "a", 9, instance="a").send_join()
        server.wait_for_event("rebalance_held", "g")
        ran = run_app(app, "describe", "g", "--members", *at(server.bootstrap))
        assert (ran.code, ran.err) == (0, "tenure: group g has no members; 1 join held for others\n")
        hang_up()
