"""OAUTHBEARER: the client shows a token that an identity provider has signed (RFC 7628).

    n,,^Aauth=Bearer TOKEN^A^A  ->  an empty answer, or {"status":"invalid_token"}
    ^A                          ->  the failure, with the same words

The token is a JWT that one of the provider's keys has signed (`keys`). It has to have `exp`, `iat` and the name of the
user (`sub`, or sasl.oauthbearer.sub.claim.name), and `iss` and `aud` as the settings say. As in Kafka, a token with an
`aud` is refused where sasl.oauthbearer.expected.audience is empty. The session ends with the token.

House rule: clock and keys are handed in. No part of a token in an exception.
Source: Kafka's OAuthBearerSaslServer and ValidatorAccessTokenValidator, release 3.9.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from coordinator.security.sasl import NOTHING, AuthenticationFailed, Dialogue, Mechanism, Step
from coordinator.security.sasl.keys import Key, WrongSignature, payload

USER_MAX = 1_000
"""Characters of a user's name."""

TIME_MAX_S = 2**53
"""A time that is larger than this is no time."""

CHALLENGE = '{"status":"invalid_token"}'
CONTROL_A = b"\x01"
FIRST = re.compile(
    r"n,(?:a=((?:[\x01-\x2b\x2e-\x3c\x3e-\x7f\-]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
AUTH = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class Rules(NamedTuple):
    """The settings of a listener. audiences, issuer: empty if any will do. user_claim: has the user's name."""

    audiences: frozenset[str]
    issuer: str
    skew_ms: int
    user_claim: str


class Keys(Protocol):
    """The provider's keys as they are known now."""

    @property
    def keys(self) -> list[Key]:
        """See above."""

    def missed(self) -> None:
        """A token names a key that isn't there: perhaps there are new ones."""


def bearer_mechanism(rules: Rules, keys: Keys, wall_ms: Callable[[], int]) -> Mechanism:
    """The users whose tokens the keys of a provider have signed. wall_ms: Unix time."""
    return partial(_dialogue, rules, keys, wall_ms)


def _dialogue(rules: Rules, keys: Keys, wall_ms: Callable[[], int]) -> Dialogue:
    wanted, text = _read((yield NOTHING))
    try:
        user, ends_at_ms = _checked(_claims(text, keys), rules, wall_ms())
    except AuthenticationFailed as refused:
        reason = str(refused)
    else:
        if wanted not in {"", user}:
            told = (
                f"Authentication failed: Client requested an authorization id ({wanted}) that is different from the "
                f"token's principal name ({user})"
            )
            raise AuthenticationFailed("the client asks for another user's name", told)
        return Step(b"", user, ends_at_ms)
    token = yield Step(CHALLENGE.encode())
    raise AuthenticationFailed(reason, CHALLENGE if token == CONTROL_A else "")


def _claims(token: str, keys: Keys) -> dict[str, Any]:
    """The claims of a token that one of the keys has signed. Raises AuthenticationFailed."""
    try:
        said = json.loads(payload(token, keys.keys))
    except WrongSignature as error:
        if error.is_unknown:
            keys.missed()
        raise AuthenticationFailed(str(error)) from None
    except (ValueError, RecursionError):
        raise AuthenticationFailed("the token says nothing in JSON") from None
    if not isinstance(said, dict):
        raise AuthenticationFailed("the token says no claims")
    return said


def _read(message: bytes) -> tuple[str, str]:
    """The name that the client asks for, and its token. Raises AuthenticationFailed."""
    found = FIRST.fullmatch(message.decode(errors="replace"))
    if found is None:
        raise AuthenticationFailed("the first message is not as RFC 7628 has it")
    pairs = dict(pair.split("=", 1) for pair in found[2].split("\x01") if pair)
    auth = AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise AuthenticationFailed("the first message has no token")
    return found[1] or "", auth[2]


def _checked(said: dict[str, Any], rules: Rules, now_ms: int) -> tuple[str, int]:
    """User and end of a token with these claims. Raises AuthenticationFailed."""
    ends_at_ms, _ = _time_ms(said, "exp"), _time_ms(said, "iat")
    if now_ms - rules.skew_ms >= ends_at_ms:
        raise AuthenticationFailed("the token has expired")
    if "nbf" in said and now_ms + rules.skew_ms < _time_ms(said, "nbf"):
        raise AuthenticationFailed("the token isn't valid yet")
    if rules.issuer and said.get("iss") != rules.issuer:
        raise AuthenticationFailed("the token is of another issuer")
    audience = said.get("aud", [])
    audiences = audience if isinstance(audience, list) else [audience]
    if (rules.audiences or audiences) and not any(
        each in rules.audiences for each in audiences if isinstance(each, str)
    ):
        raise AuthenticationFailed("the token is for another audience")
    user = said.get(rules.user_claim)
    user = user.strip() if isinstance(user, str) else ""
    if not 0 < len(user) <= USER_MAX:
        raise AuthenticationFailed("the token names no user")
    return user, ends_at_ms


def _time_ms(said: dict[str, Any], claim: str) -> int:
    """A time that a token says. Raises AuthenticationFailed."""
    seconds = said.get(claim)
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < TIME_MAX_S:
        raise AuthenticationFailed(f"the token has no {claim} that is a time")
    return int(seconds * 1_000)
