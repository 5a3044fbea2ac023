"""Compaction of a topic: Kafka's cleaner and ours keep the same records, and Kafka's tool reads our log.

Both servers get the same bytes, so that their segments end at the same offsets. Compaction starts only when all is
there (min.cleanable.dirty.ratio=1), so that both do the same passes. Then the test produces more, and both compact once
more: tombstones that got a horizon in the first pass are gone after the second.

Some batches are of a transactional producer. Its id is each server's own, so the test puts it into the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import list_segments
from protocol.messages import DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest
from protocol.records.batch import CODEC_MASK, CONTROL, TRANSACTIONAL
from protocol.records.batch import peek_header as header_of
from protocol.records.walk import Batch, decode_batches
from tests.log.compaction.closed import changed
from tests.support.apache import ApacheKafka, run_tool
from tests.support.raw import ask
from tests.support.requests import configs_request, fetch_request, produce_request, request, topics_request
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

TOPIC = "compacted"
WITHIN_S = 60.0
SETTINGS = {"log.cleaner.backoff.ms": "100", "offsets.topic.num.partitions": "1"}
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",
    "delete.retention.ms": "0",
    "segment.bytes": "4000",
}
CODECS = 5
ID = "t"
IN_TRANSACTIONS = 3
"""The producer of the transactional id; others have no transactions."""
LAST = 20
"""So many batches fill a segment."""
NOW_MS = 1_700_000_000_000


COMMIT, ABORT = b"commit", b"abort"
"""In place of a batch: the end of the open transaction."""


class Node:
    """A server, and where it says up to which offset the topic is clean."""

    def __init__(self, port: int, checkpoint: Path) -> None:
        self.port = port
        self.checkpoint = checkpoint
        self.producer_id = -1

    def ask(self, request: Any, version: int) -> Any:
        """One request."""
        return ask(self.port, request, version)

    def create(self) -> None:
        """The topic."""
        answer = self.ask(topics_request({TOPIC: 1}, CONFIGS), 5)
        assert answer.topics[0].error_code == 0
        init = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=900_000)

        def granted() -> Any:
            self.ask(FindCoordinatorRequest(key=ID, key_type=1), 3)  # Kafka makes the log for it
            answer = self.ask(init, 3)
            return None if answer.error_code else answer

        self.producer_id = wait_until(granted, "a producer id", WITHIN_S).producer_id

    def produce(self, batches: list[bytes]) -> None:
        """Each batch in a request of its own."""
        for data in batches:
            if data in {COMMIT, ABORT}:
                self._end(commit=data == COMMIT)
                continue
            is_transactional = header_of(data).is_transactional
            if is_transactional:
                self._begin()
            records = changed(data, 0, self.producer_id) if is_transactional else data
            request = produce_request({(TOPIC, 0): records}, transactional_id=ID if is_transactional else None)
            answer = self.ask(request, 7)
            assert answer.responses[0].partition_responses[0].error_code == 0

    def _begin(self) -> None:
        producer = {"transactional_id": ID, "producer_id": self.producer_id, "producer_epoch": 0}
        fields = producer | {"topics": [{"name": TOPIC, "partitions": [0]}]}
        adds = request("AddPartitionsToTxn", **{f"v3_and_below_{name}": value for name, value in fields.items()})
        (topic,) = self.ask(adds, 3).results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == 0

    def _end(self, *, commit: bool) -> None:
        """End the transaction, and wait for its marker."""
        end = EndTxnRequest(transactional_id=ID, producer_id=self.producer_id, producer_epoch=0, committed=commit)
        assert self.ask(end, 3).error_code == 0
        describe = DescribeTransactionsRequest(transactional_ids=[ID])

        def is_complete() -> bool:
            (state,) = self.ask(describe, 0).transaction_states
            return bool(state.transaction_state.startswith("Complete"))

        wait_until(is_complete, "the marker", WITHIN_S)

    def set_ratio(self, ratio: str) -> None:
        """min.cleanable.dirty.ratio."""
        request = configs_request(2, [TOPIC], {"min.cleanable.dirty.ratio": ratio})
        answer = self.ask(request, 1)
        assert answer.responses[0].error_code == 0

    def clean_offset(self) -> int:
        """Up to where it is clean, -1 if that isn't known."""
        found = (
            re.search(rf"^{TOPIC} 0 (\d+)$", self.checkpoint.read_text(), re.MULTILINE)
            if self.checkpoint.exists()
            else None
        )
        return int(found[1]) if found else -1

    def await_clean(self, offset: int) -> None:
        """Wait until it is clean up to there."""
        wait_until(lambda: self.clean_offset() == offset, f"clean up to {offset}", WITHIN_S)

    def fetch(self) -> list[Batch]:
        """All that there is."""
        found: list[Batch] = []
        offset, end = 0, 1
        while offset < end:
            fetched = self.ask(fetch_request({(TOPIC, 0): offset}), 11)
            (answer,) = fetched.responses[0].partitions
            assert answer.error_code == 0
            end = answer.high_watermark
            found += decode_batches(bytes(answer.records or b""))
            offset = found[-1].header.next_offset
        return found


