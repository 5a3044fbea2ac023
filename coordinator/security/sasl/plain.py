"""PLAIN: the client sends name and password (RFC 4616). The passwords are in the settings.

An unknown name costs the same comparison as a known one, and fails with the same words.

House rule: no password in an exception, a line or a `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest

from coordinator.security.sasl import Refused, Step

NAME = "PLAIN"


class Plain:
    """The users of a listener. passwords: by name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: sha256(password.encode()).digest() for name, password in passwords.items()}

    def begin(self) -> Plain:
        """See Mechanism. The exchange is one token, so nothing is kept of it."""
        return self

    def step(self, token: bytes) -> Step:
        """See Exchange."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise Refused("the token is not UTF-8") from None
        if len(parts) != 3:
            raise Refused("the token has not three parts")
        wanted, name, password = parts
        if not name or not password:
            raise Refused("the name or the password is empty")
        # Digests have one length, so the comparison tells nothing of the password's.
        digest = sha256(password.encode()).digest()
        is_right = compare_digest(self._digests.get(name, bytes(len(digest))), digest)
        if not is_right:
            raise Refused("wrong name or password")
        if wanted not in {"", name}:
            raise Refused("the client asks for another user's name")
        return Step(b"", name)
