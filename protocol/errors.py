"""Errors of bytes that break the rules of the format.

The other end, or the disk, broke them: the server closes the connection with one log line, or refuses the partition. A
request that the server refuses is none of these; Kafka has error codes for that (`schemas.errors`).

House rule: decoding raises these and nothing else, whatever the bytes are. Encoding raises TooLarge if a request makes
its answer too large. Another message of ours that can't be encoded is a mistake in the program: AssertionError.
"""

from __future__ import annotations


class ProtocolError(ValueError):
    """Bytes that are not what the format says: cut short, an absurd length, null where a value is mandatory."""


class UnknownApi(ProtocolError):
    """A request with an API key that no schema describes, or that the server has no handler for."""

    def __init__(self, api_key: int) -> None:
        super().__init__(f"unknown API key {api_key}")
        self.api_key = api_key


class UnsupportedVersion(ProtocolError):
    """A message in a version that its schema doesn't describe.

    name: the message or API, "JoinGroup". api_key: None for a record.
    """

    def __init__(self, name: str, api_key: int | None, version: int) -> None:
        super().__init__(f"{name} has no version {version}")
        self.name = name
        self.api_key = api_key
        self.version = version


class TooLarge(ProtocolError):
    """An answer that nobody would take: its request asks for too much at once."""
