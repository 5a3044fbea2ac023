"""Credentials as text."""

from __future__ import annotations

from coordinator.security.credentials import credentials_of, name_of, text_of
from coordinator.security.sasl.scram import credential, salted


def test_text_gives_the_credential_back() -> None:
    """Whatever the user's name; the text has neither password nor salted password."""
    made = credential("SCRAM-SHA-512", salted("SCRAM-SHA-512", "secret", b"salt", 4_096), b"salt", 4_096)
    names = ["alice", "a/b c", "ren\u00e9"]
    found = credentials_of({name_of("SCRAM-SHA-512", name): text_of(made) for name in names})
    assert found == {"SCRAM-SHA-256": {}, "SCRAM-SHA-512": dict.fromkeys(names, made)}
    assert "secret" not in text_of(made)
