"""Requests about the cluster (Metadata, DescribeCluster, FindCoordinator), and to create, grow and delete topics.

House rule: no state. Source: Kafka's KafkaApis, ControllerApis and ReplicationControlManager, 3.9 in KRaft mode.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING
from uuid import UUID

from coordinator.apis import CLUSTER, CREATE, DESCRIBE, TOPIC
from coordinator.config import TOPIC_PARTITIONS_MAX, topic_name_problem
from coordinator.log.engine import NOBODY, EngineError
from coordinator.log.topics.entries import plain
from coordinator.log.topics.list import Topic
from coordinator.security.acls import Kind, Operation
from coordinator.server.nodes.discovery import LEADER_EPOCH, NO_NODE, Discovery, Node
from coordinator.server.nodes.topic_settings import TOPIC_CONFIGS, config_problem, trimmed
from coordinator.server.nodes.topics import INTERNAL_TOPICS, Altered, Change, ChangeResult
from coordinator.server.requests.configs import CreatedConfigs
from coordinator.server.requests.many import answer_changed, changed, error_of
from coordinator.server.requests.rights import may, operations
from coordinator.server.runtime.partition import Standing
from coordinator.server.wire.call import Call, Steps, count
from coordinator.story.schema import EVENTS_TOPIC
from coordinator.text import cut_text
from protocol.messages import (
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    DescribeClusterResponse,
    FindCoordinatorResponse,
    MetadataResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import (
        CreatePartitionsRequest,
        DeleteTopicsRequest,
        DescribeClusterRequest,
        FindCoordinatorRequest,
        MetadataRequest,
    )

NO_ID = UUID(int=0)

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types of FindCoordinator."""

RESERVED_TOPIC = "__cluster_metadata"

CREATE_PARTITIONS_MAX = TOPIC_PARTITIONS_MAX
"""The most partitions that one CreateTopics creates, as in Kafka; more is POLICY_VIOLATION."""

KEPT_PARTS_MAX = 100
"""A program asks for few topics and one group when it starts."""

ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""The errors of topics that don't exist."""

# Metadata.


def metadata(call: Call, request: MetadataRequest) -> Steps:
    """Metadata: nodes and topics. A topic that doesn't exist is created if the client and the settings allow it."""
    version, asked, discovery = call.api_version, request.topics, call.services.discovery
    # An id or a name that is there several times is shown once.
    ids: dict[UUID, None] = {}
    names: dict[str, None] = {}
    has_null = False
    for each in asked or ():
        if each.topic_id != NO_ID:
            ids[each.topic_id] = None
        has_null = has_null or each.name is None
        names[each.name or ""] = None
        yield
    if asked is not None and version < 12 and (ids or has_null):
        refused = []
        for each in asked:
            refused.append(
                MetadataResponse.MetadataResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=each.name or "", topic_id=each.topic_id
                )
            )
            yield
        call.answer(MetadataResponse(topics=refused))
        return
    topics: list[MetadataResponse.MetadataResponseTopic] = []
    shown = _Shown(discovery, version)
    if asked is None or (version == 0 and not asked):
        for known in list(discovery.all_topics()):
            if may(call, DESCRIBE, TOPIC, known.name, is_logged=False):
                topics.append((yield from shown.topic(known)))
            yield
    else:
        for key in ids or names:
            found = discovery.topic_by_id(key) if isinstance(key, UUID) else discovery.topic(key)
            name = key if isinstance(key, str) else None if found is None else found.name
            if name is not None and not may(call, DESCRIBE, TOPIC, name):
                topics.append(_not_shown(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif found is None:
                topics.append(_not_shown(key, ErrorCode.NONE))
            else:
                topics.append((yield from shown.topic(found)))
            yield
        if not ids and request.allow_auto_topic_creation and call.services.config.auto_create_topics_enable:
            yield from _create_missing(call, topics)
    if version >= 8 and request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = operations(call, Kind.TOPIC, topic.name)
            yield
    nodes = discovery.nodes(call)
    body = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port)
            for node in nodes
        ],
        cluster_id=discovery.cluster_id,
        controller_id=discovery.controller_id,
        topics=topics,
    )
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        body.cluster_authorized_operations = _cluster_operations(call)
    call.may_repeat = discovery.is_fixed and _may_be_kept(topics)
    call.answer(body)


