"""AlterPartitionReassignments: moves topic partitions to other replicas, or cancels that (KIP-455)."""

NAME = "AlterPartitionReassignments"
API_KEY = 45
VERSIONS = (0, 1)
FLEXIBLE = 0

CHANGES = {
    1: "`allow_replication_factor_change`: whether topic partitions may get more or fewer replicas (KIP-860).",
}

REQUEST = """
timeout_ms                       int32                    0+  default=60000
allow_replication_factor_change  bool                     1+  default=true
topics                           []ReassignableTopic      0+
    name                         string                   0+
    partitions                   []ReassignablePartition  0+
        partition_index          int32                    0+
        replicas                 []int32                  0+  null default=null
"""

RESPONSE = """
throttle_time_ms                 int32                            0+
allow_replication_factor_change  bool                             1+  default=true ignorable
error_code                       int16                            0+
error_message                    string                           0+  null
responses                        []ReassignableTopicResponse      0+
    name                         string                           0+
    partitions                   []ReassignablePartitionResponse  0+
        partition_index          int32                            0+
        error_code               int16                            0+
        error_message            string                           0+  null
"""
