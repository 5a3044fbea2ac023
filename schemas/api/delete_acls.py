"""DeleteAcls: removes the ACLs that filters select, and names them (KIP-140). See `describe_acls` for the numbers."""

NAME = "DeleteAcls"
API_KEY = 31
VERSIONS = (0, 3)
FLEXIBLE = 2

CHANGES = {
    1: "Pattern types: `pattern_type_filter`, `pattern_type` (KIP-290). The answer comes before a quota's delay.",
    3: "The resource type USER.",
}

REQUEST = """
filters                   []DeleteAclsFilter  0+
    resource_type_filter  int8                0+
    resource_name_filter  string              0+  null
    pattern_type_filter   int8                1+  default=3
    principal_filter      string              0+  null
    host_filter           string              0+  null
    operation             int8                0+
    permission_type       int8                0+
"""

RESPONSE = """
throttle_time_ms         int32                     0+
filter_results           []DeleteAclsFilterResult  0+
    error_code           int16                     0+
    error_message        string                    0+  null
    matching_acls        []DeleteAclsMatchingAcl   0+
        error_code       int16                     0+
        error_message    string                    0+  null
        resource_type    int8                      0+
        resource_name    string                    0+
        pattern_type     int8                      1+  default=3
        principal        string                    0+
        host             string                    0+
        operation        int8                      0+
        permission_type  int8                      0+
"""
