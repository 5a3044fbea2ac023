"""Several nodes of a test kit: one cluster, whose coordinators move, and whose nodes die and come back."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from coordinator.client.errors import Refused
from coordinator.group.classic.seats import STANDBY_GENERATION
from coordinator.group.partition import partition_for
from coordinator.log.engine import Unavailable
from coordinator.log.topics.list import Topic
from coordinator.server.app import StartFailed
from coordinator.testing import Group, NotRunning, Tenure
from coordinator.testing.control import Control
from protocol.messages import (
    DeleteTopicsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataRequest,
    OffsetCommitRequest,
    TxnOffsetCommitRequest,
)
from protocol.records.batch import Record, encode_batch
from schemas.errors import ErrorCode
from tests.support.batches import batch
from tests.support.patience import WITHIN_S
from tests.support.raw import Closed, Connection, ask
from tests.support.requests import commit_request, fetch_request, produce_request, topics_request
from tests.support.scripted import OPENED, Member, hang_up, settle
from tests.support.seats import set_seats

if TYPE_CHECKING:
    from coordinator.server.nodes.topics import ChangeResult

GROUPS = [f"group-{number}" for number in range(20)]
"""Enough for a group on each node."""

NODES = [0, 1, 2]

RETRIED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Errors upon which a client looks for the coordinator and asks again."""


@pytest.fixture
def nodes() -> Iterator[Tenure]:
    """Yield three nodes with topic t, whose waiters have patience."""
    with Tenure(topics={"t": 3}, nodes=3, timeout=WITHIN_S) as made:
        yield made
    hang_up()


def ports_of(tenure: Tenure) -> list[int]:
    """The port of each node."""
    return [int(each.rpartition(":")[2]) for each in tenure.bootstrap_servers.split(",")]


def port_for(tenure: Tenure, group_id: str) -> int:
    """The port of a group's coordinator."""
    return ports_of(tenure)[tenure.coordinator_of(group_id)]


def found_by(tenure: Tenure, node: int, group_id: str) -> int:
    """The coordinator of a group as a node names it: its id, checked by its port."""
    answer = ask(ports_of(tenure)[node], FindCoordinatorRequest(key=group_id), 2)
    assert answer.error_code == ErrorCode.NONE
    assert ports_of(tenure)[answer.node_id] == answer.port
    return int(answer.node_id)


def other_than(tenure: Tenure, group_id: str) -> int:
    """A node that doesn't coordinate the group."""
    return (tenure.coordinator_of(group_id) + 1) % len(NODES)


def member_of(tenure: Tenure, name: str, **says: Any) -> Member:
    """A member of "workers", connected to its coordinator."""
    return Member(port_for(tenure, "workers"), "workers", name, 5, **says)


def reconnect(tenure: Tenure, member: Member) -> Member:
    """Connect a member to the coordinator as it is; returns the member."""
    member.connection.close()
    member.connection = Connection(port_for(tenure, "workers"), member.name)
    OPENED.append(member.connection)
    member.waits = False
    return member


def enter(member: Member) -> None:
    """Let a member join and sync that waits for nobody."""
    member.send_join()
    assert member.receive_join().error_code == ErrorCode.NONE
    member.send_sync({})
    assert member.connection.receive(WITHIN_S).error_code == ErrorCode.NONE


def is_leader(member: Member) -> bool:
    """Whether the answer to its join says that it leads."""
    return member.joined is not None and member.joined.leader == member.member_id


def commit_of(group_id: str, offset: int, member: Member | None = None) -> OffsetCommitRequest:
    """A commit for t-0, by a member or by no member."""
    who = () if member is None else (member.generation, member.member_id)
    return commit_request(group_id, {("t", 0): offset}, *who)


def commit(port: int, group_id: str, offset: int, member: Member | None = None) -> int:
    """Commit, and return the error code."""
    return int(ask(port, commit_of(group_id, offset, member), 7).topics[0].partitions[0].error_code)


def topic_names(port: int) -> set[str]:
    """The topics that a node shows."""
    return {topic.name for topic in ask(port, MetadataRequest(topics=None), 4).topics}


