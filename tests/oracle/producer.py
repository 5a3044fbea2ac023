"""Transactional producers on a stage (KIP-98, KIP-447, KIP-890).

    producer a, version=2
    a init                      # InitProducerId; its answer is what the producer has from then on
    a add 'topic', 0            # AddPartitionsToTxn
    a send 'topic', b'value'    # Produce
    a commit 'topic', 7         # TxnOffsetCommit
    a end                       # EndTxn, and the markers

Version 1 speaks the versions of the APIs before KIP-890's second part, version 2 those of it. A request has the
producer's own id and epoch unless the script names others.

House rule: no rule of transactions is known here; a script says what is sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from coordinator.group.partition import partition_for
from coordinator.transaction.records import decode_id, key_of
from coordinator.transaction.state import NO_TIME
from protocol.messages import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    FetchResponse,
    InitProducerIdResponse,
    ListOffsetsResponse,
    ListTransactionsResponse,
    Message,
    TxnOffsetCommitResponse,
    WriteTxnMarkersResponse,
)
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.oracle.stage import Client, Stage, commit_topics
from tests.support.batches import batch
from tests.support.raw import Closed
from tests.support.requests import request

TRANSACTION = 1
"""FindCoordinator's type of a transactional id."""
TRANSACTIONAL = 0x10
START_MS = time.time_ns() // 1_000_000
"""Of all records: those that are older than a week begin a new segment."""

OFFSETS_PARTITIONS = IDS_PARTITIONS = 4
"""Of `__consumer_offsets` and `__transaction_state`, on both servers (conftest.py)."""

PRODUCE, COMMIT, END = (0, 11, 12), (0, 4, 5), (0, 4, 5)
"""Versions of the APIs, by the version of the producer."""


