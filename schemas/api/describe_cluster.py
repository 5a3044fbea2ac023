"""DescribeCluster: the cluster's id, its nodes and its controller (KIP-700).

Endpoint types: 1 brokers, 2 controllers.

`include_failing_logs`, `failing_logs` and `failing_log_count` are this project's own: tagged fields, which other
programs skip. They tell which logs the asked node can't write or read, because its disk is full for example. The server
sends them only if the request asks for them.
"""

NAME = "DescribeCluster"
API_KEY = 60
VERSIONS = (0, 2)
FLEXIBLE = 0

CHANGES = {
    1: "`endpoint_type` asks for brokers or controllers (KIP-919).",
    2: "`include_fenced_brokers` asks for fenced brokers too; a broker has `is_fenced` (KIP-1073).",
}

REQUEST = """
include_cluster_authorized_operations  bool  0+
endpoint_type                          int8  1+  default=1
include_fenced_brokers                 bool  2+
include_failing_logs                   bool  0+  ignorable tag=10000
"""

RESPONSE = """
throttle_time_ms               int32                    0+
error_code                     int16                    0+
error_message                  string                   0+  null default=null
endpoint_type                  int8                     1+  default=1
cluster_id                     string                   0+
controller_id                  int32                    0+  default=-1
brokers                        []DescribeClusterBroker  0+
    broker_id                  int32                    0+
    host                       string                   0+
    port                       int32                    0+
    rack                       string                   0+  null default=null
    is_fenced                  bool                     2+
cluster_authorized_operations  int32                    0+  default=-2147483648
failing_logs                   []FailingLog             0+  ignorable tag=10000  # the first ones, by name
    name                       string                   0+                       # of a topic partition, as in t-0
    since_ms                   int64                    0+                       # Unix time
    reason                     string                   0+
failing_log_count              int32                    0+  ignorable tag=10001
store                          StoreHealth              0+  ignorable tag=10002
    calls                      int32                    0+  default=-1           # in a minute; -1: no such store
    slow                       int32                    0+
    lost                       int32                    0+                       # without an answer
    longest_ms                 int64                    0+
    used                       int64                    0+                       # bytes
    quota                      int64                    0+                       # bytes
"""
