"""OffsetFetch: reads committed offsets.

Null topics mean all that the group has committed; an empty list means none. Version 8 takes many groups in place of
one.
"""

NAME = "OffsetFetch"
API_KEY = 9
VERSIONS = (0, 10)
FLEXIBLE = 6

CHANGES = {
    1: "Offsets live in Kafka, no longer in ZooKeeper.",
    2: "`topics` may be null, and the response has an `error_code` on top (KIP-88).",
    3: "The response has `throttle_time_ms`.",
    4: "The answer comes before a quota's delay, not after it.",
    5: "Each offset has the `committed_leader_epoch` it was read in (KIP-320).",
    7: (
        "`require_stable` asks to be refused (UNSTABLE_OFFSET_COMMIT) while a transaction is open on an offset "
        "(KIP-447)."
    ),
    8: (
        "`groups`, in request and response, take the place of `group_id`, `topics` and the `error_code` on top "
        "(KIP-709)."
    ),
    9: "A member of the newer protocol says who it is: `member_id`, `member_epoch` (KIP-848).",
    10: "In `groups`, `topic_id` takes the place of `name`; a new answer UNKNOWN_TOPIC_ID (KIP-848).",
}

REQUEST = """
group_id                   string                      0-7
topics                     []OffsetFetchRequestTopic   0-7  null=2+
    name                   string                      0+
    partition_indexes      []int32                     0+
groups                     []OffsetFetchRequestGroup   8+
    group_id               string                      8+
    member_id              string                      9+   null default=null ignorable
    member_epoch           int32                       9+   default=-1 ignorable
    topics                 []OffsetFetchRequestTopics  8+   null
        name               string                      8-9  ignorable
        topic_id           uuid                        10+  ignorable
        partition_indexes  []int32                     8+
require_stable             bool                        7+
"""

RESPONSE = """
throttle_time_ms                    int32                            3+   ignorable
topics                              []OffsetFetchResponseTopic       0-7
    name                            string                           0+
    partitions                      []OffsetFetchResponsePartition   0+
        partition_index             int32                            0+
        committed_offset            int64                            0+
        committed_leader_epoch      int32                            5+   default=-1 ignorable
        metadata                    string                           0+   null
        error_code                  int16                            0+
error_code                          int16                            2-7  ignorable
groups                              []OffsetFetchResponseGroup       8+
    group_id                        string                           8+
    topics                          []OffsetFetchResponseTopics      8+
        name                        string                           8-9  ignorable
        topic_id                    uuid                             10+  ignorable
        partitions                  []OffsetFetchResponsePartitions  8+
            partition_index         int32                            8+
            committed_offset        int64                            8+
            committed_leader_epoch  int32                            8+   default=-1 ignorable
            metadata                string                           8+   null
            error_code              int16                            8+
    error_code                      int16                            8+
"""
