"""AlterConfigs: gives resources these settings and resets all others (KIP-133)."""

NAME = "AlterConfigs"
API_KEY = 33
VERSIONS = (0, 2)
FLEXIBLE = 2

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
}

REQUEST = """
resources          []AlterConfigsResource  0+
    resource_type  int8                    0+
    resource_name  string                  0+
    configs        []AlterableConfig       0+
        name       string                  0+
        value      string                  0+  null
validate_only      bool                    0+
"""

RESPONSE = """
throttle_time_ms   int32                           0+
responses          []AlterConfigsResourceResponse  0+
    error_code     int16                           0+
    error_message  string                          0+  null
    resource_type  int8                            0+
    resource_name  string                          0+
"""
