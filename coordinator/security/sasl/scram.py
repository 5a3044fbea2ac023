"""SCRAM-SHA-256 and SCRAM-SHA-512: client and server prove to each other that they know the password (RFC 5802).

    client-first   n,,n=alice,r=NONCE           ->  r=NONCE+OURS,s=SALT,i=ITERATIONS
    client-final   c=biws,r=NONCE+OURS,p=PROOF  ->  v=SIGNATURE

The server keeps keys, no password, so that it pays a few HMACs for a login, however many iterations the client pays. An
unknown user gets a made-up salt, and fails with the last message, as a wrong password does.

House rule: the server's nonce is handed in. No key in an exception or a `repr`.
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from hashlib import new, pbkdf2_hmac
from typing import NamedTuple

from coordinator.security.sasl import ANOTHER_NAME, NOTHING, AuthenticationFailed, Dialogue, Mechanism, Step

DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""

ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
"""Kafka's bounds."""

TOKEN_MAX = 4_096
"""Bytes of a client's message."""

FIRST = re.compile(r"(n|y),(?:a=([^,]*))?,n=([^,]*),r=([!-+\--~]+)((?:,[a-zA-Z]=[^,]*)*)")
FINAL = re.compile(r"c=([A-Za-z0-9+/=]+),r=([!-+\--~]+)((?:,[a-zA-Z]=[^,]*)*),p=([A-Za-z0-9+/=]+)")


class Credential(NamedTuple):
    """The keys that the server keeps of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"Credential(iterations={self.iterations})"


def credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """The credential of a salted password, as AlterUserScramCredentials brings it."""
    digest = DIGESTS[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    server_key = hmac.digest(salted_password, b"Server Key", digest)
    return Credential(salt, new(digest, client_key).digest(), server_key, iterations)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password. As in Kafka and its clients, SASLprep changes nothing of a password."""
    return pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)


def prepared(text: str) -> str:
    """The text after SASLprep. Raises ValueError if it forbids a character, or nothing is left."""
    if text.isascii() and text.isprintable() and text:
        return text
    from scramp.utils import saslprep  # noqa: PLC0415 - an eighth of a server's start, and few names need it

    try:
        found = str(saslprep(text))
    except Exception as error:  # scramp's exceptions have no common base
        raise ValueError("SASLprep forbids a character") from error
    if not found:
        raise ValueError("SASLprep leaves nothing of it")
    return found


def decoy(mechanism: str, salt: bytes, iterations: int) -> Credential:
    """A credential that no password fits."""
    keys = bytes(new(DIGESTS[mechanism]).digest_size)
    return Credential(salt, keys, keys, iterations)


def scram_mechanism(name: str, find: Callable[[str], tuple[Credential, bool]], nonce: Callable[[], str]) -> Mechanism:
    """One of the two mechanisms.

    find: the credential of a user, and whether there is such a user; else a decoy. nonce: makes printable ASCII without
    commas.
    """
    return partial(_dialogue, DIGESTS[name], find, nonce)


def _dialogue(digest: str, find: Callable[[str], tuple[Credential, bool]], make_nonce: Callable[[], str]) -> Dialogue:
    text = _text((yield NOTHING))
    found = FIRST.fullmatch(text)
    if found is None:
        raise AuthenticationFailed(_problem(text))
    flag, wanted, name, nonce, _ = found.groups()
    user = _user_of(name)
    if wanted and _user_of(wanted) != user:
        raise AuthenticationFailed("the client asks for another user's name", ANOTHER_NAME)
    header = f"{flag},{'' if wanted is None else f'a={wanted}'},"
    known, is_known = find(user)
    ours = make_nonce()
    answer = f"r={nonce}{ours},s={b64encode(known.salt).decode()},i={known.iterations}"
    first = f"{text[len(header) :]},{answer}"

    text = _text((yield Step(answer.encode())))
    found = FINAL.fullmatch(text)
    if found is None:
        raise AuthenticationFailed("the last message is not as RFC 5802 has it")
    binding, nonce, extensions, proof = found.groups()
    if ",m=" in extensions:
        raise AuthenticationFailed("the client demands an extension")
    # Only the server's own part is compared, as in Kafka: librdkafka 2.0 sends the client's part twice.
    if not nonce.endswith(ours):
        raise AuthenticationFailed("another nonce than the server's")
    if _from_base64(binding) != header.encode():
        raise AuthenticationFailed("another channel binding than in the first message")
    said = f"{first},{text[: text.rindex(',p=')]}".encode()
    signature = hmac.digest(known.stored_key, said, digest)
    given = _from_base64(proof)
    if len(given) != len(signature):
        raise AuthenticationFailed("a proof of another length")
    client_key = bytes(one ^ other for one, other in zip(given, signature, strict=True))
    is_right = hmac.compare_digest(new(digest, client_key).digest(), known.stored_key)
    if not (is_right and is_known):
        raise AuthenticationFailed("wrong name or password")
    return Step(b"v=" + b64encode(hmac.digest(known.server_key, said, digest)), user)


def _text(token: bytes) -> str:
    """The text of a client's message."""
    if len(token) > TOKEN_MAX:
        raise AuthenticationFailed(f"the message is longer than {TOKEN_MAX} bytes")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the message is not UTF-8") from None


def _user_of(name: str) -> str:
    """The user of a name in a message: `=2C` is a comma, `=3D` an equals sign."""
    if re.search("=(?!2C|3D)", name):
        raise AuthenticationFailed("an equals sign in the name is not escaped")
    try:
        return prepared(name.replace("=2C", ",").replace("=3D", "="))
    except ValueError as error:
        raise AuthenticationFailed(f"the name: {error}") from None


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailed("broken base64") from None


def _problem(first: str) -> str:
    """Why a first message can't be taken."""
    if first.startswith("p="):
        return "the client demands channel binding"
    if re.match("[ny],[^,]*,m=", first):
        return "the client demands an extension"
    return "the first message is not as RFC 5802 has it"
