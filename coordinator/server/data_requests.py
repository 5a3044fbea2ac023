"""Requests about the data of topics, which hold none: ListOffsets, Fetch and Produce.

Every topic partition exists, is led by this node in epoch 0, starts and ends at offset 0. So an ordinary consumer finds
its positions and idles on Fetch as it would on any quiet topic.

Fetch sessions (KIP-227) are not offered: a full fetch is answered with session id 0, as Kafka does when its cache is
full, and clients go on with full fetches.

Produce is refused with a text that says why. It is spoken at all because librdkafka doesn't fetch from a server that
doesn't list it.

House rule: no state. Source: Kafka's KafkaApis, ReplicaManager and FetchSession, release 3.9.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coordinator.server.discovery import LEADER_EPOCH
from protocol.errors import ProtocolError
from protocol.messages import FetchResponse, ListOffsetsResponse, ProduceResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.log.topics import Topic
    from coordinator.server.call import Call, Services
    from protocol.messages import FetchRequest, ListOffsetsRequest, ProduceRequest

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
"""What a negative timestamp asks for."""

ASKED_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The first version that knows a question; the others were always there."""

NO_OFFSET = -1
END_OFFSET = 0

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
"""Session epochs of a full fetch: one that would open a session, and one that wants none."""

READ_COMMITTED = 1


def _leader_error(current_leader_epoch: int) -> ErrorCode:
    """Whether the client's idea of the leader is right (KIP-320)."""
    return ErrorCode.UNKNOWN_LEADER_EPOCH if current_leader_epoch > LEADER_EPOCH else ErrorCode.NONE


# ListOffsets.


def list_offsets(services: Services, call: Call, request: ListOffsetsRequest) -> None:
    """ListOffsets: 0 for the ends of the log, none for any time."""
    counts = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            answer = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            if counts[topic.name, asked.partition_index] > 1 and call.api_version > 0:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif not services.discovery.has_partition(topic.name, asked.partition_index):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif asked.timestamp < LATEST_TIERED or call.api_version < ASKED_SINCE.get(asked.timestamp, 0):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                answer.error_code = _leader_error(asked.current_leader_epoch)
                if not answer.error_code and asked.timestamp in {LATEST, EARLIEST, EARLIEST_LOCAL}:
                    if call.api_version == 0:
                        answer.old_style_offsets = [END_OFFSET]
                    else:
                        answer.offset = END_OFFSET
                        answer.leader_epoch = LEADER_EPOCH if call.api_version >= 4 else -1
            partitions.append(answer)
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    call.answer(ListOffsetsResponse(topics=topics))


# Produce.

PRODUCE_REFUSED = "This server coordinates groups and keeps no records: produce to a Kafka broker."


def produce(services: Services, call: Call, request: ProduceRequest) -> None:  # noqa: ARG001 - as all handlers
    """Produce: POLICY_VIOLATION for every partition. Who wants no answer loses the connection, as in Kafka."""
    if request.acks == 0:
        raise ProtocolError(PRODUCE_REFUSED)
    call.answer(
        ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        ProduceResponse.PartitionProduceResponse(
                            index=partition.index,
                            error_code=ErrorCode.POLICY_VIOLATION,
                            base_offset=NO_OFFSET,
                            error_message=PRODUCE_REFUSED,
                        )
                        for partition in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
    )


# Fetch.


def fetch(services: Services, call: Call, request: FetchRequest) -> None:
    """Fetch: nothing, when the client's wait is over."""
    if request.session_epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
        call.answer(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session_id=NO_SESSION, responses=[]))
        return
    readable, refused = 0, 0
    responses = []
    for topic in request.topics:
        by_id = call.api_version >= 13
        known = services.discovery.topic_by_id(topic.topic_id) if by_id else services.discovery.topic(topic.topic)
        absent = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = []
        for asked in topic.partitions:
            error = absent if known is None else _fetch_error(known, asked)
            if error is ErrorCode.NONE:
                readable += 1
            elif error not in {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                refused += 1
            partitions.append(_fetched(asked.partition, error, request.isolation_level))
        response = FetchResponse.FetchableTopicResponse(partitions=partitions)
        if by_id:
            response.topic_id = topic.topic_id
        else:
            response.topic = topic.topic
        responses.append(response)
    body = FetchResponse(session_id=NO_SESSION, responses=responses)
    # Kafka waits only where it read something, all of it without an error.
    if readable == 0 or refused or request.max_wait_ms <= 0 or request.min_bytes <= 0:
        call.answer(body)
        return

    def answer() -> None:
        call.answer(body)

    def forget() -> None:
        services.waits.cancel(call)

    call.on_wait, call.on_closed = answer, forget
    services.waits.arm(call, services.clock.ms() + request.max_wait_ms)


def _fetch_error(topic: Topic, asked: FetchRequest.FetchPartition) -> ErrorCode:
    if not 0 <= asked.partition < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if asked.fetch_offset != END_OFFSET:
        return _leader_error(asked.current_leader_epoch) or ErrorCode.OFFSET_OUT_OF_RANGE
    return _leader_error(asked.current_leader_epoch)


def _fetched(partition: int, error: ErrorCode, isolation_level: int) -> FetchResponse.PartitionData:
    """Zero bytes of records, because some clients don't take null."""
    offset = END_OFFSET if error is ErrorCode.NONE else NO_OFFSET
    # Kafka has an empty list, and no null, where it did not get as far as reading.
    unread = error in {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return FetchResponse.PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=offset,
        last_stable_offset=offset,
        log_start_offset=offset,
        aborted_transactions=[] if isolation_level == READ_COMMITTED or unread else None,
        records=b"",
    )
