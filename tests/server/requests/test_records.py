"""Requests about the records of topics: first with empty logs, then with records that a test produced."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from coordinator.config import INT64_MAX
from coordinator.server.nodes.topic_data import ANSWERS_SIZE_MAX, Budget
from coordinator.server.wire.call import Call, Steps
from protocol.header import encode_request
from protocol.messages import DeleteTopicsRequest, FetchRequest, Message, MetadataRequest
from protocol.records.batch import HEADER_SIZE
from protocol.records.codecs import Codec
from protocol.records.walk import decode_batches
from schemas.errors import ErrorCode
from tests.server.harness import Peer, Serving, connected, serving
from tests.support.batches import batch, compressed
from tests.support.memory import ManualLog
from tests.support.patience import WITHIN_S
from tests.support.requests import request, topics_request


def list_request(*asked: tuple[str, int, int], epoch: int = -1) -> Message:
    """Offsets by (topic, partition, timestamp)."""
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "timestamp": at, "current_leader_epoch": epoch}]}
        for name, index, at in asked
    ]
    return request("ListOffsets", replica_id=-1, topics=topics)


async def test_questions_that_can_not_be_answered_are_refused(peer: Peer) -> None:
    """The same partition twice, a timestamp of a later version, a leader epoch that doesn't exist."""
    answer = await peer.ask(list_request(("orders", 0, -1), ("orders", 0, -2)), 5)
    assert {topic.partitions[0].error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}
    answer = await peer.ask(list_request(("orders", 0, -3), ("orders", 1, -99)), 5)
    assert {topic.partitions[0].error_code for topic in answer.topics} == {ErrorCode.UNSUPPORTED_VERSION}
    answer = await peer.ask(list_request(("orders", 0, -1), epoch=5), 5)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# Fetch.


def fetch_request(
    *asked: tuple[str, int, int], topic_id: UUID | None = None, epoch: int = -1, **fields: Any
) -> FetchRequest:
    """Fetch by (topic, partition, offset)."""
    topics = []
    for name, partition, offset in asked:
        wanted = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1_000
        )
        topic = FetchRequest.FetchTopic(partitions=[wanted])
        if topic_id is None:
            topic.topic = name
        else:
            topic.topic_id = topic_id
        topics.append(topic)
    return FetchRequest(**{"max_wait_ms": 500, "min_bytes": 1, "topics": topics, **fields})


async def is_held(server: Any, peer: Peer, request: FetchRequest, version: int) -> bool:
    """Whether the answer to a Fetch comes only after its wait, to the millisecond; `receive` takes the answer."""
    await peer.send(request, version)
    await server.barrier()
    if not peer.is_silent():
        return False
    await server.advance(request.max_wait_ms - 1)
    assert peer.is_silent()
    await server.advance(1)
    assert not peer.is_silent()
    return True


async def test_an_unknown_topic_beside_a_known_one_does_not_end_the_wait(peer: Peer, server: Serving) -> None:
    """Only an error of a known one does, as in Kafka. A Fetch with unknown topics alone is answered at once."""
    assert await is_held(server, peer, fetch_request(("orders", 0, 0), ("absent", 0, 0)), 11)
    assert [topic.partitions[0].error_code for topic in (await peer.receive()).responses] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert not await is_held(server, peer, fetch_request(("orders", 0, 0), ("orders", 1, 5)), 11)
    await peer.receive()
    assert not await is_held(server, peer, fetch_request(), 11)
    assert (await peer.receive()).responses == []


async def test_there_are_no_fetch_sessions(peer: Peer) -> None:
    """A full fetch gets session id 0, even if it asks for a session; a later request is FETCH_SESSION_ID_NOT_FOUND."""
    answer = await peer.ask(fetch_request(("orders", 0, 0), max_wait_ms=0, session_epoch=0), 11)
    assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)
    answer = await peer.ask(fetch_request(session_id=5, session_epoch=1), 11)
    assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert answer.responses == []


async def test_who_reads_committed_gets_a_list_of_aborted_transactions(peer: Peer) -> None:
    """The list is empty, not null."""
    answer = await peer.ask(fetch_request(("orders", 0, 0), max_wait_ms=0, isolation_level=1), 11)
    assert answer.responses[0].partitions[0].aborted_transactions == []


# Records.


