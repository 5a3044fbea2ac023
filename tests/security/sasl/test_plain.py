"""PLAIN: name and password in one token."""

from __future__ import annotations

import pytest

from coordinator.security.sasl import AuthenticationFailed, Exchange, Step
from coordinator.security.sasl.plain import plain_mechanism

USERS = plain_mechanism({"alice": "secret", "ren\u00e9": "\u00fc", "nobody": ""})


@pytest.mark.parametrize("token", ["\0alice\0secret", "alice\0alice\0secret", "\0ren\u00e9\0\u00fc"])
def test_right_password(token: str) -> None:
    """The user is the name, also beyond ASCII; the client may ask for its own name."""
    assert Exchange(USERS).step(token.encode()) == Step(b"", token.split("\0")[1])


def test_unknown_user_and_wrong_password_fail_alike() -> None:
    """The words are the same."""
    texts = set()
    for token in (b"\0alice\0wrong", b"\0mallory\0secret", b"\0nobody\0x"):
        with pytest.raises(AuthenticationFailed) as raised:
            Exchange(USERS).step(token)
        texts.add(str(raised.value))
    assert len(texts) == 1


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0alice\0",
        b"\0\0secret",
        b"\0nobody\0",
        b"bob\0alice\0secret",
        b"\0alice\0secret\0",
        b"\xff\0a\0b",
    ],
)
def test_what_is_refused(token: bytes) -> None:
    """Empty parts, other counts of parts, another user's name, broken UTF-8; no text has the password."""
    with pytest.raises(AuthenticationFailed) as raised:
        Exchange(USERS).step(token)
    assert "secret" not in str(raised.value)


def test_dialogue_cut_at_each_byte_is_refused() -> None:
    """No shorter token lets anybody in."""
    token = b"\0alice\0secret"
    for size in range(len(token)):
        with pytest.raises(AuthenticationFailed):
            Exchange(USERS).step(token[:size])
