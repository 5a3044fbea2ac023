"""DescribeShareGroupOffsets: the offset before which a share group has dealt with every record (KIP-932).

This project asks Apache Kafka, and serves no such group.
"""

NAME = "DescribeShareGroupOffsets"
API_KEY = 90
VERSIONS = (0, 1)
FLEXIBLE = 0

CHANGES = {
    1: "`lag`: records that nobody has acknowledged (KIP-1226).",
}

REQUEST = """
groups              []DescribeShareGroupOffsetsRequestGroup  0+
    group_id        string                                   0+
    topics          []DescribeShareGroupOffsetsRequestTopic  0+  null  # null: all
        topic_name  string                                   0+
        partitions  []int32                                  0+
"""

RESPONSE = """
throttle_time_ms             int32                                         0+
groups                       []DescribeShareGroupOffsetsResponseGroup      0+
    group_id                 string                                        0+
    topics                   []DescribeShareGroupOffsetsResponseTopic      0+
        topic_name           string                                        0+
        topic_id             uuid                                          0+
        partitions           []DescribeShareGroupOffsetsResponsePartition  0+
            partition_index  int32                                         0+
            start_offset     int64                                         0+  # -1: none yet
            leader_epoch     int32                                         0+
            lag              int64                                         1+  default=-1 ignorable
            error_code       int16                                         0+
            error_message    string                                        0+  null default=null
    error_code               int16                                         0+
    error_message            string                                        0+  null default=null
"""
