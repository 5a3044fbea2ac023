"""A program on confluent-kafka that moves numbers from one topic to another, exactly once (KIP-98, KIP-447).

It is a static member. In one transaction it reads some records, writes them to the other topic and commits its offsets;
now and then it aborts one and reads the records again. It never ends by itself unless its producer has a fatal error.

Standard output has a line for each step: `sent` and the number of records once they and the offsets are with the
server, `ended` once a commit is acknowledged.

House rule: what a transaction reads, writes and commits lies in one call of `_transform`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.patience import WITHIN_S

RECORDS_MAX = 20
ABORTED = 0.2
"""The share of transactions that are aborted."""


def report(*words: object) -> None:
    """Write a line."""
    print(*words, flush=True)


def until_done(call: Callable[[], Any]) -> Any:
    """What a call returns; an error that says so is tried again, as the client's documentation asks for."""
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


class Transformer:
    """See the module."""

    def __init__(self, bootstrap: str, group: str, seat: str, source: str, sink: str, session_timeout_ms: int) -> None:
        # By default send_offsets_to_transaction waits for good once the only server was away: librdkafka#5511.
        common = {"bootstrap.servers": bootstrap, "metadata.recovery.strategy": "none", "log_level": 0}
        self._source, self._sink = source, sink
        self._consumer = Consumer(
            {
                **common,
                "group.id": group,
                "group.instance.id": seat,
                "session.timeout.ms": session_timeout_ms,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # With several, a restart that the server's death cut off is a rebalance: docs/start/clients.md.
                "partition.assignment.strategy": "range",
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._producer = Producer({**common, "transactional.id": f"{group}-{seat}", "reconnect.backoff.max.ms": 500})

    def run(self) -> None:
        """Go on for ever. Raises KafkaException when the producer can't go on."""
        until_done(lambda: self._producer.init_transactions(WITHIN_S))
        self._consumer.subscribe([self._source])
        while True:
            read = [each for each in self._consumer.consume(RECORDS_MAX, 0.2) if not each.error()]
            if read:
                try:
                    self._transform(read)
                except KafkaException as error:
                    if not error.args[0].txn_requires_abort():
                        raise
                    report("error", error)
                    self._abort()

    def _transform(self, read: Sequence[Message]) -> None:
        producer = self._producer
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for each in read:
            partition, offset = each.partition(), each.offset()
            assert partition is not None
            assert offset is not None
            producer.produce(self._sink, each.value(), partition=partition)
            ends[partition] = offset + 1
        offsets = [TopicPartition(self._source, partition, end) for partition, end in ends.items()]
        group = self._consumer.consumer_group_metadata()
        until_done(lambda: producer.send_offsets_to_transaction(offsets, group, WITHIN_S))
        producer.flush(WITHIN_S)
        report("sent", len(read))
        if random.random() < ABORTED:
            self._abort()
        else:
            until_done(lambda: producer.commit_transaction(WITHIN_S))
            report("ended")

    def _abort(self) -> None:
        """Abort, and read again from the committed offsets."""
        until_done(lambda: self._producer.abort_transaction(WITHIN_S))
        for each in until_done(lambda: self._consumer.committed(self._consumer.assignment(), WITHIN_S)):
            self._consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))


if __name__ == "__main__":
    Transformer(**json.loads(sys.argv[1])).run()
