"""Produce: batches of records for the logs of topics.

A batch that is appended is durable before its producer gets an answer, whatever its acks say.

House rule: no state. Source: Kafka's KafkaApis, ReplicaManager and UnifiedLog, release 3.9.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from coordinator.apis import WRITE
from coordinator.log.segments.disk import reason
from coordinator.log.segments.segment import OFFSETS_TOPIC
from coordinator.log.segments.view import NO_OFFSET, Rejected
from coordinator.log.topics.list import Topic
from coordinator.log.topics.log import Written
from coordinator.log.topics.partition import TopicPartition as LogPartition
from coordinator.security.acls import Kind, Operation
from coordinator.server.nodes.topic_data import Key
from coordinator.server.nodes.topics import INTERNAL_TOPICS
from coordinator.server.requests import transactions
from coordinator.server.requests.records import BY_ID_SINCE, PLAIN_MAX, begun, code_of, topic_of
from coordinator.server.requests.rights import may
from coordinator.server.runtime.replies import Reply
from coordinator.server.wire.call import Answers, Call, Steps
from coordinator.text import cut_text
from coordinator.transaction.state import TopicPartition
from protocol.errors import ProtocolError
from protocol.messages import ProduceResponse
from protocol.records.batch import CODEC_MASK, FRAME_SIZE, HEADER_SIZE, MAGIC, TRANSACTIONAL, peek_header
from protocol.records.codecs import Codec
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import ProduceRequest


ALL_REPLICAS, NO_ANSWER, LEADER_ONLY = -1, 0, 1
"""Values of acks. There is one replica, so ALL_REPLICAS and LEADER_ONLY have one meaning."""

MAGIC_AT = 16
ATTRIBUTES_AT = 22
"""The low byte of the attributes: the codec, and whether the batch belongs to a transaction."""

BATCHES_SINCE = 3
ZSTD_SINCE = 7
NAMED_SINCE = 8
"""The versions that brought batches of format 2, zstd, and the names of refused records."""

PROBLEMS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.UNKNOWN_TOPIC_ID: "There is no topic with this id.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic partition.",
}
"""Texts of errors that concern a whole topic of a Produce."""

NO_RECORDS = "A cluster of Tenure keeps groups and offsets, and no records of topics: send records to Apache Kafka."
"""The text of POLICY_VIOLATION, which clients take as final: they show it, and don't try again."""

NOT_IN_TRANSACTION = "The producer has no such transaction, or the partition is not in it."

NAMED_MAX = 20_000
"""Refused records that an answer to Produce names, which take 10 MB. A full batch of librdkafka has 10,000."""


@dataclass(slots=True)
class _Part:
    """A batch to append, and its part of the answer.

    producer: id and epoch of the producer in whose transaction it is; None outside of transactions.
    """

    topic_partition: LogPartition
    data: bytes
    answer: ProduceResponse.PartitionProduceResponse
    producer: tuple[int, int] | None

    @property
    def key(self) -> TopicPartition:
        """Its topic partition, as transactions name it."""
        return TopicPartition(self.topic_partition.topic, self.topic_partition.number)


def produce(call: Call, request: ProduceRequest) -> Steps | None:
    """Produce: each batch is appended or refused by itself. The answer waits until all appended ones are durable.

    Batches of a transaction are appended once its coordinator knows their partitions, unless a marker comes in between:
    behind it they would begin a transaction that nobody ends.
    """
    return begun(call, _produce(call, request), (topic.partition_data for topic in request.topic_data))


