"""Transactions of several workers, as processes: what one asks of another, and the deaths of both."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.client.client import Client
from coordinator.client.transactions import abort, hanging_transactions, list_transactions, open_transactions
from coordinator.group.partition import partition_for
from coordinator.log.segments.segment import TRANSACTIONS_TOPIC
from protocol.messages import (
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MetadataRequest,
    WriteTxnMarkersRequest,
)
from schemas.errors import ErrorCode
from tests.support.batches import batch
from tests.support.patience import WITHIN_S
from tests.support.raw import ask
from tests.support.requests import group_offsets_request, produce_request, request
from tests.support.tenure import Tenure, wait_until

SETTINGS: dict[str, str | int] = {"tenure.topics": "orders:2", "tenure.worker.timeout.ms": int(WITHIN_S * 1000)}
ID, GROUP = "t", "g"
"""The transactional id is node 0's, the group node 1's."""
AGAIN = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS}
OPEN, GONE = "UNSTABLE_OFFSET_COMMIT", -1


class Producer:
    """A transactional producer whose requests go to the nodes that have to answer them."""

    def __init__(self, tenure: Tenure) -> None:
        self.tenure = tenure
        self.sequences = [0, 0]
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
        while (answer := self.ask(0, request, 5)).error_code in AGAIN:
            pass
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def ask(self, node_id: int, request: Any, version: int) -> Any:
        """Ask a node."""
        return ask(self.tenure.ports[node_id], request, version)

    def leaders(self) -> dict[int, int]:
        """The node of each partition of the topic."""
        (topic,) = (each for each in self.ask(0, MetadataRequest(topics=None), 12).topics if each.name == "orders")
        return {each.partition_index: each.leader_id for each in topic.partitions}

    def send(self, partition: int) -> int:
        """Produce a record, which adds its partition to the transaction; returns the error."""
        ids = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "sequence": self.sequences[partition]}
        data = batch([(b"k", b"v", 1_000)], **ids, attributes=0x10)
        request = produce_request({("orders", partition): data}, transactional_id=ID)
        error = self.ask(self.leaders()[partition], request, 12).responses[0].partition_responses[0].error_code
        self.sequences[partition] += not error
        return int(error)

    def commit_offset(self, offset: int) -> int:
        """TxnOffsetCommit, which adds the group's partition to the transaction."""
        one = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        topics = [{"name": "orders", "partitions": [one]}]
        producer = {"transactional_id": ID, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        commit = request("TxnOffsetCommit", group_id=GROUP, topics=topics, **producer)
        return int(self.ask(1, commit, 5).topics[0].partitions[0].error_code)

    def end(self, *, commit: bool = True) -> None:
        """EndTxn: the outcome is decided, and markers are on the way."""
        request = EndTxnRequest(
            transactional_id=ID, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )
        assert self.ask(0, request, 5).error_code == 0

    @property
    def state(self) -> str:
        """The state of the transaction; empty while its coordinator loads it."""
        request = DescribeTransactionsRequest(transactional_ids=[ID])
        return str(self.ask(0, request, 0).transaction_states[0].transaction_state)

    @property
    def offset(self) -> int | str:
        """The stable committed offset of the group, or the name of the error."""
        request = group_offsets_request(GROUP, partitions={"orders": [0]}, stable=True)
        (answer,) = self.ask(1, request, 8).groups
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        found = answer.topics[0].partitions[0]
        return ErrorCode(found.error_code).name if found.error_code else int(found.committed_offset)


def started(directory: Path) -> Tenure:
    """Two workers."""
    return Tenure(SETTINGS, directory=directory, arguments=["--workers", "2"])


@pytest.fixture
def tenure(tmp_path: Path) -> Iterator[Tenure]:
    """Yield two workers."""
    with started(tmp_path) as server:
        yield server


def kill(tenure: Tenure, node_id: int) -> None:
    """SIGKILL for a worker, and wait until its successor serves."""
    mark = tenure.mark()
    os.kill(tenure.worker_pid(node_id), signal.SIGKILL)
    tenure.wait_for_event("worker_back", since=mark)


def test_a_transaction_ends_at_every_worker(tenure: Tenure) -> None:
    """Its id is one worker's, its group the other's, and each has a partition of its topic; the next one is alike."""
    assert [partition_for(key, 50) % 2 for key in (ID, GROUP)] == [0, 1]
    producer = Producer(tenure)
    assert set(producer.leaders().values()) == {0, 1}
    for offset, commit in ((5, True), (6, False), (7, True)):
        before = producer.offset
        assert [producer.send(0), producer.send(1), producer.commit_offset(offset)] == [0, 0, 0]
        assert producer.offset == OPEN
        producer.end(commit=commit)
        producer.epoch, producer.sequences = producer.epoch + 1, [0, 0]
        complete = "CompleteCommit" if commit else "CompleteAbort"
        wait_until(lambda complete=complete: producer.state == complete, complete, WITHIN_S)  # type: ignore[misc]
        assert producer.offset == (offset if commit else before)


def test_all_workers_show_the_topic_of_ids(tenure: Tenure) -> None:
    """Once one of them was asked for a coordinator of transactions; and after a restart of one, and of all."""

    def shown(node_id: int) -> list[int]:
        answer: Any = ask(tenure.ports[node_id], MetadataRequest(topics=None), 12)
        topics = [each for each in answer.topics if each.name == TRANSACTIONS_TOPIC]
        return [each.leader_id for topic in topics for each in topic.partitions]

    assert [shown(node_id) for node_id in (0, 1)] == [[], []]
    ask(tenure.ports[0], FindCoordinatorRequest(key_type=1, key=ID), 3)
    wait_until(lambda: all(shown(node_id) == [0, 1] * 25 for node_id in (0, 1)), "both show it", WITHIN_S)
    kill(tenure, 1)
    assert [shown(node_id) for node_id in (0, 1)] == [[0, 1] * 25] * 2
    tenure.kill()
    tenure.start()
    assert [shown(node_id) for node_id in (0, 1)] == [[0, 1] * 25] * 2


def test_markers_outlive_both_workers(tenure: Tenure) -> None:
    """A commit is answered while the group's worker hangs. Then the coordinator is killed, then the hanging one.

    The commit counts: its markers are sent again until they are written.
    """
    producer = Producer(tenure)
    assert [producer.send(0), producer.send(1), producer.commit_offset(5)] == [0, 0, 0]
    os.kill(tenure.worker_pid(1), signal.SIGSTOP)
    producer.end()
    assert producer.state == "PrepareCommit"
    kill(tenure, 0)
    wait_until(lambda: producer.state == "PrepareCommit", "the log is loaded", WITHIN_S)
    kill(tenure, 1)
    wait_until(lambda: producer.state == "CompleteCommit", "CompleteCommit", WITHIN_S)
    assert producer.offset == 5


def test_a_producer_tries_again_while_the_coordinator_is_away(tenure: Tenure) -> None:
    """A Produce or a TxnOffsetCommit at the other worker gets an error by which its client tries again there."""
    producer = Producer(tenure)
    (elsewhere,) = (partition for partition, leader in producer.leaders().items() if leader == 1)
    assert producer.send(elsewhere) == 0
    mark = tenure.mark()
    os.kill(tenure.worker_pid(0), signal.SIGKILL)
    tenure.wait_for_event("worker_started", since=mark)
    errors = {producer.commit_offset(5)}
    while producer.send(elsewhere) == ErrorCode.NOT_ENOUGH_REPLICAS:
        pass
    while error := producer.commit_offset(6):
        errors.add(error)
    assert errors <= {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert producer.state == "Ongoing"
    producer.end()
    wait_until(lambda: producer.state == "CompleteCommit", "CompleteCommit", WITHIN_S)
    assert producer.offset == 6


def test_an_id_is_its_workers_alone(tenure: Tenure) -> None:
    """Every worker names it; the other one answers NOT_COORDINATOR, lists nothing, and takes no marker that is not its.

    That also holds for a worker that has no id yet.
    """
    producer = Producer(tenure)
    for node_id in (0, 1):
        found = producer.ask(node_id, FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 4)
        assert [each.node_id for each in found.coordinators] == [0]
        listed = producer.ask(node_id, ListTransactionsRequest(), 1)
        assert listed.error_code == 0
        assert [each.transactional_id for each in listed.transaction_states] == [ID][node_id:]
    (described,) = producer.ask(1, DescribeTransactionsRequest(transactional_ids=[ID]), 0).transaction_states
    init = producer.ask(1, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1), 5)
    assert {described.error_code, init.error_code} == {ErrorCode.NOT_COORDINATOR}
    kinds = WriteTxnMarkersRequest
    for partition, leader in producer.leaders().items():
        topic = kinds.WritableTxnMarkerTopic(name="orders", partition_indexes=[partition])
        asked = kinds.WritableTxnMarker(producer_id=1, producer_epoch=0, coordinator_epoch=0, topics=[topic])
        answer = producer.ask(1 - leader, kinds(markers=[asked]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_commands_reach_every_worker(tenure: Tenure) -> None:
    """From either worker an administrator sees the transaction and its partitions, and ends it in each of them."""
    producer = Producer(tenure)
    assert [producer.send(0), producer.send(1), producer.commit_offset(5)] == [0, 0, 0]
    where = {("__consumer_offsets", 3), ("orders", 0), ("orders", 1)}
    for port in tenure.ports:
        with Client(f"127.0.0.1:{port}") as client:
            (listed,) = list_transactions(client)
            assert (listed.transactional_id, listed.coordinator_id, listed.state) == (ID, 0, "Ongoing")
            assert {tuple(each) for each in listed.partitions} == where
            assert {(each.topic, each.partition) for each in open_transactions(client)} == where
            assert hanging_transactions(client) == []
    with Client(f"127.0.0.1:{tenure.ports[1]}") as client:
        for each in open_transactions(client):
            abort(client, each)
        assert open_transactions(client) == []
    assert producer.offset == GONE


def test_a_start_keeps_what_another_worker_has_open(tenure: Tenure) -> None:
    """A group's worker starts again: the transaction goes on. If no worker knows its id any more, it is aborted."""
    producer = Producer(tenure)
    assert producer.commit_offset(5) == 0
    kill(tenure, 1)
    wait_until(lambda: producer.offset == OPEN, "the group is loaded", WITHIN_S)
    assert producer.commit_offset(6) == 0
    tenure.stop()
    for folder in tenure.data_dir.glob("__transaction_state-*"):
        shutil.rmtree(folder)
    tenure.start()
    wait_until(lambda: producer.offset == GONE, "the offset is given up", WITHIN_S)
