"""Metadata: the brokers of a cluster, its topics, and the leader of each topic partition.

An empty list of topics means all topics in version 0, and no topic from version 1 on, where null means all.
"""

NAME = "Metadata"
API_KEY = 3
VERSIONS = (0, 13)
FLEXIBLE = 9

CHANGES = {
    1: (
        "Null `topics` means all. The response has each broker's `rack`, the `controller_id`, and `is_internal` of a "
        "topic."
    ),
    2: "The response has the `cluster_id` (KIP-78).",
    3: "The response has `throttle_time_ms`.",
    4: "The client can forbid that asking creates a topic: `allow_auto_topic_creation` (KIP-204).",
    5: "The response has `offline_replicas` of a topic partition (KIP-112).",
    6: "The answer comes before a quota's delay, not after it.",
    7: "The response has the `leader_epoch` of a topic partition (KIP-320).",
    8: (
        "`include_cluster_authorized_operations` and `include_topic_authorized_operations` ask for "
        "`cluster_authorized_operations` and `topic_authorized_operations` (KIP-430)."
    ),
    10: (
        "Topics have a `topic_id`; a request may leave a topic's name null, but no server answered that before "
        "version 12 (KIP-516)."
    ),
    11: (
        "The cluster's operations are gone, with `include_cluster_authorized_operations` and "
        "`cluster_authorized_operations`; DescribeCluster has them (KIP-700)."
    ),
    12: "A topic can be asked for by its id alone; a topic of the response may have no name.",
    13: "The response has an `error_code` on top: REBOOTSTRAP_REQUIRED (KIP-1102).",
}

REQUEST = """
topics                                 []MetadataRequestTopic  0+    null=1+
    topic_id                           uuid                    10+   ignorable
    name                               string                  0+    null=10+
allow_auto_topic_creation              bool                    4+    default=true
include_cluster_authorized_operations  bool                    8-10
include_topic_authorized_operations    bool                    8+
"""

RESPONSE = """
throttle_time_ms                 int32                        3+    ignorable
brokers                          []MetadataResponseBroker     0+
    node_id                      int32                        0+
    host                         string                       0+
    port                         int32                        0+
    rack                         string                       1+    null default=null ignorable
cluster_id                       string                       2+    null default=null ignorable
controller_id                    int32                        1+    default=-1 ignorable
topics                           []MetadataResponseTopic      0+
    error_code                   int16                        0+
    name                         string                       0+    null=12+
    topic_id                     uuid                         10+   ignorable
    is_internal                  bool                         1+    ignorable
    partitions                   []MetadataResponsePartition  0+
        error_code               int16                        0+
        partition_index          int32                        0+
        leader_id                int32                        0+
        leader_epoch             int32                        7+    default=-1 ignorable
        replica_nodes            []int32                      0+
        isr_nodes                []int32                      0+
        offline_replicas         []int32                      5+    ignorable
    topic_authorized_operations  int32                        8+    default=-2147483648
cluster_authorized_operations    int32                        8-10  default=-2147483648
error_code                       int16                        13+   ignorable
"""
