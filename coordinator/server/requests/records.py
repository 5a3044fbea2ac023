"""Requests about the logs of topics: where they start and end, and records to delete. `produce` and `fetch` are beside.

One node leads a topic partition, in epoch 0, for ever. All records in a log are durable, so its end is its high
watermark. A reader of committed records reads up to the last stable offset, where the oldest open transaction begins.

House rule: no state. Source: Kafka's KafkaApis, ReplicaManager and UnifiedLog, release 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from coordinator.config import INT64_MAX
from coordinator.log.engine import EngineError
from coordinator.log.segments.journal import journal_number
from coordinator.log.segments.segment import ENGINES_TOPICS
from coordinator.log.segments.view import NO_OFFSET, NO_TIME, Rejected, View
from coordinator.log.topics.list import Topic
from coordinator.log.topics.log import TopicLog
from coordinator.log.topics.partition import TopicPartition as LogPartition
from coordinator.security.acls import Kind, Operation
from coordinator.server.nodes.discovery import LEADER_EPOCH
from coordinator.server.nodes.topics import INTERNAL_TOPICS
from coordinator.server.requests.rights import may
from coordinator.server.wire.call import Call, Steps, parts, result_of
from protocol.messages import DeleteRecordsResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from protocol.records.batch import CorruptBatch
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, NOT_TIERED = -1, -2, -3, -4, -5, -6
"""The negative timestamps of ListOffsets, which ask for an end of a log or a special record."""

ASKED_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, NOT_TIERED: 11}
"""The timestamps that later versions of ListOffsets added, and the first version with each."""

READ_COMMITTED = 1

BY_ID_SINCE = 13
"""The version since which clients name topics by their ids, in Produce and in Fetch."""

PLAIN_MAX = 500
"""Topics and partitions in a Produce or Fetch. One with more is handled in steps; 500 take 2 to 4 ms."""


def begun(call: Call, steps: Steps, partitions: Iterable[Sized]) -> Steps | None:
    """Do a Produce or Fetch at once, or return its steps if it is large. partitions: of each topic."""
    sizes = list(map(len, islice(partitions, PLAIN_MAX + 1)))
    if len(sizes) + sum(sizes) > PLAIN_MAX:
        return steps
    call.do(steps)
    return None


Look = Callable[["LogPartition"], "View"]
Open = Callable[["LogPartition"], "TopicLog"]
"""On the logs' thread: open a log to read it, or to change it. Raises EngineError."""


def partition_of(
    call: Call, topic: Topic | None, index: int, current_leader_epoch: int = LEADER_EPOCH
) -> LogPartition | ErrorCode:
    """A partition of a topic; an error if there is none, or if another node leads it.

    The client may also expect a later epoch of its leader (KIP-320).
    """
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not call.services.data.leads(topic, index):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return call.services.data.topic_partition(topic, index)


def topic_of(call: Call, operation: Operation, named: UUID | str) -> tuple[Topic | None, ErrorCode]:
    """Find a topic by its id or name, and the error of all its topic partitions if there is one."""
    if isinstance(named, str):
        topic = call.services.discovery.topic(named)
    else:
        topic = call.services.discovery.topic_by_id(named)
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        named = topic.name
    if not may(call, operation, Kind.TOPIC, named):
        return topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE


def code_of(problem: Exception) -> ErrorCode:
    """The error code for a problem on the logs' thread. Raises any exception that is a fault of the server."""
    if isinstance(problem, Rejected):
        return problem.error
    if isinstance(problem, EngineError | OSError | CorruptBatch):
        return ErrorCode.KAFKA_STORAGE_ERROR
    raise problem


class _Asked(NamedTuple):
    """A topic partition that a request asks about. answer: its part of the response. about: what the request says."""

    answer: Any
    topic_partition: LogPartition
    about: int


def _read(call: Call, asked_of: list[_Asked], find: Callable[[Any, int, View], None]) -> Steps:
    """Have `find` fill each answer on the logs' thread, from what the request says and the log."""

    def look(view_of: Look) -> None:
        for answer, topic_partition, about in asked_of:
            try:
                find(answer, about, view_of(topic_partition))
            except Exception as problem:  # noqa: BLE001 - code_of sorts them
                answer.error_code = code_of(problem)

    if asked_of:
        in_journals: set[int] = set()
        for each in asked_of:
            note_engines_log(in_journals, each.topic_partition)
            yield
        yield from result_of(call.services.data.read, look, in_journals)


# ListOffsets.


