"""A file per API: the fields on the wire in each version.

Each file has:

- NAME and API_KEY.
- VERSIONS: first and last, inclusive.
- FLEXIBLE: the first flexible version (KIP-482), or None.
- CHANGES: how each version differs from the one before. A version that isn't named has the same fields and meaning; it
  may still be the first in the flexible form.
- REQUEST and RESPONSE: the tables. The head of `protocol.definition` says how to read a table.

Field names, types, versions and numbers are facts of Kafka's protocol, as in its JSON definitions for release 3.9
(clients/src/main/resources/common/message), or later where a version says so.

House rule: data and no imports. To change a message, change its file here; `python -m protocol.stub` then writes the
types anew (protocol/messages.pyi).
"""

from __future__ import annotations

API_KEYS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "DescribeGroups": 15,
    "ListGroups": 16,
    "SaslHandshake": 17,
    "ApiVersions": 18,
    "CreateTopics": 19,
    "DeleteTopics": 20,
    "DeleteRecords": 21,
    "InitProducerId": 22,
    "OffsetForLeaderEpoch": 23,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "WriteTxnMarkers": 27,
    "TxnOffsetCommit": 28,
    "DescribeAcls": 29,
    "CreateAcls": 30,
    "DeleteAcls": 31,
    "DescribeConfigs": 32,
    "AlterConfigs": 33,
    "AlterReplicaLogDirs": 34,
    "DescribeLogDirs": 35,
    "SaslAuthenticate": 36,
    "CreatePartitions": 37,
    "DeleteGroups": 42,
    "ElectLeaders": 43,
    "IncrementalAlterConfigs": 44,
    "AlterPartitionReassignments": 45,
    "ListPartitionReassignments": 46,
    "OffsetDelete": 47,
    "DescribeClientQuotas": 48,
    "AlterClientQuotas": 49,
    "DescribeUserScramCredentials": 50,
    "AlterUserScramCredentials": 51,
    "DescribeCluster": 60,
    "DescribeProducers": 61,
    "DescribeTransactions": 65,
    "ListTransactions": 66,
    "ConsumerGroupHeartbeat": 68,
    "ConsumerGroupDescribe": 69,
    "ListConfigResources": 74,
    "ShareGroupDescribe": 77,
    "StreamsGroupDescribe": 89,
    "DescribeShareGroupOffsets": 90,
}
"""The key of each API that has a file here, by its name."""

SERVED = {
    name: key
    for name, key in API_KEYS.items()
    if name not in {"ShareGroupDescribe", "StreamsGroupDescribe", "DescribeShareGroupOffsets"}
}
"""Those that a server of Tenure has; our commands ask Apache Kafka for the others."""


def module_name(api: str) -> str:
    """The file of an API: "JoinGroup" is in `join_group`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api)[1:]
