"""TxnOffsetCommit: a producer stores a position as part of its transaction (KIP-98)."""

NAME = "TxnOffsetCommit"
API_KEY = 28
VERSIONS = (0, 6)
FLEXIBLE = 3

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
    2: "Each offset has the `committed_leader_epoch` it was read in (KIP-320).",
    3: (
        "The member of the group says who it is, `generation_id`, `member_id` and `group_instance_id`; new answers "
        "ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID (KIP-447)."
    ),
    4: "New answer TRANSACTION_ABORTABLE (KIP-890).",
    5: "The request adds the group to the transaction, AddOffsetsToTxn isn't needed (KIP-890).",
    6: (
        "`topic_id` takes the place of `name`; new answers GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH and UNKNOWN_TOPIC_ID "
        "(KIP-1319)."
    ),
}

REQUEST = """
transactional_id                string                             0+
group_id                        string                             0+
producer_id                     int64                              0+
producer_epoch                  int16                              0+
generation_id                   int32                              3+   default=-1
member_id                       string                             3+
group_instance_id               string                             3+   null default=null
topics                          []TxnOffsetCommitRequestTopic      0+
    name                        string                             0-5  ignorable
    topic_id                    uuid                               6+   ignorable
    partitions                  []TxnOffsetCommitRequestPartition  0+
        partition_index         int32                              0+
        committed_offset        int64                              0+
        committed_leader_epoch  int32                              2+   default=-1 ignorable
        committed_metadata      string                             0+   null long
"""

RESPONSE = """
throttle_time_ms         int32                               0+
topics                   []TxnOffsetCommitResponseTopic      0+
    name                 string                              0-5  ignorable
    topic_id             uuid                                6+   ignorable
    partitions           []TxnOffsetCommitResponsePartition  0+
        partition_index  int32                               0+
        error_code       int16                               0+
"""
