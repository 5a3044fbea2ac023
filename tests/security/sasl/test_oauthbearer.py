"""OAUTHBEARER: tokens that count, those that don't, and the two steps of a refusal."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coordinator.security.sasl import AuthenticationFailed, Exchange, Mechanism, Step
from coordinator.security.sasl.keys import Key, keys_of
from coordinator.security.sasl.oauthbearer import CHALLENGE, CONTROL_A, USER_MAX, Rules, bearer_mechanism
from tests.support.tokens import first_message, jwk, jwks, token

RULES = Rules(frozenset(), "", 30_000, "sub")


class Provider:
    """Keys, and how often one was missed."""

    def __init__(self) -> None:
        self.keys: list[Key] = keys_of(jwks(jwk("rsa")))
        self.misses = 0

    def missed(self) -> None:
        """As Keys."""
        self.misses += 1


def bearer(rules: Rules = RULES, provider: Provider | None = None) -> Mechanism:
    """The mechanism, at the time of now."""
    return bearer_mechanism(rules, provider or Provider(), lambda: int(time.time() * 1_000))


def refused(text: str, rules: Rules = RULES) -> str:
    """Why a token is refused, after both steps."""
    exchange = Exchange(bearer(rules))
    assert exchange.step(first_message(text)) == Step(CHALLENGE.encode())
    with pytest.raises(AuthenticationFailed) as raised:
        exchange.step(CONTROL_A)
    assert raised.value.told == CHALLENGE
    return str(raised.value)


def test_the_token_says_who_and_how_long() -> None:
    """User and end of the session are its claims."""
    now_s = int(time.time())
    found = Exchange(bearer()).step(first_message(token(sub=" alice ", exp=now_s + 60)))
    assert found == Step(b"", "alice", (now_s + 60) * 1_000)


@pytest.mark.parametrize(
    "message",
    [
        first_message(token(), "n,a=alice,"),
        b"n,,\x01traceId=7\x01auth=bearer  %b\x01\x01" % token().encode(),
        b"n,,\x01auth=Bearer %b\x01logicalCluster=lkc-1\x01\x01" % token().encode(),
    ],
)
def test_forms_of_the_first_message(message: bytes) -> None:
    """The own name, extensions, and the scheme in small letters."""
    assert Exchange(bearer()).step(message).user == "alice"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\xff\xff",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic YTpi\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,auth=Bearer x\x01\x01",
    ],
)
def test_other_first_messages_are_refused_at_once(message: bytes) -> None:
    """Without a challenge, in general words."""
    with pytest.raises(AuthenticationFailed) as raised:
        Exchange(bearer()).step(message)
    assert raised.value.told == ""


def test_a_refusal_without_a_reason_lets_nobody_in() -> None:
    """A token that the keys refuse gets the challenge and no user, even if the refusal has no words."""

    class Wordless(Provider):
        def missed(self) -> None:
            raise AuthenticationFailed("")

    unknown = first_message(token(kid="unknown"))
    assert Exchange(bearer(provider=Wordless())).step(unknown) == Step(CHALLENGE.encode())


def test_nobody_gets_another_users_name() -> None:
    """Kafka's words name both."""
    with pytest.raises(AuthenticationFailed) as raised:
        Exchange(bearer()).step(first_message(token(), "n,a=bob,"))
    assert raised.value.told.endswith("id (bob) that is different from the token's principal name (alice)")


NOW_S = int(time.time())


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "no exp"),
        ({"exp": "tomorrow"}, "no exp"),
        ({"exp": True}, "no exp"),
        ({"exp": 1e300}, "no exp"),
        ({"iat": None}, "no iat"),
        ({"iat": -1}, "no iat"),
        ({"nbf": NOW_S + 600}, "isn't valid yet"),
        ({"sub": None}, "names no user"),
        ({"sub": "  "}, "names no user"),
        ({"sub": 7}, "names no user"),
        ({"sub": "x" * (USER_MAX + 1)}, "names no user"),
        ({"aud": "kafka"}, "another audience"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], problem: str) -> None:
    """The client gets invalid_token, the log gets why."""
    if "nbf" in claims:
        claims = {"nbf": int(time.time()) + 600}
    assert problem in refused(token(**claims))


def test_clocks_may_differ() -> None:
    """By the skew: an end or a beginning that is so near counts."""
    now_s = int(time.time())
    near = token(exp=now_s - 5, nbf=now_s + 25)
    assert Exchange(bearer()).step(first_message(near)).user == "alice"
    assert "expired" in refused(near, RULES._replace(skew_ms=0))


@pytest.mark.parametrize(
    ("rules", "good", "bad"),
    [
        (RULES._replace(issuer="https://idp"), {"iss": "https://idp"}, {"iss": "https://idp/"}),
        (RULES._replace(issuer="https://idp"), {"iss": "https://idp"}, {}),
        (RULES._replace(audiences=frozenset({"kafka", "tenure"})), {"aud": ["x", "tenure"]}, {"aud": ["x", 7]}),
        (RULES._replace(audiences=frozenset({"kafka"})), {"aud": "kafka"}, {}),
        (RULES._replace(user_claim="client_id"), {"client_id": "alice", "sub": None}, {"client_id": ""}),
    ],
)
def test_rules(rules: Rules, good: dict[str, Any], bad: dict[str, Any]) -> None:
    """Issuer, audience and the user's claim are the settings'."""
    assert Exchange(bearer(rules)).step(first_message(token(**good))).user == "alice"
    refused(token(**bad), rules)


def test_a_key_that_is_missing_is_asked_for() -> None:
    """A new key may have been published; the client has to come again."""
    provider = Provider()
    Exchange(bearer(provider=provider)).step(first_message(token("another-rsa")))
    assert provider.misses == 1
    Exchange(bearer(provider=provider)).step(first_message(token("another-rsa", kid="rsa")))
    assert provider.misses == 1


def test_the_second_step_of_a_refusal_is_the_last() -> None:
    """Whatever comes in it: another token, even a good one, doesn't count."""
    exchange = Exchange(bearer())
    exchange.step(first_message("x.y.z"))
    with pytest.raises(AuthenticationFailed) as raised:
        exchange.step(first_message(token()))
    assert raised.value.told == ""
