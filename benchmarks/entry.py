"""How a client comes in: the listeners of a secured server, its settings, and the SASL dialogues of a client.

A secured server has all of LISTENERS, with the same certificate of the curve P-256. Tenure and Apache Kafka get the
same settings. A client makes a full handshake of TLS 1.3, checks the certificate, and logs in as USER if its listener
asks for that.

House rule: a client computes as little as it can, because it shares a core with all the others. So it knows the salted
password beforehand.
"""

from __future__ import annotations

import hmac
import secrets
import ssl
import time
from base64 import b64encode
from collections.abc import Generator
from hashlib import pbkdf2_hmac, sha512
from pathlib import Path
from typing import NamedTuple

from benchmarks import frames
from benchmarks.driver import Script
from benchmarks.members import UnexpectedAnswer
from benchmarks.questions import RETRY_S, TIMEOUT_S, ask
from protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

PLAINTEXT = "PLAINTEXT"
LISTENERS = {PLAINTEXT: PLAINTEXT, "SSL": "SSL", "SCRAM": "SASL_SSL", "PLAIN": "SASL_SSL"}
"""Names of listeners, and their protocols."""
MECHANISMS = {"SCRAM": "SCRAM-SHA-512", "PLAIN": "PLAIN"}
"""Of the listeners that ask for a login."""

USER, PASSWORD = "bench", "bench-secret"
SALT = b"a salt of 24 letters, or"
ITERATIONS = 4_096
"""The default of Kafka's tools."""
SCRAM_SHA_512 = 2
"""Its number in requests."""
SALTED = pbkdf2_hmac("sha512", PASSWORD.encode(), SALT, ITERATIONS)
LOGIN_MODULES = "org.apache.kafka.common.security"


class Entry(NamedTuple):
    """A way in. listener: of LISTENERS. ca: path of the CA that signed the server's certificate."""

    listener: str
    ca: str

    def context(self) -> ssl.SSLContext | None:
        """Return the context of the client's handshakes; None without TLS."""
        if self.listener == PLAINTEXT:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context


def properties(server: Path) -> dict[str, str]:
    """Return the settings of a secured server, but its listeners. server: its private key and certificate."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server),
        "listener.name.scram.sasl.enabled.mechanisms": MECHANISMS["SCRAM"],
        "listener.name.plain.sasl.enabled.mechanisms": MECHANISMS["PLAIN"],
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{LOGIN_MODULES}.scram.ScramLoginModule required;",
        "listener.name.plain.plain.sasl.jaas.config": (
            f'{LOGIN_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
    }


def add_user(port: int) -> None:
    """Give a server the SCRAM credential of USER, and wait until it has it. port: of its PLAINTEXT listener."""
    credential = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=USER, mechanism=SCRAM_SHA_512, iterations=ITERATIONS, salt=SALT, salted_password=SALTED
    )
    altered = ask(port, AlterUserScramCredentialsRequest(upsertions=[credential]), 0)
    assert isinstance(altered, AlterUserScramCredentialsResponse)
    if any(result.error_code for result in altered.results):
        raise UnexpectedAnswer(f"AlterUserScramCredentials: {altered.results}")
    user = DescribeUserScramCredentialsRequest.UserName(name=USER)
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        described = ask(port, DescribeUserScramCredentialsRequest(users=[user]), 0)
        assert isinstance(described, DescribeUserScramCredentialsResponse)
        if described.results and not described.results[0].error_code:
            return
        time.sleep(RETRY_S)
    raise TimeoutError(f"the credential of {USER} is not there within {TIMEOUT_S:g} s")


# A client.


def log_in(listener: str) -> Script:
    """Authenticate, if the listener asks for it."""
    mechanism = MECHANISMS.get(listener)
    if mechanism is None:
        return
    _check((yield frames.sasl_handshake(mechanism)), "SaslHandshake")
    dialogue = _scram() if listener == "SCRAM" else _plain()
    token = next(dialogue)
    while True:
        answer = yield frames.sasl_authenticate(token)
        _check(answer, "SaslAuthenticate")
        try:
            token = dialogue.send(frames.sasl_token(answer))
        except StopIteration:
            return


def _check(answer: bytes, request: str) -> None:
    if answer[8:10] != b"\0\0":
        raise UnexpectedAnswer(f"{request}: {answer.hex(' ')}")


def _plain() -> Generator[bytes, bytes, None]:
    yield f"\0{USER}\0{PASSWORD}".encode()


def _scram() -> Generator[bytes, bytes, None]:
    """SCRAM-SHA-512; believes the server's proof."""
    first = f"n={USER},r={secrets.token_urlsafe(18)}"
    challenge = (yield f"n,,{first}".encode()).decode()
    final = f"c=biws,{challenge.partition(',')[0]}"
    said = f"{first},{challenge},{final}".encode()
    key = hmac.digest(SALTED, b"Client Key", "sha512")
    signature = hmac.digest(sha512(key).digest(), said, "sha512")
    proof = bytes(one ^ other for one, other in zip(key, signature, strict=True))
    yield f"{final},p={b64encode(proof).decode()}".encode()
