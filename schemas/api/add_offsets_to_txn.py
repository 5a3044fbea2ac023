"""AddOffsetsToTxn: a producer's transaction gets the committed offsets of a group (KIP-98)."""

NAME = "AddOffsetsToTxn"
API_KEY = 25
VERSIONS = (0, 4)
FLEXIBLE = 3

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
    2: "New answer PRODUCER_FENCED (KIP-588).",
    4: "New answer TRANSACTION_ABORTABLE (KIP-890).",
}

REQUEST = """
transactional_id  string  0+
producer_id       int64   0+
producer_epoch    int16   0+
group_id          string  0+
"""

RESPONSE = """
throttle_time_ms  int32  0+
error_code        int16  0+
"""
