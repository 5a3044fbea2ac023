"""ListOffsets, Fetch and Produce on topics that hold nothing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from protocol.messages import FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest
from schemas.errors import ErrorCode
from tests.server.harness import Peer, serving


def list_request(*asked: tuple[str, int, int], epoch: int = -1) -> ListOffsetsRequest:
    """Offsets by (topic, partition, timestamp)."""
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
                    )
                ],
            )
            for name, partition, timestamp in asked
        ],
    )


@pytest.mark.parametrize("version", range(9))
async def test_a_topic_partition_starts_and_ends_at_0(version: int) -> None:
    """Earliest and latest are 0; no time has an offset; what isn't there is unknown."""
    async with serving() as server:
        peer = await server.peer()
        asked = [("orders", 0, -1), ("orders", 1, -2), ("orders", 2, 1_700_000_000_000), ("orders", 3, -1)]
        answer = await peer.ask(list_request(*asked, ("absent", 0, -1)), version)
        found = [topic.partitions[0] for topic in answer.topics]
        assert [each.error_code for each in found] == [ErrorCode.NONE] * 3 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        if version == 0:
            assert [each.old_style_offsets for each in found] == [[0], [0], [], [], []]
        else:
            assert [(each.timestamp, each.offset) for each in found] == [(-1, 0), (-1, 0), (-1, -1), (-1, -1), (-1, -1)]
        if version >= 4:
            assert [each.leader_epoch for each in found] == [0, 0, -1, -1, -1]


async def test_questions_that_can_not_be_answered_are_refused() -> None:
    """Twice the same partition, a question of a later version, a leader epoch that never was."""
    async with serving() as server:
        peer = await server.peer()
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
    """Whether a Fetch is answered only after its wait, to the millisecond; its answer is for `receive`."""
    await peer.send(request, version)
    await server.barrier()
    if not peer.is_silent():
        return False
    await server.advance(request.max_wait_ms - 1)
    assert peer.is_silent()
    await server.advance(1)
    assert not peer.is_silent()
    return True


@pytest.mark.parametrize("version", range(4, 17))
async def test_a_fetch_waits_and_then_finds_nothing(version: int) -> None:
    """Zero bytes, not null, and offsets 0, in every version, when the client's wait is over."""
    async with serving() as server:
        peer = await server.peer()
        everything = await peer.ask(MetadataRequest(topics=None), 12)
        topic_id = everything.topics[1].topic_id if version >= 13 else None
        request = fetch_request(("orders", 0, 0), topic_id=topic_id)
        assert await is_held(server, peer, request, version)
        answer = await peer.receive()
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)
        (topic,) = answer.responses
        assert (topic.topic_id == topic_id) if version >= 13 else (topic.topic == "orders")
        (partition,) = topic.partitions
        assert partition.error_code == ErrorCode.NONE
        assert partition.records == b""
        assert (partition.high_watermark, partition.last_stable_offset) == (0, 0)
        assert partition.aborted_transactions is None


@pytest.mark.parametrize(
    "request_, error",
    [
        (fetch_request(("orders", 0, 7)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_request(("orders", 0, -1)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_request(("orders", 3, 0)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_request(("absent", 0, 0)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_request(("orders", 0, 0), epoch=1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (fetch_request(("orders", 0, 0), max_wait_ms=0), ErrorCode.NONE),
        (fetch_request(("orders", 0, 0), min_bytes=0), ErrorCode.NONE),
    ],
)
async def test_a_fetch_with_nothing_to_wait_for_is_answered_at_once(request_: FetchRequest, error: ErrorCode) -> None:
    """An error is told at once, and so is nothing to somebody who does not want to wait."""
    async with serving() as server:
        peer = await server.peer()
        assert not await is_held(server, peer, request_, 11)
        (partition,) = (await peer.receive()).responses[0].partitions
        assert partition.error_code == error
        assert partition.records == b""
        assert partition.high_watermark == (-1 if error else 0)


async def test_an_unknown_topic_beside_a_known_one_does_not_end_the_wait() -> None:
    """Only what was read with an error does, as in Kafka; nothing at all is answered at once."""
    async with serving() as server:
        peer = await server.peer()
        assert await is_held(server, peer, fetch_request(("orders", 0, 0), ("absent", 0, 0)), 11)
        assert [topic.partitions[0].error_code for topic in (await peer.receive()).responses] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert not await is_held(server, peer, fetch_request(("orders", 0, 0), ("orders", 1, 5)), 11)
        await peer.receive()
        assert not await is_held(server, peer, fetch_request(), 11)
        assert (await peer.receive()).responses == []


async def test_an_unknown_topic_id_is_told() -> None:
    """UNKNOWN_TOPIC_ID from v13 on, where topics have no names."""
    async with serving() as server:
        peer = await server.peer()
        assert not await is_held(server, peer, fetch_request(("", 0, 0), topic_id=UUID(int=99)), 13)
        assert (await peer.receive()).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_there_are_no_fetch_sessions() -> None:
    """A full fetch gets session id 0, whatever it had in mind; going on with one is FETCH_SESSION_ID_NOT_FOUND."""
    async with serving() as server:
        peer = await server.peer()
        answer = await peer.ask(fetch_request(("orders", 0, 0), max_wait_ms=0, session_epoch=0), 11)
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)
        answer = await peer.ask(fetch_request(session_id=5, session_epoch=1), 11)
        assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert answer.responses == []


async def test_who_reads_committed_gets_a_list_of_aborted_transactions() -> None:
    """Empty, not null."""
    async with serving() as server:
        peer = await server.peer()
        answer = await peer.ask(fetch_request(("orders", 0, 0), max_wait_ms=0, isolation_level=1), 11)
        assert answer.responses[0].partitions[0].aborted_transactions == []


async def test_requests_behind_a_fetch_wait_with_it() -> None:
    """As in Kafka, a connection's Fetch holds up what comes behind it."""
    async with serving() as server:
        peer = await server.peer()
        await peer.send(fetch_request(("orders", 0, 0)), 11)
        await peer.send(MetadataRequest(topics=None), 1)
        await server.barrier()
        assert peer.is_silent()
        await server.advance(500)
        assert (await peer.receive()).responses
        assert (await peer.receive()).topics


# Produce.


def produce_request(acks: int) -> ProduceRequest:
    """A record batch that is none."""
    partition = ProduceRequest.PartitionProduceData(index=0, records=b"")
    return ProduceRequest(
        acks=acks, topic_data=[ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])]
    )


async def test_nothing_can_be_produced() -> None:
    """Refused with a reason; who wants no answer is told by the end of the connection."""
    async with serving() as server:
        peer, silent = await server.peer(), await server.peer()
        (topic,) = (await peer.ask(produce_request(acks=-1), 9)).responses
        (partition,) = topic.partition_responses
        assert partition.error_code == ErrorCode.POLICY_VIOLATION
        assert "no records" in partition.error_message
        await silent.send(produce_request(acks=0), 9)
        assert await silent.is_closed()
