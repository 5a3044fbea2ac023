"""SaslHandshake: a client names its SASL mechanism, and learns which there are (KIP-43).

Behind version 0 the tokens are bare, without a header; behind version 1 they come in SaslAuthenticate (KIP-152).
"""

NAME = "SaslHandshake"
API_KEY = 17
VERSIONS = (0, 1)
FLEXIBLE = None

CHANGES = {
    1: "The tokens come in SaslAuthenticate requests (KIP-152).",
}

REQUEST = """
mechanism  string  0+
"""

RESPONSE = """
error_code  int16     0+
mechanisms  []string  0+
"""
