"""ElectLeaders: lets the controller choose leaders anew (KIP-183, KIP-460).

Election types: 0 the preferred replica, 1 any replica, at the risk of lost records (unclean).
"""

NAME = "ElectLeaders"
API_KEY = 43
VERSIONS = (0, 2)
FLEXIBLE = 2

CHANGES = {
    1: "`election_type`; the answer has an `error_code` on top (KIP-460).",
}

REQUEST = """
election_type     int8               1+
topic_partitions  []TopicPartitions  0+  null
    topic         string             0+
    partitions    []int32            0+
timeout_ms        int32              0+  default=60000
"""

RESPONSE = """
throttle_time_ms          int32                    0+
error_code                int16                    1+
replica_election_results  []ReplicaElectionResult  0+
    topic                 string                   0+
    partition_result      []PartitionResult        0+
        partition_id      int32                    0+
        error_code        int16                    0+
        error_message     string                   0+  null
"""
