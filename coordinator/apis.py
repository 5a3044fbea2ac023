"""Every API of a server: its handler, the rights that it needs, and what a client without them gets.

The rights are for people and for tests: docs/secure/acls.md shows them, and a test compares them with what the handlers
ask for. Tenure's own client names the right that it lacks by them.

House rule: an API stands here, and nowhere else above its schema, with all its rights. Source: Kafka's KafkaApis,
AuthHelper, ControllerApis and AclApis, release 3.9; of groups' settings 4.4.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.security.acls import Kind, Operation


class Right(NamedTuple):
    """One right. instead: what the client gets without it; "" for the error of its kind."""

    operation: Operation
    kind: Kind
    instead: str = ""

    @property
    def otherwise(self) -> str:
        """The outcome for a client without it."""
        return self.instead or f"`{self.kind.name}_AUTHORIZATION_FAILED`"

    @property
    def title(self) -> str:
        """The operation in Kafka's words."""
        return self.operation.name.title().replace("_", "")

    def words(self, name: str) -> str:
        """The right to this resource, for a person. name: "" if it is unknown."""
        if self.kind is CLUSTER:
            return f"{self.title} on the cluster"
        kind = self.kind.name.lower().replace("_", " ")
        return f"{self.title} on {kind} {name!r}" if name else f"{self.title} on a {kind}"


class Api:
    """An API. handler: a function in a module of coordinator.server. rights: in the order in which it asks for them."""

    __slots__ = ("handler", "rights")

    def __init__(self, handler: str, *rights: Right) -> None:
        self.handler = handler
        self.rights = rights


READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (Operation(number) for number in range(3, 9))
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (Operation(number) for number in range(9, 13))
TOPIC, GROUP, CLUSTER, TRANSACTION = Kind.TOPIC, Kind.GROUP, Kind.CLUSTER, Kind.TRANSACTIONAL_ID

NO_TOPIC, NO_CLUSTER, NO_TRANSACTION = (Right(READ, kind).otherwise for kind in (TOPIC, CLUSTER, TRANSACTION))

