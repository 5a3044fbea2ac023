"""The values of the records of a share group (KIP-932), by the version of their keys.

    10  ShareGroupMemberMetadata            a member: its client, the topics that it subscribes to
    11  ShareGroupMetadata                  the group: its epoch, a hash of its topics
    12  ShareGroupTargetAssignmentMetadata  the epoch of the target assignment
    13  ShareGroupTargetAssignmentMember    the partitions that a member shall have
    14  ShareGroupCurrentMemberAssignment   a member's epoch and state, and the partitions that it has
    15  ShareGroupStatePartitionMetadata    the partitions whose progress a share coordinator keeps, or deletes

The keys have the bytes of those of the consumer protocol, and so have the values of 12 and 13 (`consumer_group.py`).
Source: the JSON files of these names in Kafka 4.4 (group-coordinator).
"""

GROUP_VALUE = """
epoch          int32  0+
metadata_hash  int64  0+
"""

MEMBER_VALUE = """
rack_id                 string    0+  null
client_id               string    0+
client_host             string    0+
subscribed_topic_names  []string  0+
"""

CURRENT_VALUE = """
member_epoch           int32              0+
previous_member_epoch  int32              0+
state                  int8               0+
assigned_partitions    []TopicPartitions  0+
    topic_id           uuid               0+
    partitions         []int32            0+
"""

STATE_VALUE = """
initializing_topics  []TopicPartitionsInfo  0+
    topic_id         uuid                   0+
    topic_name       string                 0+
    partitions       []int32                0+
initialized_topics   []TopicPartitionsInfo  0+
    topic_id         uuid                   0+
    topic_name       string                 0+
    partitions       []int32                0+
deleting_topics      []TopicInfo            0+
    topic_id         uuid                   0+
    topic_name       string                 0+
"""

RECORDS = {
    "ShareGroupMetadataValue": ((0, 0), 0, GROUP_VALUE),
    "ShareGroupMemberMetadataValue": ((0, 0), 0, MEMBER_VALUE),
    "ShareGroupCurrentMemberAssignmentValue": ((0, 0), 0, CURRENT_VALUE),
    "ShareGroupStatePartitionMetadataValue": ((0, 0), 0, STATE_VALUE),
}
"""Versions, first flexible version and table of each record."""
