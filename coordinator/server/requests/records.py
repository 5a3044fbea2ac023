"""Requests about the records of topics: Produce and Fetch, and where logs start and end.

One node leads a topic partition, in epoch 0, for ever. All records in a log are durable, so its end is its high
watermark. A reader of committed records reads up to the last stable offset, where the oldest open transaction begins.

There are no fetch sessions (KIP-227): the answer to a full fetch has session id 0, as from a Kafka broker whose cache
of sessions is full, and clients go on with full fetches.

House rule: no state. Source: Kafka's KafkaApis, ReplicaManager, UnifiedLog and FetchSession, release 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from coordinator.config import INT64_MAX
from coordinator.log.engine import EngineError
from coordinator.log.segments.disk import reason
from coordinator.log.segments.segment import ENGINES_TOPICS, OFFSETS_TOPIC
from coordinator.log.segments.view import NO_OFFSET, NO_TIME, Rejected
from coordinator.log.topics.log import Written
from coordinator.security.acls import Kind, Operation
from coordinator.security.rights import WRITE
from coordinator.server.nodes.discovery import LEADER_EPOCH
from coordinator.server.nodes.topics import INTERNAL_TOPICS
from coordinator.server.requests import transactions
from coordinator.server.requests.rights import may, may_somewhere
from coordinator.server.wire.call import OneByOne, at_once, gather, parts
from coordinator.text import cut_text
from coordinator.transaction.state import TopicPartition
from protocol.errors import ProtocolError
from protocol.messages import (
    DeleteRecordsResponse,
    FetchResponse,
    InitProducerIdResponse,
    ListOffsetsResponse,
    OffsetForLeaderEpochResponse,
    ProduceResponse,
)
from protocol.records.batch import (
    CODEC_MASK,
    FRAME_SIZE,
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL,
    CorruptBatch,
    peek_header,
)
from protocol.records.codecs import Codec
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from coordinator.log.segments.view import Ends, View
    from coordinator.log.topics.list import Topic
    from coordinator.log.topics.log import TopicLog
    from coordinator.log.topics.partition import TopicPartition as LogPartition
    from coordinator.server.nodes.topic_data import Budget, Key
    from coordinator.server.runtime.replies import Reply
    from coordinator.server.wire.call import Call, Services, Steps
    from protocol.messages import (
        DeleteRecordsRequest,
        FetchRequest,
        InitProducerIdRequest,
        ListOffsetsRequest,
        Message,
        OffsetForLeaderEpochRequest,
        ProduceRequest,
    )

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, NOT_TIERED = -1, -2, -3, -4, -5, -6
"""The negative timestamps of ListOffsets, which ask for an end of a log or a special record."""

ASKED_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, NOT_TIERED: 11}
"""The timestamps that later versions of ListOffsets added, and the first version with each."""

NO_SESSION = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
"""The session epochs of a full fetch: the first asks for a session, the second for none."""

READ_COMMITTED = 1

PLAIN_MAX = 500
"""Topics and partitions in a Produce or Fetch. One with more is handled in steps; 500 take 2 to 4 ms."""

WATCHED_MAX = 2_000
"""Topic partitions of a Fetch that end its wait. With more, news of the others waits for max_wait_ms."""


def _is_large(partitions: Iterable[Sized]) -> bool:
    """Whether a Produce or Fetch is handled in steps. partitions: of each topic."""
    sizes = list(map(len, islice(partitions, PLAIN_MAX + 1)))
    return len(sizes) + sum(sizes) > PLAIN_MAX


Look = Callable[["LogPartition"], "View"]
Open = Callable[["LogPartition"], "TopicLog"]
"""On the logs' thread: open a log to read it, or to change it. Raises EngineError."""


def _leader_error(services: Services, topic: Topic, partition: int, current_leader_epoch: int) -> ErrorCode:
    """The error if this node is not the leader, or the client expects a later leader epoch (KIP-320)."""
    if not services.data.leads(topic, partition):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_LEADER_EPOCH if current_leader_epoch > LEADER_EPOCH else ErrorCode.NONE


