"""DescribeUserScramCredentials: which users can log in by SCRAM (KIP-554). No users, or null: all of them.

Mechanisms: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
"""

from __future__ import annotations

NAME = "DescribeUserScramCredentials"
API_KEY = 50
VERSIONS = (0, 0)
FLEXIBLE = 0

CHANGES: dict[int, str] = {}

REQUEST = """
users     []UserName  0+  null
    name  string      0+
"""

RESPONSE = """
throttle_time_ms      int32                                   0+
error_code            int16                                   0+
error_message         string                                  0+  null
results               []DescribeUserScramCredentialsResult    0+
    user              string                                  0+
    error_code        int16                                   0+
    error_message     string                                  0+  null
    credential_infos  []CredentialInfo                        0+
        mechanism     int8                                    0+
        iterations    int32                                   0+
"""
