"""ListPartitionReassignments: topic partitions that move to other replicas now (KIP-455)."""

from __future__ import annotations

NAME = "ListPartitionReassignments"
API_KEY = 46
VERSIONS = (0, 0)
FLEXIBLE = 0

CHANGES: dict[int, str] = {}

REQUEST = """
timeout_ms             int32                               0+  default=60000
topics                 []ListPartitionReassignmentsTopics  0+  null default=null
    name               string                              0+
    partition_indexes  []int32                             0+
"""

RESPONSE = """
throttle_time_ms           int32                           0+
error_code                 int16                           0+
error_message              string                          0+  null
topics                     []OngoingTopicReassignment      0+
    name                   string                          0+
    partitions             []OngoingPartitionReassignment  0+
        partition_index    int32                           0+
        replicas           []int32                         0+
        adding_replicas    []int32                         0+
        removing_replicas  []int32                         0+
"""
