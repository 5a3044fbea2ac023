"""What the errors of broken bytes tell."""

from __future__ import annotations

from protocol.errors import ProtocolError, UnknownApi, UnsupportedVersion


def test_errors_of_broken_bytes_are_one_family() -> None:
    """One `except ProtocolError` closes the connection in every case; as a ValueError it is nothing exotic."""
    assert issubclass(ProtocolError, ValueError)
    assert issubclass(UnknownApi, ProtocolError)
    assert issubclass(UnsupportedVersion, ProtocolError)


def test_unknown_api_says_which() -> None:
    """The log line and the caller learn the key."""
    error = UnknownApi(99)
    assert (error.api_key, str(error)) == (99, "unknown API key 99")


def test_unsupported_version_says_which() -> None:
    """The log line and the caller learn API and version."""
    error = UnsupportedVersion("JoinGroup", 11, 10)
    assert (error.name, error.api_key, error.version, str(error)) == (
        "JoinGroup",
        11,
        10,
        "JoinGroup has no version 10",
    )
