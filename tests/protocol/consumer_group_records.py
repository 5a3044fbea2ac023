"""Records of groups of the newer protocols with their bytes, which a person wrote from Kafka's definitions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.support.requests import message

ByHand = tuple[str, int, tuple[Any, bytes]]
"""Name, version, and the message with its bytes."""

TOPIC_ID = UUID(bytes=bytes(range(16)))
GROUP = b"\0\1g"
MEMBER = b"\0\1g\0\1m"
PARTITIONS = bytes(range(16)) + b"\3\0\0\0\4\0\0\0\5"
"""A topic id and partitions 4 and 5, without tagged fields."""

OF_TOPIC = {"topic_id": TOPIC_ID, "partitions": [4, 5]}
TASKS = b"\2\x020\3\0\0\0\4\0\0\0\5"
"""Partitions 4 and 5 of subtopology 0, without tagged fields."""

OF_TASKS = {"subtopology_id": "0", "partitions": [4, 5]}
MEMBER_START = b"\1\1\1\1\1\1\xff\xff\xff\xff\1"
"""The fields of a member's value with their defaults. Behind it, Kafka writes null as a tagged field."""


def by_hand(name: str, version: int, data: bytes, /, **fields: Any) -> ByHand:
    """A message with these fields, and its bytes."""
    return name, version, (message(name, **fields), data)


RECORDS = [
    by_hand("ConsumerGroupMetadataKey", 3, GROUP, group_id="g"),
    by_hand("ConsumerGroupPartitionMetadataKey", 4, GROUP, group_id="g"),
    by_hand("ConsumerGroupMemberMetadataKey", 5, MEMBER, group_id="g", member_id="m"),
    by_hand("ConsumerGroupTargetAssignmentMetadataKey", 6, GROUP, group_id="g"),
    by_hand("ConsumerGroupTargetAssignmentMemberKey", 7, MEMBER, group_id="g", member_id="m"),
    by_hand("ConsumerGroupCurrentMemberAssignmentKey", 8, MEMBER, group_id="g", member_id="m"),
    by_hand("ConsumerGroupRegularExpressionKey", 16, GROUP + b"\0\3t.*", group_id="g", regular_expression="t.*"),
    by_hand(
        "ConsumerGroupMetadataValue",
        0,
        b"\0\0\0\3" + b"\1\0\x08" + b"\0\0\0\0\0\0\0\7",
        epoch=3,
        metadata_hash=7,
    ),
    by_hand(
        "ConsumerGroupPartitionMetadataValue",
        0,
        b"\2" + bytes(range(16)) + b"\2t" + b"\0\0\0\6" + b"\1" + b"\0" + b"\0",
        topics=[{"topic_id": TOPIC_ID, "topic_name": "t", "num_partitions": 6}],
    ),
    by_hand(
        "ConsumerGroupMemberMetadataValue",
        0,
        b"\2i\0\2c\3/h\2\2t\0\0\0\1\0\x08uniform"
        b"\1\0\x0c" + (b"\1" + b"\0\0\0\x09" + b"\2" + b"\2p" + b"\2\xaa" + b"\0" + b"\0"),
        instance_id="i",
        rack_id=None,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=256,
        server_assignor="uniform",
        classic_member_metadata={
            "session_timeout_ms": 9,
            "supported_protocols": [{"name": "p", "metadata": b"\xaa"}],
        },
    ),
    by_hand("ConsumerGroupMemberMetadataValue", 0, MEMBER_START + b"\1\0\1\0", classic_member_metadata=None),
    by_hand("ConsumerGroupMemberMetadataValue", 0, MEMBER_START + b"\0"),
    by_hand(
        "ConsumerGroupTargetAssignmentMetadataValue",
        0,
        b"\0\0\0\3" + b"\1\0\x08" + b"\0\0\0\0\0\0\3\xe8",
        assignment_epoch=3,
        assignment_timestamp=1_000,
    ),
    by_hand(
        "ConsumerGroupTargetAssignmentMemberValue",
        0,
        b"\2" + PARTITIONS + b"\0" + b"\0",
        topic_partitions=[OF_TOPIC],
    ),
    by_hand(
        "ConsumerGroupCurrentMemberAssignmentValue",
        0,
        b"\0\0\0\3\0\0\0\2\1\2" + PARTITIONS + b"\1\0\x09" + b"\3\0\0\0\2\0\0\0\3" + b"\1" + b"\0",
        member_epoch=3,
        previous_member_epoch=2,
        state=1,
        assigned_partitions=[OF_TOPIC | {"assignment_epochs": [2, 3]}],
        partitions_pending_revocation=[],
    ),
    by_hand(
        "ConsumerGroupRegularExpressionValue",
        0,
        b"\3\3t1\3t2" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\0\0\0\3\xe8" + b"\0",
        topics=["t1", "t2"],
        version=5,
        timestamp=1_000,
    ),
]

