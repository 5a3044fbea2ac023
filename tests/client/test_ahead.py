"""A log's end that no consumer reads: markers and aborted records, with a real client and Tenure.

tests/oracle/test_stuck.py has stalls that are true.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coordinator.client.ahead import look_ahead, next_record
from coordinator.client.client import Client
from coordinator.client.examination import examine, look_at_lag, members_at_work, wall_ms
from coordinator.client.groups import describe_groups
from coordinator.story.described import Group
from coordinator.story.diagnosis import Finding
from coordinator.story.lag_time import LagTimes
from coordinator.story.offsets import Ahead
from coordinator.story.progress import Progress
from coordinator.story.progress_diagnosis import LONG_MS, Work
from coordinator.story.tracks import STUCK_MS
from protocol.records.batch import CONTROL, TRANSACTIONAL, Batch, Record, encode_batch
from schemas.errors import ErrorCode
from tests.client.scripted import HANG_UP, served
from tests.support.patience import WITHIN_S
from tests.support.requests import response
from tests.support.tenure import Tenure

LEVELS = ("read_committed", "read_uncommitted")


class Reader:
    """A static member that commits behind each record, and looks at its group. They share a clock that tests move."""

    def __init__(self, bootstrap: str, level: str) -> None:
        self.name = f"g-{uuid.uuid4().hex[:8]}"
        self.now_ms = wall_ms()
        self.progress, self.times = Progress(), LagTimes()
        self.client = Client(bootstrap, WITHIN_S)
        base: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(base)
        self.admin.create_topics([NewTopic(self.name, 1, 1)])[self.name].result(WITHIN_S)
        self.producer = Producer(base | {"transactional.id": self.name})
        self.producer.init_transactions(WITHIN_S)
        named = {"group.id": self.name, "group.instance.id": "seat", "isolation.level": level}
        self.consumer = Consumer(base | named | {"enable.auto.commit": False, "auto.offset.reset": "earliest"})
        self.consumer.subscribe([self.name])

    def send(self, count: int) -> None:
        """Write records in the open transaction."""
        for _ in range(count):
            self.producer.produce(self.name, b"x", partition=0)
        assert self.producer.flush(WITHIN_S) == 0

    def read(self, count: int) -> None:
        """Read and commit so many records; then no more come for a while."""
        until = time.monotonic() + WITHIN_S
        while count:
            assert time.monotonic() < until
            if (message := self.consumer.poll(0.1)) is not None and message.error() is None:
                count -= 1
                self.consumer.commit(message=message, asynchronous=False)
        assert self.consumer.poll(0.5) is None

    def look(self, after_ms: int = 0) -> Finding | None:
        """The stall that the doctor finds at a look so much later."""
        self.now_ms += after_ms
        _, found = examine(self.client, {self.name: []}, [], self.now_ms, progress=self.progress)
        return next((each for each in found if each.kind == "partition_stuck"), None)

    @property
    def group(self) -> Group:
        """The group as described."""
        (described,) = describe_groups(self.client, [self.name]).values()
        assert isinstance(described, Group)
        return described

    def at_work(self) -> Work:
        """What the probe says."""
        return members_at_work(self.client, self.group, self.progress, self.now_ms)["seat"]

    def lag(self) -> int:
        """The records of the group's lag in time."""
        look_at_lag(self.client, [self.group], self.progress, self.times, self.now_ms, 0)
        return self.times.of(self.name).sums[None].lag


@pytest.fixture(scope="module")
def cluster() -> Iterator[Tenure]:
    """A server."""
    with Tenure() as started:
        yield started


@contextmanager
def reading(bootstrap: str, level: str) -> Iterator[Reader]:
    """A reader, until the block ends."""
    reader = Reader(bootstrap, level)
    try:
        yield reader
    finally:
        reader.consumer.close()
        reader.client.close()


