"""Records of groups of the newer protocols with their bytes, which a person wrote from Kafka's definitions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTopologyValue,
)

TOPIC_ID = UUID(bytes=bytes(range(16)))
GROUP = b"\0\1g"
MEMBER = b"\0\1g\0\1m"
PARTITIONS = bytes(range(16)) + b"\3\0\0\0\4\0\0\0\5"
"""A topic id and partitions 4 and 5, without tagged fields."""

MEMBER_START = b"\1\1\1\1\1\1\xff\xff\xff\xff\1"
"""The fields of a member's value with their defaults. Behind it, Kafka writes null as a tagged field."""

RECORDS: list[tuple[str, int, tuple[Any, bytes]]] = [
    ("ConsumerGroupMetadataKey", 3, (ConsumerGroupMetadataKey(group_id="g"), GROUP)),
    ("ConsumerGroupPartitionMetadataKey", 4, (ConsumerGroupPartitionMetadataKey(group_id="g"), GROUP)),
    ("ConsumerGroupMemberMetadataKey", 5, (ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), MEMBER)),
    ("ConsumerGroupTargetAssignmentMetadataKey", 6, (ConsumerGroupTargetAssignmentMetadataKey(group_id="g"), GROUP)),
    (
        "ConsumerGroupTargetAssignmentMemberKey",
        7,
        (ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"), MEMBER),
    ),
    (
        "ConsumerGroupCurrentMemberAssignmentKey",
        8,
        (ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), MEMBER),
    ),
    (
        "ConsumerGroupRegularExpressionKey",
        16,
        (ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*"), GROUP + b"\0\3t.*"),
    ),
    (
        "ConsumerGroupMetadataValue",
        0,
        (ConsumerGroupMetadataValue(epoch=3, metadata_hash=7), b"\0\0\0\3" + b"\1\0\x08" + b"\0\0\0\0\0\0\0\7"),
    ),
    (
        "ConsumerGroupPartitionMetadataValue",
        0,
        (
            ConsumerGroupPartitionMetadataValue(
                topics=[
                    ConsumerGroupPartitionMetadataValue.TopicMetadata(
                        topic_id=TOPIC_ID, topic_name="t", num_partitions=6
                    )
                ]
            ),
            b"\2" + bytes(range(16)) + b"\2t" + b"\0\0\0\6" + b"\1" + b"\0" + b"\0",
        ),
    ),
    (
        "ConsumerGroupMemberMetadataValue",
        0,
        (
            ConsumerGroupMemberMetadataValue(
                instance_id="i",
                rack_id=None,
                client_id="c",
                client_host="/h",
                subscribed_topic_names=["t"],
                subscribed_topic_regex=None,
                rebalance_timeout_ms=256,
                server_assignor="uniform",
                classic_member_metadata=ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
                    session_timeout_ms=9,
                    supported_protocols=[ConsumerGroupMemberMetadataValue.ClassicProtocol(name="p", metadata=b"\xaa")],
                ),
            ),
            b"\2i\0\2c\3/h\2\2t\0\0\0\1\0\x08uniform"
            b"\1\0\x0c" + (b"\1" + b"\0\0\0\x09" + b"\2" + b"\2p" + b"\2\xaa" + b"\0" + b"\0"),
        ),
    ),
    (
        "ConsumerGroupMemberMetadataValue",
        0,
        (ConsumerGroupMemberMetadataValue(classic_member_metadata=None), MEMBER_START + b"\1\0\1\0"),
    ),
    ("ConsumerGroupMemberMetadataValue", 0, (ConsumerGroupMemberMetadataValue(), MEMBER_START + b"\0")),
    (
        "ConsumerGroupTargetAssignmentMetadataValue",
        0,
        (
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3, assignment_timestamp=1_000),
            b"\0\0\0\3" + b"\1\0\x08" + b"\0\0\0\0\0\0\3\xe8",
        ),
    ),
    (
        "ConsumerGroupTargetAssignmentMemberValue",
        0,
        (
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=TOPIC_ID, partitions=[4, 5])
                ]
            ),
            b"\2" + PARTITIONS + b"\0" + b"\0",
        ),
    ),
    (
        "ConsumerGroupCurrentMemberAssignmentValue",
        0,
        (
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                previous_member_epoch=2,
                state=1,
                assigned_partitions=[
                    ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
                        topic_id=TOPIC_ID, partitions=[4, 5], assignment_epochs=[2, 3]
                    )
                ],
                partitions_pending_revocation=[],
            ),
            b"\0\0\0\3\0\0\0\2\1\2" + PARTITIONS + b"\1\0\x09" + b"\3\0\0\0\2\0\0\0\3" + b"\1" + b"\0",
        ),
    ),
    (
        "ConsumerGroupRegularExpressionValue",
        0,
        (
            ConsumerGroupRegularExpressionValue(topics=["t1", "t2"], version=5, timestamp=1_000),
            b"\3\3t1\3t2" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\0\0\0\3\xe8" + b"\0",
        ),
    ),
]
"""Name, version, and the message with its bytes."""

