"""A broker's groups go into etcd, live in a cluster, and go out again: to a data folder and to another broker.

Kafka's own programs judge the way out: kafka-dump-log reads the folder, and a broker starts on the groups.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition

from coordinator.cli.log.command import app
from coordinator.config import INT64_MAX
from protocol.messages import OffsetForLeaderEpochRequest
from schemas.errors import ErrorCode
from tests.cli.conftest import run_app
from tests.cli.log.test_apache import (
    AIO,
    COUNT,
    SETTINGS,
    SIMPLE,
    STATIC,
    TOPIC,
    Answer,
    ask,
    assert_restarted_without_rebalance,
    commit,
    consume_with_aiokafka,
    create_orders,
    share,
)
from tests.oracle.dumped import dump, last_payloads
from tests.support.apache import ApacheKafka
from tests.support.apache_cluster import wait_for_coordinators
from tests.support.etcd import Etcd
from tests.support.patience import WITHIN_S
from tests.support.raw import Connection
from tests.support.tenure import tenure_command
from tests.support.tenure_cluster import ClusterNode

pytestmark = [pytest.mark.oracle, pytest.mark.etcd, pytest.mark.together]

GROUPS = (STATIC, SIMPLE, AIO)
EPOCH = 3
"""A leader epoch that a client committed at the broker."""


class Way(NamedTuple):
    """The answers of the first broker, of the cluster and of the second broker; the folder exported for a Tenure."""

    said: dict[str, Answer]
    in_cluster: dict[str, Answer]
    kafka: ApacheKafka
    folder: Path
    epochs: dict[int, tuple[ErrorCode, int, int]]
    rebalances: int


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """The whole way: a broker, etcd with a node, a data folder and another broker."""
    with ExitStack() as stack:
        first = stack.enter_context(ApacheKafka(SETTINGS))
        second = stack.enter_context(ApacheKafka(SETTINGS))
        for kafka in (first, second):
            create_orders(kafka.bootstrap)
        second.stop()
        share(first.bootstrap, STATIC, ["a", "b"])
        of_epoch = TopicPartition(TOPIC, 2, 7, leader_epoch=EPOCH)
        commit(first.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 7), of_epoch)
        asyncio.run(consume_with_aiokafka(first.bootstrap))
        said = ask(first.port, GROUPS)
        first.stop()

        etcd = stack.enter_context(Etcd())
        store = ["--store", etcd.store, "--cluster", "moved"]
        ran = run_app(app, "import", str(first.log_dir), *store, "--set", COUNT)
        assert (ran.code, ran.err) == (0, "")
        node = stack.enter_context(ClusterNode(0, etcd.endpoints, "moved", SETTINGS, proxied=False))
        wait_for_coordinators([node.port])
        in_cluster = ask(node.port, GROUPS)
        assert_restarted_without_rebalance(node.port, node.bootstrap, said[STATIC], "a")
        commit(node.bootstrap, SIMPLE, TopicPartition(TOPIC, 1, 8))
        epochs = {epoch: epoch_end(node.port, epoch) for epoch in (0, EPOCH)}
        rebalances = node.count("rebalance_started")
        assert node.stop() == 0

        folder = tmp_path_factory.mktemp("exported") / "data"
        for target in (folder, second.log_dir):
            ran = run_app(app, "export", str(target), *store)
            assert (ran.code, ran.err) == (0, "")
        second.start()
        yield Way(said, in_cluster, second, folder, epochs, rebalances)


def epoch_end(port: int, epoch: int) -> tuple[ErrorCode, int, int]:
    """The answer of OffsetForLeaderEpoch: error, leader epoch and end offset."""
    partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=2, current_leader_epoch=-1, leader_epoch=epoch
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=TOPIC, partitions=[partition])
    with Connection(port) as connection:
        answer = connection.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic]), 4)
    (found,) = answer.topics[0].partitions
    return ErrorCode(found.error_code), found.leader_epoch, found.end_offset


def test_the_cluster_answers_of_imported_groups_as_kafka_did(way: Way) -> None:
    """DescribeGroups and OffsetFetch give the same answers, with the committed leader epoch; nobody rebalances."""
    assert way.said[SIMPLE].offsets[TOPIC, 2] == (7, EPOCH, "")
    assert way.in_cluster == way.said
    assert way.rebalances == 0


def test_a_leader_epoch_of_the_broker_ends_behind_all_offsets(way: Way) -> None:
    """The topic's records stayed at the broker; a client must not take its offsets for cut off."""
    assert way.epochs == {epoch: (ErrorCode.NONE, epoch, INT64_MAX) for epoch in (0, EPOCH)}


def test_kafkas_tool_reads_the_exported_folder(way: Way) -> None:
    """kafka-dump-log finds every batch valid, and in the records what the first broker said."""
    records = dump(way.folder)
    assert set(last_payloads(records)) == {STATIC, AIO}
    payload = last_payloads(records)[STATIC]["data"]
    assert {each["groupInstanceId"] for each in payload["members"]} == {"a", "b"}
    offsets = {
        (each.group, each.key["data"]["partition"]): each.payload["data"]["offset"]
        for each in records
        if each.key["type"] != "2" and each.payload is not None
    }
    expected = {(group, partition): offset for group in GROUPS for partition, offset in committed(way, group).items()}
    assert offsets == expected


def committed(way: Way, group: str) -> dict[int, int]:
    """The offsets of a group at the end: the cluster's last commit came after `said`."""
    offsets = {partition: offset for (_, partition), (offset, _, _) in way.said[group].offsets.items()}
    return offsets | {1: 8} if group == SIMPLE else offsets


def test_another_broker_starts_on_the_groups(way: Way) -> None:
    """The second broker answers what the cluster knew last, and a static member goes on there."""
    answered = ask(way.kafka.port, GROUPS)
    offsets = way.said[SIMPLE].offsets | {(TOPIC, 1): (8, -1, "")}
    assert answered[SIMPLE] == way.said[SIMPLE]._replace(offsets=offsets)
    assert answered[AIO] == way.said[AIO]
    assert {member[0] for member in answered[STATIC].members.values()} == {"a", "b"}
    assert_restarted_without_rebalance(way.kafka.port, way.kafka.bootstrap, answered[STATIC], "b")
    assert "Preparing to rebalance group" not in way.kafka.log_file.read_text()


def test_the_audit_finds_nothing(way: Way, tmp_path: Path) -> None:
    """Neither in the exported folder nor in that of the second broker, which has stopped."""
    way.kafka.stop()
    for folder in (way.folder, way.kafka.log_dir):
        command = [*tenure_command(), "audit", str(folder), "--out", str(tmp_path / folder.parent.name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WITHIN_S)
        assert done.returncode == 0, done.stdout + done.stderr