def _may_be_kept(parts: Sequence[MetadataResponse.MetadataResponseTopic | FindCoordinatorResponse.Coordinator]) -> bool:
    """Whether these parts of an answer are as few as those of a program that starts, and none is an error."""
    return len(parts) <= KEPT_PARTS_MAX and not any(each.error_code for each in parts)


def _cluster_operations(call: Call) -> int:
    """The authorized operations on the cluster; none without the right to describe it."""
    return operations(call, Kind.CLUSTER) if may(call, Operation.DESCRIBE, Kind.CLUSTER) else 0


def _not_shown(key: UUID | str, error: ErrorCode) -> MetadataResponse.MetadataResponseTopic:
    """A topic that was asked for by its id or name. error: NONE if there is no such topic."""
    if isinstance(key, UUID):
        return MetadataResponse.MetadataResponseTopic(
            error_code=error or ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=key
        )
    if error:
        return MetadataResponse.MetadataResponseTopic(error_code=error, name=key)
    is_valid = topic_name_problem(key) is None
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponse.MetadataResponseTopic(error_code=error, name=key, is_internal=key in INTERNAL_TOPICS)


class _Shown:
    """Shows topics in one answer. Partitions with the same number and leader look the same, so topics share them."""

    def __init__(self, discovery: Discovery, version: int) -> None:
        self._discovery = discovery
        self._replicas: dict[int, list[int]] = {NOBODY: []}
        self._leader_epoch = LEADER_EPOCH if version >= 7 else -1
        self._partitions: dict[tuple[int, int], MetadataResponse.MetadataResponsePartition] = {}

    def topic(self, topic: Topic) -> Generator[None, None, MetadataResponse.MetadataResponseTopic]:
        partitions = []
        for index in range(topic.partition_count):
            leader = self._discovery.leader(topic, index)
            partition = self._partitions.get((index, leader))
            if partition is None or (leader == NOBODY and topic.name == EVENTS_TOPIC):
                replicas = self._replicas.get(leader) or self._replicas.setdefault(leader, [leader])
                if leader == NOBODY:
                    replicas = self._discovery.replicas(topic, index)
                partition = self._partitions[index, leader] = MetadataResponse.MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self._leader_epoch,
                    replica_nodes=replicas,
                    isr_nodes=replicas,
                )
                if leader == NOBODY:
                    partition.error_code = ErrorCode.LEADER_NOT_AVAILABLE
            partitions.append(partition)
            yield
        return MetadataResponse.MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=partitions,
        )


def _create_missing(call: Call, topics: list[MetadataResponse.MetadataResponseTopic]) -> Steps:
    """Create the topics that don't exist. The answer still calls them unknown: the client asks again, as with Kafka.

    One request creates no more than one CreateTopics can. The client's next one creates more.
    """
    store, partitions = call.services.discovery.topics, call.services.config.num_partitions
    missing: dict[str, Topic] = {}
    may_all: bool | None = None
    for topic in topics:
        yield
        name = topic.name
        if topic.error_code not in ABSENT or name is None:
            continue
        if may_all is None:
            may_all = may(call, CREATE, CLUSTER, is_logged=False)
        if not (may_all or may(call, Operation.CREATE, Kind.TOPIC, name)):
            topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.is_internal = name in INTERNAL_TOPICS
        if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or name == RESERVED_TOPIC:
            continue
        if not store.is_taken(name) and store.collision(name) is None and plain(name) not in missing:
            missing[plain(name)] = Topic(name, UUID(call.services.fresh_id()), partitions)
            if (len(missing) + 1) * partitions > CREATE_PARTITIONS_MAX:
                break
    if missing:
        # If it fails, a log line says why, and the client finds the topic unknown again.
        store.create(list(missing.values()), lambda _: None)


# DescribeCluster.

BROKERS = 1
"""The one endpoint type that Tenure has."""

