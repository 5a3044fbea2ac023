"""An identity provider for tests: keys, the JWKS that has their public halves, and tokens."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

PRIVATE: dict[str, Any] = {}
"""The private keys, by name; made at first use, as an RSA key takes a while."""


def private_key(name: str) -> Any:
    """The private key of that name: rsa, another-rsa, short-rsa, ec, ed25519."""
    if name not in PRIVATE:
        if name == "ec":
            PRIVATE[name] = ec.generate_private_key(ec.SECP256R1())
        elif name == "ed25519":
            PRIVATE[name] = ed25519.Ed25519PrivateKey.generate()
        else:
            PRIVATE[name] = rsa.generate_private_key(65_537, 1_024 if name == "short-rsa" else 2_048)
    return PRIVATE[name]


def jwk(name: str, **members: object) -> dict[str, Any]:
    """The public half of a key, with a kid that is its name. members: others than usual; None leaves one out."""
    maker: Any = {"ec": ECAlgorithm, "ed25519": OKPAlgorithm}.get(name, RSAAlgorithm)
    found = {**json.loads(maker.to_jwk(private_key(name).public_key())), "kid": name, "use": "sig", **members}
    found.pop("key_ops", None)
    return {member: value for member, value in found.items() if value is not None}


def jwks(*keys: dict[str, Any]) -> bytes:
    """A JWKS of these keys."""
    return json.dumps({"keys": list(keys)}).encode()


def claims(**others: object) -> dict[str, object]:
    """The claims of alice's token, which lasts an hour from now. others: replace or add; None leaves one out."""
    now_s = int(time.time())
    found = {"sub": "alice", "iat": now_s, "exp": now_s + 3_600, **others}
    return {name: value for name, value in found.items() if value is not None}


def token(name: str = "rsa", algorithm: str = "RS256", *, kid: str | None = "", **others: object) -> str:
    """A token that a key has signed. kid: the name of the key unless another is given; None: none."""
    headers = {} if kid is None else {"kid": kid or name}
    return jwt.encode(claims(**others), private_key(name), algorithm, headers=headers)


def first_message(text: str, header: str = "n,,") -> bytes:
    """A client's first message with a token."""
    return f"{header}\x01auth=Bearer {text}\x01\x01".encode()
