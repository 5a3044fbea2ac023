"""IncrementalAlterConfigs: changes single settings of resources (KIP-339).

Operations: 0 set, 1 delete, 2 append to a list, 3 subtract from it.
"""

from __future__ import annotations

NAME = "IncrementalAlterConfigs"
API_KEY = 44
VERSIONS = (0, 1)
FLEXIBLE = 1

CHANGES: dict[int, str] = {}

REQUEST = """
resources                 []AlterConfigsResource  0+
    resource_type         int8                    0+
    resource_name         string                  0+
    configs               []AlterableConfig       0+
        name              string                  0+
        config_operation  int8                    0+
        value             string                  0+  null
validate_only             bool                    0+
"""

RESPONSE = """
throttle_time_ms   int32                           0+
responses          []AlterConfigsResourceResponse  0+
    error_code     int16                           0+
    error_message  string                          0+  null
    resource_type  int8                            0+
    resource_name  string                          0+
"""
