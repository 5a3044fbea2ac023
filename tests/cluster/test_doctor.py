"""The doctor and explain about a cluster of real nodes whose ids begin above 0; and a stop in trouble."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from coordinator.client.client import Client
from coordinator.client.errors import Refused, Unreachable
from coordinator.client.groups import describe_groups
from coordinator.client.topics import node_health, partition_owners
from coordinator.group.partition import partition_for
from tests.cli.conftest import Ran, make_app, run_app
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.requests import commit_request
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import wait_until
from tests.support.tenure_cluster import ClusterNode, TenureCluster

pytestmark = pytest.mark.etcd


SOON = ("--timeout", "2", "--bootstrap-server")


@pytest.fixture
def cluster(etcd: Etcd) -> Iterator[TenureCluster]:
    """Two nodes on it; their ids are 1 and 2."""
    settings: dict[str, str | int] = {"tenure.store.quota.bytes": 10**9, "tenure.topics": "t:1"}
    with TenureCluster(etcd, nodes=2, settings=settings) as running:
        yield running
        hang_up()


def asked(node: ClusterNode, *command: str) -> Ran:
    """Run a command against one node."""
    arguments = [*command, "--bootstrap-server", node.bootstrap, "--timeout", str(WITHIN_S)]
    return run_app(make_app(command[0]), *arguments)


def group_of(node: ClusterNode) -> str:
    """A group that this node coordinates."""
    with Client(node.bootstrap, WITHIN_S) as client:
        owned = partition_owners(client).nodes
    mine = next(partitions for each, partitions in owned.items() if each.node_id == node.number)
    return next(name for name in map(str, range(1_000)) if partition_for(name, 50) in mine)


@pytest.mark.long
def test_a_node_that_was_killed_just_now(cluster: TenureCluster) -> None:
    """The doctor waits until the cluster has noticed, and names the node; explain does too.

    Before that nobody is away: no node has the id 0, so nobody misses its events.
    """
    alive, other = cluster.nodes
    with Client(alive.bootstrap, WITHIN_S) as client:
        stores, owned = node_health(client).stores, partition_owners(client).nodes
    assert {node.node_id: len(partitions) > 0 for node, partitions in owned.items()} == {1: True, 2: True}
    assert sorted(stores) == [1, 2]
    assert all(each.calls > 0 and each.quota == 10**9 for each in stores.values())
    group = group_of(alive)
    member = Member(alive.port, group, "m", 9)
    settle(member)
    moved = group_of(other)
    settle(Member(other.port, moved, "m", 9))
    ran = asked(alive, "explain", group)
    assert (ran.code, ran.err) == (0, "")
    ran = asked(alive, "doctor", group)
    assert ("away" in ran.out, ran.err) == (False, ""), "etcd may be slow here"
    other.kill()
    ran = asked(alive, "doctor", group)
    assert (ran.code, "the cluster: warning: node 2 is away" in ran.out) == (1, True), ran
    ran = asked(alive, "explain", group)
    assert (ran.code, ran.err) == (
        0, "tenure: node 2 is away: events in __rebalance_events-2, if there are any, are not shown\n"
    )  # fmt: skip
    # No event that is there tells that node 2 had the group; no node has started.
    loaded = "node 1 loaded the group, with 1 member in generation 1\n"
    wait_until(lambda: loaded in asked(alive, "explain", moved).out, "the load is told", WITHIN_S)


@pytest.mark.cluster
def test_the_store_is_away(cluster: TenureCluster, etcd: Etcd) -> None:
    """The doctor still says what it knows: which groups and partitions have no coordinator, with exit code 1."""
    node = cluster.nodes[0]
    group = group_of(node)
    settle(Member(node.port, group, "m", 9))
    etcd.members[0].freeze()
    try:

        def lost() -> bool:
            with suppress(Unreachable), Client(node.bootstrap, 1) as client:
                return isinstance(describe_groups(client, [group])[group], Refused)
            return False

        def diagnosed(which: str, text: str) -> Ran | None:
            """A busy machine may need more than one try: the time for an answer is short."""
            ran = run_app(make_app("doctor"), "doctor", which, *SOON, node.bootstrap)
            return ran if text in ran.out else None

        wait_until(lost, "the group has no coordinator", WITHIN_S)
        for which, text in (
            ("--all", "some groups may be missing here: list of groups on"),
            (group, f"{group}: error: its coordinator doesn't answer: "),
        ):
            ran = wait_until(partial(diagnosed, which, text), text, WITHIN_S)
            assert ran.code == 1, ran
    finally:
        etcd.members[0].thaw()


@pytest.mark.cluster
def test_a_stop_that_can_hand_nothing_over(cluster: TenureCluster, etcd: Etcd) -> None:
    """etcd is frozen in the middle of a commit, so the hand-over doesn't end in time: the last line says that."""
    node = cluster.nodes[0]
    member = Member(node.port, group_of(node), "m", 9)
    settle(member)
    etcd.members[0].freeze()
    member.connection.send(commit_request(member.group, {("t", 0): 1}, member.generation, member.member_id), 7)
    try:
        node.stop()
    finally:
        etcd.members[0].thaw()
    assert not node.events("server_stopped")
    (line,) = node.events("hand_over_unfinished")
    assert line["partitions"] == 1
