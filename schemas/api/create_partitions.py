"""CreatePartitions: adds partitions to topics (KIP-195)."""

NAME = "CreatePartitions"
API_KEY = 37
VERSIONS = (0, 3)
FLEXIBLE = 2

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
    3: "New answer THROTTLING_QUOTA_EXCEEDED (KIP-599).",
}

REQUEST = """
topics              []CreatePartitionsTopic       0+
    name            string                        0+
    count           int32                         0+
    assignments     []CreatePartitionsAssignment  0+  null
        broker_ids  []int32                       0+
timeout_ms          int32                         0+
validate_only       bool                          0+
"""

RESPONSE = """
throttle_time_ms   int32                          0+
results            []CreatePartitionsTopicResult  0+
    name           string                         0+
    error_code     int16                          0+
    error_message  string                         0+  null default=null
"""