def leaders_of(port: int) -> dict[int, int]:
    """The leader of each partition of topic t, as a node names it."""
    (topic,) = ask(port, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 4).topics
    return {partition.partition_index: partition.leader_id for partition in topic.partitions}


def produce(port: int, partition: int, value: bytes) -> int:
    """Append a record to a partition of topic t, and return the error code."""
    records = encode_batch([Record(b"key", value, 1)], 0, 0)
    answer = ask(port, produce_request({("t", partition): records}), 7)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(port: int, partition: int) -> bytes:
    """The batches of a partition of topic t."""
    answer = ask(port, fetch_request({("t", partition): 0}, max_wait_ms=1_000), 4).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    return bytes(answer.records)


def leader_port(tenure: Tenure, partition: int) -> int:
    """The port of the leader of a partition of topic t."""
    by = tenure.coordinator_of("workers")
    return ports_of(tenure)[leaders_of(ports_of(tenure)[by])[partition]]


class TestCluster:
    """Several nodes are one cluster."""

    def test_groups_are_spread_and_each_node_knows_where(self, nodes: Tenure) -> None:
        """Each node coordinates some groups, and every node sends clients to the same one."""
        coordinators = {group_id: nodes.coordinator_of(group_id) for group_id in GROUPS}
        assert set(coordinators.values()) == set(NODES)
        for node in NODES:
            assert {group_id: found_by(nodes, node, group_id) for group_id in GROUPS} == coordinators

    def test_only_the_coordinator_serves_a_group(self, nodes: Tenure) -> None:
        """The others answer NOT_COORDINATOR."""
        errors = [commit(port, "workers", 1) for port in ports_of(nodes)]
        expected = [ErrorCode.NOT_COORDINATOR] * 3
        expected[nodes.coordinator_of("workers")] = ErrorCode.NONE
        assert errors == expected

    def test_all_nodes_have_one_list_of_topics(self, nodes: Tenure) -> None:
        """A topic that one node creates or deletes is there, or gone, on all of them when the answer comes."""
        ports = ports_of(nodes)
        created = ask(ports[1], topics_request({"more": 2}), 4)
        assert created.topics[0].error_code == ErrorCode.NONE
        assert all(topic_names(port) >= {"t", "more"} for port in ports)
        deleted = ask(ports[2], DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 3)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        assert all("t" not in topic_names(port) for port in ports)
        with pytest.raises(Refused):
            nodes.create_topic("more")

    def test_topic_partitions_have_one_leader_each(self, nodes: Tenure) -> None:
        """The leaders are all nodes in turn; every node names the same, and the leader alone takes records."""
        leaders = leaders_of(ports_of(nodes)[0])
        assert sorted(leaders.values()) == NODES
        assert [leaders_of(port) for port in ports_of(nodes)] == [leaders] * 3
        for node, port in enumerate(ports_of(nodes)):
            error = ErrorCode.NONE if leaders[0] == node else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert produce(port, 0, b"value") == error

    def test_a_start_after_a_stop_has_the_same_ports(self) -> None:
        """Memory is gone, addresses stay."""
        tenure = Tenure(nodes=2).start()
        addresses = tenure.bootstrap_servers
        tenure.stop()
        tenure.stop()
        with tenure:
            assert tenure.bootstrap_servers == addresses
            assert tenure.group("workers").state == "Dead"

    def test_nothing_is_left_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a stop no thread, socket, file or folder remains, with a node that was killed and records too."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with Tenure(nodes=2):
            pass  # what is imported and opened once stays
        before = threading.active_count(), open_files(), list(tmp_path.iterdir())
        with Tenure(topics={"t": 1}, nodes=2) as tenure:
            settle(member_of(tenure, "one"))
            assert produce(leader_port(tenure, 0), 0, b"value") == ErrorCode.NONE
            tenure.kill_node(1)
            assert list(tmp_path.iterdir()) != before[2]
        hang_up()
        assert (threading.active_count(), open_files(), list(tmp_path.iterdir())) == before

    def test_a_start_that_fails_ends_the_nodes_that_started(self) -> None:
        """If the last port is taken, the others are free again."""
        tenure = Tenure(nodes=3).start()
        tenure.stop()
        ports = ports_of(tenure)
        taken = socket.create_server(("127.0.0.1", ports[2]))
        with taken, pytest.raises(StartFailed, match="the address is in use"):
            tenure.start()
        with tenure:
            assert ports_of(tenure) == ports


