"""The client's side of SASL: the tokens with which our own commands log in.

    dialogue = plain("alice", "secret")
    token = next(dialogue)
    while ...:
        token = dialogue.send(answer of the server)      # StopIteration: the client has what it needs

A mechanism is a generator: it yields tokens, and gets the server's answer to each. Names and passwords go as they are,
without SASLprep, as Kafka's clients send them.

House rule: the text of `Untrusted` is one line for a person, and no secret of ours is in it.
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Generator, Mapping
from hashlib import new, pbkdf2_hmac

from coordinator.security.sasl.scram import DIGESTS, ITERATIONS_MIN

Dialogue = Generator[bytes, bytes, None]

ITERATIONS_ACCEPTED_MAX = 1_000_000
"""About half a second of work. Without a limit, a server could keep a client busy for hours."""

QUOTED_MAX = 200
"""Characters of a server's text that an error shows."""

SERVER_FIRST = re.compile(r"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,[a-zA-Z]=[^,]*)*")


class Untrusted(Exception):
    """The server's answer isn't one of a server that knows the user's credential."""


def plain(user: str, password: str) -> Dialogue:
    """PLAIN (RFC 4616)."""
    yield f"\0{user}\0{password}".encode()


def scram(mechanism: str, user: str, password: str, nonce: str) -> Dialogue:
    """SCRAM (RFC 5802); the server has to prove that it knows the password's keys."""
    digest = DIGESTS[mechanism]
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    challenge = _text(mechanism, (yield f"n,,{first}".encode()))
    found = SERVER_FIRST.fullmatch(challenge)
    if found is None or not found[1].startswith(nonce) or found[1] == nonce:
        raise Untrusted(f"{mechanism}: the server's first message is not as RFC 5802 has it")
    iterations = int(found[3])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_ACCEPTED_MAX:
        wanted = f"{ITERATIONS_MIN} to {ITERATIONS_ACCEPTED_MAX}"
        raise Untrusted(f"{mechanism}: the server asks for {iterations} iterations; {wanted} are accepted")
    salted = pbkdf2_hmac(digest, password.encode(), _bytes(mechanism, found[2]), iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={found[1]}"
    said = f"{first},{challenge},{final}".encode()
    signature = hmac.digest(new(digest, client_key).digest(), said, digest)
    proof = b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True))).decode()
    answer = _text(mechanism, (yield f"{final},p={proof}".encode()))
    wanted = b64encode(hmac.digest(hmac.digest(salted, b"Server Key", digest), said, digest)).decode()
    if not hmac.compare_digest(answer.partition(",")[0].encode(), f"v={wanted}".encode()):
        raise Untrusted(f"{mechanism}: the server doesn't prove that it knows the password")


def oauthbearer(token: str, extensions: Mapping[str, str]) -> Dialogue:
    """OAUTHBEARER (RFC 7628). A server that refuses says why; one byte of the client ends the dialogue."""
    pairs = {"auth": f"Bearer {token}", **extensions}
    said = "".join(f"{name}={value}\1" for name, value in pairs.items())
    refusal = yield f"n,,\1{said}\1".encode()
    if refusal:
        yield b"\1"
        raise Untrusted(f"OAUTHBEARER: {refusal.decode(errors='replace')[:QUOTED_MAX]}")


def _text(mechanism: str, token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise Untrusted(f"{mechanism}: the server's message is not UTF-8") from None


def _bytes(mechanism: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise Untrusted(f"{mechanism}: the server's message has broken base64") from None
