# Written by `make stubs` from the schemas. Change those and run it again.

from collections.abc import Mapping
from types import ModuleType
from typing import ClassVar, Final
from uuid import UUID

from protocol.compile import Message as Message
from protocol.compile import alike as alike
from protocol.compile import decode as decode
from protocol.compile import decode_in_steps as decode_in_steps
from protocol.compile import encode as encode
from protocol.compile import encode_in_steps as encode_in_steps
from protocol.compile import writer as writer
from protocol.definition import Definition

API_KEYS: Final[dict[str, int]]
NAMES: Final[tuple[str, ...]]

def api_schema(api_key: int) -> ModuleType: ...
def definition(name: str) -> Definition: ...
def request_class(api_key: int) -> type[Message]: ...
def response_class(api_key: int) -> type[Message]: ...

class ProduceRequest(Message):
    API_KEY: ClassVar[int]

    class TopicProduceData(Message):
        name: str
        topic_id: UUID
        partition_data: list[ProduceRequest.PartitionProduceData]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            partition_data: list[ProduceRequest.PartitionProduceData] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class PartitionProduceData(Message):
        index: int
        records: bytes | None
        def __init__(
            self,
            *,
            index: int = ...,
            records: bytes | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[ProduceRequest.TopicProduceData]
    def __init__(
        self,
        *,
        transactional_id: str | None = ...,
        acks: int = ...,
        timeout_ms: int = ...,
        topic_data: list[ProduceRequest.TopicProduceData] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ProduceResponse(Message):
    API_KEY: ClassVar[int]

    class TopicProduceResponse(Message):
        name: str
        topic_id: UUID
        partition_responses: list[ProduceResponse.PartitionProduceResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class PartitionProduceResponse(Message):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: ProduceResponse.LeaderIdAndEpoch
        def __init__(
            self,
            *,
            index: int = ...,
            error_code: int = ...,
            base_offset: int = ...,
            log_append_time_ms: int = ...,
            log_start_offset: int = ...,
            record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...,
            error_message: str | None = ...,
            current_leader: ProduceResponse.LeaderIdAndEpoch = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class BatchIndexAndErrorMessage(Message):
        batch_index: int
        batch_index_error_message: str | None
        def __init__(
            self,
            *,
            batch_index: int = ...,
            batch_index_error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(
            self,
            *,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    responses: list[ProduceResponse.TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[ProduceResponse.NodeEndpoint]
    def __init__(
        self,
        *,
        responses: list[ProduceResponse.TopicProduceResponse] = ...,
        throttle_time_ms: int = ...,
        node_endpoints: list[ProduceResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class FetchRequest(Message):
    API_KEY: ClassVar[int]

    class ReplicaState(Message):
        replica_id: int
        replica_epoch: int
        def __init__(
            self,
            *,
            replica_id: int = ...,
            replica_epoch: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class FetchTopic(Message):
        topic: str
        topic_id: UUID
        partitions: list[FetchRequest.FetchPartition]
        def __init__(
            self,
            *,
            topic: str = ...,
            topic_id: UUID = ...,
            partitions: list[FetchRequest.FetchPartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class FetchPartition(Message):
        partition: int
        current_leader_epoch: int
        fetch_offset: int
        last_fetched_epoch: int
        log_start_offset: int
        partition_max_bytes: int
        replica_directory_id: UUID
        high_watermark: int
        def __init__(
            self,
            *,
            partition: int = ...,
            current_leader_epoch: int = ...,
            fetch_offset: int = ...,
            last_fetched_epoch: int = ...,
            log_start_offset: int = ...,
            partition_max_bytes: int = ...,
            replica_directory_id: UUID = ...,
            high_watermark: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ForgottenTopic(Message):
        topic: str
        topic_id: UUID
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            topic_id: UUID = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequest.ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchRequest.FetchTopic]
    forgotten_topics_data: list[FetchRequest.ForgottenTopic]
    rack_id: str
    def __init__(
        self,
        *,
        cluster_id: str | None = ...,
        replica_id: int = ...,
        replica_state: FetchRequest.ReplicaState = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        isolation_level: int = ...,
        session_id: int = ...,
        session_epoch: int = ...,
        topics: list[FetchRequest.FetchTopic] = ...,
        forgotten_topics_data: list[FetchRequest.ForgottenTopic] = ...,
        rack_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class FetchResponse(Message):
    API_KEY: ClassVar[int]

    class FetchableTopicResponse(Message):
        topic: str
        topic_id: UUID
        partitions: list[FetchResponse.PartitionData]
        def __init__(
            self,
            *,
            topic: str = ...,
            topic_id: UUID = ...,
            partitions: list[FetchResponse.PartitionData] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class PartitionData(Message):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: FetchResponse.EpochEndOffset
        current_leader: FetchResponse.LeaderIdAndEpoch
        snapshot_id: FetchResponse.SnapshotId
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None
        preferred_read_replica: int
        records: bytes | None
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            high_watermark: int = ...,
            last_stable_offset: int = ...,
            log_start_offset: int = ...,
            diverging_epoch: FetchResponse.EpochEndOffset = ...,
            current_leader: FetchResponse.LeaderIdAndEpoch = ...,
            snapshot_id: FetchResponse.SnapshotId = ...,
            aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...,
            preferred_read_replica: int = ...,
            records: bytes | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class EpochEndOffset(Message):
        epoch: int
        end_offset: int
        def __init__(
            self,
            *,
            epoch: int = ...,
            end_offset: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(
            self,
            *,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class SnapshotId(Message):
        end_offset: int
        epoch: int
        def __init__(
            self,
            *,
            end_offset: int = ...,
            epoch: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AbortedTransaction(Message):
        producer_id: int
        first_offset: int
        def __init__(
            self,
            *,
            producer_id: int = ...,
            first_offset: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchResponse.FetchableTopicResponse]
    node_endpoints: list[FetchResponse.NodeEndpoint]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        session_id: int = ...,
        responses: list[FetchResponse.FetchableTopicResponse] = ...,
        node_endpoints: list[FetchResponse.NodeEndpoint] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListOffsetsRequest(Message):
    API_KEY: ClassVar[int]

    class ListOffsetsTopic(Message):
        name: str
        partitions: list[ListOffsetsRequest.ListOffsetsPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ListOffsetsPartition(Message):
        partition_index: int
        current_leader_epoch: int
        timestamp: int
        max_num_offsets: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            current_leader_epoch: int = ...,
            timestamp: int = ...,
            max_num_offsets: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsRequest.ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: list[ListOffsetsRequest.ListOffsetsTopic] = ...,
        timeout_ms: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListOffsetsResponse(Message):
    API_KEY: ClassVar[int]

    class ListOffsetsTopicResponse(Message):
        name: str
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ListOffsetsPartitionResponse(Message):
        partition_index: int
        error_code: int
        old_style_offsets: list[int]
        timestamp: int
        offset: int
        leader_epoch: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            old_style_offsets: list[int] = ...,
            timestamp: int = ...,
            offset: int = ...,
            leader_epoch: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class MetadataRequest(Message):
    API_KEY: ClassVar[int]

    class MetadataRequestTopic(Message):
        topic_id: UUID
        name: str | None
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            name: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[MetadataRequest.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    def __init__(
        self,
        *,
        topics: list[MetadataRequest.MetadataRequestTopic] | None = ...,
        allow_auto_topic_creation: bool = ...,
        include_cluster_authorized_operations: bool = ...,
        include_topic_authorized_operations: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class MetadataResponse(Message):
    API_KEY: ClassVar[int]

    class MetadataResponseBroker(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(
            self,
            *,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class MetadataResponseTopic(Message):
        error_code: int
        name: str | None
        topic_id: UUID
        is_internal: bool
        partitions: list[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: UUID = ...,
            is_internal: bool = ...,
            partitions: list[MetadataResponse.MetadataResponsePartition] = ...,
            topic_authorized_operations: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class MetadataResponsePartition(Message):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        offline_replicas: list[int]
        def __init__(
            self,
            *,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            offline_replicas: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    brokers: list[MetadataResponse.MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponse.MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        brokers: list[MetadataResponse.MetadataResponseBroker] = ...,
        cluster_id: str | None = ...,
        controller_id: int = ...,
        topics: list[MetadataResponse.MetadataResponseTopic] = ...,
        cluster_authorized_operations: int = ...,
        error_code: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetCommitRequest(Message):
    API_KEY: ClassVar[int]

    class OffsetCommitRequestTopic(Message):
        name: str
        topic_id: UUID
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetCommitRequestPartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        commit_timestamp: int
        committed_metadata: str | None
        def __init__(
            self,
            *,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            commit_timestamp: int = ...,
            committed_metadata: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetCommitResponse(Message):
    API_KEY: ClassVar[int]

    class OffsetCommitResponseTopic(Message):
        name: str
        topic_id: UUID
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetCommitResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetFetchRequest(Message):
    API_KEY: ClassVar[int]

    class OffsetFetchRequestTopic(Message):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetFetchRequestGroup(Message):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            member_id: str | None = ...,
            member_epoch: int = ...,
            topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetFetchRequestTopics(Message):
        name: str
        topic_id: UUID
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    group_id: str
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...,
        groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = ...,
        require_stable: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetFetchResponse(Message):
    API_KEY: ClassVar[int]

    class OffsetFetchResponseTopic(Message):
        name: str
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetFetchResponsePartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetFetchResponseGroup(Message):
        group_id: str
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: int
        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetFetchResponseTopics(Message):
        name: str
        topic_id: UUID
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetFetchResponsePartitions(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = ...,
        error_code: int = ...,
        groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class FindCoordinatorRequest(Message):
    API_KEY: ClassVar[int]

    key: str
    key_type: int
    coordinator_keys: list[str]
    def __init__(
        self,
        *,
        key: str = ...,
        key_type: int = ...,
        coordinator_keys: list[str] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class FindCoordinatorResponse(Message):
    API_KEY: ClassVar[int]

    class Coordinator(Message):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            key: str = ...,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[FindCoordinatorResponse.Coordinator]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        coordinators: list[FindCoordinatorResponse.Coordinator] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class JoinGroupRequest(Message):
    API_KEY: ClassVar[int]

    class JoinGroupRequestProtocol(Message):
        name: str
        metadata: bytes
        def __init__(
            self,
            *,
            name: str = ...,
            metadata: bytes = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol]
    reason: str | None
    join_reason: int
    def __init__(
        self,
        *,
        group_id: str = ...,
        session_timeout_ms: int = ...,
        rebalance_timeout_ms: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str = ...,
        protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = ...,
        reason: str | None = ...,
        join_reason: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class JoinGroupResponse(Message):
    API_KEY: ClassVar[int]

    class JoinGroupResponseMember(Message):
        member_id: str
        group_instance_id: str | None
        metadata: bytes
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            metadata: bytes = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponse.JoinGroupResponseMember]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        generation_id: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        leader: str = ...,
        skip_assignment: bool = ...,
        member_id: str = ...,
        members: list[JoinGroupResponse.JoinGroupResponseMember] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class HeartbeatRequest(Message):
    API_KEY: ClassVar[int]

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class HeartbeatResponse(Message):
    API_KEY: ClassVar[int]

    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class LeaveGroupRequest(Message):
    API_KEY: ClassVar[int]

    class MemberIdentity(Message):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            reason: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    members: list[LeaveGroupRequest.MemberIdentity]
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        members: list[LeaveGroupRequest.MemberIdentity] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class LeaveGroupResponse(Message):
    API_KEY: ClassVar[int]

    class MemberResponse(Message):
        member_id: str
        group_instance_id: str | None
        error_code: int
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    members: list[LeaveGroupResponse.MemberResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        members: list[LeaveGroupResponse.MemberResponse] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class SyncGroupRequest(Message):
    API_KEY: ClassVar[int]

    class SyncGroupRequestAssignment(Message):
        member_id: str
        assignment: bytes
        def __init__(
            self,
            *,
            member_id: str = ...,
            assignment: bytes = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment]
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class SyncGroupResponse(Message):
    API_KEY: ClassVar[int]

    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignment: bytes = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeGroupsRequest(Message):
    API_KEY: ClassVar[int]

    groups: list[str]
    include_authorized_operations: bool
    include_waiting: bool
    def __init__(
        self,
        *,
        groups: list[str] = ...,
        include_authorized_operations: bool = ...,
        include_waiting: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeGroupsResponse(Message):
    API_KEY: ClassVar[int]

    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: list[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: int
        waiting: DescribeGroupsResponse.GroupWaiting
        expects: DescribeGroupsResponse.GroupExpects
        target_size: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            protocol_type: str = ...,
            protocol_data: str = ...,
            members: list[DescribeGroupsResponse.DescribedGroupMember] = ...,
            authorized_operations: int = ...,
            waiting: DescribeGroupsResponse.GroupWaiting = ...,
            expects: DescribeGroupsResponse.GroupExpects = ...,
            target_size: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DescribedGroupMember(Message):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        session_timeout_ms: int
        silent_ms: int
        standby_ms: int
        client_software: str
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            member_metadata: bytes = ...,
            member_assignment: bytes = ...,
            session_timeout_ms: int = ...,
            silent_ms: int = ...,
            standby_ms: int = ...,
            client_software: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class GroupWaiting(Message):
        since_ms: int
        until_ms: int
        is_held_open: bool
        leader: str
        members: list[DescribeGroupsResponse.GroupAwaitedMember]
        pending: list[DescribeGroupsResponse.GroupPendingMember]
        def __init__(
            self,
            *,
            since_ms: int = ...,
            until_ms: int = ...,
            is_held_open: bool = ...,
            leader: str = ...,
            members: list[DescribeGroupsResponse.GroupAwaitedMember] = ...,
            pending: list[DescribeGroupsResponse.GroupPendingMember] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class GroupAwaitedMember(Message):
        member_id: str
        client_id: str
        client_host: str
        def __init__(
            self,
            *,
            member_id: str = ...,
            client_id: str = ...,
            client_host: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class GroupPendingMember(Message):
        member_id: str
        client_id: str
        client_host: str
        lapses_ms: int
        def __init__(
            self,
            *,
            member_id: str = ...,
            client_id: str = ...,
            client_host: str = ...,
            lapses_ms: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class GroupExpects(Message):
        missing: list[str]
        held: int
        until_ms: int
        def __init__(
            self,
            *,
            missing: list[str] = ...,
            held: int = ...,
            until_ms: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[DescribeGroupsResponse.DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[DescribeGroupsResponse.DescribedGroup] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListGroupsRequest(Message):
    API_KEY: ClassVar[int]

    states_filter: list[str]
    types_filter: list[str]
    def __init__(
        self,
        *,
        states_filter: list[str] = ...,
        types_filter: list[str] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListGroupsResponse(Message):
    API_KEY: ClassVar[int]

    class ListedGroup(Message):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        def __init__(
            self,
            *,
            group_id: str = ...,
            protocol_type: str = ...,
            group_state: str = ...,
            group_type: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    groups: list[ListGroupsResponse.ListedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        groups: list[ListGroupsResponse.ListedGroup] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class SaslHandshakeRequest(Message):
    API_KEY: ClassVar[int]

    mechanism: str
    def __init__(
        self,
        *,
        mechanism: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class SaslHandshakeResponse(Message):
    API_KEY: ClassVar[int]

    error_code: int
    mechanisms: list[str]
    def __init__(
        self,
        *,
        error_code: int = ...,
        mechanisms: list[str] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ApiVersionsRequest(Message):
    API_KEY: ClassVar[int]

    client_software_name: str
    client_software_version: str
    cluster_id: str | None
    node_id: int
    def __init__(
        self,
        *,
        client_software_name: str = ...,
        client_software_version: str = ...,
        cluster_id: str | None = ...,
        node_id: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ApiVersionsResponse(Message):
    API_KEY: ClassVar[int]

    class ApiVersion(Message):
        api_key: int
        min_version: int
        max_version: int
        def __init__(
            self,
            *,
            api_key: int = ...,
            min_version: int = ...,
            max_version: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class SupportedFeatureKey(Message):
        name: str
        min_version: int
        max_version: int
        def __init__(
            self,
            *,
            name: str = ...,
            min_version: int = ...,
            max_version: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class FinalizedFeatureKey(Message):
        name: str
        max_version_level: int
        min_version_level: int
        def __init__(
            self,
            *,
            name: str = ...,
            max_version_level: int = ...,
            min_version_level: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    error_code: int
    api_keys: list[ApiVersionsResponse.ApiVersion]
    throttle_time_ms: int
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(
        self,
        *,
        error_code: int = ...,
        api_keys: list[ApiVersionsResponse.ApiVersion] = ...,
        throttle_time_ms: int = ...,
        supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = ...,
        finalized_features_epoch: int = ...,
        finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = ...,
        zk_migration_ready: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class CreateTopicsRequest(Message):
    API_KEY: ClassVar[int]

    class CreatableTopic(Message):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: list[CreateTopicsRequest.CreatableTopicConfig]
        def __init__(
            self,
            *,
            name: str = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...,
            configs: list[CreateTopicsRequest.CreatableTopicConfig] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class CreatableReplicaAssignment(Message):
        partition_index: int
        broker_ids: list[int]
        def __init__(
            self,
            *,
            partition_index: int = ...,
            broker_ids: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class CreatableTopicConfig(Message):
        name: str
        value: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            value: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[CreateTopicsRequest.CreatableTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        *,
        topics: list[CreateTopicsRequest.CreatableTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class CreateTopicsResponse(Message):
    API_KEY: ClassVar[int]

    class CreatableTopicResult(Message):
        name: str
        topic_id: UUID
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topic_config_error_code: int = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class CreatableTopicConfigs(Message):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        def __init__(
            self,
            *,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[CreateTopicsResponse.CreatableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[CreateTopicsResponse.CreatableTopicResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DeleteTopicsRequest(Message):
    API_KEY: ClassVar[int]

    class DeleteTopicState(Message):
        name: str | None
        topic_id: UUID
        def __init__(
            self,
            *,
            name: str | None = ...,
            topic_id: UUID = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[DeleteTopicsRequest.DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: list[DeleteTopicsRequest.DeleteTopicState] = ...,
        topic_names: list[str] = ...,
        timeout_ms: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DeleteTopicsResponse(Message):
    API_KEY: ClassVar[int]

    class DeletableTopicResult(Message):
        name: str | None
        topic_id: UUID
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            name: str | None = ...,
            topic_id: UUID = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[DeleteTopicsResponse.DeletableTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: list[DeleteTopicsResponse.DeletableTopicResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DeleteRecordsRequest(Message):
    API_KEY: ClassVar[int]

    class DeleteRecordsTopic(Message):
        name: str
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DeleteRecordsPartition(Message):
        partition_index: int
        offset: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            offset: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = ...,
        timeout_ms: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DeleteRecordsResponse(Message):
    API_KEY: ClassVar[int]

    class DeleteRecordsTopicResult(Message):
        name: str
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DeleteRecordsPartitionResult(Message):
        partition_index: int
        low_watermark: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            low_watermark: int = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class InitProducerIdRequest(Message):
    API_KEY: ClassVar[int]

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        *,
        transactional_id: str | None = ...,
        transaction_timeout_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class InitProducerIdResponse(Message):
    API_KEY: ClassVar[int]

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetForLeaderEpochRequest(Message):
    API_KEY: ClassVar[int]

    class OffsetForLeaderTopic(Message):
        topic: str
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetForLeaderPartition(Message):
        partition: int
        current_leader_epoch: int
        leader_epoch: int
        def __init__(
            self,
            *,
            partition: int = ...,
            current_leader_epoch: int = ...,
            leader_epoch: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    replica_id: int
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]
    def __init__(
        self,
        *,
        replica_id: int = ...,
        topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetForLeaderEpochResponse(Message):
    API_KEY: ClassVar[int]

    class OffsetForLeaderTopicResult(Message):
        topic: str
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class EpochEndOffset(Message):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            partition: int = ...,
            leader_epoch: int = ...,
            end_offset: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AddPartitionsToTxnRequest(Message):
    API_KEY: ClassVar[int]

    class AddPartitionsToTxnTransaction(Message):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            verify_only: bool = ...,
            topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AddPartitionsToTxnTopic(Message):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class V3AndBelowTopic(Message):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnRequest.V3AndBelowTopic]
    def __init__(
        self,
        *,
        transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = ...,
        v3_and_below_producer_id: int = ...,
        v3_and_below_producer_epoch: int = ...,
        v3_and_below_topics: list[AddPartitionsToTxnRequest.V3AndBelowTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AddPartitionsToTxnResponse(Message):
    API_KEY: ClassVar[int]

    class AddPartitionsToTxnResult(Message):
        transactional_id: str
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AddPartitionsToTxnTopicResult(Message):
        name: str
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]
        def __init__(
            self,
            *,
            name: str = ...,
            results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AddPartitionsToTxnPartitionResult(Message):
        partition_index: int
        partition_error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            partition_error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class V3AndBelowTopicResult(Message):
        name: str
        results_by_partition: list[AddPartitionsToTxnResponse.V3AndBelowPartitionResult]
        def __init__(
            self,
            *,
            name: str = ...,
            results_by_partition: list[AddPartitionsToTxnResponse.V3AndBelowPartitionResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class V3AndBelowPartitionResult(Message):
        partition_index: int
        partition_error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            partition_error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.V3AndBelowTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.V3AndBelowTopicResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AddOffsetsToTxnRequest(Message):
    API_KEY: ClassVar[int]

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        group_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AddOffsetsToTxnResponse(Message):
    API_KEY: ClassVar[int]

    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class EndTxnRequest(Message):
    API_KEY: ClassVar[int]

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        committed: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class EndTxnResponse(Message):
    API_KEY: ClassVar[int]

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class WriteTxnMarkersRequest(Message):
    API_KEY: ClassVar[int]

    class WritableTxnMarker(Message):
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        def __init__(
            self,
            *,
            producer_id: int = ...,
            producer_epoch: int = ...,
            transaction_result: bool = ...,
            topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...,
            coordinator_epoch: int = ...,
            transaction_version: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class WritableTxnMarkerTopic(Message):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    markers: list[WriteTxnMarkersRequest.WritableTxnMarker]
    def __init__(
        self,
        *,
        markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class WriteTxnMarkersResponse(Message):
    API_KEY: ClassVar[int]

    class WritableTxnMarkerResult(Message):
        producer_id: int
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]
        def __init__(
            self,
            *,
            producer_id: int = ...,
            topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class WritableTxnMarkerTopicResult(Message):
        name: str
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class WritableTxnMarkerPartitionResult(Message):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult]
    def __init__(
        self,
        *,
        markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class TxnOffsetCommitRequest(Message):
    API_KEY: ClassVar[int]

    class TxnOffsetCommitRequestTopic(Message):
        name: str
        topic_id: UUID
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TxnOffsetCommitRequestPartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        def __init__(
            self,
            *,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            committed_metadata: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class TxnOffsetCommitResponse(Message):
    API_KEY: ClassVar[int]

    class TxnOffsetCommitResponseTopic(Message):
        name: str
        topic_id: UUID
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            topic_id: UUID = ...,
            partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TxnOffsetCommitResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeAclsRequest(Message):
    API_KEY: ClassVar[int]

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        resource_type_filter: int = ...,
        resource_name_filter: str | None = ...,
        pattern_type_filter: int = ...,
        principal_filter: str | None = ...,
        host_filter: str | None = ...,
        operation: int = ...,
        permission_type: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeAclsResponse(Message):
    API_KEY: ClassVar[int]

    class DescribeAclsResource(Message):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: list[DescribeAclsResponse.AclDescription]
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            acls: list[DescribeAclsResponse.AclDescription] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AclDescription(Message):
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResponse.DescribeAclsResource]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        resources: list[DescribeAclsResponse.DescribeAclsResource] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class CreateAclsRequest(Message):
    API_KEY: ClassVar[int]

    class AclCreation(Message):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            resource_pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    creations: list[CreateAclsRequest.AclCreation]
    def __init__(
        self,
        *,
        creations: list[CreateAclsRequest.AclCreation] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class CreateAclsResponse(Message):
    API_KEY: ClassVar[int]

    class AclCreationResult(Message):
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[CreateAclsResponse.AclCreationResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[CreateAclsResponse.AclCreationResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DeleteAclsRequest(Message):
    API_KEY: ClassVar[int]

    class DeleteAclsFilter(Message):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            resource_type_filter: int = ...,
            resource_name_filter: str | None = ...,
            pattern_type_filter: int = ...,
            principal_filter: str | None = ...,
            host_filter: str | None = ...,
            operation: int = ...,
            permission_type: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    filters: list[DeleteAclsRequest.DeleteAclsFilter]
    def __init__(
        self,
        *,
        filters: list[DeleteAclsRequest.DeleteAclsFilter] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DeleteAclsResponse(Message):
    API_KEY: ClassVar[int]

    class DeleteAclsFilterResult(Message):
        error_code: int
        error_message: str | None
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl]
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DeleteAclsMatchingAcl(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeConfigsRequest(Message):
    API_KEY: ClassVar[int]

    class DescribeConfigsResource(Message):
        resource_type: int
        resource_name: str
        configuration_keys: list[str] | None
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            configuration_keys: list[str] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    resources: list[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(
        self,
        *,
        resources: list[DescribeConfigsRequest.DescribeConfigsResource] = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeConfigsResponse(Message):
    API_KEY: ClassVar[int]

    class DescribeConfigsResult(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult]
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DescribeConfigsResourceResult(Message):
        name: str
        value: str | None
        read_only: bool
        is_default: bool
        config_source: int
        is_sensitive: bool
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            is_default: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
            synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...,
            config_type: int = ...,
            documentation: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DescribeConfigsSynonym(Message):
        name: str
        value: str | None
        source: int
        def __init__(
            self,
            *,
            name: str = ...,
            value: str | None = ...,
            source: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[DescribeConfigsResponse.DescribeConfigsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[DescribeConfigsResponse.DescribeConfigsResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterConfigsRequest(Message):
    API_KEY: ClassVar[int]

    class AlterConfigsResource(Message):
        resource_type: int
        resource_name: str
        configs: list[AlterConfigsRequest.AlterableConfig]
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: list[AlterConfigsRequest.AlterableConfig] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AlterableConfig(Message):
        name: str
        value: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            value: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    resources: list[AlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        *,
        resources: list[AlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterConfigsResponse(Message):
    API_KEY: ClassVar[int]

    class AlterConfigsResourceResponse(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterReplicaLogDirsRequest(Message):
    API_KEY: ClassVar[int]

    class AlterReplicaLogDir(Message):
        path: str
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]
        def __init__(
            self,
            *,
            path: str = ...,
            topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AlterReplicaLogDirTopic(Message):
        name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir]
    def __init__(
        self,
        *,
        dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterReplicaLogDirsResponse(Message):
    API_KEY: ClassVar[int]

    class AlterReplicaLogDirTopicResult(Message):
        topic_name: str
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AlterReplicaLogDirPartitionResult(Message):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeLogDirsRequest(Message):
    API_KEY: ClassVar[int]

    class DescribableLogDirTopic(Message):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None
    def __init__(
        self,
        *,
        topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeLogDirsResponse(Message):
    API_KEY: ClassVar[int]

    class DescribeLogDirsResult(Message):
        error_code: int
        log_dir: str
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        def __init__(
            self,
            *,
            error_code: int = ...,
            log_dir: str = ...,
            topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...,
            total_bytes: int = ...,
            usable_bytes: int = ...,
            is_cordoned: bool = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DescribeLogDirsTopic(Message):
        name: str
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DescribeLogDirsPartition(Message):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        def __init__(
            self,
            *,
            partition_index: int = ...,
            partition_size: int = ...,
            offset_lag: int = ...,
            is_future_key: bool = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class SaslAuthenticateRequest(Message):
    API_KEY: ClassVar[int]

    auth_bytes: bytes
    def __init__(
        self,
        *,
        auth_bytes: bytes = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class SaslAuthenticateResponse(Message):
    API_KEY: ClassVar[int]

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        auth_bytes: bytes = ...,
        session_lifetime_ms: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class CreatePartitionsRequest(Message):
    API_KEY: ClassVar[int]

    class CreatePartitionsTopic(Message):
        name: str
        count: int
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None
        def __init__(
            self,
            *,
            name: str = ...,
            count: int = ...,
            assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class CreatePartitionsAssignment(Message):
        broker_ids: list[int]
        def __init__(
            self,
            *,
            broker_ids: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self,
        *,
        topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class CreatePartitionsResponse(Message):
    API_KEY: ClassVar[int]

    class CreatePartitionsTopicResult(Message):
        name: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DeleteGroupsRequest(Message):
    API_KEY: ClassVar[int]

    groups_names: list[str]
    def __init__(
        self,
        *,
        groups_names: list[str] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DeleteGroupsResponse(Message):
    API_KEY: ClassVar[int]

    class DeletableGroupResult(Message):
        group_id: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[DeleteGroupsResponse.DeletableGroupResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[DeleteGroupsResponse.DeletableGroupResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ElectLeadersRequest(Message):
    API_KEY: ClassVar[int]

    class TopicPartitions(Message):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    election_type: int
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None
    timeout_ms: int
    def __init__(
        self,
        *,
        election_type: int = ...,
        topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = ...,
        timeout_ms: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ElectLeadersResponse(Message):
    API_KEY: ClassVar[int]

    class ReplicaElectionResult(Message):
        topic: str
        partition_result: list[ElectLeadersResponse.PartitionResult]
        def __init__(
            self,
            *,
            topic: str = ...,
            partition_result: list[ElectLeadersResponse.PartitionResult] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class PartitionResult(Message):
        partition_id: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            partition_id: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class IncrementalAlterConfigsRequest(Message):
    API_KEY: ClassVar[int]

    class AlterConfigsResource(Message):
        resource_type: int
        resource_name: str
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig]
        def __init__(
            self,
            *,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AlterableConfig(Message):
        name: str
        config_operation: int
        value: str | None
        def __init__(
            self,
            *,
            name: str = ...,
            config_operation: int = ...,
            value: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    def __init__(
        self,
        *,
        resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(Message):
    API_KEY: ClassVar[int]

    class AlterConfigsResourceResponse(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterPartitionReassignmentsRequest(Message):
    API_KEY: ClassVar[int]

    class ReassignableTopic(Message):
        name: str
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ReassignablePartition(Message):
        partition_index: int
        replicas: list[int] | None
        def __init__(
            self,
            *,
            partition_index: int = ...,
            replicas: list[int] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic]
    def __init__(
        self,
        *,
        timeout_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterPartitionReassignmentsResponse(Message):
    API_KEY: ClassVar[int]

    class ReassignableTopicResponse(Message):
        name: str
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ReassignablePartitionResponse(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListPartitionReassignmentsRequest(Message):
    API_KEY: ClassVar[int]

    class ListPartitionReassignmentsTopics(Message):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    timeout_ms: int
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None
    def __init__(
        self,
        *,
        timeout_ms: int = ...,
        topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListPartitionReassignmentsResponse(Message):
    API_KEY: ClassVar[int]

    class OngoingTopicReassignment(Message):
        name: str
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OngoingPartitionReassignment(Message):
        partition_index: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        def __init__(
            self,
            *,
            partition_index: int = ...,
            replicas: list[int] = ...,
            adding_replicas: list[int] = ...,
            removing_replicas: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetDeleteRequest(Message):
    API_KEY: ClassVar[int]

    class OffsetDeleteRequestTopic(Message):
        name: str
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetDeleteRequestPartition(Message):
        partition_index: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    group_id: str
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetDeleteResponse(Message):
    API_KEY: ClassVar[int]

    class OffsetDeleteResponseTopic(Message):
        name: str
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OffsetDeleteResponsePartition(Message):
        partition_index: int
        error_code: int
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic]
    def __init__(
        self,
        *,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeClientQuotasRequest(Message):
    API_KEY: ClassVar[int]

    class ComponentData(Message):
        entity_type: str
        match_type: int
        match: str | None
        def __init__(
            self,
            *,
            entity_type: str = ...,
            match_type: int = ...,
            match: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    components: list[DescribeClientQuotasRequest.ComponentData]
    strict: bool
    def __init__(
        self,
        *,
        components: list[DescribeClientQuotasRequest.ComponentData] = ...,
        strict: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeClientQuotasResponse(Message):
    API_KEY: ClassVar[int]

    class EntryData(Message):
        entity: list[DescribeClientQuotasResponse.EntityData]
        values: list[DescribeClientQuotasResponse.ValueData]
        def __init__(
            self,
            *,
            entity: list[DescribeClientQuotasResponse.EntityData] = ...,
            values: list[DescribeClientQuotasResponse.ValueData] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            *,
            entity_type: str = ...,
            entity_name: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ValueData(Message):
        key: str
        value: float
        def __init__(
            self,
            *,
            key: str = ...,
            value: float = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[DescribeClientQuotasResponse.EntryData] | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        entries: list[DescribeClientQuotasResponse.EntryData] | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterClientQuotasRequest(Message):
    API_KEY: ClassVar[int]

    class EntryData(Message):
        entity: list[AlterClientQuotasRequest.EntityData]
        ops: list[AlterClientQuotasRequest.OpData]
        def __init__(
            self,
            *,
            entity: list[AlterClientQuotasRequest.EntityData] = ...,
            ops: list[AlterClientQuotasRequest.OpData] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            *,
            entity_type: str = ...,
            entity_name: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class OpData(Message):
        key: str
        value: float
        remove: bool
        def __init__(
            self,
            *,
            key: str = ...,
            value: float = ...,
            remove: bool = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    entries: list[AlterClientQuotasRequest.EntryData]
    validate_only: bool
    def __init__(
        self,
        *,
        entries: list[AlterClientQuotasRequest.EntryData] = ...,
        validate_only: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterClientQuotasResponse(Message):
    API_KEY: ClassVar[int]

    class EntryData(Message):
        error_code: int
        error_message: str | None
        entity: list[AlterClientQuotasResponse.EntityData]
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            entity: list[AlterClientQuotasResponse.EntityData] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        def __init__(
            self,
            *,
            entity_type: str = ...,
            entity_name: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    entries: list[AlterClientQuotasResponse.EntryData]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        entries: list[AlterClientQuotasResponse.EntryData] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeUserScramCredentialsRequest(Message):
    API_KEY: ClassVar[int]

    class UserName(Message):
        name: str
        def __init__(
            self,
            *,
            name: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    users: list[DescribeUserScramCredentialsRequest.UserName] | None
    def __init__(
        self,
        *,
        users: list[DescribeUserScramCredentialsRequest.UserName] | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeUserScramCredentialsResponse(Message):
    API_KEY: ClassVar[int]

    class DescribeUserScramCredentialsResult(Message):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo]
        def __init__(
            self,
            *,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class CredentialInfo(Message):
        mechanism: int
        iterations: int
        def __init__(
            self,
            *,
            mechanism: int = ...,
            iterations: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterUserScramCredentialsRequest(Message):
    API_KEY: ClassVar[int]

    class ScramCredentialDeletion(Message):
        name: str
        mechanism: int
        def __init__(
            self,
            *,
            name: str = ...,
            mechanism: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ScramCredentialUpsertion(Message):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        def __init__(
            self,
            *,
            name: str = ...,
            mechanism: int = ...,
            iterations: int = ...,
            salt: bytes = ...,
            salted_password: bytes = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion]
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]
    def __init__(
        self,
        *,
        deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...,
        upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class AlterUserScramCredentialsResponse(Message):
    API_KEY: ClassVar[int]

    class AlterUserScramCredentialsResult(Message):
        user: str
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeClusterRequest(Message):
    API_KEY: ClassVar[int]

    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    include_failing_logs: bool
    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = ...,
        endpoint_type: int = ...,
        include_fenced_brokers: bool = ...,
        include_failing_logs: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeClusterResponse(Message):
    API_KEY: ClassVar[int]

    class DescribeClusterBroker(Message):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        def __init__(
            self,
            *,
            broker_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            is_fenced: bool = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class FailingLog(Message):
        name: str
        since_ms: int
        reason: str
        def __init__(
            self,
            *,
            name: str = ...,
            since_ms: int = ...,
            reason: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class StoreHealth(Message):
        calls: int
        slow: int
        lost: int
        longest_ms: int
        used: int
        quota: int
        def __init__(
            self,
            *,
            calls: int = ...,
            slow: int = ...,
            lost: int = ...,
            longest_ms: int = ...,
            used: int = ...,
            quota: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: int
    failing_logs: list[DescribeClusterResponse.FailingLog]
    failing_log_count: int
    store: DescribeClusterResponse.StoreHealth
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        endpoint_type: int = ...,
        cluster_id: str = ...,
        controller_id: int = ...,
        brokers: list[DescribeClusterResponse.DescribeClusterBroker] = ...,
        cluster_authorized_operations: int = ...,
        failing_logs: list[DescribeClusterResponse.FailingLog] = ...,
        failing_log_count: int = ...,
        store: DescribeClusterResponse.StoreHealth = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeProducersRequest(Message):
    API_KEY: ClassVar[int]

    class TopicRequest(Message):
        name: str
        partition_indexes: list[int]
        def __init__(
            self,
            *,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[DescribeProducersRequest.TopicRequest]
    def __init__(
        self,
        *,
        topics: list[DescribeProducersRequest.TopicRequest] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeProducersResponse(Message):
    API_KEY: ClassVar[int]

    class TopicResponse(Message):
        name: str
        partitions: list[DescribeProducersResponse.PartitionResponse]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: list[DescribeProducersResponse.PartitionResponse] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class PartitionResponse(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: list[DescribeProducersResponse.ProducerState]
        def __init__(
            self,
            *,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            active_producers: list[DescribeProducersResponse.ProducerState] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ProducerState(Message):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int
        def __init__(
            self,
            *,
            producer_id: int = ...,
            producer_epoch: int = ...,
            last_sequence: int = ...,
            last_timestamp: int = ...,
            coordinator_epoch: int = ...,
            current_txn_start_offset: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    topics: list[DescribeProducersResponse.TopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[DescribeProducersResponse.TopicResponse] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeTransactionsRequest(Message):
    API_KEY: ClassVar[int]

    transactional_ids: list[str]
    def __init__(
        self,
        *,
        transactional_ids: list[str] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeTransactionsResponse(Message):
    API_KEY: ClassVar[int]

    class TransactionState(Message):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: list[DescribeTransactionsResponse.TopicData]
        def __init__(
            self,
            *,
            error_code: int = ...,
            transactional_id: str = ...,
            transaction_state: str = ...,
            transaction_timeout_ms: int = ...,
            transaction_start_time_ms: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            topics: list[DescribeTransactionsResponse.TopicData] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TopicData(Message):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    transaction_states: list[DescribeTransactionsResponse.TransactionState]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        transaction_states: list[DescribeTransactionsResponse.TransactionState] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListTransactionsRequest(Message):
    API_KEY: ClassVar[int]

    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None
    def __init__(
        self,
        *,
        state_filters: list[str] = ...,
        producer_id_filters: list[int] = ...,
        duration_filter: int = ...,
        transactional_id_pattern: str | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListTransactionsResponse(Message):
    API_KEY: ClassVar[int]

    class TransactionState(Message):
        transactional_id: str
        producer_id: int
        transaction_state: str
        def __init__(
            self,
            *,
            transactional_id: str = ...,
            producer_id: int = ...,
            transaction_state: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[ListTransactionsResponse.TransactionState]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_state_filters: list[str] = ...,
        transaction_states: list[ListTransactionsResponse.TransactionState] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(Message):
    API_KEY: ClassVar[int]

    class TopicPartitions(Message):
        topic_id: UUID
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: list[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(Message):
    API_KEY: ClassVar[int]

    class Assignment(Message):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions]
        def __init__(
            self,
            *,
            topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TopicPartitions(Message):
        topic_id: UUID
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ConsumerGroupHeartbeatResponse.Assignment | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupDescribeRequest(Message):
    API_KEY: ClassVar[int]

    group_ids: list[str]
    include_authorized_operations: bool
    include_waiting: bool
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
        include_waiting: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupDescribeResponse(Message):
    API_KEY: ClassVar[int]

    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[ConsumerGroupDescribeResponse.Member]
        authorized_operations: int
        waiting: ConsumerGroupDescribeResponse.ConsumerGroupWaiting
        expects: ConsumerGroupDescribeResponse.ConsumerGroupExpects
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: list[ConsumerGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
            waiting: ConsumerGroupDescribeResponse.ConsumerGroupWaiting = ...,
            expects: ConsumerGroupDescribeResponse.ConsumerGroupExpects = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Member(Message):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        member_type: int
        session_timeout_ms: int
        silent_ms: int
        def __init__(
            self,
            *,
            member_id: str = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: list[str] = ...,
            subscribed_topic_regex: str | None = ...,
            assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            target_assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            member_type: int = ...,
            session_timeout_ms: int = ...,
            silent_ms: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Assignment(Message):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions]
        def __init__(
            self,
            *,
            topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TopicPartitions(Message):
        topic_id: UUID
        topic_name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            topic_name: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ConsumerGroupWaiting(Message):
        since_ms: int
        members: list[ConsumerGroupDescribeResponse.AwaitedMember]
        regexes_without_topics: list[str]
        def __init__(
            self,
            *,
            since_ms: int = ...,
            members: list[ConsumerGroupDescribeResponse.AwaitedMember] = ...,
            regexes_without_topics: list[str] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class AwaitedMember(Message):
        member_id: str
        phase: str
        partitions: int
        since_ms: int
        until_ms: int
        def __init__(
            self,
            *,
            member_id: str = ...,
            phase: str = ...,
            partitions: int = ...,
            since_ms: int = ...,
            until_ms: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ConsumerGroupExpects(Message):
        missing: list[str]
        def __init__(
            self,
            *,
            missing: list[str] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListConfigResourcesRequest(Message):
    API_KEY: ClassVar[int]

    resource_types: list[int]
    def __init__(
        self,
        *,
        resource_types: list[int] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ListConfigResourcesResponse(Message):
    API_KEY: ClassVar[int]

    class ConfigResource(Message):
        resource_name: str
        resource_type: int
        def __init__(
            self,
            *,
            resource_name: str = ...,
            resource_type: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    error_code: int
    config_resources: list[ListConfigResourcesResponse.ConfigResource]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        config_resources: list[ListConfigResourcesResponse.ConfigResource] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ShareGroupDescribeRequest(Message):
    API_KEY: ClassVar[int]

    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ShareGroupDescribeResponse(Message):
    API_KEY: ClassVar[int]

    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[ShareGroupDescribeResponse.Member]
        authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: list[ShareGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Member(Message):
        member_id: str
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        assignment: ShareGroupDescribeResponse.Assignment
        def __init__(
            self,
            *,
            member_id: str = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: list[str] = ...,
            assignment: ShareGroupDescribeResponse.Assignment = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Assignment(Message):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions]
        def __init__(
            self,
            *,
            topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TopicPartitions(Message):
        topic_id: UUID
        topic_name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            topic_name: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[ShareGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[ShareGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class StreamsGroupDescribeRequest(Message):
    API_KEY: ClassVar[int]

    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(
        self,
        *,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class StreamsGroupDescribeResponse(Message):
    API_KEY: ClassVar[int]

    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: StreamsGroupDescribeResponse.Topology | None
        members: list[StreamsGroupDescribeResponse.Member]
        authorized_operations: int
        def __init__(
            self,
            *,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            topology: StreamsGroupDescribeResponse.Topology | None = ...,
            members: list[StreamsGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Topology(Message):
        epoch: int
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None
        def __init__(
            self,
            *,
            epoch: int = ...,
            subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Subtopology(Message):
        subtopology_id: str
        source_topics: list[str]
        repartition_sink_topics: list[str]
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo]
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo]
        def __init__(
            self,
            *,
            subtopology_id: str = ...,
            source_topics: list[str] = ...,
            repartition_sink_topics: list[str] = ...,
            state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...,
            repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class KeyValue(Message):
        key: str
        value: str
        def __init__(
            self,
            *,
            key: str = ...,
            value: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Member(Message):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue]
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset]
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset]
        assignment: StreamsGroupDescribeResponse.Assignment
        target_assignment: StreamsGroupDescribeResponse.Assignment
        is_classic: bool
        def __init__(
            self,
            *,
            member_id: str = ...,
            member_epoch: int = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            topology_epoch: int = ...,
            process_id: str = ...,
            user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = ...,
            client_tags: list[StreamsGroupDescribeResponse.KeyValue] = ...,
            task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...,
            task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...,
            assignment: StreamsGroupDescribeResponse.Assignment = ...,
            target_assignment: StreamsGroupDescribeResponse.Assignment = ...,
            is_classic: bool = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Endpoint(Message):
        host: str
        port: int
        def __init__(
            self,
            *,
            host: str = ...,
            port: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TaskOffset(Message):
        subtopology_id: str
        partition: int
        offset: int
        def __init__(
            self,
            *,
            subtopology_id: str = ...,
            partition: int = ...,
            offset: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class Assignment(Message):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        def __init__(
            self,
            *,
            active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        def __init__(
            self,
            *,
            subtopology_id: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[StreamsGroupDescribeResponse.DescribedGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[StreamsGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsRequest(Message):
    API_KEY: ClassVar[int]

    class DescribeShareGroupOffsetsRequestGroup(Message):
        group_id: str
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_name: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup]
    def __init__(
        self,
        *,
        groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponse(Message):
    API_KEY: ClassVar[int]

    class DescribeShareGroupOffsetsResponseGroup(Message):
        group_id: str
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            group_id: str = ...,
            topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: UUID
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition]
        def __init__(
            self,
            *,
            topic_name: str = ...,
            topic_id: UUID = ...,
            partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class DescribeShareGroupOffsetsResponsePartition(Message):
        partition_index: int
        start_offset: int
        leader_epoch: int
        lag: int
        error_code: int
        error_message: str | None
        def __init__(
            self,
            *,
            partition_index: int = ...,
            start_offset: int = ...,
            leader_epoch: int = ...,
            lag: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    throttle_time_ms: int
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class GroupMetadataKey(Message):
    group: str
    def __init__(
        self,
        *,
        group: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class GroupMetadataValue(Message):
    class MemberMetadata(Message):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        def __init__(
            self,
            *,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            rebalance_timeout: int = ...,
            session_timeout: int = ...,
            subscription: bytes = ...,
            assignment: bytes = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: list[GroupMetadataValue.MemberMetadata]
    def __init__(
        self,
        *,
        protocol_type: str = ...,
        generation: int = ...,
        protocol: str | None = ...,
        leader: str | None = ...,
        current_state_timestamp: int = ...,
        members: list[GroupMetadataValue.MemberMetadata] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetCommitKey(Message):
    group: str
    topic: str
    partition: int
    def __init__(
        self,
        *,
        group: str = ...,
        topic: str = ...,
        partition: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class OffsetCommitValue(Message):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID
    def __init__(
        self,
        *,
        offset: int = ...,
        leader_epoch: int = ...,
        metadata: str = ...,
        commit_timestamp: int = ...,
        expire_timestamp: int = ...,
        topic_id: UUID = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupMetadataKey(Message):
    group_id: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    def __init__(
        self,
        *,
        epoch: int = ...,
        metadata_hash: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupPartitionMetadataValue(Message):
    class TopicMetadata(Message):
        topic_id: UUID
        topic_name: str
        num_partitions: int
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            topic_name: str = ...,
            num_partitions: int = ...,
            partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class PartitionMetadata(Message):
        partition: int
        racks: list[str]
        def __init__(
            self,
            *,
            partition: int = ...,
            racks: list[str] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata]
    def __init__(
        self,
        *,
        topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupMemberMetadataValue(Message):
    class ClassicMemberMetadata(Message):
        session_timeout_ms: int
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol]
        def __init__(
            self,
            *,
            session_timeout_ms: int = ...,
            supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class ClassicProtocol(Message):
        name: str
        metadata: bytes
        def __init__(
            self,
            *,
            name: str = ...,
            metadata: bytes = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None
    def __init__(
        self,
        *,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        subscribed_topic_regex: str | None = ...,
        rebalance_timeout_ms: int = ...,
        server_assignor: str | None = ...,
        classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    def __init__(
        self,
        *,
        assignment_epoch: int = ...,
        assignment_timestamp: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Message):
        topic_id: UUID
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition]
    def __init__(
        self,
        *,
        topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Message):
        topic_id: UUID
        partitions: list[int]
        assignment_epochs: list[int] | None
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[int] = ...,
            assignment_epochs: list[int] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    def __init__(
        self,
        *,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupRegularExpressionKey(Message):
    group_id: str
    regular_expression: str
    def __init__(
        self,
        *,
        group_id: str = ...,
        regular_expression: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str]
    version: int
    timestamp: int
    def __init__(
        self,
        *,
        topics: list[str] = ...,
        version: int = ...,
        timestamp: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ShareGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    def __init__(
        self,
        *,
        epoch: int = ...,
        metadata_hash: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    def __init__(
        self,
        *,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ShareGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Message):
        topic_id: UUID
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions]
    def __init__(
        self,
        *,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ShareGroupStatePartitionMetadataValue(Message):
    class TopicPartitionsInfo(Message):
        topic_id: UUID
        topic_name: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            topic_name: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TopicInfo(Message):
        topic_id: UUID
        topic_name: str
        def __init__(
            self,
            *,
            topic_id: UUID = ...,
            topic_name: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]
    initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]
    deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo]
    def __init__(
        self,
        *,
        initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...,
        initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...,
        deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class StreamsGroupMetadataValue(Message):
    class LastAssignmentConfig(Message):
        key: str
        value: str
        def __init__(
            self,
            *,
            key: str = ...,
            value: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    last_assignment_configs: list[StreamsGroupMetadataValue.LastAssignmentConfig] | None
    stored_description_topology_epoch: int
    failed_description_topology_epoch: int
    def __init__(
        self,
        *,
        epoch: int = ...,
        metadata_hash: int = ...,
        validated_topology_epoch: int = ...,
        last_assignment_configs: list[StreamsGroupMetadataValue.LastAssignmentConfig] | None = ...,
        stored_description_topology_epoch: int = ...,
        failed_description_topology_epoch: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class StreamsGroupMemberMetadataValue(Message):
    class Endpoint(Message):
        host: str
        port: int
        def __init__(
            self,
            *,
            host: str = ...,
            port: int = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class KeyValue(Message):
        key: str
        value: str
        def __init__(
            self,
            *,
            key: str = ...,
            value: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None
    client_tags: list[StreamsGroupMemberMetadataValue.KeyValue]
    def __init__(
        self,
        *,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        rebalance_timeout_ms: int = ...,
        topology_epoch: int = ...,
        process_id: str = ...,
        user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None = ...,
        client_tags: list[StreamsGroupMemberMetadataValue.KeyValue] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMemberValue(Message):
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        def __init__(
            self,
            *,
            subtopology_id: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    active_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    def __init__(
        self,
        *,
        active_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        standby_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        warmup_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class StreamsGroupCurrentMemberAssignmentValue(Message):
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        assignment_epochs: list[int] | None
        def __init__(
            self,
            *,
            subtopology_id: str = ...,
            partitions: list[int] = ...,
            assignment_epochs: list[int] | None = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    member_epoch: int
    previous_member_epoch: int
    state: int
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    def __init__(
        self,
        *,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        active_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        standby_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class StreamsGroupTopologyValue(Message):
    class Subtopology(Message):
        subtopology_id: str
        source_topics: list[str]
        source_topic_regex: list[str]
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo]
        repartition_sink_topics: list[str]
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo]
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup]
        def __init__(
            self,
            *,
            subtopology_id: str = ...,
            source_topics: list[str] = ...,
            source_topic_regex: list[str] = ...,
            state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = ...,
            repartition_sink_topics: list[str] = ...,
            repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = ...,
            copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig]
        def __init__(
            self,
            *,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class TopicConfig(Message):
        key: str
        value: str
        def __init__(
            self,
            *,
            key: str = ...,
            value: str = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    class CopartitionGroup(Message):
        source_topics: list[int]
        source_topic_regex: list[int]
        repartition_source_topics: list[int]
        def __init__(
            self,
            *,
            source_topics: list[int] = ...,
            source_topic_regex: list[int] = ...,
            repartition_source_topics: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    epoch: int
    subtopologies: list[StreamsGroupTopologyValue.Subtopology]
    def __init__(
        self,
        *,
        epoch: int = ...,
        subtopologies: list[StreamsGroupTopologyValue.Subtopology] = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class TransactionLogKey(Message):
    transactional_id: str
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class TransactionLogValue(Message):
    class PartitionsSchema(Message):
        topic: str
        partition_ids: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partition_ids: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    previous_producer_id: int
    next_producer_id: int
    client_transaction_version: int
    next_producer_epoch: int
    def __init__(
        self,
        *,
        producer_id: int = ...,
        producer_epoch: int = ...,
        transaction_timeout_ms: int = ...,
        transaction_status: int = ...,
        transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = ...,
        transaction_last_update_timestamp_ms: int = ...,
        transaction_start_timestamp_ms: int = ...,
        previous_producer_id: int = ...,
        next_producer_id: int = ...,
        client_transaction_version: int = ...,
        next_producer_epoch: int = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerProtocolSubscription(Message):
    class TopicPartition(Message):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition]
    generation_id: int
    rack_id: str | None
    def __init__(
        self,
        *,
        topics: list[str] = ...,
        user_data: bytes | None = ...,
        owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = ...,
        generation_id: int = ...,
        rack_id: str | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...

class ConsumerProtocolAssignment(Message):
    class TopicPartition(Message):
        topic: str
        partitions: list[int]
        def __init__(
            self,
            *,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tagged_fields: Mapping[int, bytes] = ...,
        ) -> None: ...

    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition]
    user_data: bytes | None
    def __init__(
        self,
        *,
        assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = ...,
        user_data: bytes | None = ...,
        unknown_tagged_fields: Mapping[int, bytes] = ...,
    ) -> None: ...
