"""The failures between a client and a cluster: no answer in time, or an error as answer.

House rule: a Kafka error inside a list of results is a value (`ErrorCode`); these exceptions mean that there is no
result at all.
"""

from __future__ import annotations

from schemas.errors import ErrorCode


class ClientError(Exception):
    """There is no result; `str()` of the error is one line for a person."""


class Unreachable(ClientError):
    """The client could not connect, lost the connection, or got no answer in time."""


class PortClosed(Unreachable):
    """Nothing listens at an address of this machine."""


class Unauthenticated(ClientError):
    """Client and server don't accept each other's certificate, password or token. Another try would end alike."""


class Refused(ClientError):
    """The server answered with an error.

    error_code: Kafka's code, from the response. reason: what the code alone doesn't say.
    """

    def __init__(self, error_code: int, what: str, reason: str = "") -> None:
        super().__init__(f"{what}: {error_name(error_code)}{reason and f': {reason}'}")
        self.error_code = error_code
        self.reason = reason


class OtherKind(Refused):
    """There is such a group, but of a kind for which the question has no answer, such as Kafka 4's share groups."""

    def __init__(self, group_id: str, kind: str, state: str) -> None:
        super().__init__(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, group_id)
        self.args = (f"group {group_id} is a {kind} group ({state}): this does not work for {kind} groups",)


def error_name(error_code: int) -> str:
    """Kafka's name of an error code, or its bare number if our table doesn't have it."""
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
