"""The time between the answer of EndTxn and the markers, on two nodes: a partition's leader stands still meanwhile.

House rule: each request goes to the node that stands for everything but that partition.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coordinator.transaction.state import V2
from schemas.errors import ErrorCode
from tests.oracle.producer import COMMIT, END, TRANSACTION
from tests.support.apache import VERSION_44
from tests.support.apache_cluster import ApacheCluster
from tests.support.patience import WITHIN_S
from tests.support.raw import ask
from tests.support.requests import request
from tests.support.tenure import Tenure, wait_until
from tests.support.topics import make_topics

TOPIC = "orders"
GROUP = 0
"""The type of a group's key in FindCoordinator."""
V1 = 1
OTHERWISE = {
    "end of the next epoch": ErrorCode.PRODUCER_FENCED,
    "end of the next epoch otherwise": ErrorCode.PRODUCER_FENCED,
    "end of a later epoch": ErrorCode.PRODUCER_FENCED,
    "end of another producer": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
"""EndTxn v0 to v4 looks at the producer first; all else gets CONCURRENT_TRANSACTIONS."""
COPIES = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


class Nodes(NamedTuple):
    """Two nodes: the port of one, and the process of the other. other_port: of that process."""

    port: int
    other_port: int
    other_pid: int


@pytest.fixture(params=["tenure", pytest.param("apache", marks=pytest.mark.oracle)])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    """Yield the nodes: two workers of Tenure, or two of Apache Kafka 4.4."""
    if request.param == "tenure":
        settings = {"tenure.worker.timeout.ms": int(WITHIN_S * 1000)}
        with Tenure(settings, directory=tmp_path, arguments=["--workers", "2"]) as tenure:
            yield Nodes(tenure.ports[0], tenure.ports[1], tenure.worker_pid(1))
        return
    request.getfixturevalue("kafka_is_here")
    with ApacheCluster(COPIES, version=VERSION_44, nodes=2) as kafka:
        first, second = kafka.nodes
        yield Nodes(first.port, second.port, second.pid)


def asked(port: int, api: str, version: int, **fields: Any) -> Any:
    """The answer of the node at a port."""
    return ask(port, request(api, **fields), version)


def coordinated(port: int, key_type: int) -> str:
    """A group or a transactional id that the node at the port coordinates."""

    def port_of(key: str) -> int | None:
        (found,) = asked(port, "FindCoordinator", 4, key_type=key_type, coordinator_keys=[key]).coordinators
        return None if found.error_code else int(found.port)

    for number in count():
        key = f"key-{number}"
        if wait_until(lambda: port_of(key), "there is a coordinator", WITHIN_S) == port:  # noqa: B023 - it waits here
            return key
    raise AssertionError


@pytest.mark.parametrize("version", [V1, V2])
def test_others_wait_until_the_markers_are_written(nodes: Nodes, version: int) -> None:
    """EndTxn is answered while a partition's leader hangs. Until the markers are written, others are concurrent."""
    port, other_port, other_pid = nodes
    make_topics(f"127.0.0.1:{port}", {TOPIC: 2})
    name, group = coordinated(port, TRANSACTION), coordinated(port, GROUP)

    def init(producer_id: int = -1, epoch: int = -1) -> Any:
        claim = {"producer_id": producer_id, "producer_epoch": epoch}
        return asked(port, "InitProducerId", 5, transactional_id=name, transaction_timeout_ms=60_000, **claim)

    def granted() -> Any:
        answer = init()
        return answer if answer.error_code == ErrorCode.NONE else None

    def of_other_leader() -> int | None:
        answer = asked(port, "Metadata", 12, topics=[{"name": TOPIC}])
        ports = {each.node_id: each.port for each in answer.brokers}
        leads = [each for each in answer.topics[0].partitions if ports.get(each.leader_id) == other_port]
        return leads[0].partition_index if leads else None

    made = wait_until(granted, "the producer has an id", WITHIN_S)
    held = wait_until(of_other_leader, "the other node leads a partition", WITHIN_S)
    producer_id, first = made.producer_id, made.producer_epoch

    def add(epoch: int, *, producer_id: int = producer_id) -> int:
        fields = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
        fields["topics"] = [{"name": TOPIC, "partitions": [held]}]
        asks = {f"v3_and_below_{key}": value for key, value in fields.items()}
        (topic,) = asked(port, "AddPartitionsToTxn", 3, **asks).results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def end(epoch: int, *, committed: bool = True, producer_id: int = producer_id) -> int:
        ids = {"producer_id": producer_id, "producer_epoch": epoch}
        answer = asked(port, "EndTxn", END[version], transactional_id=name, committed=committed, **ids)
        return int(answer.error_code)

    def state() -> str:
        answer = asked(port, "DescribeTransactions", 0, transactional_ids=[name])
        return str(answer.transaction_states[0].transaction_state)

    assert add(first) == ErrorCode.NONE
    os.kill(other_pid, signal.SIGSTOP)
    try:
        assert end(first) == ErrorCode.NONE
        assert state() == "PrepareCommit"
        epoch = first + (version == V2)
        own = {"transactional_id": name, "group_id": group, "producer_id": producer_id, "producer_epoch": epoch}
        offsets = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
        committed = asked(port, "TxnOffsetCommit", COMMIT[version], topics=offsets, **own)
        errors = {
            "add": add(epoch),
            "add offsets": asked(port, "AddOffsetsToTxn", 4, **own).error_code,
            "commit offsets": committed.topics[0].partitions[0].error_code,
            "init": init().error_code,
            "add of a later epoch": add(epoch + 5),
            "add of another producer": add(epoch, producer_id=producer_id + 1_000),
            "init of another producer": init(producer_id + 1_000, 0).error_code,
            "end again": end(first),
            "end otherwise": end(first, committed=False),
            "end of the next epoch": end(first + 1),
            "end of the next epoch otherwise": end(first + 1, committed=False),
            "end of a later epoch": end(first + 5),
            "end of another producer": end(first, producer_id=producer_id + 1_000),
        }
        expected = dict.fromkeys(errors, ErrorCode.CONCURRENT_TRANSACTIONS) | (OTHERWISE if version == V1 else {})
        assert {name: ErrorCode(error) for name, error in errors.items()} == expected
        assert state() == "PrepareCommit"
    finally:
        os.kill(other_pid, signal.SIGCONT)
    wait_until(lambda: state() == "CompleteCommit", "the markers are written", WITHIN_S)
    assert add(epoch) == ErrorCode.NONE