FAILING_MAX = 100
"""Failing logs that an answer names; its count covers all."""


def describe_cluster(call: Call, request: DescribeClusterRequest) -> None:
    """DescribeCluster: the same nodes as in Metadata."""
    body = DescribeClusterResponse()
    if request.endpoint_type != BROKERS:
        body.error_code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE if request.endpoint_type == 2 else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        body.error_message = f"There are no endpoints of type {request.endpoint_type} here."
        call.answer(body)
        return
    nodes = call.services.discovery.nodes(call)
    body.cluster_id = call.services.discovery.cluster_id
    body.controller_id = call.services.discovery.controller_id
    body.brokers = [
        DescribeClusterResponse.DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port)
        for node in nodes
    ]
    if request.include_cluster_authorized_operations:
        body.cluster_authorized_operations = _cluster_operations(call)
    if request.include_failing_logs and may(call, Operation.DESCRIBE, Kind.CLUSTER):
        failing = _failing_logs(call)
        body.failing_log_count = len(failing)
        body.failing_logs = [
            DescribeClusterResponse.FailingLog(name=name, since_ms=since_ms, reason=cut_text(reason))
            for name, (since_ms, reason) in sorted(failing.items())[:FAILING_MAX]
        ]
        numbers = call.services.discovery.store_numbers()
        if numbers is not None:
            health = DescribeClusterResponse.StoreHealth(used=numbers.used, quota=numbers.quota)
            health.calls, health.slow, health.lost, health.longest_ms = numbers.recent
            body.store = health
    call.answer(body)


def _failing_logs(call: Call) -> dict[str, tuple[int, str]]:
    """By topic partition, the logs of this node that can't be written or read: since when (Unix time in ms), and why.

    A log that failed counts as failing until it works again, so until somebody uses it.
    """
    return {
        **call.services.data.failing.copy(),
        **{
            each.name: (each.trouble.since_ms, each.trouble.reason)
            for each in call.services.runtime.partitions
            if each.trouble.reason and each.standing is not Standing.AWAY
        },
    }


# FindCoordinator.


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> Steps:
    """FindCoordinator: the node with the partition of a group or a transactional id; there is none for share groups.

    Where there are no transactions, a client that wants them gets an error that ends it. It would retry
    COORDINATOR_NOT_AVAILABLE for ever.
    """
    key_type = request.key_type
    error, message = ErrorCode.NONE, ""
    if key_type == TRANSACTION and call.services.transactions.refusal:
        error, message = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, call.services.transactions.refusal
    elif key_type == SHARE and call.api_version >= 4:
        error = ErrorCode.INVALID_REQUEST  # without a message, as in Kafka
    elif key_type not in {GROUP, TRANSACTION}:
        error, message = ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type}."

    def node_for(key: str) -> tuple[Node, ErrorCode, str]:
        if error:
            return NO_NODE, error, message
        if key_type == TRANSACTION and not may(call, Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, key):
            text = "Transactional Id authorization failed."
            return NO_NODE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text
        if key_type == GROUP and not may(call, Operation.DESCRIBE, Kind.GROUP, key):
            return NO_NODE, ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
        if key_type == TRANSACTION:
            call.services.transactions.open()
        node = call.services.discovery.coordinator(key, call, is_transactional=key_type == TRANSACTION)
        if node is NO_NODE:
            return node, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."
        return node, ErrorCode.NONE, ""

    stays = key_type == GROUP and call.services.discovery.is_fixed and call.services.discovery.is_never_silent
    if call.api_version >= 4:
        coordinators = []
        for key in request.coordinator_keys:
            node, error_code, error_message = node_for(key)
            coordinators.append(
                FindCoordinatorResponse.Coordinator(
                    key=key,
                    node_id=node.node_id,
                    host=node.host,
                    port=node.port,
                    error_code=error_code,
                    error_message=error_message,
                )
            )
            yield
        call.may_repeat = stays and _may_be_kept(coordinators)
        call.answer(FindCoordinatorResponse(coordinators=coordinators))
    else:
        node, error_code, error_message = node_for(request.key)
        call.may_repeat = stays and not error_code
        call.answer(
            FindCoordinatorResponse(
                error_code=error_code,
                error_message=error_message or "NONE",  # Kafka's text for no error
                node_id=node.node_id,
                host=node.host,
                port=node.port,
            )
        )


