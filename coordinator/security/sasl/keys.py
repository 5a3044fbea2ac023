"""The keys that sign tokens, from a JWKS (RFC 7517), and the check of a signature.

A key is for the algorithms of its kind: RSA for RS256 to PS512, elliptic curves for ES256 to ES512 by the curve,
Ed25519 for EdDSA. If the key names an algorithm, for that one alone. Symmetric keys and short RSA keys are left out, so
no token's header can choose HMAC, or `none`.

House rule: what a token says counts only behind its signature; its header only chooses among these keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from jwt.algorithms import AllowedPublicKeys, ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.api_jws import PyJWS
from jwt.exceptions import PyJWTError

KEYS_MAX = 100
"""Keys of one JWKS. Identity providers have a handful."""

TRIES_MAX = 5
"""Keys that are tried for a token that names none."""

RSA_BITS_MIN = 2_048

RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
ALGORITHMS_OF_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
PUBLIC_PARTS = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}
"""The members of a public key, by its type. Those of a private one are never read."""

MAKERS: Mapping[str, Any] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}


class Key(NamedTuple):
    """A public key. name: its kid, "" if it has none. algorithms: those that it may check."""

    name: str
    algorithms: frozenset[str]
    public: AllowedPublicKeys


class WrongSignature(Exception):
    """A token isn't signed by any of the keys; the text says why. is_unknown: it names a key that isn't there."""

    def __init__(self, reason: str, *, is_unknown: bool = False) -> None:
        super().__init__(reason)
        self.is_unknown = is_unknown


def keys_of(text: bytes) -> list[Key]:
    """The keys of a JWKS that are fit to check signatures. Raises ValueError if there is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is no JSON") from error
    rows = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise ValueError("it has no list of keys")  # noqa: TRY004 - as all faults of the text
    if len(rows) > KEYS_MAX:
        raise ValueError(f"it has more than {KEYS_MAX} keys")
    keys = [key for row in rows if isinstance(row, dict) and (key := _key_of(row)) is not None]
    if not keys:
        raise ValueError("it has no key that can check a signature")
    return keys


def _key_of(row: Mapping[str, Any]) -> Key | None:
    """A key; None if it is for something else."""
    kind, name = row.get("kty"), row.get("kid", "")
    if (
        not isinstance(kind, str)
        or kind not in PUBLIC_PARTS
        or row.get("use", "sig") != "sig"
        or not isinstance(name, str)
    ):
        return None
    try:
        public: Any = MAKERS[kind].from_jwk({part: row[part] for part in PUBLIC_PARTS[kind]})
    except (PyJWTError, KeyError, TypeError, ValueError):
        return None
    if kind == "RSA":
        allowed = RSA_ALGORITHMS if public.key_size >= RSA_BITS_MIN else frozenset[str]()
    else:
        allowed = frozenset({ALGORITHMS_OF_CURVES.get(row["crv"], "")})
    if "alg" in row:
        allowed &= {row["alg"]} if isinstance(row["alg"], str) else frozenset[str]()
    allowed -= {""}
    return Key(name, allowed, public) if allowed else None


def payload(token: str, keys: list[Key]) -> bytes:
    """The claims of a token, once one of the keys has checked its signature. Raises WrongSignature."""
    try:
        header = PyJWS().get_unverified_header(token)
    except (PyJWTError, ValueError, RecursionError) as error:
        raise WrongSignature("the token is no signed token") from error
    algorithm, name = header.get("alg"), header.get("kid")
    if "crit" in header:  # PyJWT refuses it too, from release 2.12 on
        raise WrongSignature("the token demands an extension")
    if not isinstance(algorithm, str) or not isinstance(name, str | None):
        raise WrongSignature("the token's header has a field of another type")
    named = [key for key in keys if name in {None, key.name}]
    if not named:
        raise WrongSignature("no key has the name that the token gives", is_unknown=True)
    fit = [key for key in named if algorithm in key.algorithms]
    if not fit:
        raise WrongSignature("no key is for the token's algorithm")
    for key in fit[:TRIES_MAX]:
        try:
            return bytes(PyJWS().decode(token, key.public, algorithms=[algorithm]))
        except (PyJWTError, ValueError):
            continue
    raise WrongSignature("the signature is wrong")