def _produce(call: Call, request: ProduceRequest) -> Steps:
    parts: list[_Part] = []
    in_transactions: dict[tuple[int, int], list[_Part]] = {}
    responses = []
    by_id = call.api_version >= BY_ID_SINCE
    has_v2 = call.api_version >= transactions.V2_SINCE["Produce"]
    is_transactional = yield from _is_transactional(request)
    refusal = _transaction_refusal(call, request, is_transactional=is_transactional)
    for topic in request.topic_data:
        answers = []
        known: Topic | None = None
        problem = ErrorCode.NONE
        if refusal is None:
            known, problem = topic_of(call, Operation.WRITE, topic.topic_id if by_id else topic.name)
        for partition in topic.partition_data:
            yield
            answer = ProduceResponse.PartitionProduceResponse(index=partition.index, base_offset=NO_OFFSET)
            answers.append(answer)
            try:
                if refusal is not None:
                    raise Rejected(*refusal)
                if problem:
                    raise Rejected(problem, PROBLEMS[problem])
                part = _part(call, request, known, partition, answer)
            except Rejected as rejected:
                _refuse(answer, rejected)
            else:
                parts.append(part)
                if part.producer is not None:
                    in_transactions.setdefault(part.producer, []).append(part)
        responses.append(
            ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        yield

    call.is_kept = True  # a client that wants no answer may close its connection at once
    expected: dict[tuple[int, int], set[Key]] = {}
    if in_transactions:
        parts = yield from _verified(call, request, parts, in_transactions, expected)
    appends = Answers(len(parts))
    for part, reply in zip(parts, appends, strict=True):
        if part.producer is not None and part.topic_partition.key not in expected[part.producer]:
            reply.deliver(Rejected(ErrorCode.INVALID_TXN_STATE, NOT_IN_TRANSACTION))
        else:
            is_v2 = has_v2 and part.producer is not None
            call.services.data.append(part.topic_partition, part.data, reply.deliver, is_v2=is_v2)
        yield
    for (producer_id, _), keys in expected.items():
        call.services.data.expect_no_more(producer_id, keys)
    yield appends
    outcomes = appends.found
    steps = _produced(call, request, responses, parts, outcomes)
    if not call.in_steps and _named_max(outcomes) > PLAIN_MAX:
        call.in_steps = True
        call.work(steps)
    else:
        yield from steps


def _verified(
    call: Call,
    request: ProduceRequest,
    parts: list[_Part],
    in_transactions: dict[tuple[int, int], list[_Part]],
    expected: dict[tuple[int, int], set[Key]],
) -> Generator[Any, None, list[_Part]]:
    """The parts that may be appended; the others are refused. expected: gets the keys that each producer may append to.

    in_transactions: the parts in transactions, by producer.
    """

    def expecting(producer: tuple[int, int], reply: Reply, found: dict[TopicPartition, ErrorCode]) -> None:
        keys = {part.topic_partition.key for part in in_transactions[producer] if not found[part.key]}
        expected[producer] = keys
        call.services.data.expect(producer[0], keys)
        reply.deliver(found)

    assert request.transactional_id is not None
    answers = Answers(len(in_transactions))
    for (producer, some), reply in zip(in_transactions.items(), answers, strict=True):
        keys = [part.key for part in some]
        done = partial(expecting, producer, reply)
        transactions.in_transaction(call, "Produce", request.transactional_id, producer, keys, done)
        yield
    yield answers
    errors = dict(zip(in_transactions, answers.found, strict=True))
    appended = []
    for part in parts:
        error = errors[part.producer][part.key] if part.producer in errors else ErrorCode.NONE
        if error:
            _refuse(part.answer, Rejected(error, NOT_IN_TRANSACTION))
        elif part.key.topic in INTERNAL_TOPICS:
            _refuse(part.answer, _internal(part.key.topic))
        else:
            appended.append(part)
    return appended


def _produced(
    call: Call,
    request: ProduceRequest,
    responses: list[ProduceResponse.TopicProduceResponse],
    parts: list[_Part],
    outcomes: list[Any],
) -> Steps:
    """Answer a Produce. outcomes: of its parts."""
    left = NAMED_MAX if call.api_version >= NAMED_SINCE else 0
    for part, outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, Written):
            part.answer.base_offset, part.answer.log_append_time_ms, part.answer.log_start_offset = outcome
        else:
            _refuse(part.answer, outcome)
        if isinstance(outcome, Rejected):
            named = merge(*(zip(_flagged(flags), repeat(text)) for flags, text in outcome.records))
            for number, text in islice(named, left):
                left -= 1
                part.answer.record_errors.append(
                    ProduceResponse.BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
                )
                yield
        yield
    if request.acks != NO_ANSWER:
        call.answer(ProduceResponse(responses=responses))
        return
    for topic in responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                text = f"{topic.name or topic.topic_id}-{answer.index}: {answer.error_message}"
                raise ProtocolError(f"a Produce that wants no answer failed, {text}")
            yield
    call.answer_nothing()


def _named_max(outcomes: Iterable[Any]) -> int:
    """The most records that the outcomes of a Produce can name."""
    return sum(len(flags) for each in outcomes if isinstance(each, Rejected) for flags, _ in each.records)


