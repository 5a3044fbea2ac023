"""ListGroups: the groups that a broker coordinates."""

NAME = "ListGroups"
API_KEY = 16
VERSIONS = (0, 5)
FLEXIBLE = 3

CHANGES = {
    1: "The response has `throttle_time_ms`.",
    2: "The answer comes before a quota's delay, not after it.",
    4: "`states_filter` asks for groups in some states; the response has the `group_state` (KIP-518).",
    5: (
        "`types_filter` asks for groups of some types; the response has the `group_type`, classic or consumer "
        "(KIP-848)."
    ),
}

REQUEST = """
states_filter  []string  4+
types_filter   []string  5+
"""

RESPONSE = """
throttle_time_ms   int32          1+  ignorable
error_code         int16          0+
groups             []ListedGroup  0+
    group_id       string         0+
    protocol_type  string         0+
    group_state    string         4+  ignorable
    group_type     string         5+  ignorable
"""
