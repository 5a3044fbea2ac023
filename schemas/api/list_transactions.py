"""ListTransactions: the transactional ids of a node (KIP-664)."""

NAME = "ListTransactions"
API_KEY = 66
VERSIONS = (0, 2)
FLEXIBLE = 0

CHANGES = {
    1: "`duration_filter`: transactions that are older (KIP-994).",
    2: "`transactional_id_pattern`: a regular expression in the syntax of RE2 (KIP-1152).",
}

REQUEST = """
state_filters             []string  0+
producer_id_filters       []int64   0+
duration_filter           int64     1+  default=-1
transactional_id_pattern  string    2+  null default=null
"""

RESPONSE = """
throttle_time_ms       int32               0+
error_code             int16               0+
unknown_state_filters  []string            0+
transaction_states     []TransactionState  0+
    transactional_id   string              0+
    producer_id        int64               0+
    transaction_state  string              0+
"""