APIS: dict[str, Api] = {
    "Produce": Api("requests.produce.produce", Right(WRITE, TRANSACTION), Right(WRITE, TOPIC)),
    "Fetch": Api("requests.fetch.fetch", Right(READ, TOPIC)),
    "ListOffsets": Api("requests.records.list_offsets", Right(DESCRIBE, TOPIC)),
    "Metadata": Api(
        "requests.topics.metadata",
        Right(DESCRIBE, TOPIC, f"{NO_TOPIC}; left out of all topics"),
        Right(CREATE, CLUSTER, "`CREATE` on the topic is asked for"),
        Right(CREATE, TOPIC, f"{NO_TOPIC}, for a topic to create"),
        Right(DESCRIBE, CLUSTER, "authorized operations of the cluster: 0"),
    ),
    "OffsetCommit": Api("requests.offsets.commit_offsets", Right(READ, GROUP), Right(READ, TOPIC)),
    "OffsetFetch": Api(
        "requests.offsets.fetch_offsets",
        Right(DESCRIBE, GROUP),
        Right(DESCRIBE, TOPIC, f"{NO_TOPIC}; left out of all topics"),
    ),
    "FindCoordinator": Api("requests.topics.find_coordinator", Right(DESCRIBE, GROUP), Right(DESCRIBE, TRANSACTION)),
    "JoinGroup": Api("requests.groups.join_group", Right(READ, GROUP)),
    "Heartbeat": Api("requests.groups.heartbeat", Right(READ, GROUP)),
    "LeaveGroup": Api("requests.groups.leave_group", Right(READ, GROUP)),
    "SyncGroup": Api("requests.groups.sync_group", Right(READ, GROUP)),
    "ConsumerGroupHeartbeat": Api("requests.consumer_groups.heartbeat", Right(READ, GROUP), Right(DESCRIBE, TOPIC)),
    "ConsumerGroupDescribe": Api("requests.consumer_groups.describe", Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC)),
    "DescribeGroups": Api("requests.groups.describe_groups", Right(DESCRIBE, GROUP)),
    "ListGroups": Api(
        "requests.groups.list_groups",
        Right(DESCRIBE, CLUSTER, "`DESCRIBE` on each group is asked for"),
        Right(DESCRIBE, GROUP, "left out"),
    ),
    "DeleteGroups": Api("requests.groups.delete_groups", Right(DELETE, GROUP)),
    "OffsetDelete": Api("requests.offsets.delete_offsets", Right(DELETE, GROUP), Right(READ, TOPIC)),
    "CreateTopics": Api(
        "requests.topics.create_topics",
        Right(CREATE, CLUSTER, "`CREATE` on each topic is asked for"),
        Right(CREATE, TOPIC),
        Right(DESCRIBE_CONFIGS, TOPIC, "created, its settings are not shown"),
    ),
    "DeleteTopics": Api(
        "requests.topics.delete_topics",
        Right(DELETE, CLUSTER, "`DELETE` on each topic is asked for"),
        Right(DESCRIBE, TOPIC),
        Right(DELETE, TOPIC),
    ),
    "CreatePartitions": Api("requests.topics.create_partitions", Right(ALTER, TOPIC)),
    "DeleteRecords": Api("requests.records.delete_records", Right(DELETE, TOPIC)),
    "AddPartitionsToTxn": Api(
        "requests.transactions.add_partitions_to_txn", Right(WRITE, TRANSACTION), Right(WRITE, TOPIC)
    ),
    "AddOffsetsToTxn": Api("requests.transactions.add_offsets_to_txn", Right(WRITE, TRANSACTION), Right(READ, GROUP)),
    "EndTxn": Api("requests.transactions.end_txn", Right(WRITE, TRANSACTION)),
    "WriteTxnMarkers": Api(
        "requests.producers.write_txn_markers",
        Right(ALTER, CLUSTER, "`CLUSTER_ACTION` is asked for"),
        Right(CLUSTER_ACTION, CLUSTER),
    ),
    "DescribeProducers": Api("requests.producers.describe_producers", Right(READ, TOPIC)),
    "DescribeTransactions": Api(
        "requests.transactions.describe_transactions",
        Right(DESCRIBE, TRANSACTION),
        Right(DESCRIBE, TOPIC, "its topic partitions are not shown"),
    ),
    "ListTransactions": Api(
        "requests.transactions.list_transactions", Right(DESCRIBE, TRANSACTION, "the transaction is not listed")
    ),
    "InitProducerId": Api(
        "requests.transactions.init_producer_id",
        Right(WRITE, TRANSACTION, f"{NO_TRANSACTION}; without a transactional id, what follows is asked for"),
        Right(IDEMPOTENT_WRITE, CLUSTER, "`WRITE` on any topic is asked for"),
        Right(WRITE, TOPIC, NO_CLUSTER),
    ),
    "OffsetForLeaderEpoch": Api(
        "requests.records.offset_for_leader_epoch",
        Right(CLUSTER_ACTION, CLUSTER, "`DESCRIBE` on each topic is asked for"),
        Right(DESCRIBE, TOPIC),
    ),
    "TxnOffsetCommit": Api(
        "requests.transactions.commit_in_transaction", Right(WRITE, TRANSACTION), Right(READ, GROUP), Right(READ, TOPIC)
    ),
    "DescribeConfigs": Api(
        "requests.configs.describe_configs",
        Right(DESCRIBE_CONFIGS, CLUSTER, f"{NO_CLUSTER}, for a broker"),
        Right(DESCRIBE_CONFIGS, TOPIC),
        Right(DESCRIBE_CONFIGS, GROUP),
    ),
    "AlterConfigs": Api(
        "requests.configs.alter_configs",
        Right(ALTER_CONFIGS, CLUSTER, f"{NO_CLUSTER}, for a broker"),
        Right(ALTER_CONFIGS, TOPIC),
        Right(ALTER_CONFIGS, GROUP),
    ),
    "IncrementalAlterConfigs": Api(
        "requests.configs.incremental_alter_configs",
        Right(ALTER_CONFIGS, CLUSTER, f"{NO_CLUSTER}, for a broker"),
        Right(ALTER_CONFIGS, TOPIC),
        Right(ALTER_CONFIGS, GROUP),
    ),
    "ListConfigResources": Api("requests.configs.list_config_resources", Right(DESCRIBE_CONFIGS, CLUSTER)),
    "AlterReplicaLogDirs": Api("requests.replicas.alter_replica_log_dirs", Right(ALTER, CLUSTER)),
    "DescribeLogDirs": Api("requests.replicas.describe_log_dirs", Right(DESCRIBE, CLUSTER)),
    "ElectLeaders": Api("requests.replicas.elect_leaders", Right(ALTER, CLUSTER)),
    "AlterPartitionReassignments": Api("requests.replicas.alter_partition_reassignments", Right(ALTER, CLUSTER)),
    "ListPartitionReassignments": Api("requests.replicas.list_partition_reassignments", Right(DESCRIBE, CLUSTER)),
    "DescribeCluster": Api(
        "requests.topics.describe_cluster", Right(DESCRIBE, CLUSTER, "authorized operations of the cluster: 0")
    ),
    "DescribeAcls": Api("requests.acls.describe_acls", Right(DESCRIBE, CLUSTER)),
    "CreateAcls": Api("requests.acls.create_acls", Right(ALTER, CLUSTER)),
    "DeleteAcls": Api("requests.acls.delete_acls", Right(ALTER, CLUSTER)),
    "DescribeClientQuotas": Api("requests.quotas.describe_client_quotas", Right(DESCRIBE_CONFIGS, CLUSTER)),
    "AlterClientQuotas": Api("requests.quotas.alter_client_quotas", Right(ALTER_CONFIGS, CLUSTER)),
    "DescribeUserScramCredentials": Api(
        "requests.credentials.describe_user_scram_credentials", Right(DESCRIBE, CLUSTER)
    ),
    "AlterUserScramCredentials": Api("requests.credentials.alter_user_scram_credentials", Right(ALTER, CLUSTER)),
    "SaslHandshake": Api("requests.credentials.handshake"),
    "SaslAuthenticate": Api("requests.credentials.authenticate"),
    "ApiVersions": Api("wire.api.api_versions"),
}
"""By the name of the API."""


def missing(api: str, error: str) -> Right | None:
    """The right without which an API gets this error of Kafka's; None if it is no error about rights."""
    rights = APIS[api].rights if api in APIS else ()
    return next((right for right in rights if right.otherwise.startswith(f"`{error}`")), None)


def table() -> str:
    """The rows of the table in docs/secure/acls.md."""
    return "".join(
        f"| {api} | {right.title} | {right.kind.name.lower()} | {right.otherwise} |\n"
        for api in sorted(APIS)
        for right in APIS[api].rights
    )
