"""The values of the records of a streams group (KIP-1071), by the version of their keys.

    17  StreamsGroupMetadata                  the group: its epoch, a hash of its topics
    19  StreamsGroupMemberMetadata            a member: its program, the epoch of its topology, timeout
    20  StreamsGroupTargetAssignmentMetadata  the epoch of the target assignment
    21  StreamsGroupTargetAssignmentMember    the tasks that a member shall have
    22  StreamsGroupCurrentMemberAssignment   a member's epoch and state, and the tasks that it has
    23  StreamsGroupTopology                  the subtopologies of the application

The keys have the bytes of those of the consumer protocol, and so has the value of 20 (`consumer_group.py`).
Source: the JSON files of these names in Kafka 4.4 (group-coordinator).
"""

from __future__ import annotations

GROUP_VALUE = """
epoch                              int32                   0+
metadata_hash                      int64                   0+
validated_topology_epoch           int32                   0+  tag=0 default=-1
last_assignment_configs            []LastAssignmentConfig  0+  null tag=1 default=null
    key                            string                  0+
    value                          string                  0+
stored_description_topology_epoch  int32                   0+  tag=2 default=-1
failed_description_topology_epoch  int32                   0+  tag=3 default=-1
"""

MEMBER_VALUE = """
instance_id           string      0+  null
rack_id               string      0+  null
client_id             string      0+
client_host           string      0+
rebalance_timeout_ms  int32       0+  default=-1
topology_epoch        int32       0+
process_id            string      0+
user_endpoint         Endpoint    0+  null default=null
    host              string      0+
    port              uint16      0+
client_tags           []KeyValue  0+
    key               string      0+
    value             string      0+
"""

TARGET_MEMBER_VALUE = """
active_tasks        []TaskIds  0+
    subtopology_id  string     0+
    partitions      []int32    0+
standby_tasks       []TaskIds  0+
    subtopology_id  string     0+
    partitions      []int32    0+
warmup_tasks        []TaskIds  0+
    subtopology_id  string     0+
    partitions      []int32    0+
"""


def _tasks(*names: str) -> str:
    """Fields of tasks. assignment_epochs: of each partition, for active tasks only."""
    return "".join(
        f"""
{name}                 []TaskIds  0+
    subtopology_id     string     0+
    partitions         []int32    0+
    assignment_epochs  []int32    0+  null tag=0 default=null
"""
        for name in names
    )


CURRENT_VALUE = """
member_epoch           int32  0+
previous_member_epoch  int32  0+
state                  int8   0+
""" + _tasks(
    "active_tasks",
    "standby_tasks",
    "warmup_tasks",
    "active_tasks_pending_revocation",
    "standby_tasks_pending_revocation",
    "warmup_tasks_pending_revocation",
)

TOPOLOGY_VALUE = """
epoch                          int32               0+
subtopologies                  []Subtopology       0+
    subtopology_id             string              0+
    source_topics              []string            0+
    source_topic_regex         []string            0+
    state_changelog_topics     []TopicInfo         0+
        name                   string              0+
        partitions             int32               0+
        replication_factor     int16               0+
        topic_configs          []TopicConfig       0+
            key                string              0+
            value              string              0+
    repartition_sink_topics    []string            0+
    repartition_source_topics  []TopicInfo         0+
        name                   string              0+
        partitions             int32               0+
        replication_factor     int16               0+
        topic_configs          []TopicConfig       0+
            key                string              0+
            value              string              0+
    copartition_groups         []CopartitionGroup  0+  # numbers of topics in the lists above
        source_topics              []int16         0+
        source_topic_regex         []int16         0+
        repartition_source_topics  []int16         0+
"""

RECORDS = {
    "StreamsGroupMetadataValue": ((0, 0), 0, GROUP_VALUE),
    "StreamsGroupMemberMetadataValue": ((0, 0), 0, MEMBER_VALUE),
    "StreamsGroupTargetAssignmentMemberValue": ((0, 0), 0, TARGET_MEMBER_VALUE),
    "StreamsGroupCurrentMemberAssignmentValue": ((0, 0), 0, CURRENT_VALUE),
    "StreamsGroupTopologyValue": ((0, 0), 0, TOPOLOGY_VALUE),
}
"""Versions, first flexible version and table of each record."""
