"""OffsetForLeaderEpoch: the offset where a leader epoch's records end, by which a diverged log is found (KIP-101)."""

NAME = "OffsetForLeaderEpoch"
API_KEY = 23
VERSIONS = (0, 4)
FLEXIBLE = 4

CHANGES = {
    1: "The response has the `leader_epoch` that was found (KIP-279).",
    2: "`current_leader_epoch` fences old leaders; the response has `throttle_time_ms` (KIP-320).",
    3: "The request has the `replica_id`.",
}

REQUEST = """
replica_id                    int32                       3+  default=-2 ignorable
topics                        []OffsetForLeaderTopic      0+
    topic                     string                      0+
    partitions                []OffsetForLeaderPartition  0+
        partition             int32                       0+
        current_leader_epoch  int32                       2+  default=-1 ignorable
        leader_epoch          int32                       0+
"""

RESPONSE = """
throttle_time_ms      int32                         2+  ignorable
topics                []OffsetForLeaderTopicResult  0+
    topic             string                        0+
    partitions        []EpochEndOffset              0+
        error_code    int16                         0+
        partition     int32                         0+
        leader_epoch  int32                         1+  default=-1 ignorable
        end_offset    int64                         0+  default=-1
"""
