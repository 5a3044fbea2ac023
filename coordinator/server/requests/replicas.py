"""Requests about replicas: which of them leads, the folder where each lies, and moves to other nodes and folders.

A topic partition has one replica, on the node that leads it for ever. So each leader is the preferred one, no move is
ever under way, and a move is either to where the replica is, or refused. A node has one folder; the workers of one
server share it, and each of them shows the logs that it leads.

House rule: no state. Error messages are short: a request may name 100,000 topic partitions. Source: Kafka's
KafkaApis, ReplicaManager and ReplicationControlManager, release 3.9 in KRaft mode.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING

from coordinator.config import TOPIC_NAME_MAX
from coordinator.log.engine import EngineError
from coordinator.log.topics.list import Topic
from coordinator.log.topics.partition import TopicPartition
from coordinator.security.acls import Kind, Operation
from coordinator.server.requests.rights import NOT_ALLOWED, may
from coordinator.server.wire.call import Call, Steps, parts, result_of
from protocol.messages import (
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import (
        AlterPartitionReassignmentsRequest,
        AlterReplicaLogDirsRequest,
        DescribeLogDirsRequest,
        ElectLeadersRequest,
        ListPartitionReassignmentsRequest,
    )

# ElectLeaders.

PREFERRED, UNCLEAN = 0, 1
"""Types of elections: of the first replica, and of any replica if nobody leads."""


def elect_leaders(call: Call, request: ElectLeadersRequest) -> Steps:
    """ElectLeaders (KIP-183, KIP-460): no topic partition needs an election."""
    asked = request.topic_partitions
    body = ElectLeadersResponse()
    is_allowed = may(call, Operation.ALTER, Kind.CLUSTER)
    if not is_allowed:
        body.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    # As in Kafka, nobody looks at the type if nothing is asked for.
    elif request.election_type not in {PREFERRED, UNCLEAN} and asked != []:
        body.error_code = ErrorCode.INVALID_REQUEST
    elif asked is None:
        for topic in list(call.services.discovery.all_topics()):
            body.replica_election_results.append(ElectLeadersResponse.ReplicaElectionResult(topic=topic.name))
            yield
    for each in asked or ():
        result = ElectLeadersResponse.ReplicaElectionResult(topic=each.topic)
        known = call.services.discovery.topic(each.topic)
        no_topic = f"No such topic as {each.topic[:TOPIC_NAME_MAX]}"  # one text for all its partitions
        for index in each.partitions:
            error, message = ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads already."
            if not is_allowed:
                error, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED
            elif body.error_code:
                error, message = ErrorCode.INVALID_REQUEST, "There is no such type of elections."
            elif known is None:
                error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, no_topic
            elif not 0 <= index < known.partition_count:
                error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {known.name}-{index}"
            result.partition_result.append(
                ElectLeadersResponse.PartitionResult(partition_id=index, error_code=error, error_message=message)
            )
            yield
        body.replica_election_results.append(result)
        yield
    if call.api_version == 0:  # it has no error for the whole
        body.error_code = ErrorCode.NONE
    call.answer(body)


# DescribeLogDirs and AlterReplicaLogDirs.

MEASURED_AT_ONCE = 100
"""Logs that the logs' thread measures in one go. Other calls wait for that."""

FUTURE_NAME_SIZE = len("-.") + 32 + len("-future")
"""Characters that Kafka adds to topic and partition in the name of a folder that a log moves to."""

FILE_NAME_MAX = 255


