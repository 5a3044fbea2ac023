"""The SCRAM credentials of users, and their text in the list of topics (server/nodes/topics.py, CREDENTIALS).

The name of a text is MECHANISM/USER; it has iterations, salt, stored key and server key, the bytes in base64. A user's
name is kept as SASLprep makes it, which is how a login looks for it.

House rule: neither password nor salted password gets here.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping

from coordinator.security.sasl.scram import DIGESTS, Credential

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by the numbers of KIP-554."""

Credentials = dict[str, dict[str, Credential]]
"""By mechanism, then by user."""


def name_of(mechanism: str, user: str) -> str:
    """The name of a credential's text."""
    return f"{mechanism}/{user}"


def text_of(credential: Credential) -> str:
    """The text of a credential."""
    parts = (credential.salt, credential.stored_key, credential.server_key)
    return " ".join((str(credential.iterations), *(b64encode(part).decode() for part in parts)))


def credentials_of(texts: Mapping[str, str]) -> Credentials:
    """All credentials of these texts."""
    found: Credentials = {mechanism: {} for mechanism in DIGESTS}
    for name, text in texts.items():
        mechanism, _, user = name.partition("/")
        iterations, salt, stored_key, server_key = text.split(" ")
        keys = (b64decode(stored_key), b64decode(server_key))
        found[mechanism][user] = Credential(b64decode(salt), *keys, int(iterations))
    return found
