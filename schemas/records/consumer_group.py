"""The records of a group of the consumer protocol (KIP-848), by the version of their keys.

    3   ConsumerGroupMetadata                  the group: its epoch, a hash of its topics
    4   ConsumerGroupPartitionMetadata         its topics, up to Kafka 4.0; later versions only delete it
    5   ConsumerGroupMemberMetadata            a member: instance id, subscription, timeout
    6   ConsumerGroupTargetAssignmentMetadata  the epoch of the target assignment
    7   ConsumerGroupTargetAssignmentMember    the partitions that a member shall have
    8   ConsumerGroupCurrentMemberAssignment   a member's epoch and state, and the partitions that it has
    16  ConsumerGroupRegularExpression         the topics that a regular expression matched

Key and value start with their version in two bytes, which is not part of these tables. A value of null is a tombstone.
Timeouts are in milliseconds, timestamps in milliseconds since 1970.
Source: the JSON files of these names in Kafka 4.4 (group-coordinator).
"""

GROUP_KEY = """
group_id  string  {version}
"""

MEMBER_KEY = """
group_id   string  {version}
member_id  string  {version}
"""

REGULAR_EXPRESSION_KEY = """
group_id            string  16
regular_expression  string  16
"""

GROUP_VALUE = """
epoch          int32  0+
metadata_hash  int64  0+  tag=0
"""

PARTITIONS_VALUE = """
topics                  []TopicMetadata      0+
    topic_id            uuid                 0+
    topic_name          string               0+
    num_partitions      int32                0+
    partition_metadata  []PartitionMetadata  0+
        partition       int32                0+
        racks           []string             0+
"""

MEMBER_VALUE = """
instance_id               string                 0+  null
rack_id                   string                 0+  null
client_id                 string                 0+
client_host               string                 0+
subscribed_topic_names    []string               0+
subscribed_topic_regex    string                 0+  null
rebalance_timeout_ms      int32                  0+  default=-1
server_assignor           string                 0+  null
classic_member_metadata   ClassicMemberMetadata  0+  null tag=0  # null for a member of the consumer protocol
    session_timeout_ms    int32                  0+
    supported_protocols   []ClassicProtocol      0+
        name              string                 0+
        metadata          bytes                  0+
"""

TARGET_VALUE = """
assignment_epoch      int32  0+
assignment_timestamp  int64  0+  tag=0 ignorable
"""

TARGET_MEMBER_VALUE = """
topic_partitions  []TopicPartition  0+
    topic_id      uuid              0+
    partitions    []int32           0+
"""

CURRENT_VALUE = """
member_epoch                   int32               0+
previous_member_epoch          int32               0+
state                          int8                0+
assigned_partitions            []TopicPartitions   0+
    topic_id                   uuid                0+
    partitions                 []int32             0+
    assignment_epochs          []int32             0+  null tag=0  # of each partition
partitions_pending_revocation  []TopicPartitions   0+
    topic_id                   uuid                0+
    partitions                 []int32             0+
    assignment_epochs          []int32             0+  null tag=0
"""

REGULAR_EXPRESSION_VALUE = """
topics     []string  0+
version    int64     0+
timestamp  int64     0+
"""

RECORDS = {
    "ConsumerGroupMetadataKey": ((3, 3), None, GROUP_KEY.format(version=3)),
    "ConsumerGroupMetadataValue": ((0, 0), 0, GROUP_VALUE),
    "ConsumerGroupPartitionMetadataKey": ((4, 4), None, GROUP_KEY.format(version=4)),
    "ConsumerGroupPartitionMetadataValue": ((0, 0), 0, PARTITIONS_VALUE),
    "ConsumerGroupMemberMetadataKey": ((5, 5), None, MEMBER_KEY.format(version=5)),
    "ConsumerGroupMemberMetadataValue": ((0, 0), 0, MEMBER_VALUE),
    "ConsumerGroupTargetAssignmentMetadataKey": ((6, 6), None, GROUP_KEY.format(version=6)),
    "ConsumerGroupTargetAssignmentMetadataValue": ((0, 0), 0, TARGET_VALUE),
    "ConsumerGroupTargetAssignmentMemberKey": ((7, 7), None, MEMBER_KEY.format(version=7)),
    "ConsumerGroupTargetAssignmentMemberValue": ((0, 0), 0, TARGET_MEMBER_VALUE),
    "ConsumerGroupCurrentMemberAssignmentKey": ((8, 8), None, MEMBER_KEY.format(version=8)),
    "ConsumerGroupCurrentMemberAssignmentValue": ((0, 0), 0, CURRENT_VALUE),
    "ConsumerGroupRegularExpressionKey": ((16, 16), None, REGULAR_EXPRESSION_KEY),
    "ConsumerGroupRegularExpressionValue": ((0, 0), 0, REGULAR_EXPRESSION_VALUE),
}
"""Versions, first flexible version and table of each record."""
