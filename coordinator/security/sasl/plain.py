"""PLAIN: the client sends name and password (RFC 4616). The passwords are in the settings.

An unknown name costs the same comparison as a known one, and fails with the same words.

House rule: no password in an exception, a line or a `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from hmac import compare_digest

from coordinator.security.sasl import ANOTHER_NAME, NOTHING, AuthenticationFailed, Dialogue, Mechanism, Step

NAME = "PLAIN"

PARTS_COUNTED_MAX = 4
"""Kafka counts no further when a token has too many parts."""


def plain_mechanism(passwords: Mapping[str, str]) -> Mechanism:
    """The users of a listener. passwords: by name."""
    digests = {name: sha256(password.encode()).digest() for name, password in passwords.items()}
    return partial(_dialogue, digests)


def _dialogue(digests: Mapping[str, bytes]) -> Dialogue:
    token = yield NOTHING
    text = token.decode(errors="replace")
    parts = text.split("\0")
    if len(parts) != 3:
        count = min(len(parts), PARTS_COUNTED_MAX)
        told = f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}"
        raise AuthenticationFailed("the token has not three parts", told)
    wanted, name, password = parts
    for what, value in (("username", name), ("password", password)):
        if not value:
            raise AuthenticationFailed(f"an empty {what}", f"Authentication failed: {what} not specified")
    # Digests have one length, so the comparison tells nothing of the password's.
    digest = sha256(password.encode()).digest()
    is_right = compare_digest(digests.get(name, bytes(len(digest))), digest)
    if not is_right or text.encode() != token:
        raise AuthenticationFailed("wrong name or password", "Authentication failed: Invalid username or password")
    if wanted not in {"", name}:
        raise AuthenticationFailed("the client asks for another user's name", ANOTHER_NAME)
    return Step(b"", name)
