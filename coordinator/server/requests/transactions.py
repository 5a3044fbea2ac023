"""Requests about transactions: those of transactional producers, and of administrators (KIP-98, 447, 664, 890).

A handler checks topics and rights, then asks the partition of the transactional id. A TxnOffsetCommit goes on to the
group's partition once the transaction has the group's offsets.

House rule: no rule of transactions is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import chain, filterfalse, islice
from typing import TYPE_CHECKING, Any

from coordinator.group import offsets
from coordinator.group.events import CommitInTransaction
from coordinator.log.engine import EngineError
from coordinator.security.acls import Kind, Operation
from coordinator.server.nodes.topic_view import REGEX_MAX, matcher, when_loaded
from coordinator.server.nodes.topics import INTERNAL_TOPICS
from coordinator.server.requests.many import at_places, each_once
from coordinator.server.requests.records import begun
from coordinator.server.requests.rights import may, may_somewhere
from coordinator.server.runtime.replies import Errand, Reply
from coordinator.server.wire.call import Answer, Answers, Call, Steps, outcome_of, short
from coordinator.transaction.events import (
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    Granted,
    InitProducerId,
    Listed,
    ListTransactions,
)
from coordinator.transaction.state import EPOCH_MAX, NO_EPOCH, NO_PRODUCER_ID, NO_TIME, V2, Status, TopicPartition
from protocol.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    ListTransactionsResponse,
    OffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        ListTransactionsRequest,
        TxnOffsetCommitRequest,
    )

FENCED_SINCE = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
"""The first versions that answer PRODUCER_FENCED; earlier ones say INVALID_PRODUCER_EPOCH (KIP-588)."""

ABORTABLE_SINCE = {"Produce": 11, "TxnOffsetCommit": 4}
"""The first versions that answer TRANSACTION_ABORTABLE; earlier ones say INVALID_TXN_STATE (KIP-890)."""

V2_SINCE = {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5}
"""The first versions of producers whose transactions have an epoch each (KIP-890)."""

TOPIC_IDS_SINCE = 6
"""The first version of TxnOffsetCommit with topic ids; earlier ones know two of its errors as another (KIP-1319)."""

BATCHES_SINCE = 4
"""The first version of AddPartitionsToTxn with several transactions."""


def _error_in(api: str, version: int, error: ErrorCode) -> ErrorCode:
    """The error as a version of an API knows it. Produce and TxnOffsetCommit never say PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE.get(api, version + 1):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE.get(api, 0):
        return ErrorCode.INVALID_TXN_STATE
    if error in {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH} and version < TOPIC_IDS_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _forbidden(call: Call, transactional_id: str) -> ErrorCode:
    """The error if the server has no transactions, or the client may not use this id; else NONE."""
    if call.services.transactions.refusal or not may(call, Operation.WRITE, Kind.TRANSACTIONAL_ID, transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _refusal(call: Call, transactional_id: str) -> ErrorCode:
    """The error of a request about a transactional id that no coordinator gets; NONE if one does."""
    forbidden = _forbidden(call, transactional_id)
    return forbidden or (ErrorCode.NONE if transactional_id else ErrorCode.INVALID_REQUEST)


@short
def init_producer_id(call: Call, request: InitProducerIdRequest) -> Steps:
    """InitProducerId: a new id for an idempotent producer, even if it has one; for a transactional one, its own."""
    transactional_id = request.transactional_id
    error = ErrorCode.NONE
    if (request.producer_id < 0) != (request.producer_epoch < 0) or transactional_id == "":
        error = ErrorCode.INVALID_REQUEST
    elif transactional_id is not None:
        error = _forbidden(call, transactional_id)
    elif not may(call, Operation.IDEMPOTENT_WRITE, Kind.CLUSTER, is_logged=False) and not may_somewhere(
        call, Operation.WRITE, Kind.TOPIC
    ):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    fresh = NO_PRODUCER_ID
    if not error:
        error, fresh = yield from _fresh_id(call)
    if error or transactional_id is None:
        granted = Granted(error, fresh, NO_EPOCH if error else 0)
    else:
        answer = Answer()
        event = InitProducerId(
            answer,
            call.client,
            transactional_id,
            request.transaction_timeout_ms,
            fresh,
            request.producer_id,
            request.producer_epoch,
        )
        call.services.transactions.submit(transactional_id, event)
        yield answer
        granted = answer.found
    error = _error_in("InitProducerId", call.api_version, granted.error)
    call.answer(InitProducerIdResponse(error_code=error, producer_id=granted.producer_id, producer_epoch=granted.epoch))


def _fresh_id(call: Call) -> Generator[Answer, None, tuple[ErrorCode, int]]:
    """A producer id that no producer has; an error if there is none yet."""
    answer = Answer()
    call.services.data.producer_id(answer.deliver)
    yield answer
    if isinstance(answer.found, int):
        return ErrorCode.NONE, answer.found
    if isinstance(answer.found, EngineError):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NO_PRODUCER_ID
    raise answer.found


# Partitions.


def add_partitions_to_txn(call: Call, request: AddPartitionsToTxnRequest) -> Steps:
    """AddPartitionsToTxn: one transaction up to v3; several from v4 on, which brokers send to each other."""
    call.is_kept = True
    body = AddPartitionsToTxnResponse()
    if call.api_version < BATCHES_SINCE:
        producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        topics = request.v3_and_below_topics
        answer = Answer()
        yield from _add(call, request.v3_and_below_transactional_id, producer, topics, answer)
        yield answer
        body.results_by_topic_v3_and_below = answer.found
        call.answer(body)
        return
    answers = Answers(len(request.transactions))
    for each, reply in zip(request.transactions, answers, strict=True):
        producer = each.producer_id, each.producer_epoch
        call.work(_add(call, each.transactional_id, producer, each.topics, reply, only_verify=each.verify_only))
        yield
    yield answers
    for each, topics in zip(request.transactions, answers.found, strict=True):
        body.results_by_transaction.append(
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=topics
            )
        )
        yield
    call.answer(body)


