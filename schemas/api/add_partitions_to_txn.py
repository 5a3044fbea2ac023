"""AddPartitionsToTxn: a producer's transaction begins, or gets further topic partitions (KIP-98)."""

NAME = "AddPartitionsToTxn"
API_KEY = 24
VERSIONS = (0, 5)
FLEXIBLE = 3

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
    2: "New answer PRODUCER_FENCED (KIP-588).",
    4: (
        "For brokers: several `transactions`, each perhaps `verify_only`, and `results_by_transaction` with an "
        "`error_code` of the whole (KIP-890). The fields of one transaction are gone: "
        "`v3_and_below_transactional_id`, `v3_and_below_producer_id`, `v3_and_below_producer_epoch`, "
        "`v3_and_below_topics`, `results_by_topic_v3_and_below`."
    ),
    5: "New answer TRANSACTION_ABORTABLE (KIP-890).",
}

REQUEST = """
transactions                    []AddPartitionsToTxnTransaction  4+
    transactional_id            string                           4+
    producer_id                 int64                            4+
    producer_epoch              int16                            4+
    verify_only                 bool                             4+   default=false
    topics                      []AddPartitionsToTxnTopic        4+
        name                    string                           4+
        partitions              []int32                          4+
v3_and_below_transactional_id   string                           0-3
v3_and_below_producer_id        int64                            0-3
v3_and_below_producer_epoch     int16                            0-3
v3_and_below_topics             []V3AndBelowTopic                0-3
    name                        string                           0-3
    partitions                  []int32                          0-3
"""

RESPONSE = """
throttle_time_ms                  int32                              0+
error_code                        int16                              4+   ignorable
results_by_transaction            []AddPartitionsToTxnResult         4+
    transactional_id              string                             4+
    topic_results                 []AddPartitionsToTxnTopicResult    4+
        name                      string                             4+
        results_by_partition      []AddPartitionsToTxnPartitionResult  4+
            partition_index       int32                              4+
            partition_error_code  int16                              4+
results_by_topic_v3_and_below     []V3AndBelowTopicResult            0-3
    name                          string                             0-3
    results_by_partition          []V3AndBelowPartitionResult        0-3
        partition_index           int32                              0-3
        partition_error_code      int16                              0-3
"""
