"""DeleteGroups: deletes groups without members, with their committed offsets (KIP-229)."""

NAME = "DeleteGroups"
API_KEY = 42
VERSIONS = (0, 3)
FLEXIBLE = 2

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
    3: "Results have an `error_message`.",
}

REQUEST = """
groups_names  []string  0+
"""

RESPONSE = """
throttle_time_ms  int32                   0+
results           []DeletableGroupResult  0+
    group_id      string                  0+
    error_code    int16                   0+
    error_message string                  3+  null default=null ignorable
"""
