"""Requests about the producers of topic partitions: who they are, and the end of their transactions (KIP-664).

An administrator finds a hanging transaction by DescribeProducers, and ends it by WriteTxnMarkers. Such a marker goes
into its partition whatever the coordinator of the transaction thinks. In `__consumer_offsets` it settles the pending
offsets of its producer in all groups of the partition.

House rule: no state. Source: Kafka's KafkaApis, release 3.9 and 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from coordinator.config import topic_name_problem
from coordinator.group.events import EndTransaction
from coordinator.group.transactions import marker
from coordinator.log.engine import EngineError
from coordinator.log.segments.segment import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from coordinator.log.segments.view import Rejected
from coordinator.log.topics.log import Written
from coordinator.log.topics.partition import TopicPartition as LogPartition
from coordinator.log.topics.producers import marker_error
from coordinator.security.acls import Kind, Operation
from coordinator.server.requests.records import note_engines_log
from coordinator.server.requests.rights import may
from coordinator.server.wire.call import Call, Services, Steps, gather
from coordinator.transaction.state import V2
from protocol.messages import DescribeProducersResponse, WriteTxnMarkersResponse
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import DescribeProducersRequest, WriteTxnMarkersRequest


def describe_producers(services: Services, call: Call, request: DescribeProducersRequest) -> Steps:
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
        known = services.discovery.topic(topic.name)
        problem, message = ErrorCode.NONE, None
        if topic_name_problem(topic.name) is not None:
            problem, message = ErrorCode.INVALID_TOPIC_EXCEPTION, "This is no name of a topic."
        elif not may(services, call, Operation.READ, Kind.TOPIC, topic.name):
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
            if not 0 <= index < known.partition_count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not services.data.leads(known, index):
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                asked.append(services.data.topic_partition(known, index))
                answers.append(answer)
                note_engines_log(in_journals, asked[-1])
            yield
        yield

    def fill(found: list[Any] | Exception) -> Steps:
        if isinstance(found, Exception):
            raise found
        for answer, producers in zip(answers, found, strict=True):
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

    if asked:
        services.data.producers(asked, in_journals, call.reply(call.receiver(fill)).deliver)
    else:
        call.answer(body)


def write_txn_markers(services: Services, call: Call, request: WriteTxnMarkersRequest) -> Steps:
    """WriteTxnMarkers: each partition gets its marker, and has an error of its own."""
    kinds = WriteTxnMarkersResponse
    is_allowed = may(services, call, Operation.ALTER, Kind.CLUSTER, is_logged=False) or may(
        services, call, Operation.CLUSTER_ACTION, Kind.CLUSTER
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

    def done(_: list[Any]) -> None:
        call.answer(body)

    for (answer, asked, name, index), receive in zip(wanted, gather(len(wanted), done), strict=True):
        written = partial(_written, answer, receive)
        if is_allowed:
            _write(services, call, asked, name, index, written)
        else:
            written(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        yield


def _written(
    answer: WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult, receive: Callable[[Any], None], outcome: Any
) -> None:
    """A marker has an outcome: an ErrorCode, or that of the log."""
    if isinstance(outcome, Written):
        outcome = ErrorCode.NONE
    elif isinstance(outcome, Rejected):
        outcome = outcome.error
    elif isinstance(outcome, EngineError | OSError):
        outcome = ErrorCode.KAFKA_STORAGE_ERROR
    elif isinstance(outcome, Exception):
        raise outcome
    answer.error_code = outcome
    receive(outcome)


def _write(
    services: Services,
    call: Call,
    asked: WriteTxnMarkersRequest.WritableTxnMarker,
    name: str,
    index: int,
    written: Callable[[Any], None],
) -> None:
    topic = services.discovery.topic(name)
    # Records of `__transaction_state` have no producers, so there is nothing to end.
    has_none = name == TRANSACTIONS_TOPIC or services.transactions.refusal
    if has_none or topic is None or not 0 <= index < topic.partition_count:
        written(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    if not services.data.leads(topic, index):
        written(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return
    ids = asked.producer_id, asked.producer_epoch
    is_commit, epoch = asked.transaction_result, asked.coordinator_epoch
    is_higher = asked.transaction_version >= V2
    partition = services.data.topic_partition(topic, index)
    if name == OFFSETS_TOPIC:

        def settle(found: list[Any] | Exception) -> None:
            if isinstance(found, Exception):
                raise found
            (producers,) = found
            if isinstance(producers, EngineError):
                written(producers)
                return
            known = next((each for each, _ in producers if each.producer_id == asked.producer_id), None)
            error = marker_error(known, asked.producer_epoch, epoch, is_higher=is_higher)
            if error:
                written(error)
            else:
                event = EndTransaction(call.reply(written), *ids, is_commit, epoch, call.client)
                services.runtime.partitions[index].submit(None, event)

        services.data.producers([partition], {index}, call.reply(settle).deliver)
        return
    batch = marker(*ids, is_commit=is_commit, coordinator_epoch=epoch, wall_ms=services.clock.wall_ms())
    services.data.append_marker(partition, batch, call.reply(written).deliver, epoch, is_higher=is_higher)
