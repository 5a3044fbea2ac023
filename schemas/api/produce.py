"""Produce: a producer sends records."""

NAME = "Produce"
API_KEY = 0
VERSIONS = (0, 13)
FLEXIBLE = 9

CHANGES = {
    1: "The response has `throttle_time_ms`.",
    2: "Each partition's answer has `log_append_time_ms` (KIP-32); records may have timestamps of their own.",
    3: "`transactional_id`; records come in batches of format 2 (KIP-98).",
    4: "A partition may answer KAFKA_STORAGE_ERROR (KIP-112).",
    5: "Each partition's answer has `log_start_offset` (KIP-107).",
    6: "The answer comes before a quota's delay, not after it.",
    7: "Records may be compressed with zstd (KIP-110).",
    8: "A refused batch says why: `record_errors`, `error_message` (KIP-467).",
    10: "A partition that moved says where to: `current_leader`, `node_endpoints` (KIP-951).",
    11: "A partition may answer TRANSACTION_ABORTABLE (KIP-890).",
    12: "In a transaction, Produce adds its topic partitions to it (KIP-890).",
    13: "`topic_id` takes the place of the `name`, on both sides (KIP-516).",
}

REQUEST = """
transactional_id    string                  3+  null default=null
acks                int16                   0+
timeout_ms          int32                   0+
topic_data          []TopicProduceData      0+
    name            string                  0-12  ignorable
    topic_id        uuid                    13+   ignorable
    partition_data  []PartitionProduceData  0+
        index       int32                   0+
        records     records                 0+  null
"""

RESPONSE = """
responses                              []TopicProduceResponse       0+
    name                               string                       0-12  ignorable
    topic_id                           uuid                         13+  ignorable
    partition_responses                []PartitionProduceResponse   0+
        index                          int32                        0+
        error_code                     int16                        0+
        base_offset                    int64                        0+
        log_append_time_ms             int64                        2+   default=-1 ignorable
        log_start_offset               int64                        5+   default=-1 ignorable
        record_errors                  []BatchIndexAndErrorMessage  8+   ignorable
            batch_index                int32                        8+
            batch_index_error_message  string                       8+   null default=null
        error_message                  string                       8+   null default=null ignorable
        current_leader                 LeaderIdAndEpoch             10+  tag=0
            leader_id                  int32                        10+  default=-1
            leader_epoch               int32                        10+  default=-1
throttle_time_ms                       int32                        1+   ignorable
node_endpoints                         []NodeEndpoint               10+  tag=0
    node_id                            int32                        10+
    host                               string                       10+
    port                               int32                        10+
    rack                               string                       10+  null default=null
"""