class TestMove:
    """A coordinator moves."""

    def test_members_keep_their_seats(self, nodes: Tenure) -> None:
        """Ids, generation, assignments and offsets are at the new node at once; no rebalance; commits go on."""
        members = [member_of(nodes, name) for name in ("one", "two", "three")]
        settle(*members)
        group = nodes.group("workers")
        to = other_than(nodes, "workers")
        assert commit(port_for(nodes, "workers"), "workers", 7, members[0]) == ErrorCode.NONE
        group.wait_until_stable(members=3)
        seats, generation = group.assignment, group.generation
        with group.no_rebalance(), group.same_seats():
            nodes.move("workers", to)
            assert [found_by(nodes, node, "workers") for node in NODES] == [to] * 3
            for member in members:
                assert member.heartbeat() == ErrorCode.NOT_COORDINATOR
                assert reconnect(nodes, member).heartbeat() == ErrorCode.NONE
            assert (group.assignment, group.generation) == (seats, generation)
            assert group.committed == {("t", 0): 7}
            assert commit(ports_of(nodes)[to], "workers", 8, members[1]) == ErrorCode.NONE
            assert group.committed == {("t", 0): 8}

    def test_there_and_back_with_all_offsets(self, nodes: Tenure) -> None:
        """Each coordinator has the commits of the one before, and all groups of the partition move together."""
        count = nodes._configs[0].offsets_topic_num_partitions
        beside = next(name for name in GROUPS if partition_for(name, count) == partition_for("workers", count))
        first = nodes.coordinator_of("workers")
        for offset, to in enumerate((first, *(node for node in NODES if node != first), first), 1):
            nodes.move("workers", to)
            assert nodes.coordinator_of(beside) == to
            if offset > 1:
                assert nodes.group("workers").committed == {("t", 0): offset - 1}
            for group_id in ("workers", beside):
                assert commit(ports_of(nodes)[to], group_id, offset) == ErrorCode.NONE
        assert nodes.group(beside).committed == {("t", 0): 4}

    def test_a_move_to_the_same_node_changes_nothing(self, nodes: Tenure) -> None:
        """The node goes on; it doesn't load the group again."""
        settle(member_of(nodes, "one"))
        before = nodes.group("workers").look()
        nodes.move("workers", nodes.coordinator_of("workers"))
        assert nodes.group("workers").look() == before

    def test_a_wait_in_join_ends_with_not_coordinator(self, nodes: Tenure) -> None:
        """Kafka's onResignation: who waits for others in JoinGroup gets NOT_COORDINATOR; the rebalance is lost.

        The group is back in its last synced generation at the new node. There the members join again.
        """
        one, two = member_of(nodes, "one"), member_of(nodes, "two")
        settle(one)
        generation = one.generation
        two.send_join()
        nodes.group("workers").wait_until(state="PreparingRebalance")
        nodes.move("workers", other_than(nodes, "workers"))
        assert two.receive_join().error_code == ErrorCode.NOT_COORDINATOR
        group = nodes.group("workers")
        assert (group.state, group.generation, len(group.members)) == ("Stable", generation, 1)
        assert reconnect(nodes, one).heartbeat() == ErrorCode.NONE
        reconnect(nodes, two).send_join()
        assert two.receive_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID  # its id was never in the log
        two.member_id = ""
        two.send_join()
        assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        settle(one, two)
        group.wait_until_stable(members=2)
        assert one.generation == two.generation == generation + 1

    def test_a_wait_in_sync_ends_with_not_coordinator(self, nodes: Tenure) -> None:
        """Kafka's onResignation: who waits for the leader in SyncGroup gets NOT_COORDINATOR."""
        members = [member_of(nodes, name) for name in ("one", "two")]
        for member in members:
            member.send_join()
        for member in members:
            assert member.receive_join().error_code == ErrorCode.NONE
        (follower,) = (each for each in members if each.joined is not None and each.joined.leader != each.member_id)
        follower.send_sync({})
        nodes.group("workers").wait_until(
            lambda _: nodes.requests.count("SyncGroup") == 1, state="CompletingRebalance", timeout=WITHIN_S
        )
        nodes.move("workers", other_than(nodes, "workers"))
        assert follower.connection.receive(WITHIN_S).error_code == ErrorCode.NOT_COORDINATOR
        assert nodes.group("workers").state == "Dead"  # it never had a synced generation

    @pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
    @pytest.mark.parametrize("moment", ["lost", "called", "join is lost", "joined", "sync is lost"])
    def test_a_standby_takes_its_seat_at_the_new_node(self, nodes: Tenure, moment: str, *, leads: bool) -> None:
        """Whatever it had asked at the old one: it has the seat's partitions, and nobody else notices."""
        set_seats(ports_of(nodes)[0], "workers", 2)
        group = nodes.group("workers")
        members = [member_of(nodes, name) for name in ("one", "two")]
        settle(*members)
        standby = member_of(nodes, "three")
        enter(standby)
        assert (standby.generation, group.state) == (STANDBY_GENERATION, "Stable")
        (lost,) = (each for each in members if is_leader(each) is leads)
        (other,) = (each for each in members if each is not lost)
        seat = group.assignment[lost.member_id]
        with group.no_rebalance():
            lost.leave()
            if moment != "lost":
                assert standby.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
            joins, syncs = nodes.requests.count("JoinGroup"), nodes.requests.count("SyncGroup")
            if moment == "join is lost":
                standby.send_join()
                nodes.group("workers").wait_until(lambda _: nodes.requests.count("JoinGroup") > joins)
            elif moment in {"joined", "sync is lost"}:
                standby.send_join()
                assert standby.receive_join().error_code == ErrorCode.NONE
            if moment == "sync is lost":
                standby.send_sync({})
                nodes.group("workers").wait_until(lambda _: nodes.requests.count("SyncGroup") > syncs)
            nodes.move("workers", other_than(nodes, "workers"))
            reconnect(nodes, standby)
            if moment in {"lost", "called"}:
                assert standby.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
            if moment == "joined":
                standby.send_sync({})
                assert standby.connection.receive(WITHIN_S).error_code == ErrorCode.NONE
            else:
                enter(standby)
            assert standby.heartbeat() == ErrorCode.NONE
            assert (group.assignment[standby.member_id], group.generation) == (seat, other.generation)
            assert reconnect(nodes, other).heartbeat() == ErrorCode.NONE

    def test_no_acknowledged_commit_is_lost(self, nodes: Tenure) -> None:
        """While the coordinator moves again and again, each answer NONE is true at every later coordinator."""
        over, acknowledged = threading.Event(), [0]
        thread = threading.Thread(target=commit_until, args=(nodes, over, acknowledged))
        thread.start()
        try:
            for number in range(30):
                before = acknowledged[0]
                nodes.move("workers", number % 3)
                nodes.group("workers").wait_until(partial(is_past, acknowledged, before))
        finally:
            over.set()
            thread.join()
        assert nodes.group("workers").committed == {("t", 0): acknowledged[0]}

    def test_a_move_says_what_is_wrong(self, nodes: Tenure) -> None:
        """An unknown node, a node that doesn't run."""
        with pytest.raises(ValueError, match="there is no node 3; there are 0, 1, 2"):
            nodes.move("workers", 3)
        nodes.kill_node(1)
        with pytest.raises(ValueError, match="node 1 doesn't run"):
            nodes.move("workers", 1)
        with pytest.raises(ValueError, match="node 1 doesn't run"):
            nodes.kill_node(1)
        with pytest.raises(ValueError, match="node 2 runs"):
            nodes.start_node(2)


