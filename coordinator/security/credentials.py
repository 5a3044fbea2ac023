"""The SCRAM users: their credentials as text in the list of topics (log/topics/list.py, CREDENTIALS).

The name of a text is MECHANISM/USER; it has iterations, salt, stored key and server key, the bytes in base64. A user's
name is kept as SASLprep makes it, which is how a login looks for it.

A stranger who begins to log in as somebody must not learn whether that user exists. So `Users` makes up salt and
iterations for a name that isn't there. They stay the same as long as the users do, and look like those of a real user:
all names, real and made up, have a place on a ring, and a made-up one takes the form of the next real one.

House rule: neither password nor salted password gets here.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from bisect import bisect
from collections.abc import Callable, Mapping
from hashlib import shake_256
from typing import NamedTuple

from coordinator.security.sasl.scram import DIGESTS, ITERATIONS_MIN, Credential, decoy

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by the numbers of KIP-554."""

DECOY_KEY = "/decoys"
"""The name of a text that is no credential: the secret of what is made up, the same for all nodes and after a restart.
"""

DECOY_KEY_BYTES = 32

BASE_36 = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""The bytes of salts that Kafka's tools make."""


class Form(NamedTuple):
    """How a credential looks to its user. is_base_36: whether its salt is one of Kafka's tools."""

    iterations: int
    salt_bytes: int
    is_base_36: bool


FORM_OF_KAFKA = Form(ITERATIONS_MIN, 26, is_base_36=True)
"""The form that a made-up credential has where there is no real one: what `kafka-configs` makes by default."""


class Users:
    """All SCRAM users.

    texts: gives the texts that there are. fallback: the secret until the texts have one.
    """

    def __init__(self, texts: Callable[[], Mapping[str, str]], fallback: bytes) -> None:
        self._texts = texts
        self._fallback = fallback
        # The texts that the rings are of, and by mechanism each real user's place and form, in order.
        self._seen: Mapping[str, str] | None = None
        self._secret = b""
        self._rings: dict[str, list[tuple[bytes, Form]]] = {}

    def find(self, mechanism: str, user: str) -> tuple[Credential, bool]:
        """The credential of a user, and whether there is one; else a made-up one that no password fits."""
        texts = self._texts()
        made_up = decoy(mechanism, *self._looks(texts, mechanism, user))
        text = texts.get(name_of(mechanism, user))
        return (made_up, False) if text is None else (credential_of(text), True)

    def _looks(self, texts: Mapping[str, str], mechanism: str, user: str) -> tuple[bytes, int]:
        """Salt and iterations for a name that may not be there."""
        if texts is not self._seen:
            self._secret = b64decode(texts[DECOY_KEY]) if DECOY_KEY in texts else self._fallback
            self._rings = {name: [] for name in DIGESTS}
            for name, text in texts.items():
                if name != DECOY_KEY:
                    self._rings[name.partition("/")[0]].append((self._place(name), _form_of(text)))
            for ring in self._rings.values():
                ring.sort()
            self._seen = texts
        ring = self._rings[mechanism]
        name = name_of(mechanism, user)
        form = ring[bisect(ring, (self._place(name),)) % len(ring)][1] if ring else FORM_OF_KAFKA
        salt = shake_256(b"%s salt of %s" % (self._secret, name.encode())).digest(form.salt_bytes)
        if form.is_base_36:
            salt = bytes(BASE_36[byte % len(BASE_36)] for byte in salt)
        return salt, form.iterations

    def _place(self, name: str) -> bytes:
        return hmac.digest(self._secret, name.encode(), "sha256")


def name_of(mechanism: str, user: str) -> str:
    """The name of a credential's text."""
    return f"{mechanism}/{user}"


def text_of(credential: Credential) -> str:
    """The text of a credential."""
    parts = (credential.salt, credential.stored_key, credential.server_key)
    return " ".join((str(credential.iterations), *(b64encode(part).decode() for part in parts)))


def credential_of(text: str) -> Credential:
    """The credential of a text."""
    iterations, salt, stored_key, server_key = text.split(" ")
    return Credential(b64decode(salt), b64decode(stored_key), b64decode(server_key), int(iterations))


def iterations_of(texts: Mapping[str, str]) -> dict[str, dict[int, int]]:
    """The iterations of each user, by the number of the mechanism; in the order of their names."""
    numbers = {name: number for number, name in MECHANISMS.items()}
    found: dict[str, dict[int, int]] = {}
    for name in sorted(texts):
        if name != DECOY_KEY:
            mechanism, _, user = name.partition("/")
            found.setdefault(user, {})[numbers[mechanism]] = int(texts[name].partition(" ")[0])
    return found


def _form_of(text: str) -> Form:
    credential = credential_of(text)
    return Form(credential.iterations, len(credential.salt), not credential.salt.strip(BASE_36))
