"""Three real nodes on a real etcd, real static members: whatever a node does, no member loses its seat."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from protocol.messages import DescribeGroupsRequest, FindCoordinatorRequest
from schemas.errors import ErrorCode
from tests.support.certificates import Certificates
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.preloaded import run
from tests.support.raw import ask
from tests.support.tenure import wait_until
from tests.support.tenure_cluster import ClusterNode, TenureCluster

pytestmark = pytest.mark.etcd

GROUP = "workers"
MOVES = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""The errors of a group that moves from node to node."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[TenureCluster]:
    """Three nodes on one member of etcd."""
    with Etcd(members=1) as etcd, TenureCluster(etcd, settings={"tenure.topics": "t:2"}) as running:
        yield running


class Members:
    """Two static members of librdkafka, which a thread polls. assigned: each assignment; lost: each revocation."""

    def __init__(self, bootstraps: list[str]) -> None:
        self.assigned: list[str] = []
        self.lost: list[str] = []
        self._ends = threading.Event()
        self._consumers = [self._consumer(name, ",".join(bootstraps)) for name in ("a", "b")]
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _consumer(self, name: str, bootstraps: str) -> Any:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstraps,
                "group.id": GROUP,
                "group.instance.id": name,
                "heartbeat.interval.ms": 300,
                "enable.auto.commit": False,
                "retry.backoff.ms": 1_000,  # docs/run/cluster.md, "Settings of clients"
                "log_level": 0,
            }
        )
        consumer.subscribe(
            ["t"],
            on_assign=lambda _, __: self.assigned.append(name),
            on_revoke=lambda _, __: self.lost.append(name),
            on_lost=lambda _, __: self.lost.append(name),
        )
        return consumer

    def _poll(self) -> None:
        while not self._ends.is_set():
            for consumer in self._consumers:
                consumer.poll(0.05)

    def commit(self, offset: int) -> None:
        """Commit by the first member; it asks again until the answer is yes."""
        topic_partition = confluent_kafka.TopicPartition("t", 0, offset)
        end_s = time.monotonic() + WITHIN_S
        while True:
            try:
                self._consumers[0].commit(offsets=[topic_partition], asynchronous=False)
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() == confluent_kafka.KafkaError._FATAL or time.monotonic() > end_s:
                    raise
            else:
                return

    def close(self) -> None:
        """Stop polling; the static members stay in the group."""
        self._ends.set()
        self._thread.join()
        for consumer in self._consumers:
            consumer.close()


def owner(cluster: TenureCluster, port: int) -> ClusterNode | None:
    """The node that coordinates the group, as the node at `port` says; None while there is none."""
    answer: Any = ask(port, FindCoordinatorRequest(key=GROUP), 2)
    if answer.error_code:
        return None
    return next(node for node in cluster.nodes if node.number == answer.node_id)


def generation(node: ClusterNode) -> str | None:
    """State, and the members with their ids, as the coordinator shows them; None from a node that isn't it."""
    answer: Any = ask(node.port, DescribeGroupsRequest(groups=[GROUP]), 5)
    (group,) = answer.groups
    if group.error_code in MOVES:
        return None
    assert group.error_code == ErrorCode.NONE
    return f"{group.group_state} {sorted((each.group_instance_id, each.member_id) for each in group.members)}"


def shown(cluster: TenureCluster, port: int) -> tuple[ClusterNode, str]:
    """The coordinator, and what it shows. A node hears a little later than its clients may that another one has it."""

    def found() -> tuple[ClusterNode, str] | None:
        node = owner(cluster, port)
        group = generation(node) if node is not None and node.running else None
        return None if node is None or group is None else (node, group)

    return wait_until(found, "the group has a coordinator", WITHIN_S)


@pytest.mark.cluster
def test_a_node_dies_stops_and_comes_back_and_no_member_loses_its_seat(cluster: TenureCluster) -> None:
    """The owner is killed; the next one stops in order; both come back: one assignment each, no revocation."""
    members = Members(cluster.bootstraps)
    try:
        wait_until(lambda: sorted(members.assigned) == ["a", "b"], "both members have partitions", WITHIN_S)
        members.commit(1)
        cluster.wait_until_settled()
        former, before = shown(cluster, cluster.nodes[0].port)
        for number, how in enumerate((signal.SIGKILL, signal.SIGTERM), 2):
            live = next(node for node in cluster.nodes if node is not former)
            if how is signal.SIGKILL:
                former.kill()
            else:
                assert former.stop() == 0
            members.commit(number)
            now, group = shown(cluster, live.port)
            assert now is not former
            assert group == before
            former.start()
            members.commit(10 * number)
            cluster.wait_until_settled()
            former, group = shown(cluster, live.port)
            assert group == before
        assert sorted(members.assigned) == ["a", "b"]
        assert not members.lost
        assert [node.count("member_expired") for node in cluster.nodes] == [0, 0, 0]
    except BaseException as error:
        error.add_note(cluster.tails())
        raise
    finally:
        members.close()


def refusal(*arguments: str) -> str:
    """The line of a server that can't start."""
    command = [sys.executable, "-m", "coordinator.cli.main", "serve", "--listen", "127.0.0.1:0", *arguments]
    done = run(command)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def test_a_node_that_can_not_start_says_why_in_one_line(cluster: TenureCluster, tmp_path: Path) -> None:
    """Another number of partitions, two processes: a line each, and exit code 2."""
    store = f"etcd://{','.join(cluster.etcd.endpoints)}"
    node = ["--cluster", cluster.name, "--node-id", "9", "--data-dir", str(tmp_path / "data")]
    assert "offsets.topic.num.partitions: 7, but the cluster was made with 50" in refusal(
        "--store", store, *node, "--set", "offsets.topic.num.partitions=7"
    )
    assert "--workers: a node of a cluster is one process" in refusal("--store", store, *node, "--workers", "2")


@pytest.mark.cluster
def test_a_node_that_finds_no_etcd_says_so_in_one_line(tmp_path: Path) -> None:
    """It tries for ten seconds before that."""
    node = ["--cluster", "c", "--node-id", "9", "--data-dir", str(tmp_path / "data")]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        assert "--store: etcd at 127.0.0.1" in refusal("--store", f"etcd://127.0.0.1:{port}", *node)


@pytest.mark.long
def test_a_node_speaks_tls_to_etcd(certificates: Certificates, tmp_path: Path) -> None:
    """With a truststore and a keystore in PEM a node serves; without a keystore it says why it can't, in one line."""
    trust = {"tenure.store.ssl.truststore.location": str(certificates.ca)}
    keystore = {"tenure.store.ssl.keystore.location": str(certificates.client)}
    with Etcd(certificates=certificates) as etcd:
        with TenureCluster(etcd, nodes=1, settings={**trust, **keystore}) as cluster:
            assert owner(cluster, cluster.nodes[0].port) is cluster.nodes[0]
        node = ["--cluster", "c", "--node-id", "1", "--data-dir", str(tmp_path / "data")]
        sets = ["--set", f"tenure.store.ssl.truststore.location={certificates.ca}"]
        assert "--store: etcd at" in refusal("--store", etcd.store, *node, *sets)