class TestDeath:
    """A node dies, and comes back."""

    def test_its_groups_go_to_the_others(self, nodes: Tenure) -> None:
        """Its clients are cut off; its groups are elsewhere with their members and offsets, without a rebalance."""
        dead = nodes.coordinator_of("workers")
        one = member_of(nodes, "one")
        settle(one)
        assert commit(port_for(nodes, "workers"), "workers", 7, one) == ErrorCode.NONE
        group = nodes.group("workers").wait_until_stable(members=1)
        elsewhere = {name: nodes.coordinator_of(name) for name in GROUPS if nodes.coordinator_of(name) != dead}
        with group.no_rebalance(), group.same_seats():
            nodes.kill_node(dead)
            with pytest.raises(Closed):
                one.heartbeat()
            with pytest.raises(ConnectionRefusedError):
                Connection(ports_of(nodes)[dead])
            assert nodes.coordinator_of("workers") != dead
            assert reconnect(nodes, one).heartbeat() == ErrorCode.NONE
            assert group.committed == {("t", 0): 7}
        assert {name: nodes.coordinator_of(name) for name in elsewhere} == elsewhere
        assert {nodes.coordinator_of(name) for name in GROUPS} == set(NODES) - {dead}

    def test_its_topic_partitions_go_to_the_others(self, nodes: Tenure) -> None:
        """Each partition has a leader that runs, with all records; clients see no node that doesn't run."""
        for partition in range(3):
            assert produce(leader_port(nodes, partition), partition, b"before") == ErrorCode.NONE
        nodes.kill_node(0)
        port = ports_of(nodes)[1]
        assert [broker.node_id for broker in ask(port, MetadataRequest(topics=[]), 4).brokers] == [1, 2]
        assert set(leaders_of(port).values()) == {1, 2}
        for partition in range(3):
            at = ports_of(nodes)[leaders_of(port)[partition]]
            assert produce(at, partition, b"after") == ErrorCode.NONE
            records = fetch(at, partition)
            assert records.index(b"before") < records.index(b"after")
        nodes.create_topic("more")
        assert "more" in topic_names(port)

    def test_it_comes_back_at_its_port_with_nothing(self, nodes: Tenure) -> None:
        """It knows the topics; groups and topic partitions stay where they are, until a move gives it some."""
        addresses = nodes.bootstrap_servers
        nodes.kill_node(0)
        nodes.create_topic("more")
        at = {name: nodes.coordinator_of(name) for name in GROUPS}
        leaders = leaders_of(ports_of(nodes)[1])
        nodes.start_node(0)
        assert nodes.bootstrap_servers == addresses
        assert "more" in topic_names(ports_of(nodes)[0])
        assert [broker.node_id for broker in ask(ports_of(nodes)[1], MetadataRequest(topics=[]), 4).brokers] == NODES
        assert {name: nodes.coordinator_of(name) for name in GROUPS} == at
        assert [leaders_of(port) for port in ports_of(nodes)] == [leaders] * 3
        nodes.move("workers", 0)
        assert commit(ports_of(nodes)[0], "workers", 1) == ErrorCode.NONE

    def test_no_change_of_topics_waits_for_it(self, nodes: Tenure) -> None:
        """Other nodes' changes that were under way succeed without it; its own end with an error."""
        cluster = nodes._cluster
        outcomes: dict[int, ChangeResult] = {}

        async def change_and_kill() -> None:
            for node_id in (0, 1):
                topic = Topic(f"of-{node_id}", UUID(int=node_id + 1), 1)
                link = cluster._nodes[node_id].channel
                assert link is not None
                link.topics.create([topic], partial(outcomes.__setitem__, node_id))
            await cluster.end_node(1, Control.kill)

        nodes._running().run(change_and_kill())
        nodes.create_topic("more")  # behind the others
        assert outcomes[0] == {}
        assert isinstance(outcomes[1], Unavailable)
        assert topic_names(ports_of(nodes)[0]) >= {"of-0", "of-1", "more"}
        nodes.start_node(1)
        assert topic_names(ports_of(nodes)[1]) >= {"of-0", "of-1", "more"}

    def test_all_die_and_the_first_one_back_has_everything(self, nodes: Tenure) -> None:
        """The nodes' log outlives them: groups, topics and records are there when one node is."""
        one = member_of(nodes, "one")
        settle(one)
        assert produce(leader_port(nodes, 2), 2, b"before") == ErrorCode.NONE
        for node in NODES:
            nodes.kill_node(node)
        with pytest.raises(NotRunning, match="no node runs"):
            nodes.client()
        with pytest.raises(NotRunning, match="no node runs"):
            nodes.group("workers").look()
        nodes.start_node(2)
        assert {nodes.coordinator_of(name) for name in GROUPS} == {2}
        assert reconnect(nodes, one).heartbeat() == ErrorCode.NONE
        assert b"before" in fetch(ports_of(nodes)[2], 2)
        nodes.start_node(0)
        nodes.create_topic("more")
        assert all(topic_names(ports_of(nodes)[node]) >= {"t", "more"} for node in (0, 2))

    def test_a_start_at_a_port_that_is_taken_fails(self, nodes: Tenure) -> None:
        """The node stays down, the others go on, and it can start later."""
        nodes.kill_node(1)
        taken = socket.create_server(("127.0.0.1", ports_of(nodes)[1]))
        with taken, pytest.raises(StartFailed, match="the address is in use"):
            nodes.start_node(1)
        nodes.create_topic("more")
        nodes.start_node(1)
        assert "more" in topic_names(ports_of(nodes)[1])