# Changes of the list of topics.

THROTTLED = "The throttling quota has been exceeded."


def _may_change(call: Call, partitions: int) -> bool:
    """Whether the quota of the client allows it to create or delete partitions; they count against it."""
    return call.meter is None or call.meter.may_change(partitions, call.api_version)


# CreateTopics.


def create_topics(call: Call, request: CreateTopicsRequest) -> Steps:
    """CreateTopics (KIP-4). Each topic is created or refused by itself. The answer waits until all are durable."""
    counts = yield from count(topic.name for topic in request.topics)
    results: list[CreateTopicsResponse.CreatableTopicResult] = []
    created: list[Topic] = []
    names: dict[str, str] = {}
    shown = CreatedConfigs(call)
    may_all = may(call, Operation.CREATE, Kind.CLUSTER, is_logged=False)
    partitions = 0
    for asked in request.topics:
        yield
        if counts[asked.name] > 1:
            continue
        error, message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
        if may_all or asked.name == RESERVED_TOPIC or may(call, Operation.CREATE, Kind.TOPIC, asked.name):
            error, message = yield from _problem(call, asked, names)
        if error is not ErrorCode.NONE:
            results.append(_failed(asked.name, error, message))
            continue
        if not _may_change(call, _partition_count(call, asked)):
            results.append(_failed(asked.name, ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED))
            continue
        topic = Topic(asked.name, UUID(call.services.fresh_id()), _partition_count(call, asked))
        for each in asked.configs:
            if each.value is not None:
                topic.configs[each.name] = trimmed(each.value, TOPIC_CONFIGS[each.name].kind)
            yield
        created.append(topic)
        names[plain(topic.name)] = topic.name
        results.append(_succeeded(call, topic, shown))
        partitions += topic.partition_count
        if partitions > CREATE_PARTITIONS_MAX:
            break
    if partitions > CREATE_PARTITIONS_MAX:
        message = f"More than {CREATE_PARTITIONS_MAX} partitions in one request."
        results, created = [], []
        for asked in request.topics:
            results.append(_failed(asked.name, ErrorCode.POLICY_VIOLATION, message))
            yield
    else:
        for name, times in counts.items():
            if times > 1:
                results.append(_failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            yield
    outcome: ChangeResult = {}
    if created and not request.validate_only:
        outcome = yield from changed(call, Change(created=created), request.timeout_ms)
    topics = []
    for result in results:
        name = result.name
        if result.error_code != ErrorCode.NONE:
            topics.append(result)
        elif isinstance(outcome, EngineError):
            topics.append(_failed(name, error_of(outcome), str(outcome)))
        else:
            topics.append(_failed(name, *_taken(name, outcome[name])) if name in outcome else result)
        yield
    call.answer(CreateTopicsResponse(topics=topics))


def _partition_count(call: Call, asked: CreateTopicsRequest.CreatableTopic) -> int:
    default = call.services.config.num_partitions if asked.num_partitions == -1 else asked.num_partitions
    return len(asked.assignments) or default


def _succeeded(call: Call, topic: Topic, shown: CreatedConfigs) -> CreateTopicsResponse.CreatableTopicResult:
    result = CreateTopicsResponse.CreatableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None)
    if not may(call, Operation.DESCRIBE_CONFIGS, Kind.TOPIC, topic.name, is_logged=False):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif call.api_version >= 5:
        result.num_partitions = topic.partition_count
        result.replication_factor = 1
        result.configs = shown.of(topic)
    return result


def _failed(name: str, error: ErrorCode, message: str) -> CreateTopicsResponse.CreatableTopicResult:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=error, error_message=cut_text(message), configs=[]
    )


