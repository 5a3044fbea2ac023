"""WriteTxnMarkers: ends transactions in topic partitions, hanging ones too (KIP-98, KIP-664)."""

NAME = "WriteTxnMarkers"
API_KEY = 27
VERSIONS = (1, 2)
FLEXIBLE = 1

CHANGES = {
    2: "`transaction_version` of the marker: from 2 on its epoch is higher than the producer's (KIP-1228).",
}

REQUEST = """
markers                    []WritableTxnMarker       1+
    producer_id            int64                     1+
    producer_epoch         int16                     1+
    transaction_result     bool                      1+
    topics                 []WritableTxnMarkerTopic  1+
        name               string                    1+
        partition_indexes  []int32                   1+
    coordinator_epoch      int32                     1+
    transaction_version    int8                      2+  ignorable
"""

RESPONSE = """
markers                  []WritableTxnMarkerResult           1+
    producer_id          int64                               1+
    topics               []WritableTxnMarkerTopicResult      1+
        name             string                              1+
        partitions       []WritableTxnMarkerPartitionResult  1+
            partition_index  int32                           1+
            error_code       int16                           1+
"""