class TestFaultsAndTime:
    """The plan, the time and the members of a test concern all nodes."""

    def test_a_fault_meets_requests_at_any_node(self, nodes: Tenure) -> None:
        """It counts once, wherever the request came to; removed, it is gone everywhere."""
        (fault,) = nodes.faults.add("OffsetCommit group=workers nth=2 -> error REBALANCE_IN_PROGRESS")
        assert commit(port_for(nodes, "workers"), "workers", 1) == ErrorCode.NONE
        nodes.move("workers", other_than(nodes, "workers"))
        assert commit(port_for(nodes, "workers"), "workers", 2) == ErrorCode.REBALANCE_IN_PROGRESS
        assert (fault.seen, fault.fired) == (2, 1)
        nodes.faults.add("FindCoordinator -> error COORDINATOR_NOT_AVAILABLE")
        nodes.faults.clear()
        assert {found_by(nodes, node, "workers") for node in NODES} == {nodes.coordinator_of("workers")}

    def test_a_planned_kill_ends_the_node_that_met_it(self, nodes: Tenure) -> None:
        """The commit is in the log and its answer is lost; another node goes on with it, and with the member."""
        one = member_of(nodes, "one")
        settle(one)
        dead = nodes.coordinator_of("workers")
        nodes.faults.add("OffsetCommit -> kill")
        with nodes.group("workers").no_rebalance():
            with pytest.raises(Closed):
                commit(port_for(nodes, "workers"), "workers", 7, one)
            nodes.wait_until_killed()
            assert nodes.coordinator_of("workers") != dead
            assert nodes.group("workers").committed == {("t", 0): 7}
            assert reconnect(nodes, one).heartbeat() == ErrorCode.NONE
        nodes.start_node(dead)
        with pytest.raises(AssertionError, match="nothing killed the server"):
            nodes.wait_until_killed(timeout=0)

    def test_all_nodes_have_one_time(self, nodes: Tenure) -> None:
        """A jump goes past all of them, a node that comes back is where the others are, and a live member stays."""
        one, two = member_of(nodes, "one"), member_of(nodes, "two", instance="two")
        settle(one, two)
        nodes.kill_node(other_than(nodes, "workers"))
        nodes.freeze()
        nodes.advance(3_600)
        times = {nodes.do(lambda control: control.clock.ms(), group_id) for group_id in GROUPS}
        nodes.start_node(other_than(nodes, "workers"))
        nodes.move("workers", other_than(nodes, "workers"))
        assert {nodes.do(lambda control: control.clock.ms(), group_id) for group_id in GROUPS} == times
        assert len(times) == 1
        for member in (one, two):
            assert reconnect(nodes, member).heartbeat() == ErrorCode.NONE
        nodes.group("workers").expire("two")
        nodes.group("workers").wait_until(lambda group: len(group.members) == 1)
        with pytest.raises(LookupError):
            nodes.group("elsewhere").expire("two")

    def test_a_jump_may_expire_a_member_at_its_node(self, nodes: Tenure) -> None:
        """`unheard` names members at whatever node."""
        for group_id in GROUPS[:3]:
            settle(Member(port_for(nodes, group_id), group_id, "one", 5, instance="one"))
        nodes.advance(3_600, unheard=[(GROUPS[0], "one"), (GROUPS[1], "one")])
        assert [len(nodes.group(group_id).members) for group_id in GROUPS[:3]] == [0, 0, 1]

    def test_scripted_members_follow_the_coordinator(self, nodes: Tenure) -> None:
        """Members without clients look for it, as clients do, and keep their seats."""
        group = nodes.group("workers")
        group.fill(5, static=True, heartbeat_interval_ms=100)
        group.wait_until_stable(members=5)
        with group.no_rebalance(), group.same_seats():
            target = other_than(nodes, "workers")
            nodes.move("workers", target)
            nodes.requests.clear()
            found = nodes.requests.count
            group.wait_until(lambda _: found("FindCoordinator") >= 5 and found("Heartbeat") >= 10)
            assert nodes.coordinator_of("workers") == target


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({"nodes": 0}, "at least one"),
        ({"nodes": 2, "data_dir": "data"}, "don't go together"),
        ({"nodes": 2, "settings": {"tenure.events.enable": True}}, "tenure.events.enable needs nodes=1"),
    ],
)
def test_what_does_not_go_together(arguments: dict[str, Any], reason: str) -> None:
    """Several nodes are in memory only."""
    with pytest.raises(ValueError, match=reason):
        Tenure(**arguments)


