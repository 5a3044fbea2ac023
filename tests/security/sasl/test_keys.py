"""Keys of a JWKS, and signatures: which keys count, and what no token can choose."""

from __future__ import annotations

import base64
import json

import jwt
import pytest

from coordinator.security.sasl.keys import KEYS_MAX, WrongSignature, keys_of, payload
from tests.support.tokens import claims, jwk, jwks, private_key, token

ALL = keys_of(jwks(jwk("rsa"), jwk("another-rsa"), jwk("ec"), jwk("ed25519")))


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("rsa", "RS256"),
        ("rsa", "RS512"),
        ("rsa", "PS384"),
        ("another-rsa", "RS256"),
        ("ec", "ES256"),
        ("ed25519", "EdDSA"),
    ],
)
@pytest.mark.parametrize("kid", ["", None])
def test_a_signature_is_checked_by_its_key(name: str, algorithm: str, kid: str | None) -> None:
    """By the key that the token names; without a name by any that fits."""
    assert json.loads(payload(token(name, algorithm, kid=kid), ALL))["sub"] == "alice"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no signed token"),
        ("a.b", "no signed token"),
        ("a.b.c", "no signed token"),
        (token(kid="other"), "no key has the name"),
        (token("another-rsa", kid="rsa"), "the signature is wrong"),
        (token("ec", "ES256", kid="rsa"), "no key is for the token's algorithm"),
        (token()[:-8] + "AAAAAAAA", "the signature is wrong"),
        (jwt.encode(claims(), "", "none"), "no key is for the token's algorithm"),
        (jwt.encode(claims(), "x" * 32, "HS256", headers={"kid": "rsa"}), "no key is for the token's algorithm"),
        (jwt.encode(claims(), private_key("rsa"), "RS256", headers={"crit": ["exp"]}), "no signed|an extension"),
    ],
)
def test_other_tokens_are_refused(text: str, problem: str) -> None:
    """Unsigned ones, symmetric ones, those of strangers, those that were changed."""
    with pytest.raises(WrongSignature, match=problem) as raised:
        payload(text, ALL)
    assert raised.value.is_unknown == ("no key has" in problem)


def test_a_public_key_is_no_secret_of_hmac() -> None:
    """A token signed by HMAC with the public key as the secret is refused."""
    public = base64.urlsafe_b64encode(json.dumps(jwk("rsa")).encode()).decode()
    forged = jwt.encode(claims(), public, "HS256", headers={"kid": "rsa"})
    with pytest.raises(WrongSignature):
        payload(forged, ALL)


@pytest.mark.parametrize(
    "row",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        jwk("short-rsa"),
        jwk("rsa", use="enc"),
        jwk("rsa", alg="HS256"),
        jwk("rsa", alg=5),
        jwk("rsa", n=5),
        jwk("rsa", n=None),
        jwk("rsa", kid=5),
        jwk("ec", crv="secp256k1"),
        jwk("ec", crv=5),
        jwk("ec", x="AAAA"),
        {"kty": ["RSA"]},
        {},
        "key",
    ],
)
def test_keys_that_can_not_check_are_left_out(row: object) -> None:
    """Alone they are no JWKS; beside a good one they don't matter."""
    with pytest.raises(ValueError, match="no key that can check"):
        keys_of(json.dumps({"keys": [row]}).encode())
    assert [key.name for key in keys_of(json.dumps({"keys": [row, jwk("ec")]}).encode())] == ["ec"]


def test_a_key_is_for_the_algorithm_that_it_names() -> None:
    """A key with `alg` checks no other."""
    keys = keys_of(jwks(jwk("rsa", alg="RS512")))
    assert payload(token(algorithm="RS512"), keys)
    with pytest.raises(WrongSignature, match="no key is for"):
        payload(token(algorithm="RS256"), keys)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no list of keys"),
        (b'{"keys": {}}', "no list of keys"),
        (jwks(*[{}] * (KEYS_MAX + 1)), f"more than {KEYS_MAX} keys"),
        (jwks(), "no key"),
    ],
)
def test_what_is_no_jwks(text: bytes, problem: str) -> None:
    """The problem is named."""
    with pytest.raises(ValueError, match=problem):
        keys_of(text)
