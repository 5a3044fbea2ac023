"""Commits of real static members that a frozen member of etcd carries out late: the head chain keeps the newer ones.

Each client has a group, and each group a node of its own, because a node has one transaction under way. The nodes give
their tries up and tell etcd nothing of that (altered_node), send the commits through another member, and then newer
ones. The same without the chain brings the old commits back: so the test meets the trap. It is the fault of
tests/log/etcd/test_late.py, here from the client's request to the answer after a restart.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

import pytest

from coordinator.group.partition import partition_for
from coordinator.log.cluster.keys import best_node
from tests.cluster.stage import PARTITIONS, REAL, SETTINGS, RealGroup, installed
from tests.interop.fleet import Fleet
from tests.support.cluster_probe import TOPIC
from tests.support.etcd import Etcd, Member
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until
from tests.support.tenure_cluster import TenureCluster

pytestmark = [pytest.mark.etcd, pytest.mark.cluster]

GROUP_PARTITIONS = 50
"""Of `__consumer_offsets`: the default."""


def transactions(endpoint: str) -> tuple[int, int]:
    """How many transactions of clients a member of etcd has begun, and ended."""
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=WITHIN_S) as answer:
        lines = answer.read().decode()
    counted = [
        sum(int(float(each)) for each in re.findall(rf'grpc_server_{what}_total{{[^}}]*"Txn"[^}}]*}} (\S+)', lines))
        for what in ("started", "handled")
    ]
    return counted[0], counted[1]


def all_done(endpoint: str, since: int, count: int) -> Callable[[], bool]:
    """Return whether a member has taken so many transactions more since, and has done them all."""

    def ask() -> bool:
        started, handled = transactions(endpoint)
        return started >= since + count and handled == started

    return ask


@contextmanager
def altered_cluster(etcd: Etcd, nodes: int, altered: str) -> Iterator[TenureCluster]:
    """Yield nodes that ask the same member of etcd, a follower, as long as it answers."""
    leader = etcd.leader()
    order = [number for number in range(3) if number != leader] + [leader]
    etcd.members = [etcd.members[number] for number in order]
    cluster = TenureCluster(etcd, nodes, SETTINGS)
    for node in cluster.nodes:
        node.program = [sys.executable, "-m", "tests.cluster.altered_node"]
        node.environment["ALTERED"] = altered
    with cluster:
        cluster.wait_until_settled()
        yield cluster


def name_at(node: int, nodes: int) -> str:
    """The name of a group that this node coordinates; nodes: how many there are."""
    names = (f"late-{number}" for number in count())
    numbers = range(1, nodes + 1)
    return next(each for each in names if best_node(partition_for(each, GROUP_PARTITIONS), numbers) == node)


def commit_all(groups: list[RealGroup]) -> bool:
    """Have each group commit its next offset, all at the same time; whether all were acknowledged."""
    with ThreadPoolExecutor(len(groups)) as threads:
        list(threads.map(RealGroup.commit, groups))
    return all(group.acknowledged == group.attempted for group in groups)


def commit_through(member: Member, cluster: TenureCluster, groups: list[RealGroup]) -> None:
    """Commit once more when all nodes ask this member of etcd, the first one that they know.

    A node leaves it after a call that took a second. If it starts anew, it asks it again.
    """

    def done() -> bool:
        began, _ = transactions(member.endpoint)
        if commit_all(groups) and transactions(member.endpoint)[0] >= began + len(groups):
            return True
        for node in cluster.nodes:
            node.kill()
        cluster.start()
        cluster.wait_until_settled()
        return False

    wait_until(done, "all nodes ask one member of etcd", WITHIN_S)


@pytest.mark.parametrize("has_chain", [True, False])
def test_a_commit_that_comes_late_changes_nothing(has_chain: bool) -> None:
    """Nodes that start anew find the newer commits, and no member moves; without the chain, they find older ones."""
    clients = installed(REAL)
    with (
        Etcd(members=3) as etcd,
        altered_cluster(etcd, len(clients), "silent" if has_chain else "silent,no-chain") as cluster,
        Fleet(",".join(cluster.bootstraps), TOPIC, PARTITIONS) as fleet,
    ):
        groups = [
            RealGroup(fleet, client, name_at(number, len(clients))) for number, client in enumerate(clients, start=1)
        ]
        for group in groups:
            group.settle()
        frozen = etcd.members[0]
        commit_through(frozen, cluster, groups)
        began, _ = transactions(frozen.endpoint)
        frozen.freeze()
        assert commit_all(groups)
        assert commit_all(groups)
        frozen.thaw()
        wait_until(all_done(frozen.endpoint, began, len(groups)), "the frozen member has done what came", WITHIN_S)
        for node in cluster.nodes:
            node.kill()
        cluster.start()
        cluster.wait_until_settled()
        problems = [problem for group in groups for problem in group.problems()]
        older = [
            f"{each.name}: {each.acknowledged} was acknowledged, {each.acknowledged - 1} is there" for each in groups
        ]
        assert problems == ([] if has_chain else older)
