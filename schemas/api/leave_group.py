"""LeaveGroup: removes members, and their seats with them.

Version 3 takes a batch of members, so that an operator can remove static members by instance id (KIP-345).
"""

NAME = "LeaveGroup"
API_KEY = 13
VERSIONS = (0, 5)
FLEXIBLE = 4

CHANGES = {
    1: "The response has `throttle_time_ms`.",
    2: "The answer comes before a quota's delay, not after it.",
    3: (
        "`members` takes the place of `member_id` on top; each has a `group_instance_id` or a member id or both, and "
        "an `error_code` of its own in the response's `members` (KIP-345)."
    ),
    5: "A member can say in words why it leaves: `reason` (KIP-800).",
}

REQUEST = """
group_id               string            0+
member_id              string            0-2
members                []MemberIdentity  3+
    member_id          string            3+
    group_instance_id  string            3+   null default=null
    reason             string            5+   null default=null ignorable
"""

RESPONSE = """
throttle_time_ms       int32             1+  ignorable
error_code             int16             0+
members                []MemberResponse  3+
    member_id          string            3+
    group_instance_id  string            3+  null
    error_code         int16             3+
"""
