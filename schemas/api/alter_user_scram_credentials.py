"""AlterUserScramCredentials: sets and removes users' credentials of SCRAM (KIP-554).

The client salts the password, so the server doesn't get to know it. Mechanisms as in DescribeUserScramCredentials.
"""

from __future__ import annotations

NAME = "AlterUserScramCredentials"
API_KEY = 51
VERSIONS = (0, 0)
FLEXIBLE = 0

CHANGES: dict[int, str] = {}

REQUEST = """
deletions            []ScramCredentialDeletion   0+
    name             string                      0+
    mechanism        int8                        0+
upsertions           []ScramCredentialUpsertion  0+
    name             string                      0+
    mechanism        int8                        0+
    iterations       int32                       0+
    salt             bytes                       0+
    salted_password  bytes                       0+
"""

RESPONSE = """
throttle_time_ms   int32                              0+
results            []AlterUserScramCredentialsResult  0+
    user           string                             0+
    error_code     int16                              0+
    error_message  string                             0+  null
"""
