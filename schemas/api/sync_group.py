"""SyncGroup: the leader sends the assignments of a generation, and each member gets its own."""

NAME = "SyncGroup"
API_KEY = 14
VERSIONS = (0, 5)
FLEXIBLE = 4

CHANGES = {
    1: "The response has `throttle_time_ms`.",
    2: "The answer comes before a quota's delay, not after it.",
    3: "A static member names itself: `group_instance_id` (KIP-345).",
    5: "Both sides say `protocol_type` and `protocol_name`, and a mismatch is INCONSISTENT_GROUP_PROTOCOL (KIP-559).",
}

REQUEST = """
group_id           string                        0+
generation_id      int32                         0+
member_id          string                        0+
group_instance_id  string                        3+  null default=null
protocol_type      string                        5+  null default=null ignorable
protocol_name      string                        5+  null default=null ignorable
assignments        []SyncGroupRequestAssignment  0+
    member_id      string                        0+
    assignment     bytes                         0+
"""

RESPONSE = """
throttle_time_ms  int32   1+  ignorable
error_code        int16   0+
protocol_type     string  5+  null default=null ignorable
protocol_name     string  5+  null default=null ignorable
assignment        bytes   0+
"""
