"""What can be wrong with bytes.

Every error here means that the other end (or the disk) broke the rules of the format: a connection is closed with one
log line, a partition is refused. It never means that a request was refused; for that Kafka has error codes
(`schemas.errors`).

House rule: decoding raises these and nothing else, whatever the bytes are. A message of ours that can't be encoded is a
mistake in the program and raises AssertionError instead.
"""

from __future__ import annotations


class ProtocolError(ValueError):
    """Bytes that are not what the format says: cut short, an absurd length, null where a value is mandatory."""


class UnknownApi(ProtocolError):
    """A request with an API key that no schema describes."""

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
