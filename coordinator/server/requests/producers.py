"""Requests about the producers of topic partitions: who they are, and the end of their transactions (KIP-664).

An administrator finds a hanging transaction by DescribeProducers, and ends it by WriteTxnMarkers. Such a marker goes
into its partition whatever the coordinator of the transaction thinks. In `__consumer_offsets` it settles the pending
offsets of its producer in all groups of the partition.

House rule: no state. Source: Kafka's KafkaApis, release 3.9 and 4.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.config import topic_name_problem
from coordinator.group.events import EndTransaction
from coordinator.group.transactions import marker
from coordinator.log.engine import EngineError
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from coordinator.log.topics.log import Written
from coordinator.log.topics.partition import TopicPartition as LogPartition
from coordinator.log.topics.producers import marker_error
from coordinator.security.acls import Kind, Operation
from coordinator.server.requests.records import code_of, note_engines_log, partition_of
from coordinator.server.requests.rights import may
from coordinator.server.runtime.replies import Reply
from coordinator.server.wire.call import Answers, Call, Steps, result_of
from coordinator.transaction.state import V2
from protocol.messages import DescribeProducersResponse, WriteTxnMarkersResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import DescribeProducersRequest, WriteTxnMarkersRequest


def describe_producers(call: Call, request: DescribeProducersRequest) -> Steps:
    """DescribeProducers: who wrote to topic partitions, with the start of what is open.

    A partition is described once, however often it is named.
    """
    kinds = DescribeProducersResponse
    body = kinds()
    topics: dict[tuple[str, tuple[int, ...]], DescribeProducersResponse.TopicResponse] = {}
    partitions: dict[tuple[str, int], DescribeProducersResponse.PartitionResponse] = {}
    asked: list[LogPartition] = []
    answers: list[Any] = []
    in_journals: set[int] = set()
    for topic in request.topics:
        named = topic.name, tuple(topic.partition_indexes)
        if named in topics:
            body.topics.append(topics[named])
            yield
            continue
        answered = topics[named] = kinds.TopicResponse(name=topic.name)
        body.topics.append(answered)
        known = call.services.discovery.topic(topic.name)
        problem, message = ErrorCode.NONE, None
        if topic_name_problem(topic.name) is not None:
            problem, message = ErrorCode.INVALID_TOPIC_EXCEPTION, "This is no name of a topic."
        elif not may(call, Operation.READ, Kind.TOPIC, topic.name):
            problem, message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
        elif known is None:
            problem, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic."
        for index in topic.partition_indexes:
            if (topic.name, index) in partitions:
                answered.partitions.append(partitions[topic.name, index])
                yield
                continue
            answer = kinds.PartitionResponse(partition_index=index, error_code=problem, error_message=message)
            partitions[topic.name, index] = answer
            answered.partitions.append(answer)
            if known is None or problem:
                yield
                continue
            found = partition_of(call, known, index)
            if isinstance(found, ErrorCode):
                answer.error_code = found
            else:
                asked.append(found)
                answers.append(answer)
                note_engines_log(in_journals, found)
            yield
        yield

    described = (yield from result_of(call.services.data.producers, asked, in_journals)) if asked else ()
    for answer, producers in zip(answers, described, strict=True):
        if isinstance(producers, EngineError):
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        for each, start in producers:
            answer.active_producers.append(
                kinds.ProducerState(
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    last_sequence=each.last_sequence,
                    last_timestamp=each.last_ms,
                    coordinator_epoch=each.coordinator_epoch,
                    current_txn_start_offset=start,
                )
            )
            yield
        yield
    call.answer(body)


def write_txn_markers(call: Call, request: WriteTxnMarkersRequest) -> Steps:
    """WriteTxnMarkers: each partition gets its marker, and has an error of its own."""
    kinds = WriteTxnMarkersResponse
    is_allowed = may(call, Operation.ALTER, Kind.CLUSTER, is_logged=False) or may(
        call, Operation.CLUSTER_ACTION, Kind.CLUSTER
    )
    body = kinds()
    wanted: list[tuple[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult, Any, str, int]] = []
    call.is_kept = True
    for each in request.markers:
        result = kinds.WritableTxnMarkerResult(producer_id=each.producer_id)
        body.markers.append(result)
        for topic in each.topics:
            answered = kinds.WritableTxnMarkerTopicResult(name=topic.name)
            result.topics.append(answered)
            for index in topic.partition_indexes:
                answer = kinds.WritableTxnMarkerPartitionResult(partition_index=index)
                answered.partitions.append(answer)
                wanted.append((answer, each, topic.name, index))
                yield
            yield
        yield

    outcomes = Answers(len(wanted))
    for (_, asked, name, index), reply in zip(wanted, outcomes, strict=True):
        if is_allowed:
            call.work(_mark(call, asked, name, index, reply))
        else:
            reply.deliver(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        yield
    yield outcomes
    for (answer, *_), outcome in zip(wanted, outcomes.found, strict=True):
        if isinstance(outcome, Exception):
            answer.error_code = code_of(outcome)
        elif not isinstance(outcome, Written):
            answer.error_code = outcome
        yield
    call.answer(body)


def _mark(call: Call, asked: WriteTxnMarkersRequest.WritableTxnMarker, name: str, index: int, reply: Reply) -> Steps:
    """Write a marker. reply: gets an ErrorCode, or the outcome of the log."""
    # Records of `__transaction_state` have no producers, so there is nothing to end.
    has_none = name == TRANSACTIONS_TOPIC or call.services.transactions.refusal
    partition = partition_of(call, None if has_none else call.services.discovery.topic(name), index)
    if isinstance(partition, ErrorCode):
        reply.deliver(partition)
        return
    ids = asked.producer_id, asked.producer_epoch
    is_commit, epoch = asked.transaction_result, asked.coordinator_epoch
    is_higher = asked.transaction_version >= V2
    if name != OFFSETS_TOPIC:
        batch = marker(*ids, is_commit=is_commit, coordinator_epoch=epoch, wall_ms=call.services.clock.wall_ms())
        call.services.data.append_marker(partition, batch, reply.deliver, epoch, is_higher=is_higher)
        return
    (producers,) = yield from result_of(call.services.data.producers, [partition], {index})
    if isinstance(producers, EngineError):
        reply.deliver(producers)
        return
    known = next((each for each, _ in producers if each.producer_id == asked.producer_id), None)
    error = marker_error(known, asked.producer_epoch, epoch, is_higher=is_higher)
    if error:
        reply.deliver(error)
    else:
        call.services.runtime.partitions[index].submit(None, EndTransaction(reply, *ids, is_commit, epoch, call.client))
