"""Heartbeat: a member says that it is alive, and learns whether its generation still holds.

More than nine in ten requests are heartbeats.
"""

NAME = "Heartbeat"
API_KEY = 12
VERSIONS = (0, 4)
FLEXIBLE = 4

CHANGES = {
    1: "The response has `throttle_time_ms`.",
    2: "The answer comes before a quota's delay, not after it.",
    3: "A static member names itself: `group_instance_id` (KIP-345).",
}

REQUEST = """
group_id           string  0+
generation_id      int32   0+
member_id          string  0+
group_instance_id  string  3+  null default=null
"""

RESPONSE = """
throttle_time_ms  int32  1+  ignorable
error_code        int16  0+
"""
