"""The record of a committed offset in the metadata log: OffsetCommitKey and OffsetCommitValue.

Key and value start with their version in two bytes, which is not part of these tables. A value of null is a tombstone:
the offset is gone. Timestamps are in milliseconds since 1970. With `expire_timestamp` -1 the server's retention decides
when the offset expires.
Source: Kafka's OffsetCommitKey.json and OffsetCommitValue.json; KAFKA-19141 for the topic id.
"""

OFFSET_COMMIT_KEY = """
group      string  0+
topic      string  0+
partition  int32   0+
"""

OFFSET_COMMIT_VALUE = """
offset            int64   0+
leader_epoch      int32   3+  default=-1 ignorable
metadata          string  0+
commit_timestamp  int64   0+
expire_timestamp  int64   1   default=-1 ignorable
topic_id          uuid    4+  ignorable tag=0
"""

CHANGES = {
    "OffsetCommitValue": {
        1: "A commit that names its own retention has an `expire_timestamp`.",
        2: "`expire_timestamp` is gone: the server's retention decides (KIP-211).",
        3: "The offset has the `leader_epoch` it was read in (KIP-320).",
        4: "Flexible (KIP-915); later the `topic_id`, tagged (KAFKA-19141).",
    },
}

RECORDS = {
    "OffsetCommitKey": ((0, 1), None, OFFSET_COMMIT_KEY),
    "OffsetCommitValue": ((0, 4), 4, OFFSET_COMMIT_VALUE),
}
"""Versions, first flexible version and table of each record."""
