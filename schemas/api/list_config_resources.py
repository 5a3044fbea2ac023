"""ListConfigResources: names of resources with settings (KIP-1142).

In version 0 it was ListClientMetricsResources, which names metrics that clients are asked for (KIP-714). Resource
types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. An empty list of types means all.
"""

NAME = "ListConfigResources"
API_KEY = 74
VERSIONS = (0, 1)
FLEXIBLE = 0

CHANGES = {
    1: "`resource_types` asks for resources of any type; each has its `resource_type` (KIP-1142).",
}

REQUEST = """
resource_types  []int8  1+
"""

RESPONSE = """
throttle_time_ms   int32             0+
error_code         int16             0+
config_resources   []ConfigResource  0+
    resource_name  string            0+
    resource_type  int8              1+  default=16 ignorable
"""
