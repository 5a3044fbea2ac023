"""DescribeGroups: state, protocol and members of groups.

Members have metadata and assignments in Stable only. A group that doesn't exist is described as Dead.

`include_waiting` and `waiting` are this project's own: tagged fields, which other programs skip. While a group is
between two generations, `waiting` names the members that it waits for. A member's `session_timeout_ms` and `silent_ms`
say whether its program is there. `client_software` is the library that joined last, by name and version, as its
ApiVersions said; empty if it said nothing, or the member was read from the log. `standby_ms` says for how long a
standby has waited for a seat; -1: it is no standby. `target_size` says how many seats the group has. `expects` names
the expected members that are missing, and how many joins are held for them. The server sends these only if the request
asks for `waiting`.
"""

NAME = "DescribeGroups"
API_KEY = 15
VERSIONS = (0, 6)
FLEXIBLE = 5

CHANGES = {
    1: "The response has `throttle_time_ms`.",
    2: "The answer comes before a quota's delay, not after it.",
    3: "`include_authorized_operations` asks for `authorized_operations` (KIP-430).",
    4: "Static members show their `group_instance_id` (KIP-345).",
    5: "A group can say whom it waits for, and how long each member was silent: `include_waiting`, `waiting`, "
    "`session_timeout_ms`, `silent_ms`, `standby_ms`, `client_software`, `target_size`, `expects` (this project's, "
    "tagged).",
    6: "A group's error can have words, `error_message`; a group that doesn't exist is GROUP_ID_NOT_FOUND (KIP-1043).",
}

REQUEST = """
groups                         []string  0+
include_authorized_operations  bool      3+
include_waiting                bool      5+  ignorable tag=10000
"""

RESPONSE = """
throttle_time_ms           int32                   1+  ignorable
groups                     []DescribedGroup        0+
    error_code             int16                   0+
    error_message          string                  6+  null default=null ignorable
    group_id               string                  0+
    group_state            string                  0+
    protocol_type          string                  0+
    protocol_data          string                  0+
    members                []DescribedGroupMember  0+
        member_id          string                  0+
        group_instance_id  string                  4+  null default=null ignorable
        client_id          string                  0+
        client_host        string                  0+
        member_metadata    bytes                   0+
        member_assignment  bytes                   0+
        session_timeout_ms int32                   5+  default=-1 ignorable tag=10000
        silent_ms          int64                   5+  default=-1 ignorable tag=10001  # since its last request
        standby_ms         int64                   5+  default=-1 ignorable tag=10002  # it waits for a seat
        client_software    string                  5+  ignorable tag=10003
    authorized_operations  int32                   3+  default=-2147483648
    waiting                GroupWaiting            5+  ignorable tag=10000
        since_ms           int64                   5+  default=-1  # Unix time; -1: it waits for nobody
        until_ms           int64                   5+  default=-1
        is_held_open       bool                    5+              # for whoever may come (KIP-134)
        leader             string                  5+              # whose assignments are waited for
        members            []GroupAwaitedMember    5+              # to join; with a leader: to sync
            member_id      string                  5+
            client_id      string                  5+              # of who has its seat now, whoever took it first
            client_host    string                  5+
        pending            []GroupPendingMember    5+              # member ids that nobody has used
            member_id      string                  5+
            client_id      string                  5+
            client_host    string                  5+
            lapses_ms      int64                   5+
    expects                GroupExpects            5+  ignorable tag=10001
        missing            []string                5+              # instance ids
        held               int32                   5+              # joins
        until_ms           int64                   5+  default=-1  # Unix time; -1: nothing is held for the missing
    target_size            int32                   5+  ignorable tag=10002             # seats; 0: any number
"""