def produce_request(
    *parts: tuple[str, int, bytes | None], acks: int = -1, transactional_id: str | None = None
) -> Message:
    """Batches by (topic, partition)."""
    topics = [{"name": name, "partition_data": [{"index": index, "records": data}]} for name, index, data in parts]
    return request("Produce", transactional_id=transactional_id, acks=acks, timeout_ms=1_000, topic_data=topics)


async def produce(peer: Peer, *parts: tuple[str, int, bytes | None], version: int = 9, **fields: Any) -> list[Any]:
    """The answer for each partition."""
    answer = await peer.ask(produce_request(*parts, **fields), version)
    return [partition for topic in answer.responses for partition in topic.partition_responses]


def read(answer: Any) -> list[list[bytes | None]]:
    """The values of what was fetched, for each partition."""
    return [
        [record.value for batch in decode_batches(partition.records) for record in batch.records]
        for topic in answer.responses
        for partition in topic.partitions
    ]


ONE, TWO = batch([(b"k", b"one", 1_000)]), batch([(b"k", b"two", 2_000), (b"k", b"three", 3_000)])


async def test_a_fetch_waits_for_records(server: Serving) -> None:
    """For one byte by default; for min_bytes, or until its time is over."""
    peer, patient, producer = await server.peer(), await server.peer(), await server.peer()
    await peer.send(fetch_request(("orders", 0, 0), ("orders", 1, 0)), 11)
    await patient.send(fetch_request(("orders", 1, 0), min_bytes=len(ONE) + 1), 11)
    await server.barrier()
    await produce(producer, ("orders", 1, ONE))
    assert read(await peer.receive()) == [[], [b"one"]]
    await server.barrier()
    assert patient.is_silent()
    await produce(producer, ("orders", 1, TWO))
    assert read(await patient.receive()) == [[b"one", b"two", b"three"]]
    await patient.send(fetch_request(("orders", 1, 3), min_bytes=len(ONE) + 1), 11)
    await server.barrier()
    await produce(producer, ("orders", 1, ONE))
    await server.barrier()
    assert patient.is_silent()
    await server.advance(500)
    assert read(await patient.receive()) == [[b"one"]]


def held(server: Serving) -> threading.Event:
    """Holds the logs' thread, after all its present work, until this is set."""
    let_go = threading.Event()
    assert server.server.data is not None
    server.server.data.read(lambda _: let_go.wait(WITHIN_S), (), lambda _: None)
    return let_go


async def test_who_leaves_while_it_is_looked_at_does_not_wait(server: Serving) -> None:
    """A client goes while the thread reads for its Fetch: the Fetch doesn't begin a wait that nothing would end."""
    peer, data = await server.peer(), server.server.data
    assert data is not None
    let_go = held(server)
    await peer.send(fetch_request(("orders", 0, 0), max_wait_ms=2**31 - 1), 11)
    (connection,) = server.connections()
    await until(lambda: connection.waits)
    peer.close()
    await until(lambda: not server.connections())
    let_go.set()
    await server.barrier()
    assert not data._waiting
    assert data.budget.left == ANSWERS_SIZE_MAX


