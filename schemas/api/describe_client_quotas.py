"""DescribeClientQuotas: the quotas of users, client ids and IP addresses (KIP-546).

Match types: 0 the exact name, 1 the default, 2 any name, the default included.
"""

from __future__ import annotations

NAME = "DescribeClientQuotas"
API_KEY = 48
VERSIONS = (0, 1)
FLEXIBLE = 1

CHANGES: dict[int, str] = {}

REQUEST = """
components       []ComponentData  0+
    entity_type  string           0+
    match_type   int8             0+
    match        string           0+  null
strict           bool             0+
"""

RESPONSE = """
throttle_time_ms     int32         0+
error_code           int16         0+
error_message        string        0+  null
entries              []EntryData   0+  null
    entity           []EntityData  0+
        entity_type  string        0+
        entity_name  string        0+  null  # null: the default
    values           []ValueData   0+
        key          string        0+
        value        float64       0+
"""