def _topic(services: Services, call: Call, operation: Operation, named: UUID | str) -> tuple[Topic | None, ErrorCode]:
    """Find a topic by its id or name, and the error of all its topic partitions if there is one."""
    if isinstance(named, str):
        topic = services.discovery.topic(named)
    else:
        topic = services.discovery.topic_by_id(named)
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        named = topic.name
    if not may(services, call, operation, Kind.TOPIC, named):
        return topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE


def _code(problem: Exception) -> ErrorCode:
    """The error code for a problem on the logs' thread. Raises any exception that is a fault of the server."""
    if isinstance(problem, Rejected):
        return problem.error
    if isinstance(problem, EngineError | OSError | CorruptBatch):
        return ErrorCode.KAFKA_STORAGE_ERROR
    raise problem


def _answering(call: Call, body: Message) -> Callable[[Exception | None], None]:
    """A function that takes the outcome of work on the logs' thread, and then answers with `body`."""

    def done(outcome: Exception | None) -> None:
        if outcome is not None:
            raise outcome
        call.answer(body)

    return call.reply(done).deliver


# ListOffsets.


def list_offsets(services: Services, call: Call, request: ListOffsetsRequest) -> Steps:
    """ListOffsets: where logs start and end, or the first record from a time on."""
    counts: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for each in topic.partitions:
            key = topic.name, each.partition_index
            counts[key] = counts.get(key, 0) + 1
            yield
        yield
    topics = []
    asked_of: list[tuple[ListOffsetsResponse.ListOffsetsPartitionResponse, LogPartition, int]] = []
    of_groups: set[int] = set()
    for topic in request.topics:
        partitions = []
        known = services.discovery.topic(topic.name)
        is_allowed = may(services, call, Operation.DESCRIBE, Kind.TOPIC, topic.name)
        for asked in topic.partitions:
            yield
            answer = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            partitions.append(answer)
            if not is_allowed:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif counts[topic.name, asked.partition_index] > 1 and call.api_version > 0:
                answer.error_code = ErrorCode.INVALID_REQUEST
            elif known is None or not 0 <= asked.partition_index < known.partition_count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif asked.timestamp < NOT_TIERED or call.api_version < ASKED_SINCE.get(asked.timestamp, 0):
                answer.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                error = _leader_error(services, known, asked.partition_index, asked.current_leader_epoch)
                answer.error_code = error
                if not error:
                    topic_partition = services.data.topic_partition(known, asked.partition_index)
                    asked_of.append((answer, topic_partition, asked.timestamp))
                    _note_log_of_groups(of_groups, topic_partition)
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield

    only_committed = request.isolation_level == READ_COMMITTED

    def look(view_of: Look) -> None:
        for answer, topic_partition, timestamp in asked_of:
            try:
                found = _offset_at(view_of(topic_partition), timestamp, only_committed=only_committed)
            except Exception as problem:  # noqa: BLE001 - _code sorts them
                answer.error_code = _code(problem)
            else:
                _fill(answer, call.api_version, found)

    body = ListOffsetsResponse(topics=topics)
    if asked_of:
        services.data.read(look, of_groups, _answering(call, body))
    else:
        call.answer(body)


def _note_log_of_groups(numbers: set[int], topic_partition: LogPartition) -> None:
    """Add the partition's number if it is one of `__consumer_offsets`."""
    if topic_partition.topic == OFFSETS_TOPIC:
        numbers.add(topic_partition.number)


def _offset_at(log: View, timestamp: int, *, only_committed: bool) -> tuple[int, int] | None:
    """The offset that a timestamp asks for, and the time of its record; None if the log has no such record.

    only_committed: records from the last stable offset on aren't there yet.
    """
    ends = log.ends()
    if timestamp == LATEST:
        return (ends.stable if only_committed else ends.end), NO_TIME
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return ends.start, NO_TIME
    if timestamp == MAX_TIMESTAMP:
        found = log.latest_time()
    else:
        found = log.offset_of_time(timestamp) if timestamp >= 0 else None
    return None if found is not None and only_committed and found[0] >= ends.stable else found


