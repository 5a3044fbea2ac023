"""What can go wrong between a client and a cluster: nobody answers in time, or the answer is no.

House rule: a Kafka error inside a list of results is a value (`ErrorCode`); these are for what leaves no result at all.
"""

from __future__ import annotations

from schemas.errors import ErrorCode


class ClientError(Exception):
    """No result; `str()` of it is one line for a person."""


class Unreachable(ClientError):
    """The connection failed, was lost, or no answer came in time."""


class Refused(ClientError):
    """The server answered with an error.

    error_code: Kafka's, as it stood in the response.
    """

    def __init__(self, error_code: int, what: str) -> None:
        super().__init__(f"{what}: {error_name(error_code)}")
        self.error_code = error_code


def error_name(error_code: int) -> str:
    """Kafka's name of an error code, or the bare number of one that is newer than our table."""
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
