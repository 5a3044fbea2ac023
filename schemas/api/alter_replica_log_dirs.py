"""AlterReplicaLogDirs: moves logs of one broker to another of its folders (KIP-113)."""

NAME = "AlterReplicaLogDirs"
API_KEY = 34
VERSIONS = (0, 2)
FLEXIBLE = 2

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
}

REQUEST = """
dirs                []AlterReplicaLogDir       0+
    path            string                     0+
    topics          []AlterReplicaLogDirTopic  0+
        name        string                     0+
        partitions  []int32                    0+
"""

RESPONSE = """
throttle_time_ms         int32                                0+
results                  []AlterReplicaLogDirTopicResult      0+
    topic_name           string                               0+
    partitions           []AlterReplicaLogDirPartitionResult  0+
        partition_index  int32                                0+
        error_code       int16                                0+
"""