def _fill(
    answer: ListOffsetsResponse.ListOffsetsPartitionResponse, version: int, found: tuple[int, int] | None
) -> None:
    if found is None:
        return
    offset, timestamp_ms = found
    if version == 0:
        answer.old_style_offsets = [offset]
        return
    answer.offset, answer.timestamp = offset, timestamp_ms
    if version >= 4:
        answer.leader_epoch = LEADER_EPOCH


def offset_for_leader_epoch(services: Services, call: Call, request: OffsetForLeaderEpochRequest) -> Steps:
    """OffsetForLeaderEpoch: a log has one epoch, which ends at the end of the log.

    In a cluster a user's topic has no records, but groups that came from a broker may have committed offsets in it,
    with the broker's epochs. So every epoch ends above all offsets: otherwise consumers would conclude that the log was
    cut, and commit other offsets.
    """
    topics = []
    asked_of: list[tuple[OffsetForLeaderEpochResponse.EpochEndOffset, LogPartition]] = []
    of_groups: set[int] = set()
    may_all = may(services, call, Operation.CLUSTER_ACTION, Kind.CLUSTER, is_logged=False)
    for topic in request.topics:
        partitions = []
        known = services.discovery.topic(topic.topic)
        is_allowed = may_all or may(services, call, Operation.DESCRIBE, Kind.TOPIC, topic.topic)
        for asked in topic.partitions:
            yield
            answer = OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition)
            partitions.append(answer)
            if not is_allowed:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            if known is None or not 0 <= asked.partition < known.partition_count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            answer.error_code = _leader_error(services, known, asked.partition, asked.current_leader_epoch)
            if answer.error_code:
                continue
            if not services.discovery.keeps_records and known.name not in INTERNAL_TOPICS:
                answer.leader_epoch, answer.end_offset = asked.leader_epoch, INT64_MAX
            elif asked.leader_epoch == LEADER_EPOCH:
                topic_partition = services.data.topic_partition(known, asked.partition)
                asked_of.append((answer, topic_partition))
                _note_log_of_groups(of_groups, topic_partition)
        topics.append(OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield

    def look(view_of: Look) -> None:
        for answer, topic_partition in asked_of:
            try:
                answer.end_offset, answer.leader_epoch = view_of(topic_partition).ends().end, LEADER_EPOCH
            except Exception as problem:  # noqa: BLE001 - _code sorts them
                answer.error_code = _code(problem)

    body = OffsetForLeaderEpochResponse(topics=topics)
    if asked_of:
        services.data.read(look, of_groups, _answering(call, body))
    else:
        call.answer(body)


# DeleteRecords.

DELETED_AT_ONCE = 10
"""Logs whose start the logs' thread moves in one go, each with a sync of the disk. Other calls wait for that."""


class _Deletion(NamedTuple):
    """Records of a topic partition before an offset, to delete. answer: its part of the response."""

    answer: DeleteRecordsResponse.DeleteRecordsPartitionResult
    topic_partition: LogPartition
    offset: int


def delete_records(services: Services, call: Call, request: DeleteRecordsRequest) -> Steps:
    """DeleteRecords (KIP-107): move the start of logs. The answer waits until that is durable.

    As in Kafka, if a request names a topic partition twice, its last offset counts, and the answer has it once.
    """
    offsets: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            offsets[topic.name, asked.partition_index] = asked.offset
            yield
        yield
    topics: dict[str, DeleteRecordsResponse.DeleteRecordsTopicResult] = {}
    asked_of: list[_Deletion] = []
    for (name, index), offset in offsets.items():
        known = services.discovery.topic(name)
        answer = DeleteRecordsResponse.DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET)
        topics.setdefault(name, DeleteRecordsResponse.DeleteRecordsTopicResult(name=name)).partitions.append(answer)
        if not may(services, call, Operation.DELETE, Kind.TOPIC, name):
            answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif known is None or not 0 <= index < known.partition_count:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif known.name in ENGINES_TOPICS:
            answer.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif not services.data.leads(known, index):
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not services.data.topic_partition(known, index).limits.is_deleted:
            answer.error_code = ErrorCode.POLICY_VIOLATION
        else:
            asked_of.append(_Deletion(answer, services.data.topic_partition(known, index), offset))
        yield
    body = DeleteRecordsResponse(topics=list(topics.values()))

    def ask(some: list[_Deletion], reply: Reply) -> None:
        services.data.write(partial(_delete_before, some), reply.deliver)

    def done(outcomes: list[Exception | None]) -> None:
        if outcomes and outcomes[-1] is not None:
            call.fail(outcomes[-1])
        else:
            call.answer(body)

    OneByOne(call, parts(asked_of, DELETED_AT_ONCE), ask, done).go_on()


