"""Transactions: a producer that writes one record and commits one offset in each, again and again (KIP-890).

A transaction is Produce, TxnOffsetCommit and EndTxn; each answer has the epoch of the next one. Requests are encoded
for each send, because the versions have no plain headers: that is the generator's time, not the server's.

Two things made a comparison with Apache Kafka unfair, and the works see to both. A producer's first transactions make
the folders and segments of its partitions, so they don't count (`works.transaction`). And a JVM that has just started
needs four times the CPU of one whose code is compiled. One node serves all turns, so each turn found it warmer than the
one before: it is warmed up by the CPU that it has used (`stage.WARM_UP_CPU_S`).

House rule: any error but "try again" ends the work.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks import frames
from benchmarks.driver import Script, clock
from benchmarks.members import RETRY_S, UnexpectedAnswer
from benchmarks.records import ACKS_ALL, TIMEOUT_MS
from protocol.header import decode_response, encode_request
from protocol.messages import (
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from protocol.records.batch import TRANSACTIONAL, Batch, Record, encode_batch
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from protocol.compile import Message

FIND_COORDINATOR, INIT, PRODUCE, COMMIT, END = 3, 5, 12, 5, 5
TRANSACTION = 1
"""FindCoordinator's type of a transactional id."""
AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""The last one: Kafka's controller answers CreateTopics before its broker knows the topic."""
ATTEMPTS = 2_000


class Producer:
    """A producer with a transactional id, a group and a topic partition of its own."""

    def __init__(self, name: str, topic: str, number: int) -> None:
        self._name = name
        self._topic = topic
        self._number = number
        self._id = self._epoch = -1

    def begin(self, transactions: int = 0) -> Script:
        """Get the producer id, as soon as the coordinator is there, and run so many transactions."""
        find = FindCoordinatorRequest(key=self._name, key_type=TRANSACTION)
        yield from _until_done(find, FIND_COORDINATOR, lambda answer: answer.error_code)
        init = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        answer = yield from _until_done(init, INIT, lambda answer: answer.error_code)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        for _ in range(transactions):
            yield from self.transaction()

    def transactions(self, took: list[float]) -> Script:
        """Run one transaction after the other, for ever; `took` receives the seconds of each."""
        while True:
            began = clock()
            yield from self.transaction()
            took.append(clock() - began)

    def transaction(self, *, has_record: bool = True) -> Script:
        """Run one transaction. has_record: beside its commit."""
        own: dict[str, Any] = {"producer_id": self._id, "producer_epoch": self._epoch}
        if has_record:
            yield from _until_done(self._produce(), PRODUCE, lambda answer: _only(answer.responses).error_code)
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(committed_offset=1)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=self._topic, partitions=[partition])
        commit = TxnOffsetCommitRequest(transactional_id=self._name, group_id=self._name, topics=[topic], **own)
        yield from _until_done(commit, COMMIT, lambda answer: answer.topics[0].partitions[0].error_code)
        end = EndTxnRequest(transactional_id=self._name, committed=True, **own)
        answer = yield from _until_done(end, END, lambda answer: answer.error_code)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch

    def _produce(self) -> ProduceRequest:
        records = [Record(b"key", b"value", int(time.time() * 1000))]
        batch = encode_batch(Batch(records, self._id, self._epoch, TRANSACTIONAL, base_sequence=0), 0, 0)
        topic, partition = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
        return ProduceRequest(
            transactional_id=self._name,
            acks=ACKS_ALL,
            timeout_ms=TIMEOUT_MS,
            topic_data=[topic(name=self._topic, partition_data=[partition(index=self._number, records=batch)])],
        )


def _only(responses: list[Any]) -> Any:
    """The one partition of an answer to Produce."""
    return responses[0].partition_responses[0]


def _until_done(request: Message, version: int, error_of: Callable[[Any], int]) -> Generator[bytes | float, bytes, Any]:
    """Send a request until its answer has no error, and return that answer."""
    assert request.API_KEY is not None
    frame = encode_request(request, version, 0, frames.CLIENT_ID)
    for _ in range(ATTEMPTS):
        answer = decode_response(request.API_KEY, version, (yield frame)[frames.SIZE_BYTES :])[1]
        error = error_of(answer)
        if error == ErrorCode.NONE:
            return answer
        if error not in AGAIN:
            raise UnexpectedAnswer(f"{request.NAME}: error {error}")
        yield clock() + RETRY_S
    raise UnexpectedAnswer(f"{request.NAME}: no answer but errors to try again")
