"""Records: one batch, produced again and again to a topic partition, and fetched back.

All batches of a run have the same bytes. A Produce is encoded once for its topic partition, and each fetched batch is
compared with the produced one. Versions are the last ones with the plain headers.

House rule: an answer counts as a success only if it has the expected offset.
"""

from __future__ import annotations

import struct
import time

from benchmarks import frames
from benchmarks.driver import Script, clock
from benchmarks.members import RETRY_S, UnexpectedAnswer
from protocol.header import encode_request
from protocol.messages import FetchRequest, ProduceRequest
from protocol.records.batch import Record, encode_batch
from schemas.errors import ErrorCode

PRODUCE, FETCH = 8, 11
ACKS_ALL = -1
TIMEOUT_MS = 30_000
WAIT_MS = 500
NO_LEADER_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE}
LEADER_ATTEMPTS = 200
OFFSET_BYTES = 8
RECORD_HEAD_BYTES = 16
"""More than a record's bytes before and behind its value."""

_unpack_stored = struct.Struct(">hq").unpack_from
_unpack_fetched = struct.Struct(">h32xi").unpack_from
"""Unpacks a partition of a Fetch answer without aborted transactions: its error code and the size of its records."""
_unpack_offset = struct.Struct(">q").unpack_from


def batch_of(record_bytes: int, batch_bytes: int) -> tuple[bytes, int]:
    """Return a batch of records with values of this size, at most as large as asked for, and their number."""
    count = max(batch_bytes // (record_bytes + RECORD_HEAD_BYTES), 1)
    value = bytes(range(256)) * (record_bytes // 256 + 1)
    now_ms = int(time.time() * 1000)
    return encode_batch([Record(b"", value[:record_bytes], now_ms)] * count, 0, 0), count


class Partition:
    """A topic partition that no other script writes or reads. written, read: the next offsets."""

    def __init__(self, topic: str, number: int, batch: bytes, record_count: int) -> None:
        self.written = 0
        self.read = 0
        self._batch = batch
        self._record_count = record_count
        self._produce = _produce(topic, number, batch)
        self._fetch = _fetch(topic, number, len(batch))
        # The position of a partition's error code in an answer to Produce: behind the sizes, the correlation id, the
        # name and the partition's number. An answer to Fetch has also throttle time, an error code and a session id
        # before it.
        self._stored_at = 22 + len(topic)
        self._fetched_at = 32 + len(topic)

    def until_led(self) -> Script:
        """Produce one batch as soon as the partition has a leader."""
        for _ in range(LEADER_ATTEMPTS):
            error, _ = _unpack_stored((yield self._produce), self._stored_at)
            if error == ErrorCode.NONE:
                self.written += self._record_count
                return
            if error not in NO_LEADER_YET:
                raise UnexpectedAnswer(f"Produce: error {error}")
            yield clock() + RETRY_S
        raise UnexpectedAnswer("Produce: no leader")

    def produce(self, batch_count: int) -> Script:
        """Produce that many batches, each after the acknowledgement of the one before."""
        for _ in range(batch_count):
            stored = _unpack_stored((yield self._produce), self._stored_at)
            if stored != (ErrorCode.NONE, self.written):
                raise UnexpectedAnswer(f"Produce: error and offset {stored}, not offset {self.written}")
            self.written += self._record_count

    def fetch(self) -> Script:
        """Fetch all batches that are written and not yet read, one at a time."""
        while self.read < self.written:
            answer = yield self._fetch.fill(0, self.read.to_bytes(OFFSET_BYTES, "big"))
            error, size = _unpack_fetched(answer, self._fetched_at)
            begins = len(answer) - size
            if error or size != len(self._batch) or _unpack_offset(answer, begins)[0] != self.read:
                raise UnexpectedAnswer(f"Fetch of offset {self.read}: error {error}, {size} bytes")
            if answer[begins + OFFSET_BYTES :] != self._batch[OFFSET_BYTES:]:
                raise UnexpectedAnswer(f"Fetch of offset {self.read}: not what was produced")
            self.read += self._record_count


def _produce(topic: str, number: int, batch: bytes) -> bytes:
    """Return Produce of one batch."""
    topic_data, partition_data = ProduceRequest.TopicProduceData, ProduceRequest.PartitionProduceData
    request = ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=TIMEOUT_MS,
        topic_data=[topic_data(name=topic, partition_data=[partition_data(index=number, records=batch)])],
    )
    return encode_request(request, PRODUCE, 0, frames.CLIENT_ID)


def _fetch(topic: str, number: int, size: int) -> frames.Template:
    """Return Fetch of at most that many bytes; to fill in: the offset."""
    partition = FetchRequest.FetchPartition(partition=number, fetch_offset=frames.OFFSET_MARK, partition_max_bytes=size)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=size, topics=topics)
    return frames.Template(request, FETCH)
