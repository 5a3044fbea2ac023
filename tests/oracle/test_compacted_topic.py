"""Compaction of a topic: Kafka's cleaner and ours keep the same records, and Kafka's tool reads our log.

Both servers get the same bytes, so that their segments end at the same offsets. Compaction starts only when all is
there (min.cleanable.dirty.ratio=1), so that both do the same passes. Then the test produces more, and both compact once
more: tombstones that got a horizon in the first pass are gone after the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple, cast

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from coordinator.log.segments.disk import Disk
from coordinator.log.segments.segment import list_segments
from protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ProduceRequest,
    ProduceResponse,
)
from protocol.records.batch import CODEC_MASK
from protocol.records.walk import Batch, decode_batches
from tests.support.apache import ApacheKafka, run_tool
from tests.support.raw import Connection
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
NOW_MS = 1_700_000_000_000


class Node(NamedTuple):
    """A server, and where it says up to which offset the topic is clean."""

    port: int
    checkpoint: Path

    def ask(self, request: object, version: int) -> object:
        """One request."""
        with Connection(self.port) as connection:
            return connection.ask(request, version)  # type: ignore[arg-type]

    def create(self) -> None:
        """The topic."""
        configs = [CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
        answer = cast("CreateTopicsResponse", self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5))
        assert answer.topics[0].error_code == 0

    def produce(self, batches: list[bytes]) -> None:
        """Each batch in a request of its own."""
        with Connection(self.port) as connection:
            for data in batches:
                partition = ProduceRequest.PartitionProduceData(index=0, records=data)
                topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
                request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])
                answer = cast("ProduceResponse", connection.ask(request, 7))
                assert answer.responses[0].partition_responses[0].error_code == 0

    def set_ratio(self, ratio: str) -> None:
        """min.cleanable.dirty.ratio."""
        config = IncrementalAlterConfigsRequest.AlterableConfig(name="min.cleanable.dirty.ratio", value=ratio)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=2, resource_name=TOPIC, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = cast("IncrementalAlterConfigsResponse", self.ask(request, 1))
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
            partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1_000_000,
                topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])],
            )
            (answer,) = cast("FetchResponse", self.ask(request, 11)).responses[0].partitions
            assert answer.error_code == 0
            end = answer.high_watermark
            found += decode_batches(bytes(answer.records or b""))
            offset = found[-1].header.next_offset
        return found


class Sent:
    """Random batches: keys that come again, tombstones, all codecs, with and without a producer id."""

    def __init__(self) -> None:
        self.chance = Random(3)
        self.sequences = [0, 0, 0]
        self.number = 0

    def batches(self, count: int) -> list[bytes]:
        """So many, of a few records each."""
        return [self._batch() for _ in range(count)]

    def _batch(self) -> bytes:
        chance = self.chance
        # The last producer soon has no more to say: all of its records are superseded.
        producer = chance.randrange(-1, len(self.sequences) - (self.number > 100))
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=chance.randrange(CODECS),
            is_transactional=False,
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
    """Offset, key, value and timestamp."""
    return [(offset, *record) for batch in batches for offset, record in zip(batch.offsets, batch.records, strict=True)]


def shapes(batches: list[Batch]) -> list[tuple[object, ...]]:
    """Of each batch that has records, or is a producer's last: what it spans, whose it is, and how it is packed.

    A horizon is a time of one's own; that there is one is the same.
    """
    last = {batch.producer_id: batch.base_offset for batch in batches if batch.producer_id >= 0}
    return [
        (
            batch.base_offset,
            batch.header.next_offset,
            len(batch.records),
            batch.header[9:12],
            batch.attributes & CODEC_MASK,
            batch.header.delete_horizon_ms is not None,
            batch.header.max_timestamp_ms,
        )
        for batch in batches
        if batch.records or last.get(batch.producer_id) == batch.base_offset
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
    """Offsets, keys, values, times, batches, producers' last ones among them; twice; and Kafka's tool reads ours."""
    kafka, tenure, folder = nodes
    sent = Sent()
    for node in (kafka, tenure):
        node.create()
    left: list[Batch] = []
    for count in (200, 100):
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
    assert any(batch.producer_id >= 0 and not batch.records for batch in left)

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