def _delete_before(asked_of: Iterable[_Deletion], open_log: Open) -> None:
    """On the logs' thread: move the start of some logs."""
    for answer, topic_partition, offset in asked_of:
        try:
            log = open_log(topic_partition)
            log.delete_before(offset)
            answer.low_watermark = log.view.start
        except Exception as problem:  # noqa: BLE001 - _code sorts them
            answer.error_code = _code(problem)


# Producers.


def init_producer_id(services: Services, call: Call, request: InitProducerIdRequest) -> None:
    """InitProducerId: a new id for an idempotent producer, even if it has one; see also `transactions`."""

    def refuse(error: ErrorCode) -> None:
        call.answer(InitProducerIdResponse(error_code=error, producer_epoch=-1))

    if (request.producer_id < 0) != (request.producer_epoch < 0) or request.transactional_id == "":
        refuse(ErrorCode.INVALID_REQUEST)
        return
    if request.transactional_id is not None:
        transactions.init_producer_id(services, call, request)
        return
    if not may(services, call, Operation.IDEMPOTENT_WRITE, Kind.CLUSTER, is_logged=False) and not may_somewhere(
        services, call, Operation.WRITE, Kind.TOPIC
    ):
        refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return

    def done(outcome: int | Exception) -> None:
        if isinstance(outcome, int):
            call.answer(InitProducerIdResponse(producer_id=outcome))
        elif isinstance(outcome, EngineError):
            refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            raise outcome

    services.data.producer_id(call.reply(done).deliver)


# Produce.

ALL_REPLICAS, NO_ANSWER, LEADER_ONLY = -1, 0, 1
"""Values of acks. There is one replica, so ALL_REPLICAS and LEADER_ONLY have one meaning."""

MAGIC_AT = 16
ATTRIBUTES_AT = 22
"""The low byte of the attributes: the codec, and whether the batch belongs to a transaction."""

BATCHES_SINCE = 3
ZSTD_SINCE = 7
NAMED_SINCE = 8
BY_ID_SINCE = 13
"""The versions of Produce that brought batches of format 2, zstd, the names of refused records, and topic ids. Fetch
has topic ids from the same version on.
"""

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
    """A batch to append, and its part of the answer."""

    topic_partition: LogPartition
    data: bytes
    answer: ProduceResponse.PartitionProduceResponse

    @property
    def key(self) -> TopicPartition:
        """Its topic partition, as transactions name it."""
        return TopicPartition(self.topic_partition.topic, self.topic_partition.number)

    @property
    def producer(self) -> tuple[int, int] | None:
        """Id and epoch of the producer in whose transaction it is; None outside of transactions."""
        if not self.data[ATTRIBUTES_AT] & TRANSACTIONAL:
            return None
        header = peek_header(self.data)
        return header.producer_id, header.producer_epoch


def produce(services: Services, call: Call, request: ProduceRequest) -> Steps | None:
    """Produce: each batch is appended or refused by itself. The answer waits until all appended ones are durable.

    Batches of a transaction are appended once its coordinator knows their partitions, unless a marker comes in between:
    behind it they would begin a transaction that nobody ends.
    """
    steps = _produce(services, call, request)
    if _is_large(topic.partition_data for topic in request.topic_data):
        return steps
    at_once(steps)
    return None