class Sent:
    """Random batches: keys that come again, tombstones, all codecs, with and without a producer id, in transactions."""

    def __init__(self) -> None:
        self.chance = Random(3)
        self.sequences = [0, 0, 0, 0]
        self.number = 0

    def batches(self, count: int) -> list[bytes]:
        """So many, of a few records each; the active segment will have no marker, and nothing is open."""
        made: list[bytes] = []
        is_open = False
        for left in range(count, 0, -1):
            if is_open and (left == LAST or self.chance.random() < 0.3):
                made.append(self.chance.choice([COMMIT, ABORT]))
                is_open = False
            made.append(self._batch(is_last=left <= LAST))
            is_open = is_open or header_of(made[-1]).is_transactional
        return made

    def _batch(self, *, is_last: bool) -> bytes:
        chance = self.chance
        # The last producer without transactions soon has no more to say: all of its records are superseded.
        producer = chance.randrange(-1, IN_TRANSACTIONS - (self.number > 100))
        if not is_last and chance.random() < 0.3:
            producer = IN_TRANSACTIONS
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=chance.randrange(CODECS),
            is_transactional=producer == IN_TRANSACTIONS,
            producer_id=1_000 + producer if producer >= 0 else -1,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self.sequences[producer] if producer >= 0 else -1,
            batch_size=1_000_000,
        )
        count = chance.randint(1, 6)
        for delta in range(count):
            self.number += 1
            value = None if chance.random() < 0.2 else b"%d " % self.number * chance.randint(1, 40)
            key = b"key-%d" % chance.randrange(40)
            builder.append(
                delta, timestamp=NOW_MS + chance.randrange(1_000), key=key, value=value, headers=[("h", b"x")]
            )
        if producer >= 0:
            self.sequences[producer] += count
        return bytes(builder.build())


def records(batches: list[Batch]) -> list[tuple[int, bytes, bytes | None, int]]:
    """Offset, key, value and timestamp; a marker has its server's time, and its coordinator's epoch as value."""
    return [
        (offset, record.key, b"", 0) if batch.header.is_control else (offset, *record)
        for batch in batches
        for offset, record in zip(batch.offsets, batch.records, strict=True)
    ]


def shapes(batches: list[Batch]) -> list[tuple[object, ...]]:
    """Of each batch that has records, or is a producer's last: what it spans, whose it is, and how it is packed.

    A horizon is a time of one's own; that there is one is the same.
    """
    last = {batch.header.producer_id: batch.header.base_offset for batch in batches if batch.header.producer_id >= 0}
    return [
        (
            batch.header.base_offset,
            batch.header.next_offset,
            len(batch.records),
            *batch.header[10:12],
            batch.header.attributes & (CODEC_MASK | TRANSACTIONAL | CONTROL),
            batch.header.delete_horizon_ms is not None,
            None if batch.header.is_control else batch.header.max_timestamp_ms,
        )
        for batch in batches
        if batch.records or last.get(batch.header.producer_id) == batch.header.base_offset
    ]


@pytest.fixture(scope="module")
def nodes(kafka_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node, Path]]:
    """Both servers."""
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(SETTINGS))
        tenure = stack.enter_context(Tenure(SETTINGS, directory=tmp_path_factory.mktemp("tenure")))
        folder = tenure.data_dir / f"{TOPIC}-0"
        checkpoint = "cleaner-offset-checkpoint"
        yield Node(kafka.port, kafka.log_dir / checkpoint), Node(tenure.port, folder / checkpoint), folder


def test_both_leave_the_same(nodes: tuple[Node, Node, Path]) -> None:
    """Offsets, keys, values, times, batches, producers' last ones and markers among them, three times.

    Kafka's tool reads our log.
    """
    kafka, tenure, folder = nodes
    sent = Sent()
    for node in (kafka, tenure):
        node.create()
    left: list[Batch] = []
    for count in (200, 100, 100):
        batches = sent.batches(count)
        for node in (kafka, tenure):
            node.set_ratio("1")
            node.produce(batches)
        before = records(tenure.fetch())
        assert before == records(kafka.fetch())
        end = list_segments(Disk(), folder)[-1].base_offset
        for node in (kafka, tenure):
            node.set_ratio("0")
            node.await_clean(end)
        left = tenure.fetch()
        assert records(left) == records(kafka.fetch())
        assert shapes(left) == shapes(kafka.fetch())
        assert len(records(left)) < len(before) // 2
    tombstones = [offset for offset, _, value, _ in records(left) if value is None]
    assert tombstones
    assert any(batch.header.producer_id >= 0 and not batch.records for batch in left)
    assert {batch.records[0].key for batch in left if batch.header.is_control} == {b"\0\0\0\0", b"\0\0\0\1"}

    done = run_tool(
        "kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--files",
        ",".join(str(segment.path) for segment in list_segments(Disk(), folder)),
    )
    assert done.returncode == 0
    assert " isvalid: false" not in done.stdout
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", done.stdout, re.MULTILINE)]
    assert offsets == [offset for offset, *_ in records(left)]
