"""Java consumers with automatic commits go on in groups that `tenure log import` brought into a cluster.

There are no records behind the offsets of these groups. No commit may take them back to the start of an empty topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.cli.log.command import app
from protocol.messages import OffsetCommitRequest
from tests.cli.conftest import run_app
from tests.cluster.stage import IS_LONG
from tests.interop.clients import CLIENTS
from tests.interop.fleet import Fleet
from tests.support.apache_cluster import wait_for_coordinators
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.raw import ask
from tests.support.requests import offsets_request
from tests.support.tenure import Tenure, wait_until
from tests.support.tenure_cluster import ClusterNode

pytestmark = pytest.mark.etcd

TOPIC = "t"
OFFSETS = {0: (17, -1), 1: (18, 0), 2: (19, 3)}
"""By partition: an offset, and the leader epoch that a client committed with it: none, the first one, a later one."""
BEFORE = "before"
"""The metadata of these commits; automatic commits have none."""
JAVA = [
    client
    for client in (("kafka-clients-3", "kafka-clients-4") if IS_LONG else ("kafka-clients-3",))
    if CLIENTS[client].missing is None
]
"""Where no Java is, there are none, as in `stage`."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNode]:
    """A node that has the groups of a data folder."""
    folder = tmp_path_factory.mktemp("ours")
    with Tenure({"tenure.topics": f"{TOPIC}:{len(OFFSETS)}"}, directory=folder) as before:
        for group in JAVA:
            commit(before.port, group)
    with Etcd() as etcd:
        ran = run_app(app, "import", str(before.data_dir), "--store", etcd.store, "--cluster", "c")
        assert (ran.code, ran.err) == (0, "")
        running = ClusterNode(1, etcd.endpoints, "c", {"group.initial.rebalance.delay.ms": 0}, proxied=False)
        try:
            running.start()
            wait_for_coordinators([running.port])
            yield running
        finally:
            running.close()


def commit(port: int, group: str) -> None:
    """Commit as a consumer of records did."""
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=BEFORE
        )
        for partition, (offset, epoch) in OFFSETS.items()
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    answer: Any = ask(port, OffsetCommitRequest(group_id=group, topics=[topic]), 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}


def committed(node: ClusterNode, group: str) -> dict[int, tuple[int, str]]:
    """Offset and metadata of each partition."""
    answer: Any = ask(node.port, offsets_request(group, {TOPIC: [*OFFSETS]}), 6)
    return {each.partition_index: (each.committed_offset, each.metadata) for each in answer.topics[0].partitions}


def landed(node: ClusterNode, group: str) -> set[int]:
    """The partitions with a commit since the import."""
    return {partition for partition, (_, metadata) in committed(node, group).items() if metadata != BEFORE}


@pytest.mark.long
@pytest.mark.parametrize("client", JAVA)
def test_automatic_commits_go_on_from_imported_offsets(
    node: ClusterNode, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They land, and no offset goes back, whatever leader epoch came with it."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dauto.commit=true")
    with Fleet(node.bootstrap, TOPIC, len(OFFSETS)) as fleet:
        member = fleet.start(client, client)
        fleet.wait_until_shared([member])
        wait_until(lambda: landed(node, client) >= {0, 1}, "the positions are committed", WITHIN_S)
        fleet.close(member)
    found = {partition: offset for partition, (offset, _) in committed(node, client).items()}
    assert found == {partition: offset for partition, (offset, _) in OFFSETS.items()}
