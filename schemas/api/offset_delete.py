"""OffsetDelete: removes committed offsets of topics that no member is subscribed to (KIP-496)."""

from __future__ import annotations

NAME = "OffsetDelete"
API_KEY = 47
VERSIONS = (0, 0)
FLEXIBLE: int | None = None

CHANGES: dict[int, str] = {}

REQUEST = """
group_id                 string                          0+
topics                   []OffsetDeleteRequestTopic      0+
    name                 string                          0+
    partitions           []OffsetDeleteRequestPartition  0+
        partition_index  int32                           0+
"""

RESPONSE = """
error_code               int16                            0+
throttle_time_ms         int32                            0+  ignorable
topics                   []OffsetDeleteResponseTopic      0+
    name                 string                           0+
    partitions           []OffsetDeleteResponsePartition  0+
        partition_index  int32                            0+
        error_code       int16                            0+
"""
