"""DeleteTopics: removes topics with all their records (KIP-4)."""

NAME = "DeleteTopics"
API_KEY = 20
VERSIONS = (0, 6)
FLEXIBLE = 4

CHANGES = {
    1: "The response has `throttle_time_ms`.",
    2: "The answer comes before a quota's delay, not after it.",
    3: "New answer TOPIC_DELETION_DISABLED (KIP-322).",
    5: "The response has an `error_message`; new answer THROTTLING_QUOTA_EXCEEDED (KIP-599).",
    6: "Topics can be named by id: `topics`, with `name` or `topic_id`, take the place of `topic_names` (KIP-516).",
}

REQUEST = """
topics        []DeleteTopicState  6+
    name      string              6+   null default=null
    topic_id  uuid                6+
topic_names   []string            0-5  ignorable
timeout_ms    int32               0+
"""

RESPONSE = """
throttle_time_ms   int32                   1+  ignorable
responses          []DeletableTopicResult  0+
    name           string                  0+  null=6+
    topic_id       uuid                    6+  ignorable
    error_code     int16                   0+
    error_message  string                  5+  null default=null ignorable
"""