def test_one_node_has_nothing_to_move_to() -> None:
    """The methods for several nodes say so; and a single server imports none of this."""
    with Tenure() as tenure:
        calls: list[Callable[[], object]] = [
            lambda: tenure.coordinator_of("workers"),
            lambda: tenure.move("workers", 1),
            lambda: tenure.kill_node(1),
            lambda: tenure.start_node(1),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="nodes=3"):
                call()
    with pytest.raises(NotRunning):
        Tenure(nodes=2).move("workers", 1)


async def test_moves_from_many_threads_come_one_after_the_other() -> None:
    """The last one counts, and the group is served."""
    with Tenure(topics={"t": 3}, nodes=3, timeout=WITHIN_S) as tenure:
        await asyncio.gather(*(asyncio.to_thread(tenure.move, "workers", number % 3) for number in range(24)))
        assert len({found_by(tenure, node, "workers") for node in NODES}) == 1
        assert commit(port_for(tenure, "workers"), "workers", 1) == ErrorCode.NONE


def commit_until(tenure: Tenure, over: threading.Event, acknowledged: list[int]) -> None:
    """Commit 1, 2, 3, ... as a client does, each until it is acknowledged."""
    connections = [Connection(port) for port in ports_of(tenure)]
    at = 0
    while not over.is_set():
        answer: Any = connections[at].ask(commit_of("workers", acknowledged[0] + 1), 7)
        error = answer.topics[0].partitions[0].error_code
        if error == ErrorCode.NONE:
            acknowledged[0] += 1
        else:
            assert error in RETRIED
            at = found_by(tenure, at, "workers")
    for connection in connections:
        connection.close()


