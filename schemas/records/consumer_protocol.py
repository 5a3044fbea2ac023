"""The messages that consumers exchange through the group: the protocol type "consumer".

ConsumerProtocolSubscription is a member's metadata in JoinGroup, ConsumerProtocolAssignment its assignment in
SyncGroup. Both start with their version in two bytes, which is not part of these tables. New versions only append
fields. So a reader reads a version above ours as the newest that we have, and ignores the bytes behind it.
Source: Kafka's ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json.
"""

CONSUMER_PROTOCOL_SUBSCRIPTION = """
topics            []string          0+
user_data         bytes             0+  null default=null
owned_partitions  []TopicPartition  1+  ignorable
    topic         string            1+
    partitions    []int32           1+
generation_id     int32             2+  default=-1 ignorable
rack_id           string            3+  null default=null ignorable
"""

CONSUMER_PROTOCOL_ASSIGNMENT = """
assigned_partitions  []TopicPartition  0+
    topic            string            0+
    partitions       []int32           0+
user_data            bytes             0+  null default=null
"""

CHANGES = {
    "ConsumerProtocolSubscription": {
        1: "A member says what it has: `owned_partitions` (KIP-429).",
        2: "A member says since which generation it has it: `generation_id` (KIP-792).",
        3: "A member says where it is: `rack_id` (KIP-881).",
    },
}

RECORDS = {
    "ConsumerProtocolSubscription": ((0, 3), None, CONSUMER_PROTOCOL_SUBSCRIPTION),
    "ConsumerProtocolAssignment": ((0, 3), None, CONSUMER_PROTOCOL_ASSIGNMENT),
}
"""Versions, first flexible version and table of each record."""
