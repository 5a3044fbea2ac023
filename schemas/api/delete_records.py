"""DeleteRecords: moves the start of topic partitions' logs forward (KIP-107).

Offset -1 stands for the high watermark.
"""

NAME = "DeleteRecords"
API_KEY = 21
VERSIONS = (0, 2)
FLEXIBLE = 2

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
}

REQUEST = """
topics                   []DeleteRecordsTopic      0+
    name                 string                    0+
    partitions           []DeleteRecordsPartition  0+
        partition_index  int32                     0+
        offset           int64                     0+
timeout_ms               int32                     0+
"""

RESPONSE = """
throttle_time_ms         int32                           0+
topics                   []DeleteRecordsTopicResult      0+
    name                 string                          0+
    partitions           []DeleteRecordsPartitionResult  0+
        partition_index  int32                           0+
        low_watermark    int64                           0+
        error_code       int16                           0+
"""