def _flagged(flags: bytes) -> Iterator[int]:
    """The positions of ones among flags. A million zeros around a one don't slow the search."""
    place = flags.find(1)
    while place >= 0:
        yield place
        place = flags.find(1, place + 1)


def _is_transactional(request: ProduceRequest) -> Generator[None, None, bool]:
    """Whether any batch belongs to a transaction."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            data = partition.records
            if data and len(data) > ATTRIBUTES_AT and data[ATTRIBUTES_AT] & TRANSACTIONAL:
                return True
            yield
        yield
    return False


def _transaction_refusal(
    call: Call, request: ProduceRequest, *, is_transactional: bool
) -> tuple[ErrorCode, str] | None:
    """The error of all batches of a request, as in Kafka, if one is in a transaction that the client may not have."""
    transactional_id = request.transactional_id
    if call.services.transactions.refusal:
        if not is_transactional and transactional_id is None:
            return None
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, call.services.transactions.refusal
    if not is_transactional:
        return None
    if transactional_id is None or not may(call, WRITE, Kind.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
    return None


def _part(
    call: Call,
    request: ProduceRequest,
    topic: Topic | None,
    partition: ProduceRequest.PartitionProduceData,
    answer: ProduceResponse.PartitionProduceResponse,
) -> _Part:
    """A batch for the log, which checks the batch further. Raises Rejected."""
    if topic is None or not 0 <= partition.index < topic.partition_count:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise Rejected(unknown, PROBLEMS[unknown])
    data = partition.records or b""
    _check_shape(call.api_version, data)
    if request.acks not in {ALL_REPLICAS, NO_ANSWER, LEADER_ONLY}:
        raise Rejected(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: -1, 0 and 1 are allowed.")
    in_transaction = bool(data[ATTRIBUTES_AT] & TRANSACTIONAL)
    if topic.name in INTERNAL_TOPICS and not (in_transaction and topic.name == OFFSETS_TOPIC):
        raise _internal(topic.name)  # one in a transaction is refused behind the errors of the transaction
    if not call.services.discovery.keeps_records:
        raise Rejected(ErrorCode.POLICY_VIOLATION, NO_RECORDS)
    if not call.services.data.leads(topic, partition.index):
        raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Another node leads this topic partition.")
    topic_partition = call.services.data.topic_partition(topic, partition.index)
    if len(data) > topic_partition.limits.max_message_bytes + MAGIC_AT:
        # The log would refuse it too, but the batch would take memory in the queue until then.
        text = f"The batch has {len(data)} bytes, max.message.bytes allows {topic_partition.limits.max_message_bytes}."
        raise Rejected(ErrorCode.MESSAGE_TOO_LARGE, text)
    producer = None
    if in_transaction:
        header = peek_header(data)
        producer = header.producer_id, header.producer_epoch
    return _Part(topic_partition, data, answer, producer)


def _internal(topic: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}.")


def _check_shape(version: int, data: bytes) -> None:
    """Check that the data is one whole batch of format 2. The log checks the rest. Raises Rejected."""
    size = FRAME_SIZE + int.from_bytes(data[8:FRAME_SIZE], signed=True) if len(data) > MAGIC_AT else 0
    if version < BATCHES_SINCE:
        text = f"Produce of version {version} carries messages of formats before 2, which are not kept here."
        raise Rejected(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)
    if not 0 < size <= len(data):
        raise Rejected(ErrorCode.INVALID_RECORD, "There must be one record batch per partition, whole.")
    if data[MAGIC_AT] != MAGIC:
        raise Rejected(ErrorCode.INVALID_RECORD, f"A record batch has magic {MAGIC}, not {data[MAGIC_AT]}.")
    if size < HEADER_SIZE:
        raise Rejected(ErrorCode.CORRUPT_MESSAGE, f"A batch of {size} bytes is smaller than its header.")
    if data[ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD and version < ZSTD_SINCE:
        raise Rejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"No zstd in Produce before version {ZSTD_SINCE}.")
    if len(data) > size + MAGIC_AT:
        raise Rejected(ErrorCode.INVALID_RECORD, "There must be exactly one record batch per partition.")


def _refuse(answer: ProduceResponse.PartitionProduceResponse, problem: Exception) -> None:
    answer.error_code = code_of(problem)
    answer.error_message = cut_text(reason(problem))
    if isinstance(problem, Rejected):
        answer.log_start_offset = problem.log_start_offset
