"""A record counts as produced or fetched only by an answer that says so: with its offset, and with its bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest

from benchmarks import frames
from benchmarks.driver import Script
from benchmarks.members import UnexpectedAnswer
from benchmarks.records import FETCH, LEADER_ATTEMPTS, PRODUCE, Partition, batch_of
from protocol.header import encode_response
from protocol.messages import API_KEYS, FetchResponse, ProduceResponse
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode

TOPIC = "some-topic"
BATCH, COUNT = batch_of(100, 1_000)


def stored(offset: int, error: ErrorCode = ErrorCode.NONE) -> bytes:
    """An answer to Produce."""
    topic = ProduceResponse.TopicProduceResponse
    partition = ProduceResponse.PartitionProduceResponse(
        index=1, error_code=error, base_offset=offset, log_start_offset=0
    )
    answer = ProduceResponse(responses=[topic(name=TOPIC, partition_responses=[partition])])
    return encode_response(API_KEYS["Produce"], PRODUCE, 0, answer)


def fetched(
    records: bytes, error: ErrorCode = ErrorCode.NONE, aborted: list[FetchResponse.AbortedTransaction] | None = None
) -> bytes:
    """An answer to Fetch."""
    topic = FetchResponse.FetchableTopicResponse
    partition = FetchResponse.PartitionData(
        partition_index=1, error_code=error, high_watermark=3, records=records, aborted_transactions=aborted
    )
    answer = FetchResponse(responses=[topic(topic=TOPIC, partitions=[partition])])
    return encode_response(API_KEYS["Fetch"], FETCH, 0, answer)


def at(offset: int, batch: bytes = BATCH) -> bytes:
    """The batch where a server has put it."""
    return offset.to_bytes(8) + batch[8:]


def answered(script: Script, *answers: bytes) -> None:
    """Run a script to its end."""
    next(script)
    with suppress(StopIteration):
        for answer in answers:
            script.send(answer)


@pytest.fixture
def partition() -> Partition:
    """Return a partition that has found its leader and stored its first batch."""
    found = Partition(TOPIC, 1, BATCH, COUNT)
    script = found.until_led()
    next(script)
    assert isinstance(script.send(stored(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)), float)
    script.send(b"")
    with suppress(StopIteration):
        script.send(stored(0))
    return found


def test_a_batch_is_as_large_as_it_may_be() -> None:
    """Whole records only, of the size that was asked for."""
    (batch,) = decode_batches(BATCH)
    assert len(BATCH) <= 1_000 + 61
    assert [len(record.value or b"") for record in batch.records] == [100] * COUNT
    assert COUNT == 8


def test_offsets_go_on(partition: Partition) -> None:
    """Produced and fetched, batch by batch, until all is read; both ways in which servers say "none aborted"."""
    answered(partition.produce(2), stored(COUNT), stored(2 * COUNT))
    assert partition.written == 3 * COUNT
    answered(partition.fetch(), fetched(at(0)), fetched(at(COUNT), aborted=[]), fetched(at(2 * COUNT)))
    assert partition.read == 3 * COUNT


@pytest.mark.parametrize("answer", [stored(0), stored(COUNT, ErrorCode.MESSAGE_TOO_LARGE)], ids=["offset", "error"])
def test_a_produce_without_success_ends_the_work(partition: Partition, answer: bytes) -> None:
    """A Produce answer with an error, or with an offset that an earlier answer had, ends the work."""
    with pytest.raises(UnexpectedAnswer, match="Produce"):
        answered(partition.produce(1), answer)


@pytest.mark.parametrize(
    "answer",
    [
        fetched(b""),
        fetched(at(COUNT)),
        fetched(at(0, BATCH[:-1] + b"x")),
        fetched(at(0), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
    ids=["nothing", "offset", "bytes", "error"],
)
def test_a_fetch_without_success_ends_the_work(partition: Partition, answer: bytes) -> None:
    """A Fetch answer with an error, without records, with other records or with another offset ends the work."""
    with pytest.raises(UnexpectedAnswer, match="Fetch"):
        answered(partition.fetch(), answer)


def test_no_leader_ends_the_work() -> None:
    """After a while; other errors at once."""
    with pytest.raises(UnexpectedAnswer, match="Produce"):
        answered(Partition(TOPIC, 1, BATCH, COUNT).until_led(), stored(-1, ErrorCode.CORRUPT_MESSAGE))
    waits = [stored(-1, ErrorCode.LEADER_NOT_AVAILABLE), b""]
    with pytest.raises(UnexpectedAnswer, match="Produce"):
        answered(Partition(TOPIC, 1, BATCH, COUNT).until_led(), *waits * LEADER_ATTEMPTS)


def test_requests_name_what_they_want() -> None:
    """The batch as it is, and one of the same size."""
    partition = Partition(TOPIC, 1, BATCH, COUNT)
    assert BATCH in next(partition.until_led())  # type: ignore[operator]
    partition.written = COUNT
    request = next(partition.fetch())
    assert isinstance(request, bytes)
    assert frames.string(TOPIC) in request
    assert request.count(len(BATCH).to_bytes(4)) == 2
