"""ConsumerGroupHeartbeat: a member of the consumer protocol joins, stays, learns its assignment, leaves (KIP-848)."""

NAME = "ConsumerGroupHeartbeat"
API_KEY = 68
VERSIONS = (0, 1)
FLEXIBLE = 0

CHANGES = {
    1: (
        "`subscribed_topic_regex` subscribes to all topics whose names it matches (KIP-848). "
        "The client makes its `member_id` itself (KIP-1082)."
    ),
}

REQUEST = """
group_id                string             0+
member_id               string             0+
member_epoch            int32              0+                     # 0: joins; -1: leaves; -2: is away for a while
instance_id             string             0+  null default=null
rack_id                 string             0+  null default=null
rebalance_timeout_ms    int32              0+  default=-1
subscribed_topic_names  []string           0+  null default=null
subscribed_topic_regex  string             1+  null default=null
server_assignor         string             0+  null default=null
topic_partitions        []TopicPartitions  0+  null default=null  # the partitions that the member owns
    topic_id            uuid               0+
    partitions          []int32            0+
"""

RESPONSE = """
throttle_time_ms       int32              0+
error_code             int16              0+
error_message          string             0+  null default=null
member_id              string             0+  null default=null
member_epoch           int32              0+
heartbeat_interval_ms  int32              0+
assignment             Assignment         0+  null default=null
    topic_partitions   []TopicPartitions  0+
        topic_id       uuid               0+
        partitions     []int32            0+
"""