def list_offsets(call: Call, request: ListOffsetsRequest) -> Steps:
    """ListOffsets: where logs start and end, or the first record from a time on."""
    counts: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for each in topic.partitions:
            key = topic.name, each.partition_index
            counts[key] = counts.get(key, 0) + 1
            yield
        yield
    topics = []
    asked_of: list[_Asked] = []
    for topic in request.topics:
        partitions = []
        known = call.services.discovery.topic(topic.name)
        is_allowed = may(call, Operation.DESCRIBE, Kind.TOPIC, topic.name)
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
                found = partition_of(call, known, asked.partition_index, asked.current_leader_epoch)
                if isinstance(found, ErrorCode):
                    answer.error_code = found
                else:
                    asked_of.append(_Asked(answer, found, asked.timestamp))
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        yield

    only_committed = request.isolation_level == READ_COMMITTED

    def find(answer: ListOffsetsResponse.ListOffsetsPartitionResponse, timestamp: int, log: View) -> None:
        found = _offset_at(log, timestamp, only_committed=only_committed)
        if found is not None and call.api_version == 0:
            answer.old_style_offsets = [found[0]]
        elif found is not None:
            answer.offset, answer.timestamp = found
            if call.api_version >= 4:
                answer.leader_epoch = LEADER_EPOCH

    yield from _read(call, asked_of, find)
    call.answer(ListOffsetsResponse(topics=topics))


def note_engines_log(numbers: set[int], topic_partition: LogPartition) -> None:
    """Add the partition's number in journals if an engine writes its log."""
    if topic_partition.topic in ENGINES_TOPICS:
        numbers.add(journal_number(topic_partition.number, topic_partition.topic))


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


def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> Steps:
    """OffsetForLeaderEpoch: a log has one epoch, which ends at the end of the log.

    In a cluster a user's topic has no records, but groups that came from a broker may have committed offsets in it,
    with the broker's epochs. So every epoch ends above all offsets: otherwise consumers would conclude that the log was
    cut, and commit other offsets.
    """
    topics = []
    asked_of: list[_Asked] = []
    may_all = may(call, Operation.CLUSTER_ACTION, Kind.CLUSTER, is_logged=False)
    for topic in request.topics:
        partitions = []
        known = call.services.discovery.topic(topic.topic)
        is_allowed = may_all or may(call, Operation.DESCRIBE, Kind.TOPIC, topic.topic)
        for asked in topic.partitions:
            yield
            answer = OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition)
            partitions.append(answer)
            if not is_allowed:
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            found = partition_of(call, known, asked.partition, asked.current_leader_epoch)
            if isinstance(found, ErrorCode):
                answer.error_code = found
            elif not call.services.discovery.keeps_records and topic.topic not in INTERNAL_TOPICS:
                answer.leader_epoch, answer.end_offset = asked.leader_epoch, INT64_MAX
            elif asked.leader_epoch == LEADER_EPOCH:
                asked_of.append(_Asked(answer, found, LEADER_EPOCH))
        topics.append(OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield

    def find(answer: OffsetForLeaderEpochResponse.EpochEndOffset, epoch: int, log: View) -> None:
        answer.end_offset, answer.leader_epoch = log.ends().end, epoch

    yield from _read(call, asked_of, find)
    call.answer(OffsetForLeaderEpochResponse(topics=topics))


# DeleteRecords.

DELETED_AT_ONCE = 10
"""Logs whose start the logs' thread moves in one go, each with a sync of the disk. Other calls wait for that."""


def delete_records(call: Call, request: DeleteRecordsRequest) -> Steps:
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
    asked_of: list[_Asked] = []
    for (name, index), offset in offsets.items():
        found = partition_of(call, call.services.discovery.topic(name), index)
        answer = DeleteRecordsResponse.DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET)
        topics.setdefault(name, DeleteRecordsResponse.DeleteRecordsTopicResult(name=name)).partitions.append(answer)
        if not may(call, Operation.DELETE, Kind.TOPIC, name):
            answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif found is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in ENGINES_TOPICS:
            answer.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif isinstance(found, ErrorCode):
            answer.error_code = found
        elif not found.limits.is_deleted:
            answer.error_code = ErrorCode.POLICY_VIOLATION
        else:
            asked_of.append(_Asked(answer, found, offset))
        yield
    for some in parts(asked_of, DELETED_AT_ONCE):
        yield from result_of(call.services.data.write, partial(_delete_before, some))
        yield
    call.answer(DeleteRecordsResponse(topics=list(topics.values())))


def _delete_before(asked_of: Iterable[_Asked], open_log: Open) -> None:
    """On the logs' thread: move the start of some logs."""
    for answer, topic_partition, offset in asked_of:
        try:
            log = open_log(topic_partition)
            log.delete_before(offset)
            answer.low_watermark = log.view.start
        except Exception as problem:  # noqa: BLE001 - code_of sorts them
            answer.error_code = code_of(problem)