def _add(
    call: Call,
    transactional_id: str,
    producer: tuple[int, int],
    topics: Iterable[Any],
    reply: Reply,
    *,
    only_verify: bool = False,
) -> Steps:
    """Add partitions to a transaction; `reply` gets the topics of the answer. They look the same in all versions.

    If one of the partitions doesn't exist, none is added, and no transaction begins.
    """
    make_topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    make_partition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    refused = _refusal(call, transactional_id)
    errors: dict[TopicPartition, ErrorCode] = {}
    asked: list[tuple[str, list[int]]] = []
    for each in topics:
        name, indexes = each.name, each.partitions
        asked.append((name, indexes))
        is_allowed = name not in INTERNAL_TOPICS and may(call, Operation.WRITE, Kind.TOPIC, name)
        for index in indexes:
            error = ErrorCode.NONE
            if not is_allowed:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not call.services.discovery.has_partition(name, index):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors[TopicPartition(name, index)] = error
            yield
        yield

    if refused is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        errors = dict.fromkeys(errors, refused)
    elif any(errors.values()):
        for where, error in errors.items():
            errors[where] = error or ErrorCode.OPERATION_NOT_ATTEMPTED
            yield
    elif refused:
        errors = dict.fromkeys(errors, refused)
    else:
        answer = Answer()
        event = AddPartitions(answer, call.client, transactional_id, *producer, list(errors), only_verify=only_verify)
        call.services.transactions.submit(transactional_id, event)
        yield answer
        errors = answer.found
    answered = []
    for name, indexes in asked:
        topic = make_topic(name=name, results_by_partition=[])
        answered.append(topic)
        for index in indexes:
            error = _error_in("AddPartitionsToTxn", call.api_version, errors[TopicPartition(name, index)])
            topic.results_by_partition.append(make_partition(partition_index=index, partition_error_code=error))
            yield
        yield
    reply.deliver(answered)