def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> Steps:
    """DescribeLogDirs (KIP-113, KIP-827): the data folder, with the logs that this node leads."""
    found: dict[tuple[str, int], TopicPartition] = {}
    if not may(call, Operation.DESCRIBE, Kind.CLUSTER):
        call.answer(DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    for led in _led(call, request):
        if led is not None:
            found[led.topic, led.number] = led
        yield
    partitions = list(found.values())

    sizes: list[int] = []
    result = DescribeLogDirsResponse.DescribeLogDirsResult()
    try:
        # Also without partitions: the folder's size is asked for.
        for some in list(parts(partitions, MEASURED_AT_ONCE)) or [[]]:
            measured = yield from result_of(call.services.data.measure, some)
            sizes += measured.sizes
            result.total_bytes, result.usable_bytes = measured.total, measured.usable
            yield
    except (EngineError, OSError):
        result = DescribeLogDirsResponse.DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        partitions, sizes = [], []
    assert call.services.data.log_dir is not None
    result.log_dir = call.services.data.log_dir
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for partition, size in zip(partitions, sizes, strict=True):
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = DescribeLogDirsResponse.DescribeLogDirsTopic(name=partition.topic)
        topic.partitions.append(
            DescribeLogDirsResponse.DescribeLogDirsPartition(partition_index=partition.number, partition_size=size)
        )
        yield
    result.topics = list(topics.values())
    call.answer(DescribeLogDirsResponse(results=[result]))


def _led(call: Call, request: DescribeLogDirsRequest) -> Iterator[TopicPartition | None]:
    """The topic partitions that are asked for and that this node leads, with None in place of others."""
    asked: Iterable[tuple[Topic | None, Iterable[int]]]
    if request.topics is None:
        asked = ((topic, range(topic.partition_count)) for topic in list(call.services.discovery.all_topics()))
    else:
        asked = ((call.services.discovery.topic(each.topic), each.partitions) for each in request.topics)
    for topic, indexes in asked:
        yield None
        for index in indexes:
            if topic is None or not 0 <= index < topic.partition_count or not call.services.data.leads(topic, index):
                yield None
            else:
                yield call.services.data.topic_partition(topic, index)


def alter_replica_log_dirs(call: Call, request: AlterReplicaLogDirsRequest) -> Steps:
    """AlterReplicaLogDirs (KIP-113): a log can only be moved to the folder where it is."""
    targets: dict[str, dict[int, str]] = {}
    is_allowed = may(call, Operation.ALTER, Kind.CLUSTER)
    for folder in request.dirs:
        for topic in folder.topics:
            for index in topic.partitions:
                targets.setdefault(topic.name, {})[index] = folder.path
                yield
            yield
        yield
    results = []
    for name, paths in targets.items():
        result = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name)
        known = call.services.discovery.topic(name)
        for index, path in paths.items():
            error = ErrorCode.NONE
            if not is_allowed:
                error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            elif len(name) + len(str(index)) + FUTURE_NAME_SIZE > FILE_NAME_MAX:
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif path != call.services.data.log_dir:
                error = ErrorCode.LOG_DIR_NOT_FOUND
            elif known is None or not 0 <= index < known.partition_count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not call.services.data.leads(known, index):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
            result.partitions.append(
                AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
            )
            yield
        results.append(result)
    call.answer(AlterReplicaLogDirsResponse(results=results))


# Reassignments.

NO_PARTITION: str | None = "There is no such topic partition."


def alter_partition_reassignments(call: Call, request: AlterPartitionReassignmentsRequest) -> Steps:
    """AlterPartitionReassignments (KIP-455): a topic partition can only be moved to the node where it is."""
    body = AlterPartitionReassignmentsResponse(error_message=None if request.topics else "")  # as in Kafka
    is_allowed = may(call, Operation.ALTER, Kind.CLUSTER)
    if not is_allowed:
        body.error_code, body.error_message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED
    elif request.topics:
        body.allow_replication_factor_change = request.allow_replication_factor_change
    for topic in request.topics:
        answer = AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic.name)
        known = call.services.discovery.topic(topic.name)
        for asked in topic.partitions:
            index = asked.partition_index
            error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_PARTITION
            if not is_allowed:
                error, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED
            elif known is not None and 0 <= index < known.partition_count:
                error, message = yield from _move_problem(call, call.services.discovery.leader(known, index), asked)
            answer.partitions.append(
                AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                    partition_index=index, error_code=error, error_message=message
                )
            )
            yield
        body.responses.append(answer)
        yield
    call.answer(body)


def _move_problem(
    call: Call, leader: int, asked: AlterPartitionReassignmentsRequest.ReassignablePartition
) -> Generator[None, None, tuple[ErrorCode, str | None]]:
    """The reason why a topic partition can't move to the nodes of a request; NONE if it is there."""
    if asked.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    node_ids: set[int] = set()
    for node_id in asked.replicas:
        if node_id not in call.services.discovery.node_ids:
            return invalid, f"There is no broker {node_id}."
        if node_id in node_ids:
            return invalid, f"Broker {node_id} is named more than once."
        node_ids.add(node_id)
        yield
    if node_ids != {leader}:
        return invalid, f"Its only replica stays on broker {leader}."
    return ErrorCode.NONE, None


def list_partition_reassignments(
    call: Call,
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001 - none is under way, whatever it asks for
) -> None:
    """ListPartitionReassignments (KIP-455): none is ever under way."""
    if may(call, Operation.DESCRIBE, Kind.CLUSTER):
        call.answer(ListPartitionReassignmentsResponse(error_message=None))
        return
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    call.answer(ListPartitionReassignmentsResponse(error_code=error, error_message=NOT_ALLOWED))
