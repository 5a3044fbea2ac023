"""DescribeLogDirs: a broker's folders, and the size of each log in them (KIP-113)."""

NAME = "DescribeLogDirs"
API_KEY = 35
VERSIONS = (0, 5)
FLEXIBLE = 2

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
    3: "The answer has an `error_code` on top.",
    4: "`total_bytes` and `usable_bytes` of the volume (KIP-827).",
    5: "`is_cordoned`: the folder gets no further logs (KIP-1066).",
}

REQUEST = """
topics          []DescribableLogDirTopic  0+  null
    topic       string                    0+
    partitions  []int32                   0+
"""

RESPONSE = """
throttle_time_ms         int32                        0+
error_code               int16                        3+  ignorable
results                  []DescribeLogDirsResult      0+
    error_code           int16                        0+
    log_dir              string                       0+
    topics               []DescribeLogDirsTopic       0+
        name             string                       0+
        partitions       []DescribeLogDirsPartition   0+
            partition_index  int32                    0+
            partition_size   int64                    0+
            offset_lag       int64                    0+
            is_future_key    bool                     0+
    total_bytes          int64                        4+  default=-1 ignorable
    usable_bytes         int64                        4+  default=-1 ignorable
    is_cordoned          bool                         5+  ignorable
"""