def _problem(
    call: Call, asked: CreateTopicsRequest.CreatableTopic, created: dict[str, str]
) -> Generator[None, None, tuple[ErrorCode, str]]:
    """Check a topic to create; NONE if it can be created. created: topics of the same request, plain name -> name."""
    name = asked.name
    if name == RESERVED_TOPIC:
        return ErrorCode.INVALID_REQUEST, f"{RESERVED_TOPIC} is not for users."
    if call.services.discovery.topics.is_taken(name):
        return _taken(name, name)
    problem = topic_name_problem(name)
    if problem is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}"
    collision = call.services.discovery.topics.collision(name) or created.get(plain(name))
    if collision is not None:
        return _taken(name, collision)
    for config in asked.configs:
        problem = config_problem(config.name, config.value)
        if problem is not None:
            return ErrorCode.INVALID_CONFIG, problem
        yield
    if asked.assignments:
        return (yield from _assignment_problem(call, asked))
    if asked.replication_factor < -1 or asked.replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    if asked.num_partitions < -1 or asked.num_partitions == 0:
        return ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
    if asked.replication_factor > 1:
        message = (
            f"The target replication factor of {asked.replication_factor} cannot be reached: nothing is replicated."
        )
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    return ErrorCode.NONE, ""


def _taken(name: str, other: str) -> tuple[ErrorCode, str]:
    """The error for a topic whose name collides with `other`: both are the same, or differ only in '.' and '_'."""
    if name == other:
        return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
    return ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"


def _assignment_problem(
    call: Call, asked: CreateTopicsRequest.CreatableTopic
) -> Generator[None, None, tuple[ErrorCode, str]]:
    """The problem of a manual assignment, if it has one: each partition's only replica must be this node."""
    if asked.replication_factor != -1 or asked.num_partitions != -1:
        message = "With a manual assignment, replication factor and number of partitions have to be -1."
        return ErrorCode.INVALID_REQUEST, message
    node_ids = call.services.discovery.node_ids
    indexes: set[int] = set()
    names_others = False
    for assignment in asked.assignments:
        indexes.add(assignment.partition_index)
        names_others = names_others or assignment.broker_ids != node_ids
        yield
    if len(indexes) < len(asked.assignments) or min(indexes) != 0 or max(indexes) != len(indexes) - 1:
        message = "The partitions of a manual assignment have to be 0, 1, 2, ..., each once."
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    if len(node_ids) > 1:
        message = "A client can't choose which worker leads a partition."
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    if names_others:
        message = f"A manual assignment can only name broker {node_ids[0]}, once for each partition."
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return ErrorCode.NONE, ""


# CreatePartitions.


def create_partitions(call: Call, request: CreatePartitionsRequest) -> Steps:
    """CreatePartitions (KIP-195). Each topic grows or is refused by itself. The answer waits until all are durable."""
    counts = yield from count(topic.name for topic in request.topics)
    results: dict[str, tuple[ErrorCode, str | None]] = {}
    grown: dict[str, Altered] = {}
    for asked in request.topics:
        topic = call.services.discovery.topics.newest(asked.name)
        error, message = ErrorCode.NONE, None
        if counts[asked.name] > 1:
            error, message = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
        elif not may(call, Operation.ALTER, Kind.TOPIC, asked.name):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            error, message = yield from _growth_problem(call, topic, asked)
            if not error and not _may_change(call, asked.count - topic.partition_count):
                error, message = ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED
            if not error:
                grown[topic.name] = Altered(topic.topic_id, asked.count)
        results[asked.name] = error, message
        yield

    if grown and not request.validate_only:
        outcome = yield from changed(call, Change(altered=list(grown.values())), request.timeout_ms)
        if isinstance(outcome, EngineError):
            results.update(dict.fromkeys(grown, (error_of(outcome), cut_text(str(outcome)))))
    topics = []
    for name, (error, message) in results.items():
        topics.append(
            CreatePartitionsResponse.CreatePartitionsTopicResult(name=name, error_code=error, error_message=message)
        )
        yield
    call.answer(CreatePartitionsResponse(results=topics))


