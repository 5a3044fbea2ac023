"""Errors have names."""

from __future__ import annotations

from coordinator.client.errors import Refused, error_name


def test_error_codes_have_kafkas_names() -> None:
    """A person sees the name, or a number if our table doesn't have the code."""
    assert error_name(82) == "FENCED_INSTANCE_ID"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
    assert error_name(30_000) == "error 30000"


def test_refusal_says_what_was_refused() -> None:
    """The message names the request and the error in one line; a program reads the code."""
    refused = Refused(68, "group 'g'")
    assert str(refused) == "group 'g': NON_EMPTY_GROUP"
    assert refused.error_code == 68