@short
def add_offsets_to_txn(call: Call, request: AddOffsetsToTxnRequest) -> Steps:
    """AddOffsetsToTxn: the partition of `__consumer_offsets` with the offsets of a group comes into the transaction."""
    error = _refusal(call, request.transactional_id)
    if not error and not may(call, Operation.READ, Kind.GROUP, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not error:
        where = call.services.transactions.partition_of_group(request.group_id)
        answer = Answer()
        producer = request.producer_id, request.producer_epoch
        event = AddPartitions(answer, call.client, request.transactional_id, *producer, [where])
        call.services.transactions.submit(request.transactional_id, event)
        yield answer
        error = answer.found[where]
    call.answer(AddOffsetsToTxnResponse(error_code=_error_in("AddOffsetsToTxn", call.api_version, error)))


def in_transaction(
    call: Call,
    api: str,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Iterable[TopicPartition],
    done: Callable[[dict[TopicPartition, ErrorCode]], None],
) -> None:
    """Find out whether partitions are in a transaction, or add them if the version of the API says so.

    done: gets an error for each, as the version of the API knows it.
    """
    adds = call.api_version >= V2_SINCE[api]
    if not transactional_id:
        done(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))
        return

    def answer(found: dict[TopicPartition, ErrorCode]) -> None:
        done({each: _error_in(api, call.api_version, _of_producer(api, error)) for each, error in found.items()})

    event = AddPartitions(
        Errand(answer),
        call.client,
        transactional_id,
        *producer,
        list(partitions),
        only_verify=not adds,
        waits=api == "Produce",
        version=V2 if adds else 0,
    )
    call.services.transactions.submit_anywhere(transactional_id, event)


NOT_THERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""A transaction's coordinator serves in a moment. The client knows nothing of it in these requests: it tries again."""