def end_transactions(bootstrap: str, level: str, count: int) -> str | None:
    """Commit a transaction, abort one of so many records, and look for as long as a stall would be named.

    Returns the kind of the finding once records wait again.
    """
    with reading(bootstrap, level) as reader:
        reader.producer.begin_transaction()
        reader.send(2)
        if level == "read_uncommitted":
            reader.read(2)  # so looks see the marker come behind the committed offset
            assert reader.look() is None
        reader.producer.commit_transaction(WITHIN_S)
        if level == "read_committed":
            reader.read(2)
            assert reader.look() is None
        reader.producer.begin_transaction()
        reader.send(count)
        if level == "read_uncommitted":
            reader.read(count)
        assert reader.look(1_000) is None
        reader.producer.abort_transaction(WITHIN_S)
        assert reader.consumer.poll(0.5) is None
        found = [reader.look(STUCK_MS // 2) for _ in range(4)]
        assert (found, reader.at_work(), reader.lag()) == ([None] * 4, Work(), 0)
        reader.producer.begin_transaction()
        reader.send(3)
        reader.producer.commit_transaction(WITHIN_S)
        assert reader.look(1_000) is None
        stuck = reader.look(STUCK_MS)
        assert "commits nothing" in reader.at_work().why
        reader.read(3)
        assert (reader.look(LONG_MS), reader.look(LONG_MS)) == (None, None)
        return None if stuck is None else stuck.kind


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [2, 30])
def test_the_end_of_a_transaction_is_no_stall(cluster: Tenure, level: str, count: int) -> None:
    """Whether it is committed or aborted, a group that read all records has read all. The next record waits again."""
    assert end_transactions(cluster.bootstrap, level, count) == "partition_stuck"


NEWEST_MS = 7


def batch(offset: int, producer_id: int = -1, attributes: int = TRANSACTIONAL, made_ms: int = NEWEST_MS) -> bytes:
    """A batch of one record."""
    record = Record(b"k", b"v", made_ms)
    return encode_batch([record] if producer_id < 0 else Batch([record], producer_id, 0, attributes), offset, 0)


MARKER = TRANSACTIONAL | CONTROL


@pytest.mark.parametrize(
    ("batches", "aborted", "found"),
    [
        ([batch(5)], [], Ahead(5, is_record=True, made_ms=NEWEST_MS)),
        ([batch(5, 1, MARKER)], [], Ahead(6)),
        ([batch(5, 1, MARKER), batch(6, 1)], [], Ahead(6, is_record=True, made_ms=NEWEST_MS)),
        ([batch(5, 1), batch(6, 2, MARKER), batch(7, 1, MARKER)], [(1, 3)], Ahead(8)),
        (
            [batch(5, 1), batch(6, 1, MARKER), batch(7, 1)],
            [(1, 3)],
            Ahead(7, is_record=True, made_ms=NEWEST_MS),
        ),  # the next transaction
        ([batch(5, 1, MARKER), batch(6, 1)], [(1, 3), (1, 6)], Ahead(7)),
        ([batch(5, 1), batch(6, 2)], [(1, 5)], Ahead(6, is_record=True, made_ms=NEWEST_MS)),
        ([batch(4), batch(5, 1, MARKER)], [], Ahead(6)),  # the server returns the batch that has the offset before
        ([batch(5, 1, MARKER), batch(6)[:60]], [], Ahead(6)),
        ([batch(5, made_ms=-1)], [], Ahead(5, is_record=True)),  # without a timestamp
        ([batch(5)[:-1]], [], Ahead(5, is_record=True, made_ms=NEWEST_MS)),
        ([b"x" * 100], [], Ahead(5, is_record=True)),
        ([], [], Ahead(5)),
    ],
)
def test_the_headers_of_batches_tell_where_the_next_record_is(
    batches: list[bytes], aborted: list[tuple[int, int]], found: Ahead
) -> None:
    """Markers and records of aborted transactions are passed, also where the answer is cut off."""
    transactions = [{"producer_id": producer, "first_offset": first} for producer, first in aborted]
    partition = {"records": b"".join(batches), "aborted_transactions": transactions}
    answer = response("Fetch", responses=[{"partitions": [partition]}])
    assert next_record(answer.responses[0].partitions[0], 5) == found


def test_what_no_answer_tells_is_left_out() -> None:
    """A user without Read learns that, and a deleted record is no marker; a leader that moved is asked another time."""
    errors = {
        "denied": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "deleted": ErrorCode.OFFSET_OUT_OF_RANGE,
        "moved": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }

    def records(request: Any) -> Any:
        """As Kafka: only the first topic partition gets a batch, if the others find no room."""
        told, has_room = [], True
        for topic in request.topics:
            (asked,) = topic.partitions
            data = b""
            if has_room and topic.topic not in errors:
                data, has_room = batch(asked.fetch_offset, 1, MARKER), False
            error = errors.get(topic.topic, ErrorCode.NONE)
            partition = {"error_code": error, "last_stable_offset": 7, "records": data}
            told.append({"topic": topic.topic, "partitions": [partition]})
        return {"responses": told}

    with served({"Fetch": [records]}) as (server, client):
        found = look_ahead(client, {(name, 0): 5 for name in (*errors, "a", "b")})
        assert found == {
            ("a", 0): Ahead(7),
            ("b", 0): Ahead(7),
            ("denied", 0): Ahead(5, is_refused=True),
            ("deleted", 0): Ahead(5, is_record=True),
        }
        assert len(server.asked("Fetch")) == 4
        client.try_once()
        server.answers("Fetch", HANG_UP)
        assert look_ahead(client, {("a", 0): 5}) == {}
