"""Users of SCRAM on a running server: list them, give them credentials, take these away (KIP-554).

A password never leaves this process: the server gets the salted form.

House rule: one mechanism in a request, since servers take each user once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.client.client import Client
from protocol.messages import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import AlterUserScramCredentialsResponse, DescribeUserScramCredentialsResponse


def users_of(client: Client) -> dict[str, dict[int, int]]:
    """The iterations by user and number of the mechanism, sorted. Raises `Refused`."""
    response: DescribeUserScramCredentialsResponse = client.request(DescribeUserScramCredentialsRequest(users=None))
    if response.error_code:
        raise client.refused(response.error_code, "the users", DescribeUserScramCredentialsRequest)
    return {
        each.user: {info.mechanism: info.iterations for info in each.credential_infos}
        for each in sorted(response.results, key=lambda result: result.user)
    }


def set_credential(
    client: Client, user: str, mechanism: int, *, salt: bytes, salted_password: bytes, iterations: int
) -> None:
    """Let a user log in by a mechanism. Raises `Refused`."""
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted_password
    )
    error = _altered(client, AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    if error:
        raise client.refused(error, f"user {user!r}", AlterUserScramCredentialsRequest)


def remove_credential(client: Client, user: str, mechanism: int) -> bool:
    """Take a mechanism from a user; False if it hadn't got it. Raises `Refused`."""
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=user, mechanism=mechanism)
    error = _altered(client, AlterUserScramCredentialsRequest(deletions=[deletion]))
    if error not in {ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND}:
        raise client.refused(error, f"user {user!r}", AlterUserScramCredentialsRequest)
    return not error


def _altered(client: Client, request: AlterUserScramCredentialsRequest) -> int:
    """The error code of a request about one user."""
    response: AlterUserScramCredentialsResponse = client.request(request)
    return next((each.error_code for each in response.results), ErrorCode.UNKNOWN_SERVER_ERROR)