def is_past(acknowledged: list[int], before: int, _group: Group) -> bool:
    """Whether more commits were acknowledged."""
    return acknowledged[0] > before


def open_files() -> int:
    """How many files this process has open."""
    return len(list(Path("/dev/fd").iterdir()))


class TransactionalProducer:
    """A producer of version 2 that asks the nodes that have to answer. It writes to t, and commits t-0."""

    def __init__(self, tenure: Tenure, transactional_id: str) -> None:
        self.tenure = tenure
        self.id = transactional_id
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        while (answer := ask(self.port, request, 5)).error_code in RETRIED:
            pass
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def node(self) -> int:
        """The id of its coordinator."""
        port = ports_of(self.tenure)[next(each.id for each in self.tenure.nodes if each.is_running)]
        return int(ask(port, FindCoordinatorRequest(key=self.id, key_type=1), 2).node_id)

    @property
    def port(self) -> int:
        """The port of its coordinator."""
        return ports_of(self.tenure)[self.node]

    def send(self, partition: int, value: bytes) -> None:
        """Write a record: the first one of its partition."""
        ids: dict[str, Any] = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "sequence": 0}
        data = batch([(b"k", value, 1_000)], attributes=0x10, **ids)
        request = produce_request({("t", partition): data}, transactional_id=self.id)
        answer = ask(leader_port(self.tenure, partition), request, 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def commit(self, offset: int) -> None:
        """TxnOffsetCommit."""
        kinds = TxnOffsetCommitRequest
        one = kinds.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [kinds.TxnOffsetCommitRequestTopic(name="t", partitions=[one])]
        ids: dict[str, Any] = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        request = kinds(transactional_id=self.id, group_id="workers", topics=topics, **ids)
        answer = ask(port_for(self.tenure, "workers"), request, 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def end(self, *, committed: bool = True) -> None:
        """EndTxn, again and again while nodes die."""
        ids: dict[str, Any] = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "committed": committed}
        answer = None
        while answer is None or answer.error_code in {*RETRIED, ErrorCode.CONCURRENT_TRANSACTIONS}:
            with suppress(Closed, ConnectionError):
                answer = ask(self.port, EndTxnRequest(transactional_id=self.id, **ids), 5)
        assert answer.error_code == ErrorCode.NONE
        self.epoch = answer.producer_epoch


class TestTransactions:
    """A transaction has its id, its group and its records on several nodes."""

    @pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
    def test_open_ones_outlive_each_node(self, nodes: Tenure, *, committed: bool) -> None:
        """All nodes die within them, and come back. Then each ends everywhere, and the later offset counts."""
        first = TransactionalProducer(nodes, "first")
        for partition in NODES:
            first.send(partition, b"first-%d" % partition)
        first.commit(9)
        first.commit(10)
        nodes.move("workers", other_than(nodes, "workers"))
        second = TransactionalProducer(nodes, "second")
        second.send(0, b"second")
        second.commit(20)
        owners = set()
        for node in NODES:
            owners.add(first.node)
            nodes.kill_node(node)
            owners.add(first.node)
            nodes.start_node(node)
            assert {each.state for each in nodes.transactions.values()} == {"Ongoing"}
        assert len(owners) > 1
        second.end(committed=committed)
        first.end()
        values = [b"first-0", b"first-1", b"first-2"]
        nodes.assert_exactly_once("t", [*values, b"second"] if committed else values)
        assert nodes.group("workers").committed == {("t", 0): 20 if committed else 10}

    @pytest.mark.parametrize("what", ["id", "group", "records"])
    def test_markers_find_the_successor_of_a_node(self, nodes: Tenure, what: str) -> None:
        """A node dies just as a commit is acknowledged, or before: its successor gets or writes the markers."""
        producer = TransactionalProducer(nodes, "copier")
        dying = {"id": producer.node, "group": nodes.coordinator_of("workers"), "records": leaders_of(producer.port)[2]}
        for number in range(10):
            producer.send(2, b"%d" % number)
            producer.commit(number)
            if number == 5:
                with ThreadPoolExecutor(1) as pool:
                    killed = pool.submit(nodes.kill_node, dying[what])
                    producer.end()
                    killed.result(WITHIN_S)
            else:
                producer.end()
            nodes.records("t")
        nodes.assert_exactly_once("t", [b"%d" % number for number in range(10)])
        assert nodes.group("workers").committed == {("t", 0): 9}

    def test_the_log_of_ids_outlives_all_nodes(self, nodes: Tenure) -> None:
        """The first one that comes back has everything."""
        producer = TransactionalProducer(nodes, "copier")
        producer.send(1, b"one")
        for node in NODES:
            nodes.kill_node(node)
        nodes.start_node(1)
        producer.end()
        nodes.assert_exactly_once("t", [b"one"])

    def test_all_nodes_show_the_topic_of_ids(self, nodes: Tenure) -> None:
        """Once one of them was asked for a coordinator of transactions; also a node that comes back."""
        ports = ports_of(nodes)
        assert not any("__transaction_state" in topic_names(port) for port in ports)
        TransactionalProducer(nodes, "copier")
        nodes.kill_node(1)
        nodes.start_node(1)
        for port in ports:
            while "__transaction_state" not in topic_names(port):
                pass
