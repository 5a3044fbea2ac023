"""The rights that each API needs: operations on resources, and what a client without them gets.

RIGHTS is for people and for tests: docs/secure/acls.md shows it, and a test compares it with what the handlers ask
for. Tenure's own client names the right that it lacks by it.

House rule: an API stands here with all its rights, in the order in which its handler asks. Source: Kafka's KafkaApis,
AuthHelper, ControllerApis and AclApis, release 3.9; of groups' settings 4.4.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.security.acls import Kind, Operation


class Right(NamedTuple):
    """One right. otherwise: what the client gets without it."""

    operation: Operation
    kind: Kind
    otherwise: str

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


READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (Operation(number) for number in range(3, 9))
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = (Operation(number) for number in range(9, 13))
TOPIC, GROUP, CLUSTER, TRANSACTION = Kind.TOPIC, Kind.GROUP, Kind.CLUSTER, Kind.TRANSACTIONAL_ID

NO_TOPIC, NO_GROUP, NO_CLUSTER, NO_TRANSACTION = (
    f"`{name}_AUTHORIZATION_FAILED`" for name in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
)

RIGHTS: dict[str, tuple[Right, ...]] = {
    "Produce": (Right(WRITE, TRANSACTION, NO_TRANSACTION), Right(WRITE, TOPIC, NO_TOPIC)),
    "Fetch": (Right(READ, TOPIC, NO_TOPIC),),
    "ListOffsets": (Right(DESCRIBE, TOPIC, NO_TOPIC),),
    "Metadata": (
        Right(DESCRIBE, TOPIC, f"{NO_TOPIC}; left out of all topics"),
        Right(CREATE, CLUSTER, "`CREATE` on the topic is asked for"),
        Right(CREATE, TOPIC, f"{NO_TOPIC}, for a topic to create"),
        Right(DESCRIBE, CLUSTER, "authorized operations of the cluster: 0"),
    ),
    "OffsetCommit": (Right(READ, GROUP, NO_GROUP), Right(READ, TOPIC, NO_TOPIC)),
    "OffsetFetch": (
        Right(DESCRIBE, GROUP, NO_GROUP),
        Right(DESCRIBE, TOPIC, f"{NO_TOPIC}; left out of all topics"),
    ),
    "FindCoordinator": (Right(DESCRIBE, GROUP, NO_GROUP), Right(DESCRIBE, TRANSACTION, NO_TRANSACTION)),
    "JoinGroup": (Right(READ, GROUP, NO_GROUP),),
    "Heartbeat": (Right(READ, GROUP, NO_GROUP),),
    "LeaveGroup": (Right(READ, GROUP, NO_GROUP),),
    "SyncGroup": (Right(READ, GROUP, NO_GROUP),),
    "ConsumerGroupHeartbeat": (Right(READ, GROUP, NO_GROUP), Right(DESCRIBE, TOPIC, NO_TOPIC)),
    "ConsumerGroupDescribe": (Right(DESCRIBE, GROUP, NO_GROUP), Right(DESCRIBE, TOPIC, NO_TOPIC)),
    "DescribeGroups": (Right(DESCRIBE, GROUP, NO_GROUP),),
    "ListGroups": (
        Right(DESCRIBE, CLUSTER, "`DESCRIBE` on each group is asked for"),
        Right(DESCRIBE, GROUP, "left out"),
    ),
    "DeleteGroups": (Right(DELETE, GROUP, NO_GROUP),),
    "OffsetDelete": (Right(DELETE, GROUP, NO_GROUP), Right(READ, TOPIC, NO_TOPIC)),
    "CreateTopics": (
        Right(CREATE, CLUSTER, "`CREATE` on each topic is asked for"),
        Right(CREATE, TOPIC, NO_TOPIC),
        Right(DESCRIBE_CONFIGS, TOPIC, "created, its settings are not shown"),
    ),
    "DeleteTopics": (
        Right(DELETE, CLUSTER, "`DELETE` on each topic is asked for"),
        Right(DESCRIBE, TOPIC, NO_TOPIC),
        Right(DELETE, TOPIC, NO_TOPIC),
    ),
    "CreatePartitions": (Right(ALTER, TOPIC, NO_TOPIC),),
    "DeleteRecords": (Right(DELETE, TOPIC, NO_TOPIC),),
    "AddPartitionsToTxn": (Right(WRITE, TRANSACTION, NO_TRANSACTION), Right(WRITE, TOPIC, NO_TOPIC)),
    "AddOffsetsToTxn": (Right(WRITE, TRANSACTION, NO_TRANSACTION), Right(READ, GROUP, NO_GROUP)),
    "EndTxn": (Right(WRITE, TRANSACTION, NO_TRANSACTION),),
    "WriteTxnMarkers": (
        Right(ALTER, CLUSTER, "`CLUSTER_ACTION` is asked for"),
        Right(CLUSTER_ACTION, CLUSTER, NO_CLUSTER),
    ),
    "DescribeProducers": (Right(READ, TOPIC, NO_TOPIC),),
    "DescribeTransactions": (
        Right(DESCRIBE, TRANSACTION, NO_TRANSACTION),
        Right(DESCRIBE, TOPIC, "its topic partitions are not shown"),
    ),
    "ListTransactions": (Right(DESCRIBE, TRANSACTION, "the transaction is not listed"),),
    "InitProducerId": (
        Right(WRITE, TRANSACTION, f"{NO_TRANSACTION}; without a transactional id, what follows is asked for"),
        Right(IDEMPOTENT_WRITE, CLUSTER, "`WRITE` on any topic is asked for"),
        Right(WRITE, TOPIC, NO_CLUSTER),
    ),
    "OffsetForLeaderEpoch": (
        Right(CLUSTER_ACTION, CLUSTER, "`DESCRIBE` on each topic is asked for"),
        Right(DESCRIBE, TOPIC, NO_TOPIC),
    ),
    "TxnOffsetCommit": (
        Right(WRITE, TRANSACTION, NO_TRANSACTION),
        Right(READ, GROUP, NO_GROUP),
        Right(READ, TOPIC, NO_TOPIC),
    ),
    "DescribeConfigs": (
        Right(DESCRIBE_CONFIGS, CLUSTER, f"{NO_CLUSTER}, for a broker"),
        Right(DESCRIBE_CONFIGS, TOPIC, NO_TOPIC),
        Right(DESCRIBE_CONFIGS, GROUP, NO_GROUP),
    ),
    "AlterConfigs": (
        Right(ALTER_CONFIGS, CLUSTER, f"{NO_CLUSTER}, for a broker"),
        Right(ALTER_CONFIGS, TOPIC, NO_TOPIC),
        Right(ALTER_CONFIGS, GROUP, NO_GROUP),
    ),
    "IncrementalAlterConfigs": (
        Right(ALTER_CONFIGS, CLUSTER, f"{NO_CLUSTER}, for a broker"),
        Right(ALTER_CONFIGS, TOPIC, NO_TOPIC),
        Right(ALTER_CONFIGS, GROUP, NO_GROUP),
    ),
    "ListConfigResources": (Right(DESCRIBE_CONFIGS, CLUSTER, NO_CLUSTER),),
    "AlterReplicaLogDirs": (Right(ALTER, CLUSTER, NO_CLUSTER),),
    "DescribeLogDirs": (Right(DESCRIBE, CLUSTER, NO_CLUSTER),),
    "ElectLeaders": (Right(ALTER, CLUSTER, NO_CLUSTER),),
    "AlterPartitionReassignments": (Right(ALTER, CLUSTER, NO_CLUSTER),),
    "ListPartitionReassignments": (Right(DESCRIBE, CLUSTER, NO_CLUSTER),),
    "DescribeCluster": (Right(DESCRIBE, CLUSTER, "authorized operations of the cluster: 0"),),
    "DescribeAcls": (Right(DESCRIBE, CLUSTER, NO_CLUSTER),),
    "CreateAcls": (Right(ALTER, CLUSTER, NO_CLUSTER),),
    "DeleteAcls": (Right(ALTER, CLUSTER, NO_CLUSTER),),
    "DescribeClientQuotas": (Right(DESCRIBE_CONFIGS, CLUSTER, NO_CLUSTER),),
    "AlterClientQuotas": (Right(ALTER_CONFIGS, CLUSTER, NO_CLUSTER),),
    "DescribeUserScramCredentials": (Right(DESCRIBE, CLUSTER, NO_CLUSTER),),
    "AlterUserScramCredentials": (Right(ALTER, CLUSTER, NO_CLUSTER),),
    "SaslHandshake": (),
    "SaslAuthenticate": (),
    "ApiVersions": (),
}
"""By API, in the order in which its handler asks."""


def missing(api: str, error: str) -> Right | None:
    """The right without which an API gets this error of Kafka's; None if it is no error about rights."""
    return next((right for right in RIGHTS.get(api, ()) if right.otherwise.startswith(f"`{error}`")), None)


def table() -> str:
    """The rows of the table in docs/secure/acls.md."""
    return "".join(
        f"| {api} | {right.title} | {right.kind.name.lower()} | {right.otherwise} |\n"
        for api, rights in sorted(RIGHTS.items())
        for right in rights
    )