class Producer:
    """A transactional producer. transactional_id: the script's group with the producer's name behind it."""

    def __init__(self, client: Client, *, transactional_id: str, version: int) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self._start_ms = NO_TIME
        self._log_end = 0

    def init(self, *, version: int = 5, **changes: Any) -> None:
        """InitProducerId and its answer."""
        fields = {"transactional_id": self.transactional_id, "transaction_timeout_ms": 60_000, **changes}
        answer = self.client.ask(request("InitProducerId", **fields), version)
        if answer.error_code == ErrorCode.NONE:
            self._take(answer)

    def claim(self, **changes: Any) -> None:
        """InitProducerId with the producer's own id and epoch."""
        self.init(**{"producer_id": self.producer_id, "producer_epoch": self.epoch, **changes})

    def add(self, topic: str, *partitions: int, version: int = 3, **changes: Any) -> None:
        """AddPartitionsToTxn with one transaction (up to v3), and its answer."""
        fields = {
            "v3_and_below_transactional_id": changes.pop("transactional_id", self.transactional_id),
            "v3_and_below_producer_id": changes.pop("producer_id", self.producer_id),
            "v3_and_below_producer_epoch": changes.pop("producer_epoch", self.epoch),
            "v3_and_below_topics": changes.pop("topics", [{"name": topic, "partitions": list(partitions)}]),
        }
        assert not changes
        self.client.ask(request("AddPartitionsToTxn", **fields), version)

    def add_many(self, *transactions: Mapping[str, Any], version: int = 5) -> None:
        """AddPartitionsToTxn of several transactions, and its answer."""
        asked = [self._own() | dict(each) for each in transactions]
        self.client.ask(request("AddPartitionsToTxn", transactions=asked), version)

    def add_offsets(self, group: str | None = None, *, version: int = 4, **changes: Any) -> None:
        """AddOffsetsToTxn of the script's group, or of another one, and its answer."""
        fields = self._own() | {"group_id": self.client.group if group is None else group, **changes}
        self.client.ask(request("AddOffsetsToTxn", **fields), version)

    def send(
        self,
        topic: str,
        value: bytes,
        partition: int = 0,
        *,
        sequence: int | None = None,
        attributes: int = TRANSACTIONAL,
        version: int | None = None,
        transactional_id: str | None = "own",
        **changes: Any,
    ) -> None:
        """Produce a record, and the answer. Its sequence is the next one unless it is given."""
        expected = self.sequences.get((topic, partition), 0)
        records = batch(
            [(b"k", value, START_MS)],
            producer_id=changes.get("producer_id", self.producer_id),
            producer_epoch=changes.get("producer_epoch", self.epoch),
            sequence=expected if sequence is None else sequence,
            attributes=attributes,
        )
        asked = request(
            "Produce",
            transactional_id=self.transactional_id if transactional_id == "own" else transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
        )
        answer: Any = self.client.ask(asked, PRODUCE[self.version] if version is None else version)
        if answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE and sequence is None:
            self.sequences[topic, partition] = expected + 1

    def commit(
        self, topic: str, offset: int, partition: int = 0, *, version: int | None = None, **changes: Any
    ) -> None:
        """TxnOffsetCommit of one offset, and its answer."""
        fields = self._own() | {
            "group_id": self.client.group,
            "topics": commit_topics({topic: {partition: offset}}),
            **changes,
        }
        asked = request("TxnOffsetCommit", **fields)
        spoken = COMMIT[self.version] if version is None else version

        def asks_again(answer: Any) -> bool:
            """On a slow machine, Kafka 3.9 doesn't reach the coordinator of the transaction at once."""
            codes = {each.error_code for topic in answer.topics for each in topic.partitions}
            if ErrorCode.COORDINATOR_NOT_AVAILABLE not in codes:
                return False
            self.client.connection.send(asked, spoken)
            return True

        self.client.send(asked, spoken)
        self.client.receive(asks_again)

    def commit_as(self, member: Client, topic: str, offset: int, **changes: Any) -> None:
        """TxnOffsetCommit with the claim of a member of a classic group."""
        claim = {
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": member.instance,
        }
        self.commit(topic, offset, **{**claim, **changes})

    def commit_until_refused(self, member: Client, topic: str) -> None:
        """As `commit_as`, outside of the transcript, until the group doesn't know the member; then once more."""
        claim = {"generation_id": member.generation, "member_id": member.member_id}
        topics = commit_topics({topic: {0: 1}})
        asked = request("TxnOffsetCommit", **self._own(), group_id=self.client.group, topics=topics, **claim)
        version = COMMIT[self.version]

        def is_refused() -> bool:
            answer = cast("TxnOffsetCommitResponse", self.client.stage.ask_aside(asked, version))
            return answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID

        self.client.stage.until_true(is_refused)
        self.commit_as(member, topic, 1)

    def end(self, *, commit: bool = True, version: int | None = None, **changes: Any) -> None:
        """EndTxn and its answer; then wait for the markers."""
        version = END[self.version] if version is None else version
        asked = request("EndTxn", **(self._own() | {"committed": commit, **changes}))
        answer = self.client.ask(asked, version)
        if answer.error_code == ErrorCode.NONE and version >= END[2]:
            self._take(answer)
        self.settle()

    def abort(self, **changes: Any) -> None:
        """The same with an abort."""
        self.end(commit=False, **changes)

    def describe(self, *transactional_ids: str) -> None:
        """DescribeTransactions of its own id, or of others, and its answer."""
        asked = request("DescribeTransactions", transactional_ids=list(transactional_ids) or [self.transactional_id])
        self.client.ask(asked, 0)

    def begins(self) -> None:
        """Note whether the start of its transaction is the one of the last look."""
        former, self._start_ms = self._start_ms, self._described().transaction_start_time_ms
        self.client.stage.transcript.add(
            self.client.name, "began as before" if self._start_ms == former else "began anew"
        )

    def list(self, *, version: int = 1, **filters: Any) -> None:
        """ListTransactions and its answer, from which the ids of other scripts are left out."""
        self.client.send(request("ListTransactions", **filters), version)
        answer = cast("ListTransactionsResponse", self._answer())
        own = f"{self.client.group}."
        answer.transaction_states = [
            each for each in answer.transaction_states if each.transactional_id.startswith(own)
        ]
        self.client.stage.transcript.add(self.client.name, "< ListTransactions", answer)

    def producers(self, topic: str, *partitions: int) -> None:
        """DescribeProducers, and its answer."""
        asked = [{"name": topic, "partition_indexes": list(partitions)}]
        self.client.ask(request("DescribeProducers", topics=asked), 0)

    def own_producers(self) -> None:
        """DescribeProducers of the group's partition, and its answer about this producer."""
        self.client.send(request("DescribeProducers", topics=[self._own_partition()]), 0)
        answer = cast("DescribeProducersResponse", self._answer())
        (found,) = answer.topics[0].partitions
        found.partition_index = 0
        found.active_producers = [each for each in found.active_producers if each.producer_id == self.producer_id]
        start = min(each.current_txn_start_offset for each in found.active_producers)
        for each in found.active_producers:
            each.current_txn_start_offset = min(start, 0)
        self.client.stage.transcript.add(self.client.name, "< DescribeProducers", answer)

    def mark(self, topic: str, *partitions: int, version: int, **changes: Any) -> None:
        """WriteTxnMarkers of an abort unless the script says else, and its answer."""
        self.client.ask(self._marker({"name": topic, "partition_indexes": list(partitions)}, changes), version)

    def mark_offsets(self, **changes: Any) -> None:
        """The same in the group's partition, which is number 0 in the answer."""
        self.client.send(self._marker(self._own_partition(), changes), 1)
        answer = cast("WriteTxnMarkersResponse", self._answer())
        answer.markers[0].topics[0].partitions[0].partition_index = 0
        self.client.stage.transcript.add(self.client.name, "< WriteTxnMarkers", answer)

    def _marker(self, topic: dict[str, Any], changes: dict[str, Any]) -> Message:
        own = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "topics": [topic], **changes}
        return request("WriteTxnMarkers", markers=[own])

    def _own_partition(self) -> dict[str, Any]:
        number = partition_for(self.client.group, OFFSETS_PARTITIONS)
        return {"name": "__consumer_offsets", "partition_indexes": [number]}

    def read(self, topic: str, level: int, offset: int = 0, partition: int = 0) -> None:
        """Fetch at an isolation level, and its answer."""
        self.send_read(topic, level, offset, partition, max_wait_ms=0)
        self.client.receive()

    def logged(self) -> None:
        """Fetch the log of transactional ids, and note the states of its own id there, in their order."""
        number = partition_for(self.transactional_id, IDS_PARTITIONS)
        wanted = {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1_000_000}
        asked = request("Fetch", max_bytes=1_000_000, topics=[{"topic": "__transaction_state", "partitions": [wanted]}])
        answer = cast("FetchResponse", self.client.stage.ask_aside(asked, 11)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        batches = decode_batches(answer.records or b"")
        own = [each for one in batches for each in one.records if each.key == key_of(self.transactional_id)]
        states = [decode_id("", each.value).status.label for each in own if each.value is not None]
        self.client.stage.transcript.add(self.client.name, f"is in the log as {', '.join(states)}")

    def notes_end(self) -> None:
        """Note, outside of the transcript, where the log of the group's partition ends; see `read_offsets`."""
        self._log_end = self._end_of_log(level=0)

    def read_offsets(self, level: int, offset: int = 0) -> None:
        """Fetch the log of the group's partition at an isolation level, and note what is there; see `notes_end`.

        Offsets count from the noted end on. Each batch is shown by its first offset and its producer.
        """
        end = self._log_end
        wanted = {"fetch_offset": offset + end, "partition_max_bytes": 1_000_000}
        topics = [self._own_log("topic", "partition", **wanted)]
        asked = request("Fetch", min_bytes=0, max_bytes=1_000_000, isolation_level=level, topics=topics)
        answer = cast("FetchResponse", self.client.stage.ask_aside(asked, 11)).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        aborted = answer.aborted_transactions
        listed = None
        if aborted is not None:
            listed = [f"{each.first_offset - end} of {self._whose(each.producer_id)}" for each in aborted]
        batches = [
            f"{each.base_offset - end} {'control' if each.is_control else 'of'} {self._whose(each.producer_id)}"
            for each in (batch.header for batch in decode_batches(answer.records or b""))
        ]
        ends = f"ends at {answer.high_watermark - end}, is stable to {answer.last_stable_offset - end}"
        text = f"{ends}, has aborted {listed}, and batches {batches}"
        self.client.stage.transcript.add(self.client.name, f"reads a log that {text}")

    def log_end(self, level: int) -> None:
        """ListOffsets of the group's partition at an isolation level, and where it ends; see `notes_end`."""
        found = self._end_of_log(level) - self._log_end
        self.client.stage.transcript.add(self.client.name, f"finds the end at {found}")

    def _end_of_log(self, level: int) -> int:
        topics = [self._own_log("name", "partition_index", timestamp=-1)]
        asked = request("ListOffsets", replica_id=-1, isolation_level=level, topics=topics)
        answer = cast("ListOffsetsResponse", self.client.stage.ask_aside(asked, 5))
        return answer.topics[0].partitions[0].offset

    def _own_log(self, topic: str, index: str, **fields: int) -> dict[str, Any]:
        """The group's partition in a request; topic, index: its fields for the topic's name and for the number."""
        number = partition_for(self.client.group, OFFSETS_PARTITIONS)
        return {topic: "__consumer_offsets", "partitions": [{index: number, **fields}]}

    def _whose(self, producer_id: int) -> str:
        return {self.producer_id: "its own", -1: "no producer"}.get(producer_id, "another")

    def send_read(
        self, topic: str, level: int, offset: int = 0, partition: int = 0, *, max_wait_ms: int = 60_000
    ) -> None:
        """Send a Fetch that waits for records."""
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 100_000}
        asked = request(
            "Fetch",
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=100_000,
            isolation_level=level,
            topics=[{"topic": topic, "partitions": [wanted]}],
        )
        self.client.send(asked, 11)

    def receive(self) -> None:
        """The answer to what was sent."""
        self.client.receive()

    def waits(self) -> None:
        """Note whether an answer has come."""
        self.client.waits()

    def ends(self, topic: str, level: int, timestamp: int = -1, partition: int = 0) -> None:
        """ListOffsets at an isolation level, and its answer."""
        asked = [{"partition_index": partition, "timestamp": timestamp}]
        fields = {"replica_id": -1, "isolation_level": level, "topics": [{"name": topic, "partitions": asked}]}
        self.client.ask(request("ListOffsets", **fields), 8)

    def offsets(self, topics: Mapping[str, Sequence[int]] | None, *, stable: bool, group: str | None = None) -> None:
        """OffsetFetch with or without require_stable, and its answer."""
        asked = None
        if topics is not None:
            asked = [{"name": name, "partition_indexes": list(partitions)} for name, partitions in topics.items()]
        wanted = [{"group_id": self.client.group if group is None else group, "topics": asked}]
        self.client.ask(request("OffsetFetch", groups=wanted, require_stable=stable), 8)

    def settle(self) -> None:
        """Wait, outside of the transcript, until the transaction has its markers."""
        self.client.stage.until_true(lambda: not self._state().startswith("Prepare"))

    def until(self, state: str) -> None:
        """Wait, outside of the transcript, until the transaction is in this state."""
        self.client.stage.until_true(lambda: self._state() == state)

    def _answer(self) -> Any:
        """The next answer, before it is in the transcript."""
        try:
            return self.client.connection.receive()
        except Closed:
            self.client.stage.transcript.add(self.client.name, "is closed")
            raise

    def until_gone(self) -> None:
        """Wait, outside of the transcript, until its coordinator has no such id."""
        gone = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        self.client.stage.until_true(lambda: self._described().error_code == gone)

    def _state(self) -> str:
        return self._described().transaction_state

    def _described(self) -> DescribeTransactionsResponse.TransactionState:
        asked = request("DescribeTransactions", transactional_ids=[self.transactional_id])
        return cast("DescribeTransactionsResponse", self.client.stage.ask_aside(asked, 0)).transaction_states[0]

    def _own(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def _take(self, answer: InitProducerIdResponse | EndTxnResponse) -> None:
        """Have the id and the epoch of an answer. A new epoch begins its sequences anew."""
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()


def producer(
    stage: Stage, name: str, *, version: int = 1, transactional_id: str | None = None, **settings: Any
) -> Producer:
    """A producer whose coordinator is there, on a connection of its own.

    ListTransactions needs all ids to be loaded. The first producer id, 0, is used up here: where an answer leaves out
    the id, it has 0, too.
    """
    client = stage.client(name, **settings)
    find = request("FindCoordinator", key_type=TRANSACTION, key="ready")
    init = request("InitProducerId", transactional_id="ready", transaction_timeout_ms=60_000)

    def is_ready() -> bool:
        return all(
            cast("Any", stage.ask_aside(asked, version)).error_code == ErrorCode.NONE
            for asked, version in ((find, 3), (init, 4), (request("ListTransactions"), 0))
        )

    stage.until_true(is_ready)
    own = f"{stage.group}.{name}"
    return Producer(client, transactional_id=own if transactional_id is None else transactional_id, version=version)
