"""A commit that a frozen member of etcd carries out late, on a real node: the head chain keeps the newer one.

The node gives its try up and tells etcd nothing of that (altered_node), sends the commit through another member, and
then a newer one. The same without the chain brings the old commit back: so the test meets the trap. It is the fault of
tests/log/etcd/test_late.py, here from the client's request to the answer after a restart.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from protocol.messages import OffsetCommitRequest, OffsetFetchRequest
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.tenure import wait_until
from tests.support.tenure_cluster import TenureCluster

pytestmark = [pytest.mark.etcd, pytest.mark.cluster]

GROUPS = [f"late-{number}" for number in range(10)]
TOPIC = "t"
LOADING = 14


def commit(group: str, offset: int) -> OffsetCommitRequest:
    """Return a commit of a program that is no member."""
    each = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[each])],
    )


def commit_all(connections: dict[str, Connection], offset: int) -> None:
    """Commit an offset of each group, at the same time."""
    for group, connection in connections.items():
        connection.send(commit(group, offset), 7)
    for connection in connections.values():
        answer: Any = connection.receive()
        assert answer.topics[0].partitions[0].error_code == 0


def committed(port: int) -> dict[str, int]:
    """The committed offset of each group."""
    found = {}
    with Connection(port) as connection:
        for group in GROUPS:
            topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])

            def read(group: str = group, topic: Any = topic) -> Any:
                request = OffsetFetchRequest(
                    groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[topic])]
                )
                answer: Any = connection.ask(request, 8)
                return None if answer.groups[0].error_code else answer.groups[0]

            answer = wait_until(read, "the group is loaded", WITHIN_S)
            found[group] = answer.topics[0].partitions[0].committed_offset
    return found


def transactions(endpoint: str) -> tuple[int, int]:
    """How many transactions of clients a member of etcd has begun, and ended."""
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=WITHIN_S) as answer:
        lines = answer.read().decode()
    counted = [
        sum(int(float(each)) for each in re.findall(rf'grpc_server_{what}_total{{[^}}]*"Txn"[^}}]*}} (\S+)', lines))
        for what in ("started", "handled")
    ]
    return counted[0], counted[1]


def all_done(endpoint: str, since: int) -> Callable[[], bool]:
    """Return whether a member has taken more transactions since, and has done them all."""

    def ask() -> bool:
        started, handled = transactions(endpoint)
        return started > since and handled == started

    return ask


@pytest.mark.parametrize("has_chain", [True, False])
def test_a_commit_that_comes_late_changes_nothing(has_chain: bool) -> None:
    """A node that starts anew finds the newer commits; without the chain, it finds older ones."""
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd(members=3))
        leader = etcd.leader()
        # The node asks the first member of its list: a follower.
        order = [number for number in range(3) if number != leader] + [leader]
        etcd.members = [etcd.members[number] for number in order]
        cluster = TenureCluster(etcd, nodes=1, settings={"tenure.topics": f"{TOPIC}:1"})
        (node,) = cluster.nodes
        node.program = [sys.executable, "-m", "tests.cluster.altered_node"]
        node.environment["ALTERED"] = "silent" if has_chain else "silent,no-chain"
        stack.enter_context(cluster)
        connections = {group: stack.enter_context(Connection(node.port)) for group in GROUPS}
        commit_all(connections, 1)
        frozen = etcd.members[0]
        began, _ = transactions(frozen.endpoint)
        assert began > 0
        frozen.freeze()
        commit_all(connections, 2)
        commit_all(connections, 3)
        frozen.thaw()
        wait_until(all_done(frozen.endpoint, began), "the frozen member has done what came", WITHIN_S)
        node.kill()
        node.start()
        found = committed(node.port)
        assert (set(found.values()) == {3}) is has_chain, found
        assert set(found.values()) <= {2, 3}
