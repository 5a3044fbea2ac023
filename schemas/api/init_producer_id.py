"""InitProducerId: gives an idempotent or transactional producer its number (KIP-98)."""

NAME = "InitProducerId"
API_KEY = 22
VERSIONS = (0, 5)
FLEXIBLE = 2

CHANGES = {
    1: "The answer comes before a quota's delay, not after it.",
    3: "A producer that has `producer_id` and `producer_epoch` already can go on with the next epoch (KIP-360).",
    4: "New answer PRODUCER_FENCED (KIP-588).",
    5: "New answer TRANSACTION_ABORTABLE (KIP-890).",
}

REQUEST = """
transactional_id        string  0+  null
transaction_timeout_ms  int32   0+
producer_id             int64   3+  default=-1
producer_epoch          int16   3+  default=-1
"""

RESPONSE = """
throttle_time_ms  int32  0+  ignorable
error_code        int16  0+
producer_id       int64  0+  default=-1
producer_epoch    int16  0+
"""
