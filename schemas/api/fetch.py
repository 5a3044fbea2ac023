"""Fetch: reads records of topic partitions.

Versions before 4 are older than the record format v2. No client asks for them; Kafka 4 dropped them (KIP-896).
"""

NAME = "Fetch"
API_KEY = 1
VERSIONS = (4, 18)
FLEXIBLE = 12

CHANGES = {
    5: "Both sides have the `log_start_offset` of a topic partition (KIP-107).",
    6: "New answer KAFKA_STORAGE_ERROR (KIP-112).",
    7: "Fetch sessions: `session_id`, `session_epoch`, `forgotten_topics_data`, and an `error_code` on top (KIP-227).",
    8: "The answer comes before a quota's delay, not after it.",
    9: "`current_leader_epoch` fences old leaders (KIP-320).",
    10: "Records may be compressed with zstd (KIP-110).",
    11: "The client says its `rack_id` and may be sent to another replica: `preferred_read_replica` (KIP-392).",
    12: (
        "`last_fetched_epoch` finds logs that diverged: `diverging_epoch`, `current_leader`, `snapshot_id` (KIP-595). "
        "The request can name its `cluster_id`."
    ),
    13: "`topic_id` takes the place of the `topic` name, on both sides (KIP-516).",
    14: "New answer OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405).",
    15: "`replica_state` takes the place of `replica_id` on top (KIP-903).",
    16: "`node_endpoints` tells where new leaders are (KIP-951).",
    17: "A replica says the `replica_directory_id` of its log (KIP-853).",
    18: "A replica says the `high_watermark` that it knows (KIP-1166).",
}

REQUEST = """
cluster_id                    string            12+   null default=null ignorable tag=0
replica_id                    int32             4-14  default=-1
replica_state                 ReplicaState      15+   tag=1
    replica_id                int32             15+   default=-1
    replica_epoch             int64             15+   default=-1
max_wait_ms                   int32             4+
min_bytes                     int32             4+
max_bytes                     int32             4+    default=0x7fffffff ignorable
isolation_level               int8              4+    ignorable
session_id                    int32             7+    ignorable
session_epoch                 int32             7+    default=-1 ignorable
topics                        []FetchTopic      4+
    topic                     string            4-12  ignorable
    topic_id                  uuid              13+   ignorable
    partitions                []FetchPartition  4+
        partition             int32             4+
        current_leader_epoch  int32             9+    default=-1 ignorable
        fetch_offset          int64             4+
        last_fetched_epoch    int32             12+   default=-1
        log_start_offset      int64             5+    default=-1 ignorable
        partition_max_bytes   int32             4+
        replica_directory_id  uuid              17+   tag=0 ignorable
        high_watermark        int64             18+   default=9223372036854775807 tag=1 ignorable
forgotten_topics_data         []ForgottenTopic  7+
    topic                     string            7-12  ignorable
    topic_id                  uuid              13+   ignorable
    partitions                []int32           7+
rack_id                       string            11+   ignorable
"""

RESPONSE = """
throttle_time_ms                int32                     4+    ignorable
error_code                      int16                     7+    ignorable
session_id                      int32                     7+
responses                       []FetchableTopicResponse  4+
    topic                       string                    4-12  ignorable
    topic_id                    uuid                      13+   ignorable
    partitions                  []PartitionData           4+
        partition_index         int32                     4+
        error_code              int16                     4+
        high_watermark          int64                     4+
        last_stable_offset      int64                     4+    default=-1 ignorable
        log_start_offset        int64                     5+    default=-1 ignorable
        diverging_epoch         EpochEndOffset            12+   tag=0
            epoch               int32                     12+   default=-1
            end_offset          int64                     12+   default=-1
        current_leader          LeaderIdAndEpoch          12+   tag=1
            leader_id           int32                     12+   default=-1
            leader_epoch        int32                     12+   default=-1
        snapshot_id             SnapshotId                12+   tag=2
            end_offset          int64                     12+   default=-1
            epoch               int32                     12+   default=-1
        aborted_transactions    []AbortedTransaction      4+    null ignorable
            producer_id         int64                     4+
            first_offset        int64                     4+
        preferred_read_replica  int32                     11+   default=-1
        records                 records                   4+    null
node_endpoints                  []NodeEndpoint            16+   tag=0
    node_id                     int32                     16+
    host                        string                    16+
    port                        int32                     16+
    rack                        string                    16+   null default=null
"""