async def test_a_topic_that_is_deleted_while_it_is_looked_at_is_told(server: Serving) -> None:
    """The Fetch gets its error at once, as it does if the topic is deleted while it waits."""
    peer, other, data = await server.peer(), await server.peer(), server.server.data
    assert data is not None
    let_go = held(server)
    await peer.send(fetch_request(("orders", 0, 0), max_wait_ms=2**31 - 1), 11)
    await until(lambda: any(connection.waits for connection in server.connections()))
    await other.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1), 3)
    let_go.set()
    (partition,) = (await peer.receive()).responses[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not data._ends


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds, while the logs' thread is held."""
    for _ in range(100_000):
        if condition():
            return
        turned = asyncio.Event()
        asyncio.get_running_loop().call_soon(turned.set)
        await turned.wait()
    raise AssertionError


async def test_answers_that_nobody_takes_are_limited_in_sum() -> None:
    """Bytes count until the client reads the answer or goes; beyond the limit, other answers have one batch each."""
    large = batch([(None, b"x" * 800_000, 1)])
    async with serving() as server:
        lazy, peer, data = await server.peer(), await server.peer(), server.server.data
        assert data is not None
        for _ in range(10):
            await produce(peer, ("orders", 0, large))
        data.budget = Budget(9 * len(large))
        wanted = fetch_request(("orders", 0, 0), max_bytes=10**9)
        wanted.topics[0].partitions[0].partition_max_bytes = 10**9
        await lazy.send(wanted, 11)
        await server.until(lambda: data.budget.left <= 0)
        for _ in range(3):
            (partition,) = (await peer.ask(wanted, 11)).responses[0].partitions
            assert len(partition.records) == len(large)
            await server.until(lambda: data.budget.left == 0)
        lazy.close()
        await server.until(lambda: data.budget.left == 9 * len(large))
        (partition,) = (await peer.ask(wanted, 11)).responses[0].partitions
        assert len(partition.records) == 9 * len(large)
        await server.until(lambda: data.budget.left == 9 * len(large))


async def test_a_batch_that_is_too_large_is_refused_before_it_is_queued(peer: Peer, server: Serving) -> None:
    """It takes no memory in the queue."""
    let_go = held(server)
    (answer,) = await produce(peer, ("orders", 0, batch([(None, b"x" * 2_000_000, 1)])))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    let_go.set()


async def test_only_what_is_behind_the_offset_counts(server: Serving) -> None:
    """Batches before the offset are not among the bytes that a Fetch waits for, even in the same part of the index."""
    peer, producer = await server.peer(), await server.peer()
    for _ in range(10):
        await produce(producer, ("orders", 0, ONE))
    assert await is_held(server, peer, fetch_request(("orders", 0, 9), min_bytes=len(ONE) + 1), 11)
    assert read(await peer.receive()) == [[b"one"]]
    assert not await is_held(server, peer, fetch_request(("orders", 0, 8), min_bytes=len(ONE) + 1), 11)
    await peer.receive()


async def test_who_waits_and_leaves_is_forgotten(server: Serving) -> None:
    """A Fetch whose client has gone does nothing when records come."""
    peer, producer = await server.peer(), await server.peer()
    await peer.send(fetch_request(("orders", 0, 0)), 11)
    await server.barrier()
    peer.close()
    await server.until(lambda: len(server.connections()) == 1)
    (answer,) = await produce(producer, ("orders", 0, ONE))
    assert answer.error_code == ErrorCode.NONE
    await server.advance(500)
    assert server.events("connection_failed") == []


@pytest.mark.parametrize(
    ("part", "version", "error"),
    [
        (("absent", 0, ONE), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 3, ONE), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("__consumer_offsets", 0, ONE), 9, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("orders", 0, None), 9, ErrorCode.INVALID_RECORD),
        (("orders", 0, b""), 9, ErrorCode.INVALID_RECORD),
        (("orders", 0, b"short"), 9, ErrorCode.INVALID_RECORD),
        (("orders", 0, ONE[:-1]), 9, ErrorCode.INVALID_RECORD),
        (("orders", 0, ONE + TWO), 9, ErrorCode.INVALID_RECORD),
        (("orders", 0, batch([(b"k", b"v", 1)], magic=1)), 9, ErrorCode.INVALID_RECORD),
        (("orders", 0, ONE[:-1] + b"x"), 9, ErrorCode.CORRUPT_MESSAGE),
        (("orders", 0, ONE[:8] + b"\0\0\0\x07" + ONE[12:]), 9, ErrorCode.CORRUPT_MESSAGE),
        (("orders", 0, batch([(b"k", b"v", 1)], attributes=4)), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (("orders", 0, ONE), 2, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (("orders", 0, batch([(b"k", b"x" * 2_000_000, 1)])), 9, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
async def test_a_batch_that_is_refused(
    peer: Peer, part: tuple[str, int, bytes | None], version: int, error: ErrorCode
) -> None:
    """It gets Kafka's code, and other batches are appended. If the client wants no answer, its connection is closed."""
    refused, taken = await produce(peer, part, ("orders", 1, ONE), version=version if version < 3 else 9)
    if version >= 3:
        (refused,) = await produce(peer, part, version=version)
    assert (refused.error_code, refused.base_offset) == (error, -1)
    assert taken.error_code == (0 if version >= 3 else error)
    await peer.send(produce_request(part, acks=0), version)
    assert await peer.is_closed()


async def compacted(peer: Peer, name: str) -> None:
    """Create a compacted topic with three partitions."""
    answer = await peer.ask(topics_request({name: 3}, {"cleanup.policy": "compact"}), 5)
    assert answer.topics[0].error_code == 0


@pytest.mark.parametrize("version", range(3, 12))
async def test_records_without_keys_are_named(peer: Peer, version: int) -> None:
    """From v8 on the answer names them; the whole batch is refused, and the batches beside it are not (KIP-467)."""
    await compacted(peer, "keyed")
    mixed = batch([(b"k", b"1", 1), (None, b"2", 2), (b"k", b"3", 3), (None, b"4", 4)])
    refused, taken = await produce(peer, ("keyed", 0, mixed), ("keyed", 1, ONE), version=version)
    assert (taken.error_code, taken.base_offset, taken.record_errors) == (0, 0, [])
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    if version < 8:
        assert (refused.record_errors, refused.error_message) == ([], None)
        return
    assert refused.log_start_offset == 0
    assert [each.batch_index for each in refused.record_errors] == [1, 3]
    (text,) = {each.batch_index_error_message for each in refused.record_errors}
    assert text.endswith("without key in topic partition keyed-0")
    assert refused.error_message == f"One or more of the batch's records are refused: {text}."


async def test_records_are_named_in_their_order(peer: Peer) -> None:
    """Also if there are two reasons."""
    await compacted(peer, "keyed")
    mixed = batch([(b"k", b"1", -1), (None, b"2", -1), (b"k", b"3", -1)], attributes=0x08)
    (refused,) = await produce(peer, ("keyed", 0, mixed))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    named = [(each.batch_index, "without key" in each.batch_index_error_message) for each in refused.record_errors]
    assert named == [(0, False), (1, True), (2, False)]


async def test_an_answer_names_a_limited_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones, of all its batches together; a small answer about many records is made in steps."""
    worked: list[int] = []
    work = Call.work

    def counted(call: Call, steps: Steps) -> None:
        worked.append(call.api_key)
        work(call, steps)

    monkeypatch.setattr(Call, "work", counted)
    monkeypatch.setattr("coordinator.server.requests.produce.NAMED_MAX", 200)
    monkeypatch.setattr("coordinator.server.requests.produce.PLAIN_MAX", 150)
    keyless = batch([(None, b"", 1)])[HEADER_SIZE:]
    async with connected() as (_, peer):
        await compacted(peer, "keyed")
        for count, named, is_in_steps in ((50, [50, 50, 50], False), (80, [80, 80, 40], True)):
            worked.clear()
            data = compressed(Codec.GZIP, gzip.compress(count * keyless), count)  # decoded without steps
            answers = await produce(peer, *(("keyed", index, data) for index in (0, 1, 2)))
            assert [len(each.record_errors) for each in answers] == named
            assert {each.error_code for each in answers} == {ErrorCode.INVALID_RECORD}
            assert (worked != []) is is_in_steps


async def test_who_wants_no_answer_gets_none(peer: Peer) -> None:
    """The record is appended, and the connection goes on."""
    frame = encode_request(produce_request(("orders", 0, ONE), acks=0), 9, 1, "test")
    await peer.send_bytes(frame)
    assert read(await peer.ask(fetch_request(("orders", 0, 0)), 11)) == [[b"one"]]


async def test_in_a_cluster_every_epoch_ends_behind_all_offsets() -> None:
    """A position that a broker's group had is never taken for cut off; no record is there that could say so."""
    async with connected(shared=ManualLog([1] * 4)) as (_, peer):
        asked = [{"partition": index, "leader_epoch": epoch} for index, epoch in ((0, 0), (0, 5), (7, 0))]
        topics = [{"topic": "orders", "partitions": asked}]
        found = (await peer.ask(request("OffsetForLeaderEpoch", topics=topics), 4)).topics[0].partitions
        assert [(each.error_code, each.leader_epoch, each.end_offset) for each in found] == [
            (ErrorCode.NONE, 0, INT64_MAX),
            (ErrorCode.NONE, 5, INT64_MAX),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
        ]


def delete_request(*asked: tuple[str, int, int]) -> Message:
    """By (topic, partition, offset)."""
    topics = [{"name": name, "partitions": [{"partition_index": at, "offset": offset}]} for name, at, offset in asked]
    return request("DeleteRecords", topics=topics, timeout_ms=1_000)


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted(peer: Peer, version: int) -> None:
    """The log starts at the given offset, even in the middle of a batch; an offset outside the log is refused."""
    await produce(peer, ("orders", 0, TWO))
    asked = [("orders", 0, 1), ("orders", 1, 1), ("orders", 3, 0), ("absent", 0, 0), ("__consumer_offsets", 0, 0)]
    answer = await peer.ask(delete_request(*asked), version)
    found = [(topic.name, each.error_code, each.low_watermark) for topic in answer.topics for each in topic.partitions]
    assert found == [
        ("orders", 0, 1),
        ("orders", ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
    ]
    answer = await peer.ask(delete_request(("orders", 0, 1), ("orders", 0, 3)), version)
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.OFFSET_OUT_OF_RANGE]
    fetched = await peer.ask(fetch_request(("orders", 0, 0), ("orders", 0, 1), max_wait_ms=0), 11)
    first, second = (each.partitions[0] for each in fetched.responses)
    assert first.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (second.error_code, second.log_start_offset, second.high_watermark) == (0, 1, 2)
    answer = await peer.ask(delete_request(("orders", 0, -1)), version)
    assert answer.topics[0].partitions[0].low_watermark == 2


async def test_many_logs_whose_records_are_deleted_leave_time_for_others() -> None:
    """Each takes a sync of the disk; a Produce that comes meanwhile doesn't wait for all of them."""
    async with serving("tenure.topics=many:30") as server:
        deleting, producing = await server.peer(), await server.peer()
        for partition in range(30):
            await produce(producing, ("many", partition, ONE))
        let_go = held(server)
        await deleting.send(delete_request(*(("many", partition, -1) for partition in range(30))), 1)
        await until(lambda: sum(each.waits for each in server.connections()) == 1)
        (first,) = (each for each in server.connections() if each.waits)
        await producing.send(produce_request(("many", 0, ONE)), 7)
        await until(lambda: sum(each.waits for each in server.connections()) == 2)
        (second,) = (each for each in server.connections() if each.waits and each is not first)
        let_go.set()
        await server.until(lambda: not second.waits)
        assert first.waits
        answer = await deleting.receive()
        assert [each.low_watermark for each in answer.topics[0].partitions] == [1] * 30


@pytest.mark.parametrize("version", [11, 13])
async def test_who_waits_for_records_of_a_topic_that_is_deleted(server: Serving, version: int) -> None:
    """A waiting Fetch gets its error at once; a new topic of the same name starts empty."""
    peer, admin = await server.peer(), await server.peer()
    await produce(admin, ("orders", 0, ONE))
    everything = await admin.ask(MetadataRequest(topics=None), 12)
    topic_id = everything.topics[1].topic_id if version >= 13 else None
    await peer.send(fetch_request(("orders", 0, 1), topic_id=topic_id), version)
    await server.barrier()
    answer = await admin.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1_000), 3)
    assert answer.responses[0].error_code == ErrorCode.NONE
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await peer.receive()).responses[0].partitions[0].error_code == gone
    (refused,) = await produce(peer, ("orders", 0, ONE))
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = [MetadataRequest.MetadataRequestTopic(name="orders")]
    await peer.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 4)
    (answer,) = await produce(peer, ("orders", 0, TWO))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert read(await peer.ask(fetch_request(("orders", 0, 0)), 11)) == [[b"two", b"three"]]


async def test_who_waits_at_the_end_again_and_again_costs_no_work_on_the_disk(server: Serving) -> None:
    """The loop remembers where the log ends; an append or a deletion makes it ask again."""
    peer, producer = await server.peer(), await server.peer()
    await produce(producer, ("orders", 0, ONE))
    data = server.server.data
    assert data is not None
    asked: list[object] = []
    read_before = data.read

    def counted(function: Any, in_journals: Any, done: Any) -> None:
        asked.append(function)
        read_before(function, in_journals, done)

    data.read = counted  # type: ignore[method-assign]
    request = fetch_request(("orders", 0, 1))
    for reads in (1, 1, 1):
        assert await is_held(server, peer, request, 11)
        (partition,) = (await peer.receive()).responses[0].partitions
        assert (partition.high_watermark, partition.log_start_offset, partition.records) == (1, 0, b"")
        assert len(asked) == reads
    await peer.send(request, 11)
    await server.barrier()
    await produce(producer, ("orders", 0, TWO))
    assert read(await peer.receive()) == [[b"two", b"three"]]
    assert not await is_held(server, peer, request, 11)
    assert read(await peer.receive()) == [[b"two", b"three"]]
    await producer.ask(delete_request(("orders", 0, 2)), 2)
    assert await is_held(server, peer, fetch_request(("orders", 0, 3)), 11)
    assert (await peer.receive()).responses[0].partitions[0].log_start_offset == 2
