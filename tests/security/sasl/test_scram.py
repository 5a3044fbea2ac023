"""SCRAM: the vectors of RFC 5802's successors, and what is refused."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from hashlib import new

import pytest

from coordinator.security.sasl import AuthenticationFailed, Exchange, Mechanism, Step
from coordinator.security.sasl.scram import DIGESTS, Credential, credential, decoy, prepared, salted, scram_mechanism

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
OURS = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
THEIRS = "rOprNGfwEbeRWgbNEkqO"
FIRST = f"n,,n=user,r={THEIRS}"


def mechanism(name: str = "SCRAM-SHA-256", user: str = "user") -> Mechanism:
    """A mechanism with one user, whose password is pencil."""
    known = {user: credential(name, salted(name, "pencil", SALT, 4_096), SALT, 4_096)}

    def find(user: str) -> tuple[Credential, bool]:
        return (known[user], True) if user in known else (decoy(name, b"salt of " + user.encode(), 4_096), False)

    return scram_mechanism(name, find, lambda: OURS)


def client_final(name: str, bare: str, answer: str, middle: str, password: str = "pencil") -> bytes:
    """A client's last message. bare: its first one without the header."""
    fields = dict(part.split("=", 1) for part in answer.split(","))
    digest = DIGESTS[name]
    salted_password = salted(name, password, b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    signature = hmac.digest(new(digest, client_key).digest(), f"{bare},{answer},{middle}".encode(), digest)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{middle},p={b64encode(proof).decode()}".encode()


def test_vector_of_rfc_7677() -> None:
    """The dialogue of RFC 7677, byte for byte."""
    exchange = Exchange(mechanism())
    assert exchange.step(FIRST.encode()) == Step(f"r={THEIRS}{OURS},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    last = f"c=biws,r={THEIRS}{OURS},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert exchange.step(last.encode()) == Step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")
    with pytest.raises(AuthenticationFailed):
        exchange.step(last.encode())


@pytest.mark.parametrize("name", DIGESTS)
@pytest.mark.parametrize("user, sent", [("user", "user"), ("a,b=c", "a=2Cb=3Dc"), ("ren\u00e9", "rene\u0301")])
@pytest.mark.parametrize("header, binding", [("n,,", "biws"), ("y,,", "eSws"), ("n,a={},", None)])
def test_names_and_headers(name: str, user: str, sent: str, header: str, binding: str | None) -> None:
    """Escaped names and names beyond ASCII log in, with any header that asks for no channel binding."""
    header = header.format(sent)
    exchange = Exchange(mechanism(name, user))
    bare = f"n={sent},r={THEIRS}"
    answer = exchange.step(f"{header}{bare}".encode()).answer.decode()
    middle = f"c={binding or b64encode(header.encode()).decode()},r={THEIRS}{OURS}"
    assert exchange.step(client_final(name, bare, answer, middle)).user == user


def last_of(user: str, password: str, middle: str = f"c=biws,r={THEIRS}{OURS}") -> str:
    """The reason for which a last message is refused."""
    exchange = Exchange(mechanism())
    bare = f"n={user},r={THEIRS}"
    answer = exchange.step(f"n,,{bare}".encode()).answer.decode()
    with pytest.raises(AuthenticationFailed) as raised:
        exchange.step(client_final("SCRAM-SHA-256", bare, answer, middle, password))
    return str(raised.value)


def test_unknown_user_fails_as_a_wrong_password() -> None:
    """The first message is answered; it fails with the last message, in the same words."""
    answers = [
        Exchange(mechanism()).step(f"n,,n={user},r={THEIRS}".encode()).answer for user in ("eve", "eve", "mallory")
    ]
    assert answers[0] == answers[1] != answers[2]
    assert last_of("eve", "pencil") == last_of("user", "wrong")


@pytest.mark.parametrize(
    "middle",
    [
        f"c=eSws,r={THEIRS}{OURS}",
        f"c=biws,r={THEIRS}",
        f"c=biws,r={THEIRS}{OURS}x",
        f"c=biws,r={THEIRS}{OURS},m=new",
        f"c=b,r={THEIRS}{OURS}",
    ],
)
def test_last_message_with_a_right_proof_is_refused(middle: str) -> None:
    """Another channel binding, another nonce, a mandatory extension, broken base64: refused before the proof."""
    assert "password" not in last_of("user", "pencil", middle)


@pytest.mark.parametrize(
    "first",
    [
        "",
        "p=tls-unique,,n=user,r=x",
        "n,,m=new,n=user,r=x",
        "n,a=other,n=user,r=x",
        "n,,n=us=er,r=x",
        "n,,n=user,r=",
        "n,,n=,r=x",
        "n,,n=a\u0007\u00e9,r=x",
        "n,,n=user,r=" + "x" * 5_000,
        "\ud800",
    ],
)
def test_first_message_that_is_refused(first: str) -> None:
    """Channel binding, extensions, another user's name, broken names, long messages; then the exchange is over."""
    exchange = Exchange(mechanism())
    with pytest.raises(AuthenticationFailed):
        exchange.step(first.encode("utf-8", "surrogatepass"))
    with pytest.raises(AuthenticationFailed, match="over"):
        exchange.step(FIRST.encode())


def test_the_clients_part_of_the_nonce_may_stand_twice() -> None:
    """librdkafka 2.0 (kcat of Debian 12) sends it so, and Kafka looks at the server's part alone."""
    exchange = Exchange(mechanism())
    bare = f"n=user,r={THEIRS}"
    answer = exchange.step(f"n,,{bare}".encode()).answer.decode()
    last = client_final("SCRAM-SHA-256", bare, answer, f"c=biws,r={THEIRS}{THEIRS}{OURS}")
    assert exchange.step(last).user == "user"


def test_dialogue_cut_at_each_byte_is_refused() -> None:
    """No shorter last message lets anybody in."""
    bare = f"n=user,r={THEIRS}"
    answer = Exchange(mechanism()).step(FIRST.encode()).answer.decode()
    last = client_final("SCRAM-SHA-256", bare, answer, f"c=biws,r={THEIRS}{OURS}")
    for size in range(len(last)):
        exchange = Exchange(mechanism())
        exchange.step(FIRST.encode())
        with pytest.raises(AuthenticationFailed):
            exchange.step(last[:size])


def test_no_key_is_shown() -> None:
    """The text of a credential, as a log line would have it, has no key."""
    assert repr(Credential(b"s", b"stored", b"server", 4_096)) == "Credential(iterations=4096)"


def test_nothing_is_left_of_a_name() -> None:
    """A name that SASLprep maps to nothing is none."""
    with pytest.raises(ValueError, match="nothing"):
        prepared("\u00ad")
