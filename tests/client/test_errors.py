"""How errors are named."""

from __future__ import annotations

from coordinator.client.errors import Refused, error_name


def test_error_codes_have_kafkas_names() -> None:
    """A person reads the name, a number only where our table is older than the server."""
    assert error_name(82) == "FENCED_INSTANCE_ID"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
    assert error_name(30_000) == "error 30000"


def test_refusal_says_what_was_refused() -> None:
    """One line with both; the code stays for the program."""
    refused = Refused(68, "group 'g'")
    assert str(refused) == "group 'g': NON_EMPTY_GROUP"
    assert refused.error_code == 68
