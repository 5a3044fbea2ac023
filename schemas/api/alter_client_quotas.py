"""AlterClientQuotas: sets and removes quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

NAME = "AlterClientQuotas"
API_KEY = 49
VERSIONS = (0, 1)
FLEXIBLE = 1

CHANGES: dict[int, str] = {}

REQUEST = """
entries              []EntryData   0+
    entity           []EntityData  0+
        entity_type  string        0+
        entity_name  string        0+  null  # null: the default
    ops              []OpData      0+
        key          string        0+
        value        float64       0+
        remove       bool          0+
validate_only        bool          0+
"""

RESPONSE = """
throttle_time_ms     int32         0+
entries              []EntryData   0+
    error_code       int16         0+
    error_message    string        0+  null
    entity           []EntityData  0+
        entity_type  string        0+
        entity_name  string        0+  null
"""
