"""SaslAuthenticate: a token of a SASL mechanism, and the server's answer to it (KIP-152)."""

NAME = "SaslAuthenticate"
API_KEY = 36
VERSIONS = (0, 2)
FLEXIBLE = 2

CHANGES = {
    1: "The response has `session_lifetime_ms`: the client has to authenticate again before its end (KIP-368).",
}

REQUEST = """
auth_bytes  bytes  0+
"""

RESPONSE = """
error_code           int16   0+
error_message        string  0+  null
auth_bytes           bytes   0+
session_lifetime_ms  int64   1+  default=0  ignorable
"""
