"""DescribeProducers: the producers that wrote to topic partitions, and their open transactions (KIP-664)."""

from __future__ import annotations

NAME = "DescribeProducers"
API_KEY = 61
VERSIONS = (0, 0)
FLEXIBLE = 0

CHANGES: dict[int, str] = {}

REQUEST = """
topics                 []TopicRequest  0+
    name               string          0+
    partition_indexes  []int32         0+
"""

RESPONSE = """
throttle_time_ms                  int32                0+
topics                            []TopicResponse      0+
    name                          string               0+
    partitions                    []PartitionResponse  0+
        partition_index           int32                0+
        error_code                int16                0+
        error_message             string               0+  null default=null
        active_producers          []ProducerState      0+
            producer_id           int64                0+
            producer_epoch        int32                0+
            last_sequence         int32                0+  default=-1
            last_timestamp        int64                0+  default=-1
            coordinator_epoch     int32                0+
            current_txn_start_offset  int64            0+  default=-1
"""
