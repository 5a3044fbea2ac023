"""The record of a group in the metadata log: GroupMetadataKey and GroupMetadataValue.

Key and value start with their version in two bytes, which is not part of these tables. A value of null is a tombstone:
the group is gone. Of each member's metadata the record has only that for the selected protocol, as `subscription`.
Timeouts are in milliseconds, `current_state_timestamp` in milliseconds since 1970.
Source: Kafka's GroupMetadataKey.json and GroupMetadataValue.json.
"""

GROUP_METADATA_KEY = """
group  string  2
"""

GROUP_METADATA_VALUE = """
protocol_type            string            0+
generation               int32             0+
protocol                 string            0+  null
leader                   string            0+  null
current_state_timestamp  int64             2+  default=-1 ignorable
members                  []MemberMetadata  0+
    member_id            string            0+
    group_instance_id    string            3+  null default=null ignorable
    client_id            string            0+
    client_host          string            0+
    rebalance_timeout    int32             1+  default=-1 ignorable
    session_timeout      int32             0+
    subscription         bytes             0+
    assignment           bytes             0+
"""

CHANGES = {
    "GroupMetadataValue": {
        1: "Members have a `rebalance_timeout` (KIP-62).",
        2: "The group has the time of its last change of state, `current_state_timestamp` (KIP-211).",
        3: "Static members have a `group_instance_id` (KIP-345).",
        4: "Flexible, so that a later Kafka can add fields that an earlier one skips (KIP-915).",
    },
}

RECORDS = {
    "GroupMetadataKey": ((2, 2), None, GROUP_METADATA_KEY),
    "GroupMetadataValue": ((0, 4), 4, GROUP_METADATA_VALUE),
}
"""Versions, first flexible version and table of each record."""
