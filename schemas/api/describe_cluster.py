"""DescribeCluster: the cluster's id, its nodes and its controller (KIP-700).

Endpoint types: 1 brokers, 2 controllers.
"""

from __future__ import annotations

NAME = "DescribeCluster"
API_KEY = 60
VERSIONS = (0, 1)
FLEXIBLE = 0

CHANGES = {
    1: "`endpoint_type` asks for brokers or controllers (KIP-919).",
}

REQUEST = """
include_cluster_authorized_operations  bool  0+
endpoint_type                          int8  1+  default=1
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
cluster_authorized_operations  int32                    0+  default=-2147483648
"""