AGAIN = {
    "Produce": ErrorCode.NOT_ENOUGH_REPLICAS,
    "TxnOffsetCommit": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The errors by which clients try again at the same node, as Kafka chooses them."""


def _of_producer(api: str, error: ErrorCode) -> ErrorCode:
    """An error of a transaction's coordinator, in an API that doesn't go to it."""
    if error in NOT_THERE:
        return AGAIN[api]
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


# Commits of offsets.


def commit_in_transaction(call: Call, request: TxnOffsetCommitRequest) -> Steps | None:
    """TxnOffsetCommit: topics first, then the transaction, then the group with its members."""
    return begun(call, _commit(call, request), (topic.partitions for topic in request.topics))


def _commit(call: Call, request: TxnOffsetCommitRequest) -> Steps:
    call.is_kept = True
    refused = _forbidden(call, request.transactional_id)
    if refused is ErrorCode.NONE and not may(call, Operation.READ, Kind.GROUP, request.group_id):
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    errors: dict[tuple[str, int], ErrorCode] = {}
    known = OffsetCommitRequest(group_id=request.group_id, retention_time_ms=offsets.BROKER_RETENTION, topics=[])
    for topic in request.topics:
        is_known = bool(refused) or call.api_version < TOPIC_IDS_SINCE or _name(call, topic)
        is_allowed = bool(refused) or may(call, Operation.READ, Kind.TOPIC, topic.name)
        present = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic.name, partitions=[])
        for each in topic.partitions:
            if not is_known:
                errors[topic.name, each.partition_index] = ErrorCode.UNKNOWN_TOPIC_ID
            elif not is_allowed:
                errors[topic.name, each.partition_index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not refused and not call.services.discovery.has_partition(topic.name, each.partition_index):
                errors[topic.name, each.partition_index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                present.partitions.append(_as_committed(each))
            yield
        if present.partitions:
            known.topics.append(present)
        yield

    error = refused
    if error is ErrorCode.NONE and not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    if not error and known.topics:
        where = call.services.transactions.partition_of_group(request.group_id)
        prepared = yield from offsets.prepare(known, call.services.config.group, call.services.clock.wall_ms())
        producer = request.producer_id, request.producer_epoch
        found = Answer()
        in_transaction(call, "TxnOffsetCommit", request.transactional_id, producer, [where], found.deliver)
        yield found
        error = found.found[where]
        if not error:
            stored = Answer()
            event = CommitInTransaction(stored, call.client, request, prepared)
            call.services.runtime.submit(request.group_id, event)
            yield stored
            error = _error_in("TxnOffsetCommit", call.api_version, stored.found)
            if not error:
                errors.update(dict.fromkeys(prepared.too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE))
    body = TxnOffsetCommitResponse()
    for topic in request.topics:
        answered = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        body.topics.append(answered)
        for each in topic.partitions:
            own = errors.get((topic.name, each.partition_index), error)
            answered.partitions.append(
                TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=own
                )
            )
            yield
        yield
    call.answer(body)


def _name(call: Call, topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic) -> bool:
    """Give a topic the name of its id; returns whether there is one."""
    found = call.services.discovery.topic_by_id(topic.topic_id)
    topic.name = "" if found is None else found.name
    return found is not None


def _as_committed(
    each: TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
) -> OffsetCommitRequest.OffsetCommitRequestPartition:
    """The offset of a topic partition, as a plain commit has it."""
    return OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=each.partition_index,
        committed_offset=each.committed_offset,
        committed_leader_epoch=each.committed_leader_epoch,
        committed_metadata=each.committed_metadata,
    )


# The end.


@short
def end_txn(call: Call, request: EndTxnRequest) -> Steps:
    """EndTxn: commit or abort. The answer comes when the outcome is durable; markers follow."""
    transactional_id = request.transactional_id
    is_v2 = call.api_version >= V2_SINCE["EndTxn"]
    error, fresh = _refusal(call, transactional_id), NO_PRODUCER_ID
    if not error and is_v2 and request.producer_epoch >= EPOCH_MAX - 1:  # the producer id has no further epoch
        error, fresh = yield from _fresh_id(call)
    if error:
        granted = Granted(error)
    else:
        answer = Answer()
        event = EndTxn(
            answer,
            call.client,
            transactional_id,
            request.producer_id,
            request.producer_epoch,
            is_commit=request.committed,
            version=V2 if is_v2 else 0,
            fresh_producer_id=fresh,
        )
        call.services.transactions.submit(transactional_id, event)
        yield answer
        granted = answer.found
    body = EndTxnResponse(error_code=_error_in("EndTxn", call.api_version, granted.error))
    if is_v2:
        body.producer_id, body.producer_epoch = granted.producer_id, granted.epoch
    call.answer(body)


# Administration.


def describe_transactions(call: Call, request: DescribeTransactionsRequest) -> Steps:
    """DescribeTransactions. An id is described once, however often it is named; each has its own error."""
    kind = DescribeTransactionsResponse.TransactionState
    ids, places = yield from each_once(request.transactional_ids)
    answers = Answers(len(ids))
    for each, reply in zip(ids, answers, strict=True):
        if call.services.transactions.refusal:
            reply.deliver(kind(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=each))
        elif not may(call, Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, each):
            reply.deliver(kind(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id=each))
        elif not each:
            reply.deliver(kind(error_code=ErrorCode.INVALID_REQUEST, transactional_id=each))
        else:
            call.services.transactions.submit(each, DescribeTransaction(reply, call.client, each))
        yield
    yield answers
    states = answers.found
    for state in states:  # without the topics that the client may not describe
        state.topics = [each for each in state.topics if may(call, Operation.DESCRIBE, Kind.TOPIC, each.topic)]
        yield
    call.answer(DescribeTransactionsResponse(transaction_states=(yield from at_places(states, places))))


UNKNOWN_MAX = 100
"""Unknown states that an answer names: a client may send any number, and an array of texts is encoded in one go."""

LABELS = {*(status.label for status in Status), "Dead", "PrepareEpochFence"}
"""The names of all states in Kafka. No id here is ever in the last two."""


def list_transactions(call: Call, request: ListTransactionsRequest) -> Steps:
    """ListTransactions: the ids of this node that pass all filters."""
    regex, matches = request.transactional_id_pattern, None
    if regex:
        yield from outcome_of(lambda done: when_loaded(call.services.runtime.hop, partial(done, None)))
        matches = matcher(regex) if len(regex) <= REGEX_MAX else None
        if matches is None:
            call.answer(ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION))
            return
    now_ms = call.services.clock.wall_ms()
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)

    def passes(each: Listed) -> bool:
        return (
            (not states or each.status in states)
            and (not producer_ids or each.producer_id in producer_ids)
            and (each.start_ms == NO_TIME or now_ms - each.start_ms > request.duration_filter)
            and (matches is None or matches(each.transactional_id))
            and may(call, Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, each.transactional_id)
        )

    partitions = call.services.transactions.partitions()
    answers = Answers(len(partitions))
    for partition, reply in zip(partitions, answers, strict=True):
        partition.submit(None, ListTransactions(reply, call.client))
        yield
    yield answers
    listed = answers.found
    unknown = list(islice(filterfalse(LABELS.__contains__, request.state_filters), UNKNOWN_MAX))
    body = ListTransactionsResponse(unknown_state_filters=unknown)
    if None in listed:
        body.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    else:
        for each in chain.from_iterable(filter(None, listed)):
            if passes(each):
                body.transaction_states.append(
                    ListTransactionsResponse.TransactionState(
                        transactional_id=each.transactional_id,
                        producer_id=each.producer_id,
                        transaction_state=each.status,
                    )
                )
            yield
    call.answer(body)
