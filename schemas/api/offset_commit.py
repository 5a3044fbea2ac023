"""OffsetCommit: a member, or a program without a group, stores its position.

A program that is no member sends generation -1 and an empty member id.
"""

NAME = "OffsetCommit"
API_KEY = 8
VERSIONS = (0, 10)
FLEXIBLE = 8

CHANGES = {
    1: (
        "The member says who it is, `generation_id_or_member_epoch` and `member_id`, and may give each offset a "
        "`commit_timestamp`; offsets live in Kafka, no longer in ZooKeeper."
    ),
    2: "`retention_time_ms` for the whole request takes the place of `commit_timestamp`.",
    3: "The response has `throttle_time_ms`.",
    4: "The answer comes before a quota's delay, not after it.",
    5: "`retention_time_ms` is gone: the server's setting alone decides (KIP-211).",
    6: "Each offset has the `committed_leader_epoch` it was read in (KIP-320).",
    7: "A static member names itself: `group_instance_id` (KIP-345).",
    9: (
        "The generation may be a member epoch of the newer protocol; new answers STALE_MEMBER_EPOCH and "
        "GROUP_ID_NOT_FOUND (KIP-848)."
    ),
    10: "`topic_id` takes the place of `name`; a new answer UNKNOWN_TOPIC_ID (KIP-848).",
}

REQUEST = """
group_id                        string                          0+
generation_id_or_member_epoch   int32                           1+   default=-1 ignorable
member_id                       string                          1+   ignorable
group_instance_id               string                          7+   null default=null
retention_time_ms               int64                           2-4  default=-1 ignorable
topics                          []OffsetCommitRequestTopic      0+
    name                        string                          0-9  ignorable
    topic_id                    uuid                            10+  ignorable
    partitions                  []OffsetCommitRequestPartition  0+
        partition_index         int32                           0+
        committed_offset        int64                           0+
        committed_leader_epoch  int32                           6+   default=-1 ignorable
        commit_timestamp        int64                           1    default=-1
        committed_metadata      string                          0+   null long
"""

RESPONSE = """
throttle_time_ms         int32                            3+  ignorable
topics                   []OffsetCommitResponseTopic      0+
    name                 string                           0-9  ignorable
    topic_id             uuid                             10+  ignorable
    partitions           []OffsetCommitResponsePartition  0+
        partition_index  int32                            0+
        error_code       int16                            0+
"""
