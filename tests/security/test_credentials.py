"""SCRAM users: their text, and what a stranger sees of one that isn't there."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter

import pytest

from coordinator.security.credentials import (
    BASE_36,
    DECOY_KEY,
    Users,
    credential_of,
    iterations_of,
    name_of,
    text_of,
)
from coordinator.security.sasl.scram import credential, salted

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
KEY = {DECOY_KEY: b64encode(b"key").decode()}
TOOL_SALT = b"1x2jcm4xlq9h2gzpsl0rr4kvya"


def text(mechanism: str, salt: bytes, iterations: int) -> str:
    """The text of a credential whose password doesn't matter."""
    return text_of(credential(mechanism, b"salted password", salt, iterations))


def test_text_gives_the_credential_back() -> None:
    """The text has neither password nor salted password."""
    made = credential(SHA_512, salted(SHA_512, "secret", b"salt", 4_096), b"salt", 4_096)
    assert credential_of(text_of(made)) == made
    assert "secret" not in text_of(made)


def test_users_are_found_by_mechanism_and_name() -> None:
    """Whatever the user's name, and in the texts of now."""
    texts = dict(KEY)
    users = Users(lambda: texts, b"")
    assert not users.find(SHA_256, "a/b c")[1]
    texts = texts | {name_of(SHA_256, name): text(SHA_256, name.encode(), 5_000) for name in ("a/b c", "ren\u00e9")}
    for name in ("a/b c", "ren\u00e9"):
        found, is_known = users.find(SHA_256, name)
        assert (found.salt, is_known) == (name.encode(), True)
        assert not users.find(SHA_512, name)[1]
    assert iterations_of(texts) == {"a/b c": {1: 5_000}, "ren\u00e9": {1: 5_000}}


def test_a_made_up_credential_stays() -> None:
    """A second look at a user that isn't there shows the same, after a restart too, and on each node."""
    first, second = (Users(lambda: KEY, fallback).find(SHA_256, "mallory")[0] for fallback in (b"one", b"another"))
    assert first == second
    assert first != Users(lambda: KEY, b"").find(SHA_256, "trudy")[0]
    assert first.salt != Users(lambda: KEY, b"").find(SHA_512, "mallory")[0].salt


def test_without_users_it_looks_as_kafkas_tools_make_it() -> None:
    """4,096 iterations, and a salt in base 36."""
    found, is_known = Users(lambda: KEY, b"").find(SHA_512, "mallory")
    assert (found.iterations, len(found.salt), is_known) == (4_096, 26, False)
    assert not found.salt.strip(BASE_36)


@pytest.mark.parametrize("salt", [TOOL_SALT, bytes(range(64))])
def test_with_one_user_it_looks_like_that_user(salt: bytes) -> None:
    """Neither iterations nor salt of a made-up credential differ in their form from those of the only user."""
    texts = {**KEY, name_of(SHA_256, "alice"): text(SHA_256, salt, 8_192)}
    found, _ = Users(lambda: texts, b"").find(SHA_256, "mallory")
    assert (found.iterations, len(found.salt)) == (8_192, len(salt))
    assert bool(found.salt.strip(BASE_36)) == bool(salt.strip(BASE_36))
    assert found.salt != salt


def test_made_up_credentials_are_of_the_users_kinds() -> None:
    """Each kind of user is also the form of names that aren't there; a further user changes few of them."""
    texts = dict(KEY)
    for number in range(300):
        iterations = 8_192 if number % 3 else 4_096
        texts[name_of(SHA_256, f"user-{number}")] = text(SHA_256, TOOL_SALT, iterations)
    users = Users(lambda: texts, b"")
    names = [f"nobody-{number}" for number in range(300)]
    before = {name: users.find(SHA_256, name)[0] for name in names}
    counts = Counter(found.iterations for found in before.values())
    assert 50 < counts[4_096] < 150
    texts = texts | {name_of(SHA_256, "further"): text(SHA_256, TOOL_SALT, 16_384)}
    changed = [name for name in names if users.find(SHA_256, name)[0] != before[name]]
    assert len(changed) < 20
