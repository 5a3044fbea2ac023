"""JoinGroup: a member takes part in the next generation of its group.

The answer comes when the rebalance is complete. The leader gets the members with their metadata, the others an empty
list.

`join_reason` is this project's: KIP-423 as an optional tagged field that other programs skip. 0 restart, 1 topic
metadata changed, 2 upgrade; -1, its default, is never sent and changes nothing.
"""

NAME = "JoinGroup"
API_KEY = 11
VERSIONS = (0, 9)
FLEXIBLE = 6

CHANGES = {
    1: (
        "The member states how long a rebalance may take: `rebalance_timeout_ms`; before, its session timeout counted "
        "(KIP-62)."
    ),
    2: "The response has `throttle_time_ms`.",
    3: "The answer comes before a quota's delay, not after it.",
    4: "A dynamic member without id is told one with MEMBER_ID_REQUIRED and joins again with it (KIP-394).",
    5: "A static member names itself: `group_instance_id`, in the response too (KIP-345).",
    6: "A member can say why it joins: `join_reason` (KIP-423, tagged).",
    7: "The response has the `protocol_type`; `protocol_name` is null when there is none (KIP-559).",
    8: "A member can say in words why it joins: `reason` (KIP-800).",
    9: "A static leader that restarted is told to keep the assignment: `skip_assignment` (KIP-814).",
}

REQUEST = """
group_id              string                      0+
session_timeout_ms    int32                       0+
rebalance_timeout_ms  int32                       1+  default=-1 ignorable
member_id             string                      0+
group_instance_id     string                      5+  null default=null
protocol_type         string                      0+
protocols             []JoinGroupRequestProtocol  0+
    name              string                      0+
    metadata          bytes                       0+
reason                string                      8+  null default=null ignorable
join_reason           int8                        6+  default=-1 ignorable tag=423
"""

RESPONSE = """
throttle_time_ms       int32                      2+  ignorable
error_code             int16                      0+
generation_id          int32                      0+  default=-1
protocol_type          string                     7+  null default=null ignorable
protocol_name          string                     0+  null=7+
leader                 string                     0+
skip_assignment        bool                       9+
member_id              string                     0+
members                []JoinGroupResponseMember  0+
    member_id          string                     0+
    group_instance_id  string                     5+  null default=null ignorable
    metadata           bytes                      0+
"""