def _produce(services: Services, call: Call, request: ProduceRequest) -> Steps:
    parts: list[_Part] = []
    responses = []
    by_id = call.api_version >= BY_ID_SINCE
    has_v2 = call.api_version >= transactions.V2_SINCE["Produce"]
    refusal = _transaction_refusal(services, call, request, is_transactional=(yield from _is_transactional(request)))
    for topic in request.topic_data:
        answers = []
        known: Topic | None = None
        problem = ErrorCode.NONE
        if refusal is None:
            known, problem = _topic(services, call, Operation.WRITE, topic.topic_id if by_id else topic.name)
        for partition in topic.partition_data:
            yield
            answer = ProduceResponse.PartitionProduceResponse(index=partition.index, base_offset=NO_OFFSET)
            answers.append(answer)
            try:
                if refusal is not None:
                    raise Rejected(*refusal)
                if problem:
                    raise Rejected(problem, PROBLEMS[problem])
                part = _part(services, call.api_version, request, known, partition, answer)
            except Rejected as rejected:
                _refuse(answer, rejected)
            else:
                parts.append(part)
        responses.append(
            ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        yield

    def done(outcomes: list[Any]) -> None:
        steps = _produced(call, request, responses, appended, outcomes)
        call.in_steps = call.in_steps or _named_max(outcomes) > PLAIN_MAX
        if call.in_steps:
            call.work(steps)
        else:
            at_once(steps)

    def append() -> Steps:
        receivers = gather(len(appended), call.reply(done).deliver if appended else done)
        for part, receive in zip(appended, receivers, strict=True):
            producer = part.producer
            if producer is not None and part.topic_partition.key not in expected[producer]:
                receive(Rejected(ErrorCode.INVALID_TXN_STATE, NOT_IN_TRANSACTION))
            else:
                is_v2 = has_v2 and producer is not None
                services.data.append(part.topic_partition, part.data, receive, is_v2=is_v2)
            yield
        for (producer_id, _), keys in expected.items():
            services.data.expect_no_more(producer_id, keys)

    call.is_kept = True  # a client that wants no answer may close its connection at once
    appended = parts
    expected: dict[tuple[int, int], set[Key]] = {}
    in_transactions = _by_producer(parts)
    if not in_transactions:
        yield from append()
        return

    def verified(found: list[dict[TopicPartition, ErrorCode]]) -> None:
        nonlocal appended
        appended = []
        errors = dict(zip(in_transactions, found, strict=True))
        for part in parts:
            error = errors[part.producer][part.key] if part.producer in errors else ErrorCode.NONE
            if error:
                _refuse(part.answer, Rejected(error, NOT_IN_TRANSACTION))
            elif part.key.topic in INTERNAL_TOPICS:
                _refuse(part.answer, _internal(part.key.topic))
            else:
                appended.append(part)
        call.work(append())

    def expecting(
        producer: tuple[int, int],
        receive: Callable[[dict[TopicPartition, ErrorCode]], None],
        found: dict[TopicPartition, ErrorCode],
    ) -> None:
        keys = {part.topic_partition.key for part in in_transactions[producer] if not found[part.key]}
        expected[producer] = keys
        services.data.expect(producer[0], keys)
        receive(found)

    assert request.transactional_id is not None
    for (producer, some), receive in zip(in_transactions.items(), gather(len(in_transactions), verified), strict=True):
        keys = [part.key for part in some]
        done_one = partial(expecting, producer, receive)
        transactions.in_transaction(services, call, "Produce", request.transactional_id, producer, keys, done_one)
        yield


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
    """How many records the outcomes of a Produce name at most."""
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
    services: Services, call: Call, request: ProduceRequest, *, is_transactional: bool
) -> tuple[ErrorCode, str] | None:
    """The error of all batches of a request, as in Kafka, if one is in a transaction that the client may not have."""
    transactional_id = request.transactional_id
    if services.transactions.refusal:
        if not is_transactional and transactional_id is None:
            return None
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, services.transactions.refusal
    if not is_transactional:
        return None
    if transactional_id is None or not may(services, call, WRITE, Kind.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
    return None


def _by_producer(parts: list[_Part]) -> dict[tuple[int, int], list[_Part]]:
    """The batches that are in transactions, by id and epoch of their producer."""
    found: dict[tuple[int, int], list[_Part]] = {}
    for part in parts:
        producer = part.producer
        if producer is not None:
            found.setdefault(producer, []).append(part)
    return found


def _part(
    services: Services,
    version: int,
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
    _check_shape(version, data)
    if request.acks not in {ALL_REPLICAS, NO_ANSWER, LEADER_ONLY}:
        raise Rejected(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}: -1, 0 and 1 are allowed.")
    in_transaction = bool(data[ATTRIBUTES_AT] & TRANSACTIONAL)
    if topic.name in INTERNAL_TOPICS and not (in_transaction and topic.name == OFFSETS_TOPIC):
        raise _internal(topic.name)  # one in a transaction is refused behind the errors of the transaction
    if not services.discovery.keeps_records:
        raise Rejected(ErrorCode.POLICY_VIOLATION, NO_RECORDS)
    if not services.data.leads(topic, partition.index):
        raise Rejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Another node leads this topic partition.")
    topic_partition = services.data.topic_partition(topic, partition.index)
    if len(data) > topic_partition.limits.max_message_bytes + MAGIC_AT:
        # The log would refuse it too, but the batch would take memory in the queue until then.
        text = f"The batch has {len(data)} bytes, max.message.bytes allows {topic_partition.limits.max_message_bytes}."
        raise Rejected(ErrorCode.MESSAGE_TOO_LARGE, text)
    return _Part(topic_partition, data, answer)


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
    answer.error_code = _code(problem)
    answer.error_message = cut_text(reason(problem))
    if isinstance(problem, Rejected):
        answer.log_start_offset = problem.log_start_offset


# Fetch.


@dataclass(slots=True)
class _Wanted:
    """A topic partition to read. ends: where its log starts and ends; None if that isn't known yet."""

    topic_partition: LogPartition
    offset: int
    size_max: int
    answer: FetchResponse.PartitionData
    only_committed: bool
    ends: Ends | None = None

    @property
    def readable(self) -> int:
        """The offset up to which its reader may read."""
        assert self.ends is not None
        return self.ends.stable if self.only_committed else self.ends.end


def fetch(services: Services, call: Call, request: FetchRequest) -> Steps | None:
    """Fetch: records from given offsets on. Waits for min_bytes of them, at most max_wait_ms."""
    steps = _fetch(services, call, request)
    if _is_large(topic.partitions for topic in request.topics):
        return steps
    at_once(steps)
    return None


def _fetch(services: Services, call: Call, request: FetchRequest) -> Steps:
    if request.session_epoch not in {INITIAL_EPOCH, FINAL_EPOCH}:
        call.answer(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session_id=NO_SESSION, responses=[]))
        return
    wanted: list[_Wanted] = []
    keys: list[tuple[UUID, int]] = []
    refused = 0
    responses = []
    by_id = call.api_version >= BY_ID_SINCE
    for topic in request.topics:
        known, problem = _topic(services, call, Operation.READ, topic.topic_id if by_id else topic.topic)
        answers = []
        for asked in topic.partitions:
            yield
            error = problem if known is None else problem or _fetch_error(services, known, asked)
            answer = _unread(asked.partition, error, request.isolation_level)
            answers.append(answer)
            if error is ErrorCode.NONE:
                assert known is not None
                topic_partition = services.data.topic_partition(known, asked.partition)
                # A cluster may have taken over the offsets of a broker: it has no records at them.
                is_empty = not services.discovery.keeps_records and known.name not in INTERNAL_TOPICS
                offset = 0 if is_empty else asked.fetch_offset
                only_committed = request.isolation_level == READ_COMMITTED
                wanted.append(_Wanted(topic_partition, offset, asked.partition_max_bytes, answer, only_committed))
                if len(keys) < WATCHED_MAX:
                    keys.append(topic_partition.key)
            elif error not in {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                refused += 1
        responses.append(
            FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
        )
        yield
    body = FetchResponse(session_id=NO_SESSION, responses=responses)
    if not wanted:
        call.answer(body)
        return
    # Kafka waits only if no topic partition that it knows has an error.
    may_wait = not refused and request.max_wait_ms > 0
    _Fetch(services, call, request, body, wanted, keys).look(may_wait=may_wait)


class _Fetch:
    """A Fetch under way: it reads; if there are too few records, it waits for more and reads again.

    keys: of the topic partitions that end its wait.
    """

    def __init__(
        self,
        services: Services,
        call: Call,
        request: FetchRequest,
        body: FetchResponse,
        wanted: list[_Wanted],
        keys: list[tuple[UUID, int]],
    ) -> None:
        self._services = services
        self._call = call
        self._body = body
        self._wanted = wanted
        self._absent = ErrorCode.UNKNOWN_TOPIC_ID if call.api_version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._is_large = len(wanted) > PLAIN_MAX
        self._keys = keys
        self._max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
        quota_bytes = None if call.meter is None else call.meter.fetch_bytes_max()
        if quota_bytes is not None:
            self._max_bytes = min(self._max_bytes, quota_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._until_ms = services.waits.ms() + request.max_wait_ms
        self._has_waited = False
        self._of_groups: set[int] = set()
        self._of_engines: list[Key] = []
        self._engine_writes = 0

    def look(self, *, may_wait: bool) -> None:
        """Read on the logs' thread, unless the loop knows that there is nothing new.

        Topics that were deleted, or that the client may no longer read, get an error.
        """
        steps = self._look(may_wait=may_wait)
        if self._is_large:
            self._call.work(steps)
        else:
            at_once(steps)

    def _look(self, *, may_wait: bool) -> Steps:
        present = []
        self._of_groups.clear()
        self._of_engines.clear()
        for each in self._wanted:
            if self._services.discovery.topic_by_id(each.topic_partition.topic_id) is None:
                each.answer.error_code = self._absent
                may_wait = False
            elif self._has_waited and not may(
                self._services, self._call, Operation.READ, Kind.TOPIC, each.topic_partition.topic
            ):
                each.answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                each.answer.high_watermark = each.answer.last_stable_offset = each.answer.log_start_offset = NO_OFFSET
                may_wait = False
            else:
                present.append(each)
                _note_log_of_groups(self._of_groups, each.topic_partition)
                if each.topic_partition.topic in ENGINES_TOPICS:
                    self._of_engines.append(each.topic_partition.key)
            yield
        self._wanted = present
        if self._is_at_the_end():
            if may_wait and self._min_bytes > 0:
                self._wait()
            else:
                self._call.answer(self._body)
            return

        services, wanted = self._services, self._wanted
        budget = services.data.budget

        def read(view_of: Look) -> int | None:
            return _read(view_of, wanted, self._max_bytes, self._min_bytes if may_wait else 0, budget)

        self._engine_writes = services.data.engine_writes(self._of_engines)
        services.data.read(read, self._of_groups, self._call.reply(self._looked).deliver)

    def _looked(self, outcome: Any) -> None:
        """Answer, or wait. outcome: how many bytes were read; None: too few; or an Exception."""
        if isinstance(outcome, Exception):
            raise outcome
        data, discovery, call = self._services.data, self._services.discovery, self._call
        if call.is_closed:
            data.budget.give(outcome or 0)
            return
        is_gone = False
        # A large Fetch leaves this out. If a topic is deleted meanwhile, it learns that when its wait is over.
        for each in () if self._is_large else self._wanted:
            if discovery.topic_by_id(each.topic_partition.topic_id) is None:
                is_gone = True
            elif each.ends is not None and each.topic_partition.topic not in ENGINES_TOPICS:
                data.remember_ends(each.topic_partition.key, each.ends)
        if outcome is not None:
            call.on_sent = partial(data.budget.give, outcome)
            if call.meter is not None:
                call.meter.fetched = outcome
            call.answer(self._body)
        elif is_gone:  # the topic was deleted before this call waited for it, so nothing would end the wait
            self.look(may_wait=False)
        elif data.engine_writes(self._of_engines) != self._engine_writes:
            self.look(may_wait=self._services.waits.ms() < self._until_ms)
        else:
            self._wait()

    def _wait(self) -> None:
        self._has_waited = True  # rules that change meanwhile count; Kafka asks once
        call, services = self._call, self._services
        on_time, on_more = call.reply(self._on_time), call.reply(self._on_more)
        call.on_wait, call.on_closed = partial(on_time.deliver, None), self._end_wait
        services.waits.arm(call, self._until_ms)
        services.data.wait(call, self._keys, partial(on_more.deliver, None))

    def _is_at_the_end(self) -> bool:
        """Whether every offset is the end of its log, as far as the loop knows; then the answers get these ends.

        A large Fetch leaves this out: an append could come in between two steps.
        """
        if self._is_large and self._wanted:
            return False
        for each in self._wanted:
            each.ends = self._services.data.ends(each.topic_partition.key)
            if each.ends is None or not each.readable <= each.offset <= each.ends.end:
                return False
        for each in self._wanted:
            _fill_ends(each)
        return True

    def _end_wait(self) -> None:
        self._call.on_wait = self._call.on_closed = None
        self._services.waits.cancel(self._call)
        self._services.data.forget(self._call, self._keys)

    def _on_time(self, _: None) -> None:
        self._end_wait()
        self.look(may_wait=False)

    def _on_more(self, _: None) -> None:
        self._end_wait()
        self.look(may_wait=True)


def _fill_ends(wanted: _Wanted) -> None:
    assert wanted.ends is not None
    wanted.answer.log_start_offset, wanted.answer.high_watermark, wanted.answer.last_stable_offset = wanted.ends


def _read(view_of: Look, wanted: list[_Wanted], max_bytes: int, min_bytes: int, budget: Budget) -> int | None:
    """Read into the answers; returns how many bytes of records they have, which it took from the budget.

    Returns None, and reads nothing, if there are fewer than min_bytes and no error. The first batch of the answer is
    whole, however large: a consumer could not get past it otherwise (KIP-74).
    """
    found: list[tuple[_Wanted, View]] = []
    available, refused = 0, False
    for each in wanted:
        each.ends = None
        try:
            log = view_of(each.topic_partition)
            each.ends = log.ends()
            asked = min(max(each.size_max, 1), min_bytes - available)
            available += log.available(each.offset, asked, each.readable)
        except Exception as problem:  # noqa: BLE001 - _code sorts them
            each.answer.error_code, each.answer.aborted_transactions = _code(problem), None
            refused = True
        else:
            found.append((each, log))
    if available < min_bytes and not refused:
        return None
    allowed = budget.take(max_bytes)
    left, is_first = allowed, True
    for each, log in found:
        answer = each.answer
        _fill_ends(each)
        if left > 0 or is_first:
            try:
                size_max = min(each.size_max, max(left, 0))
                data = log.read_from(each.offset, size_max, whole=is_first, before=each.readable)
            except Exception as problem:  # noqa: BLE001 - _code sorts them
                answer.error_code = _code(problem)
                continue
            answer.records = data
            if each.only_committed:
                answer.aborted_transactions = [
                    FetchResponse.AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                    for aborted in log.aborted_within(each.offset, len(data))
                ]
            left -= len(data)
            is_first = is_first and not data
    budget.give(left)
    return allowed - left


def _fetch_error(services: Services, topic: Topic, asked: FetchRequest.FetchPartition) -> ErrorCode:
    if not 0 <= asked.partition < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _leader_error(services, topic, asked.partition, asked.current_leader_epoch)


def _unread(partition: int, error: ErrorCode, isolation_level: int) -> FetchResponse.PartitionData:
    """The answer before anything is read. It has zero bytes of records, because some clients don't take null."""
    # Kafka sends an empty list in place of null for a topic or partition that it doesn't know.
    absent = error in {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    return FetchResponse.PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=NO_OFFSET,
        last_stable_offset=NO_OFFSET,
        log_start_offset=NO_OFFSET,
        aborted_transactions=[] if isolation_level == READ_COMMITTED or absent else None,
        records=b"",
    )
