"""The errors about damaged bytes, and their texts."""

from __future__ import annotations

from protocol.errors import ProtocolError, UnknownApi, UnsupportedVersion


def test_errors_of_broken_bytes_are_one_family() -> None:
    """All errors are ProtocolErrors, so one `except` closes the connection; a ProtocolError is a ValueError."""
    assert issubclass(ProtocolError, ValueError)
    assert issubclass(UnknownApi, ProtocolError)
    assert issubclass(UnsupportedVersion, ProtocolError)


def test_unknown_api_says_which() -> None:
    """The error has the unknown API key, also in its text for the log."""
    error = UnknownApi(99)
    assert (error.api_key, str(error)) == (99, "unknown API key 99")


def test_unsupported_version_says_which() -> None:
    """The error has API and version, also in its text for the log."""
    error = UnsupportedVersion("JoinGroup", 11, 10)
    assert (error.name, error.api_key, error.version, str(error)) == (
        "JoinGroup",
        11,
        10,
        "JoinGroup has no version 10",
    )