def _growth_problem(
    call: Call, topic: Topic, asked: CreatePartitionsRequest.CreatePartitionsTopic
) -> Generator[None, None, tuple[ErrorCode, str | None]]:
    """Check the growth of a topic that a request asks for; NONE if it can grow so."""
    now, wanted = topic.partition_count, asked.count
    if wanted == now:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s)."
    if wanted < now:
        message = f"The topic {topic.name} currently has {now} partition(s); {wanted} would not be an increase."
        return ErrorCode.INVALID_PARTITIONS, message
    if wanted - now > CREATE_PARTITIONS_MAX or wanted > TOPIC_PARTITIONS_MAX:
        return ErrorCode.INVALID_PARTITIONS, f"A topic has at most {TOPIC_PARTITIONS_MAX} partitions."
    if asked.assignments is not None:
        node_ids = call.services.discovery.node_ids
        if len(asked.assignments) != wanted - now:
            message = f"{wanted - now} more partition(s), but {len(asked.assignments)} assignment(s)."
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
        names_others = len(node_ids) > 1
        for each in asked.assignments:
            names_others = names_others or each.broker_ids != node_ids
            yield
        if names_others:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A client can't choose the leader of a partition."
    return ErrorCode.NONE, None


# DeleteTopics.


def delete_topics(call: Call, request: DeleteTopicsRequest) -> Steps:
    """DeleteTopics (KIP-4), by name or id (KIP-516). The answer waits until all deletions are durable."""
    topics = call.services.discovery.topics
    may_all = may(call, Operation.DELETE, Kind.CLUSTER, is_logged=False)
    by_name: Iterator[tuple[str | None, UUID]] = ((name, NO_ID) for name in request.topic_names)
    counts = yield from count(chain(by_name, ((each.name, each.topic_id) for each in request.topics)))
    results: list[DeleteTopicsResponse.DeletableTopicResult] = []
    deleted: dict[UUID, DeleteTopicsResponse.DeletableTopicResult] = {}
    for name, topic_id in counts:
        result = DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id)
        results.append(result)
        known = topics.get_by_id(topic_id) if name is None else topics.get(name)
        topic = None if known is None else topics.newest(known.name)
        found = call.services.discovery.topic_by_id(topic_id) if name is None else call.services.discovery.topic(name)
        error, message = ErrorCode.NONE, None
        if (name is None) == (topic_id == NO_ID):
            error, message = ErrorCode.INVALID_REQUEST, "A topic is named either by its name or by its id."
        elif counts[name, topic_id] > 1:
            error, message = ErrorCode.INVALID_REQUEST, "Duplicate topic name." if name else "Duplicate topic id."
        elif not may_all and (denied := _may_not_delete(call, name, found or known, result)):
            error, message = denied, "Topic authorization failed."
        elif found is not None and found.name in INTERNAL_TOPICS:
            error, message = ErrorCode.INVALID_REQUEST, f"{found.name} can't be deleted: it is the server's own."
        elif topic is None:
            error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            if name is None:
                error, message = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
        elif topic.topic_id in deleted:
            error, message = ErrorCode.INVALID_REQUEST, "The topic was named twice, by its name and by its id."
        elif not _may_change(call, topic.partition_count):
            error, message = ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED
        else:
            result.name, result.topic_id = topic.name, topic.topic_id
            deleted[topic.topic_id] = result
        result.error_code, result.error_message = error, message
        yield
    body, change = DeleteTopicsResponse(responses=results), Change(deleted=list(deleted)) if deleted else None
    yield from answer_changed(call, change, body, deleted.values(), request.timeout_ms)


def _may_not_delete(
    call: Call, name: str | None, found: Topic | None, result: DeleteTopicsResponse.DeletableTopicResult
) -> ErrorCode:
    """The error if the client may not delete a topic, or may not know of it. Its name is shown if it may be."""
    shown = name if name is not None else found.name if found is not None else None
    if shown is None:
        return ErrorCode.NONE
    may_describe = may(call, Operation.DESCRIBE, Kind.TOPIC, shown)
    may_delete = may(call, Operation.DELETE, Kind.TOPIC, shown)
    if (may_describe and found is None) or (may_describe and may_delete):
        return ErrorCode.NONE
    if may_describe:
        result.name = shown
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED
