"""DescribeAcls: the ACLs that a filter selects (KIP-140).

`coordinator.security.acls` names the numbers of resource types, pattern types, operations and permissions. A null
string selects all.
"""

NAME = "DescribeAcls"
API_KEY = 29
VERSIONS = (0, 3)
FLEXIBLE = 2

CHANGES = {
    1: "Pattern types: `pattern_type_filter`, `pattern_type` (KIP-290). The answer comes before a quota's delay.",
    3: "The resource type USER.",
}

REQUEST = """
resource_type_filter  int8    0+
resource_name_filter  string  0+  null
pattern_type_filter   int8    1+  default=3
principal_filter      string  0+  null
host_filter           string  0+  null
operation             int8    0+
permission_type       int8    0+
"""

RESPONSE = """
throttle_time_ms         int32                   0+
error_code               int16                   0+
error_message            string                  0+  null
resources                []DescribeAclsResource  0+
    resource_type        int8                    0+
    resource_name        string                  0+
    pattern_type         int8                    1+  default=3
    acls                 []AclDescription        0+
        principal        string                  0+
        host             string                  0+
        operation        int8                    0+
        permission_type  int8                    0+
"""
