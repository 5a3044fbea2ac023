"""CreateAcls: adds ACLs (KIP-140). See `describe_acls` for the numbers."""

NAME = "CreateAcls"
API_KEY = 30
VERSIONS = (0, 3)
FLEXIBLE = 2

CHANGES = {
    1: "`resource_pattern_type` (KIP-290). The answer comes before a quota's delay, not after it.",
    3: "The resource type USER.",
}

REQUEST = """
creations                  []AclCreation  0+
    resource_type          int8           0+
    resource_name          string         0+
    resource_pattern_type  int8           1+  default=3
    principal              string         0+
    host                   string         0+
    operation              int8           0+
    permission_type        int8           0+
"""

RESPONSE = """
throttle_time_ms   int32                0+
results            []AclCreationResult  0+
    error_code     int16                0+
    error_message  string               0+  null
"""