STREAMS = [
    by_hand(
        "StreamsGroupMetadataValue",
        0,
        b"\0\0\0\3" + b"\0\0\0\0\0\0\0\7" + b"\1\0\4\0\0\0\2",
        epoch=3,
        metadata_hash=7,
        validated_topology_epoch=2,
    ),
    by_hand(
        "StreamsGroupMemberMetadataValue",
        0,
        b"\0\0\2c\3/h" + b"\0\0\0\5\0\0\0\2" + b"\2p" + b"\1\2h\x9c\x40\0" + b"\2\2k\2v\0" + b"\0",
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5,
        topology_epoch=2,
        process_id="p",
        user_endpoint={"host": "h", "port": 40_000},
        client_tags=[{"key": "k", "value": "v"}],
    ),
    by_hand("StreamsGroupTargetAssignmentMemberValue", 0, TASKS + b"\0" + b"\1\1\0", active_tasks=[OF_TASKS]),
    by_hand(
        "StreamsGroupCurrentMemberAssignmentValue",
        0,
        b"\0\0\0\3\0\0\0\2\2" + TASKS + b"\1\0\x09\3\0\0\0\2\0\0\0\3" + b"\1\1\1\1\1\0",
        member_epoch=3,
        previous_member_epoch=2,
        state=2,
        active_tasks=[OF_TASKS | {"assignment_epochs": [2, 3]}],
    ),
    by_hand(
        "StreamsGroupTopologyValue",
        0,
        b"\0\0\0\2\2" + b"\x020\2\2t\1\1\1" + b"\2\2r\0\0\0\6\0\1\2\2k\2v\0\0" + b"\2\2\0\0\1\1\0" + b"\0\0",
        epoch=2,
        subtopologies=[
            {
                "subtopology_id": "0",
                "source_topics": ["t"],
                "repartition_source_topics": [
                    {
                        "name": "r",
                        "partitions": 6,
                        "replication_factor": 1,
                        "topic_configs": [{"key": "k", "value": "v"}],
                    }
                ],
                "copartition_groups": [{"source_topics": [0]}],
            }
        ],
    ),
]
"""The values of a streams group's records; the keys have the bytes of those above."""

SHARE = [
    by_hand("ShareGroupMetadataValue", 0, b"\0\0\0\3" + b"\0\0\0\0\0\0\0\7" + b"\0", epoch=3, metadata_hash=7),
    by_hand(
        "ShareGroupMemberMetadataValue",
        0,
        b"\0\2c\3/h\2\2t" + b"\0",
        rack_id=None,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
    ),
    by_hand(
        "ShareGroupCurrentMemberAssignmentValue",
        0,
        b"\0\0\0\3\0\0\0\2\0\2" + PARTITIONS + b"\0" + b"\0",
        member_epoch=3,
        previous_member_epoch=2,
        state=0,
        assigned_partitions=[OF_TOPIC],
    ),
    by_hand(
        "ShareGroupStatePartitionMetadataValue",
        0,
        b"\1"
        + (b"\2" + bytes(range(16)) + b"\2t" + b"\3\0\0\0\4\0\0\0\5" + b"\0")
        + (b"\2" + bytes(range(16)) + b"\2u" + b"\0")
        + b"\0",
        initialized_topics=[OF_TOPIC | {"topic_name": "t"}],
        deleting_topics=[{"topic_id": TOPIC_ID, "topic_name": "u"}],
    ),
]
"""Those of a share group's records, likewise."""
