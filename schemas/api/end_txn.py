"""EndTxn: a producer commits or aborts its transaction (KIP-98)."""

NAME = "EndTxn"
API_KEY = 26
VERSIONS = (0, 5)
FLEXIBLE = 3

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
    2: "New answer PRODUCER_FENCED (KIP-588).",
    4: "New answer TRANSACTION_ABORTABLE (KIP-890).",
    5: "Each transaction ends with a new epoch: the answer has `producer_id` and `producer_epoch` (KIP-890).",
}

REQUEST = """
transactional_id  string  0+
producer_id       int64   0+
producer_epoch    int16   0+
committed         bool    0+
"""

RESPONSE = """
throttle_time_ms  int32  0+
error_code        int16  0+
producer_id       int64  5+  default=-1 ignorable
producer_epoch    int16  5+  default=-1 ignorable
"""
