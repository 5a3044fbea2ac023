"""FindCoordinator: which broker coordinates a group or a transactional id.

Version 4 takes many keys in place of one. From it on the answer is in `coordinators`, one per key, errors included.
"""

NAME = "FindCoordinator"
API_KEY = 10
VERSIONS = (0, 6)
FLEXIBLE = 3

CHANGES = {
    1: "`key_type`: 0 for a group, 1 for a transactional id. The response has `throttle_time_ms` and `error_message`.",
    2: "The answer comes before a quota's delay, not after it.",
    4: (
        "`coordinator_keys` and `coordinators` take the place of `key` and of `error_code`, `error_message`, "
        "`node_id`, `host` and `port` on top (KIP-699)."
    ),
    5: "A client that asks in this version knows the error TRANSACTION_ABORTABLE (KIP-890).",
    6: "`key_type` 2: a share group (KIP-932).",
}

REQUEST = """
key               string    0-3
key_type          int8      1+
coordinator_keys  []string  4+
"""

RESPONSE = """
throttle_time_ms   int32          1+   ignorable
error_code         int16          0-3
error_message      string         1-3  null ignorable
node_id            int32          0-3
host               string         0-3
port               int32          0-3
coordinators       []Coordinator  4+
    key            string         4+
    node_id        int32          4+
    host           string         4+
    port           int32          4+
    error_code     int16          4+
    error_message  string         4+   null ignorable
"""
