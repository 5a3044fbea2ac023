"""The client's side of SASL: it gets along with the server's side, and takes nothing from a server that can't prove."""

from __future__ import annotations

from base64 import b64encode

import pytest

from coordinator.security.sasl import AuthenticationFailed, Exchange, Mechanism
from coordinator.security.sasl.client import ITERATIONS_ACCEPTED_MAX, Dialogue, Untrusted, oauthbearer, plain, scram
from coordinator.security.sasl.plain import plain_mechanism
from coordinator.security.sasl.scram import DIGESTS, credential, salted, scram_mechanism

SALT = b"salt of sixteen!"
RFC_5802_NONCE = "rOprNGfwEbeRWgbNEkqO"


def server(mechanism: str, user: str, password: str) -> Mechanism:
    """The server's side, with this user."""
    known = credential(mechanism, salted(mechanism, password, SALT, 4_096), SALT, 4_096)
    return scram_mechanism(mechanism, lambda name: (known, name == user), lambda: "servers-nonce")


def talk(dialogue: Dialogue, exchange: Exchange) -> str | None:
    """Let both sides talk to the end; the user for whom the server takes the client."""
    token = next(dialogue)
    while True:
        step = exchange.step(token)
        try:
            token = dialogue.send(step.answer)
        except StopIteration:
            return step.user


@pytest.mark.parametrize("user", ["alice", "a,b=c"])
@pytest.mark.parametrize("mechanism", DIGESTS)
def test_scram_with_the_servers_side(mechanism: str, user: str) -> None:
    """The right password logs in, also a name with a comma and an equals sign; a wrong one doesn't."""
    users = server(mechanism, user, "pencil")
    assert talk(scram(mechanism, user, "pencil", RFC_5802_NONCE), Exchange(users)) == user
    with pytest.raises(AuthenticationFailed, match="wrong name or password"):
        talk(scram(mechanism, user, "pen", RFC_5802_NONCE), Exchange(users))


def test_scram_says_what_rfc_7677_says() -> None:
    """The messages of the example in RFC 7677, section 3."""
    dialogue = scram("SCRAM-SHA-256", "user", "pencil", RFC_5802_NONCE)
    assert next(dialogue) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = dialogue.send(b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        dialogue.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "signature", [b"", b"v=", b"v=" + b64encode(bytes(32)), b"e=other-error", b"\xff"], ids=["-", "v", "0", "e", "ff"]
)
def test_server_without_the_keys_is_not_trusted(signature: bytes) -> None:
    """A server that can't sign the dialogue gets nothing more."""
    dialogue = scram("SCRAM-SHA-256", "alice", "pencil", "n")
    next(dialogue)
    dialogue.send(f"r=nmore,s={b64encode(SALT).decode()},i=4096".encode())
    with pytest.raises(Untrusted, match="SCRAM-SHA-256: the server"):
        dialogue.send(signature)


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        ("r=other,s=c2FsdA==,i=4096", "not as RFC 5802"),
        ("r=n,s=c2FsdA==,i=4096", "not as RFC 5802"),
        ("r=nmore,s=c2FsdA==", "not as RFC 5802"),
        ("r=nmore,s=c2FsdA,i=4096", "broken base64"),
        ("m=x,r=nmore,s=c2FsdA==,i=4096", "not as RFC 5802"),
        ("r=nmore,s=c2FsdA==,i=1", "asks for 1 iterations"),
        (f"r=nmore,s=c2FsdA==,i={ITERATIONS_ACCEPTED_MAX + 1}", "iterations; 4096 to 1000000"),
    ],
)
def test_challenges_that_a_client_refuses(challenge: str, why: str) -> None:
    """Another nonce, the client's nonce alone, a lack, and iterations so few or so many that the server means harm."""
    dialogue = scram("SCRAM-SHA-512", "alice", "pencil", "n")
    next(dialogue)
    with pytest.raises(Untrusted, match=why):
        dialogue.send(challenge.encode())


def test_plain_with_the_servers_side() -> None:
    """Name and password, in one token."""
    assert talk(plain("alice", "s\u00e4cret"), Exchange(plain_mechanism({"alice": "s\u00e4cret"}))) == "alice"


def test_oauthbearer_says_token_and_extensions() -> None:
    """One token; an empty answer means that the server takes it."""
    dialogue = oauthbearer("abc.def.", {"logicalCluster": "x"})
    assert next(dialogue) == b"n,,\1auth=Bearer abc.def.\1logicalCluster=x\1\1"
    with pytest.raises(StopIteration):
        dialogue.send(b"")


def test_oauthbearer_shows_the_servers_refusal() -> None:
    """After the server's reason the client sends one byte, then the reason is the error."""
    dialogue = oauthbearer("t", {})
    next(dialogue)
    assert dialogue.send(b'{"status":"invalid_token"}') == b"\1"
    with pytest.raises(Untrusted, match="invalid_token"):
        dialogue.send(b"")
