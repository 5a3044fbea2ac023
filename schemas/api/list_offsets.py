"""ListOffsets: first and last offsets of topic partitions, or those of a time.

The timestamp in the request is a time in milliseconds, or: -1 the end, -2 the start, -3 the largest timestamp, -4 the
local start, -5 the end of the part in tiered storage, -6 the start of what goes there next.
"""

NAME = "ListOffsets"
API_KEY = 2
VERSIONS = (0, 11)
FLEXIBLE = 6

CHANGES = {
    1: (
        "One offset with its `timestamp`: `offset` takes the place of `old_style_offsets`, and `max_num_offsets` is "
        "gone (KIP-79)."
    ),
    2: (
        "`isolation_level`: 1 asks for offsets of committed transactions only (KIP-98). The response has "
        "`throttle_time_ms`."
    ),
    3: "The answer comes before a quota's delay, not after it.",
    4: "`current_leader_epoch` fences old leaders, and the response has the `leader_epoch` (KIP-320).",
    5: "New answer OFFSET_NOT_AVAILABLE (KIP-207).",
    7: "Timestamp -3: the offset of the record with the largest timestamp (KIP-734).",
    8: "Timestamp -4: the start of what is on the leader's own disk (KIP-405).",
    9: "Timestamp -5: the end of what is in tiered storage (KIP-1005).",
    10: "`timeout_ms` is for topics in tiered storage (KIP-1075).",
    11: "Timestamp -6: the start of what is not yet in tiered storage (KIP-1023).",
}

REQUEST = """
replica_id                    int32                   0+
isolation_level               int8                    2+
topics                        []ListOffsetsTopic      0+
    name                      string                  0+
    partitions                []ListOffsetsPartition  0+
        partition_index       int32                   0+
        current_leader_epoch  int32                   4+  default=-1 ignorable
        timestamp             int64                   0+
        max_num_offsets       int32                   0   default=1
timeout_ms                    int32                   10+  ignorable
"""

RESPONSE = """
throttle_time_ms           int32                           2+  ignorable
topics                     []ListOffsetsTopicResponse      0+
    name                   string                          0+
    partitions             []ListOffsetsPartitionResponse  0+
        partition_index    int32                           0+
        error_code         int16                           0+
        old_style_offsets  []int64                         0
        timestamp          int64                           1+  default=-1
        offset             int64                           1+  default=-1
        leader_epoch       int32                           4+  default=-1
"""
