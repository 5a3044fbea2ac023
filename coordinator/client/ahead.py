"""Whether anything waits for a group between its committed offset and the end of the log, where a stall would be named.

Markers of transactions and records of aborted ones have offsets, and no reader of committed records gets them. Java's
consumer moves behind them, and commits that. librdkafka commits the offset behind the last record that it got, so its
lag stays until another record comes. One Fetch to each leader tells the difference, by the headers of batches alone.
The user needs Read on the topic.

House rule: a topic partition that nobody tells about is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import groupby, islice
from typing import TYPE_CHECKING

from coordinator.client.client import Client, Node
from coordinator.client.errors import ClientError
from coordinator.client.events import NO_SESSION
from coordinator.client.topics import CONSUMER_REPLICA, Leaders, TopicPartition
from coordinator.story.offsets import Ahead
from protocol.errors import ProtocolError
from protocol.messages import FetchRequest
from protocol.records.batch import CorruptBatch, peek_header
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import FetchResponse

BY_NAME_UNTIL = 12
"""The last version of Fetch that names topics: newer ones have ids, which nobody knows here."""

READ_COMMITTED = 1

FETCH_BYTES, PARTITION_BYTES = 256 * 1024, 16 * 1024
"""The most bytes of a Fetch, and of one topic partition in it: a marker takes less than 100."""

ROUNDS_MAX = 4
"""Fetches to a leader: long aborted transactions take several, and the next look goes on."""

ASKED_MAX = 200
"""Topic partitions of one question; the others have theirs at the next look."""


def look_ahead(
    client: Client, offsets: Mapping[TopicPartition, int], leaders: Leaders | None = None
) -> dict[TopicPartition, Ahead]:
    """Look for the next record of these topic partitions, each from an offset on. leaders: as far as known."""
    found: dict[TopicPartition, Ahead] = {}
    asked = dict(islice(offsets.items(), ASKED_MAX))
    with suppress(ClientError, ProtocolError):
        for node, led in (leaders or Leaders()).of(client, set(asked)).items():
            left = {pair: asked[pair] for pair in sorted(led)}
            for _ in range(ROUNDS_MAX):
                for pair, answer in _fetch(client, node, left).items():
                    offset = left.pop(pair)
                    if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                        found[pair] = Ahead(offset, is_refused=True)
                    elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        found[pair] = Ahead(offset, is_record=True)  # it was deleted
                    elif not answer.error_code:
                        found[pair] = ahead = next_record(answer, offset)
                        if not ahead.is_record and ahead.offset < answer.last_stable_offset:
                            left[pair] = ahead.offset  # behind the others: a server fills the first ones first
                if not left:
                    break
    return found


def _fetch(
    client: Client, node: Node, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, FetchResponse.PartitionData]:
    topics = [
        FetchRequest.FetchTopic(
            topic=topic,
            partitions=[
                FetchRequest.FetchPartition(partition=index, fetch_offset=at, partition_max_bytes=PARTITION_BYTES)
                for (_, index), at in some
            ],
        )
        for topic, some in groupby(offsets.items(), lambda each: each[0][0])
    ]
    request = FetchRequest(
        replica_id=CONSUMER_REPLICA,
        max_bytes=FETCH_BYTES,
        isolation_level=READ_COMMITTED,
        session_epoch=NO_SESSION,
        topics=topics,
    )
    response: FetchResponse = client.request(request, node, at_most=BY_NAME_UNTIL)
    return {
        (topic.topic, each.partition_index): each
        for topic in response.responses
        for each in topic.partitions
        if (topic.topic, each.partition_index) in offsets
    }


def next_record(answer: FetchResponse.PartitionData, offset: int) -> Ahead:
    """The next record at this offset or behind it, as far as the answer to a reader of committed records shows."""
    aborted = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()}
    data, position = answer.records or b"", 0
    while position < len(data):
        try:
            header = peek_header(data, position)
        except CorruptBatch:
            return Ahead(offset, is_record=not position)  # cut off, or of another format
        position += header.size
        if header.next_offset <= offset:
            continue
        begun = {each for each in aborted if each[0] == header.producer_id and each[1] <= header.base_offset}
        if header.is_control:
            aborted -= begun
        elif header.record_count and not (header.is_transactional and begun):
            made_ms = header.max_timestamp_ms if header.max_timestamp_ms >= 0 else None
            return Ahead(max(offset, header.base_offset), is_record=True, made_ms=made_ms)
        offset = header.next_offset
    return Ahead(offset)