TASKS = b"\2\x020\3\0\0\0\4\0\0\0\5"
"""Partitions 4 and 5 of subtopology 0, without tagged fields."""

STREAMS: list[tuple[str, int, tuple[Any, bytes]]] = [
    (
        "StreamsGroupMetadataValue",
        0,
        (
            StreamsGroupMetadataValue(epoch=3, metadata_hash=7, validated_topology_epoch=2),
            b"\0\0\0\3" + b"\0\0\0\0\0\0\0\7" + b"\1\0\4\0\0\0\2",
        ),
    ),
    (
        "StreamsGroupMemberMetadataValue",
        0,
        (
            StreamsGroupMemberMetadataValue(
                instance_id=None,
                rack_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=5,
                topology_epoch=2,
                process_id="p",
                user_endpoint=StreamsGroupMemberMetadataValue.Endpoint(host="h", port=40_000),
                client_tags=[StreamsGroupMemberMetadataValue.KeyValue(key="k", value="v")],
            ),
            b"\0\0\2c\3/h" + b"\0\0\0\5\0\0\0\2" + b"\2p" + b"\1\2h\x9c\x40\0" + b"\2\2k\2v\0" + b"\0",
        ),
    ),
    (
        "StreamsGroupTargetAssignmentMemberValue",
        0,
        (
            StreamsGroupTargetAssignmentMemberValue(
                active_tasks=[StreamsGroupTargetAssignmentMemberValue.TaskIds(subtopology_id="0", partitions=[4, 5])]
            ),
            TASKS + b"\0" + b"\1\1\0",
        ),
    ),
    (
        "StreamsGroupCurrentMemberAssignmentValue",
        0,
        (
            StreamsGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                previous_member_epoch=2,
                state=2,
                active_tasks=[
                    StreamsGroupCurrentMemberAssignmentValue.TaskIds(
                        subtopology_id="0", partitions=[4, 5], assignment_epochs=[2, 3]
                    )
                ],
            ),
            b"\0\0\0\3\0\0\0\2\2" + TASKS + b"\1\0\x09\3\0\0\0\2\0\0\0\3" + b"\1\1\1\1\1\0",
        ),
    ),
    (
        "StreamsGroupTopologyValue",
        0,
        (
            StreamsGroupTopologyValue(
                epoch=2,
                subtopologies=[
                    StreamsGroupTopologyValue.Subtopology(
                        subtopology_id="0",
                        source_topics=["t"],
                        repartition_source_topics=[
                            StreamsGroupTopologyValue.TopicInfo(
                                name="r",
                                partitions=6,
                                replication_factor=1,
                                topic_configs=[StreamsGroupTopologyValue.TopicConfig(key="k", value="v")],
                            )
                        ],
                        copartition_groups=[StreamsGroupTopologyValue.CopartitionGroup(source_topics=[0])],
                    )
                ],
            ),
            b"\0\0\0\2\2" + b"\x020\2\2t\1\1\1" + b"\2\2r\0\0\0\6\0\1\2\2k\2v\0\0" + b"\2\2\0\0\1\1\0" + b"\0\0",
        ),
    ),
]
"""The values of a streams group's records; the keys have the bytes of those above."""

SHARE: list[tuple[str, int, tuple[Any, bytes]]] = [
    (
        "ShareGroupMetadataValue",
        0,
        (ShareGroupMetadataValue(epoch=3, metadata_hash=7), b"\0\0\0\3" + b"\0\0\0\0\0\0\0\7" + b"\0"),
    ),
    (
        "ShareGroupMemberMetadataValue",
        0,
        (
            ShareGroupMemberMetadataValue(rack_id=None, client_id="c", client_host="/h", subscribed_topic_names=["t"]),
            b"\0\2c\3/h\2\2t" + b"\0",
        ),
    ),
    (
        "ShareGroupCurrentMemberAssignmentValue",
        0,
        (
            ShareGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                previous_member_epoch=2,
                state=0,
                assigned_partitions=[
                    ShareGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=TOPIC_ID, partitions=[4, 5])
                ],
            ),
            b"\0\0\0\3\0\0\0\2\0\2" + PARTITIONS + b"\0" + b"\0",
        ),
    ),
    (
        "ShareGroupStatePartitionMetadataValue",
        0,
        (
            ShareGroupStatePartitionMetadataValue(
                initialized_topics=[
                    ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo(
                        topic_id=TOPIC_ID, topic_name="t", partitions=[4, 5]
                    )
                ],
                deleting_topics=[ShareGroupStatePartitionMetadataValue.TopicInfo(topic_id=TOPIC_ID, topic_name="u")],
            ),
            b"\1"
            + (b"\2" + bytes(range(16)) + b"\2t" + b"\3\0\0\0\4\0\0\0\5" + b"\0")
            + (b"\2" + bytes(range(16)) + b"\2u" + b"\0")
            + b"\0",
        ),
    ),
]
"""Those of a share group's records, likewise."""
