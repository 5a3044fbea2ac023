"""CreateTopics: makes topics with partitions, replicas and settings (KIP-4).

A topic gives either numbers, `num_partitions` and `replication_factor`, or `assignments`, with both numbers -1.
"""

NAME = "CreateTopics"
API_KEY = 19
VERSIONS = (0, 7)
FLEXIBLE = 5

CHANGES = {
    1: "`validate_only` asks what would happen; the response has an `error_message`.",
    2: "The response has `throttle_time_ms`.",
    3: "The answer comes before a quota's delay, not after it.",
    4: "-1 for a number means the server's default (KIP-464).",
    5: (
        "The response says what was made: `num_partitions`, `replication_factor`, `configs`, or why the settings "
        "can't be shown: `topic_config_error_code` (KIP-525)."
    ),
    6: "New answer THROTTLING_QUOTA_EXCEEDED (KIP-599).",
    7: "The response has the `topic_id` (KIP-516).",
}

REQUEST = """
topics                   []CreatableTopic              0+
    name                 string                        0+
    num_partitions       int32                         0+
    replication_factor   int16                         0+
    assignments          []CreatableReplicaAssignment  0+
        partition_index  int32                         0+
        broker_ids       []int32                       0+
    configs              []CreatableTopicConfig        0+
        name             string                        0+
        value            string                        0+  null
timeout_ms               int32                         0+  default=60000
validate_only            bool                          1+
"""

RESPONSE = """
throttle_time_ms             int32                    2+  ignorable
topics                       []CreatableTopicResult   0+
    name                     string                   0+
    topic_id                 uuid                     7+  ignorable
    error_code               int16                    0+
    error_message            string                   1+  null ignorable
    topic_config_error_code  int16                    5+  ignorable tag=0
    num_partitions           int32                    5+  default=-1 ignorable
    replication_factor       int16                    5+  default=-1 ignorable
    configs                  []CreatableTopicConfigs  5+  null ignorable
        name                 string                   5+
        value                string                   5+  null
        read_only            bool                     5+
        config_source        int8                     5+  default=-1 ignorable
        is_sensitive         bool                     5+
"""
