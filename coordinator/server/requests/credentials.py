"""Requests about the credentials of SCRAM, and requests of SASL that come where none is due.

The list of topics keeps the credentials (`nodes.topics.CREDENTIALS`), so they last and reach all workers. A change
counts from the next login on: who has logged in stays, as on Kafka, until its session ends.

The requests of clients that have to authenticate come to `wire.authentication`. Those here come from others: on a
listener without SASL, or from clients that have authenticated. Kafka refuses them too, and leaves the connection open.

House rule: no error message quotes what a client sent as salt or password. Source: Kafka's ScramControlManager and
ScramImage, release 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from coordinator.log.topics.list import CREDENTIALS
from coordinator.security.acls import Kind, Operation
from coordinator.security.credentials import MECHANISMS, iterations_of, name_of, text_of
from coordinator.security.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential, prepared
from coordinator.server.nodes.topics import Altered, Change
from coordinator.server.requests.many import answer_changed
from coordinator.server.requests.rights import NOT_ALLOWED, may
from coordinator.server.wire.call import Call, Steps, count
from coordinator.text import cut_text
from protocol.messages import (
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from protocol.messages import (
        AlterUserScramCredentialsRequest,
        DescribeUserScramCredentialsRequest,
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
    )

USER_MAX = 255
"""Characters of a user's name. Kafka has no limit; RFC 4616 has this one for PLAIN."""

SALT_MAX = 1_024
"""Bytes of a salt. Kafka has no limit; its tools make 26, librdkafka 64."""

CREDENTIALS_MAX = 50_000
"""Credentials in all: each change writes them all to disk, and they are held in memory."""

# SASL where none is due.


def handshake(call: Call, request: SaslHandshakeRequest) -> None:  # noqa: ARG001 - as all handlers
    """SaslHandshake: there is nothing to authenticate for."""
    call.answer(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def authenticate(call: Call, request: SaslAuthenticateRequest) -> None:  # noqa: ARG001 - as above
    """SaslAuthenticate: as SaslHandshake."""
    text = "SaslAuthenticate request received after successful authentication"
    call.answer(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text))


# Credentials.


def describe_user_scram_credentials(call: Call, request: DescribeUserScramCredentialsRequest) -> Steps:
    """DescribeUserScramCredentials (KIP-554): mechanisms and iterations, of named users or of all."""
    body = DescribeUserScramCredentialsResponse()
    if not may(call, Operation.DESCRIBE, Kind.CLUSTER):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        body.error_code, body.error_message = error, NOT_ALLOWED
        for _ in request.users or ():
            body.results.append(
                DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(
                    error_code=error, error_message=NOT_ALLOWED
                )
            )
            yield
        call.answer(body)
        return
    known = iterations_of(call.services.discovery.topics.entry(CREDENTIALS).configs)
    yield
    counts = yield from count(asked.name for asked in request.users or ())
    for user in counts or known:
        result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(user=user)
        found = known.get(_kept_name(user))
        if counts.get(user, 0) > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            text = "Cannot describe SCRAM credentials for the same user twice in a single request: "
            result.error_message = cut_text(text + user)
        elif found is None:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = cut_text(f"Attempt to describe a user credential that does not exist: {user}")
        else:
            result.credential_infos = [
                DescribeUserScramCredentialsResponse.CredentialInfo(mechanism=mechanism, iterations=iterations)
                for mechanism, iterations in sorted(found.items())
            ]
        body.results.append(result)
        yield
    call.answer(body)


class _Refusal(NamedTuple):
    """Why the credential of a user can't be changed."""

    error: ErrorCode
    text: str


FORBIDDEN = _Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED)
TWICE = _Refusal(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def alter_user_scram_credentials(call: Call, request: AlterUserScramCredentialsRequest) -> Steps:
    """AlterUserScramCredentials (KIP-554): each user at most once in a request; the others are changed as a whole."""
    known = call.services.discovery.topics.newest_entry(CREDENTIALS).configs
    outcomes: dict[str, _Refusal | dict[str, str | None]] = {}
    refusal = None if may(call, Operation.ALTER, Kind.CLUSTER) else FORBIDDEN
    for deletion in request.deletions:
        yield
        name = deletion.name
        if isinstance(outcomes.get(name), _Refusal):
            continue
        problem = refusal or (TWICE if name in outcomes else _deletion_problem(known, name, deletion.mechanism))
        outcomes[name] = problem or {name_of(MECHANISMS[deletion.mechanism], _kept_name(name)): None}
    room = CREDENTIALS_MAX - len(known)
    for upsertion in request.upsertions:
        yield
        name = upsertion.name
        if isinstance(outcomes.get(name), _Refusal):
            continue
        problem = refusal or (TWICE if name in outcomes else _upsertion_problem(upsertion, room))
        outcomes[name] = problem or _upserted(upsertion)
        room -= 1
    answer = AlterUserScramCredentialsResponse()
    changes: dict[str, str | None] = {}
    accepted = []
    for user, outcome in outcomes.items():
        result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(user=user, error_message=None)
        if isinstance(outcome, _Refusal):
            result.error_code, result.error_message = outcome
        else:
            changes |= outcome
            accepted.append(result)
        answer.results.append(result)
        yield
    change = Change(altered=[Altered(CREDENTIALS.topic_id, configs=changes)])
    yield from answer_changed(call, change if changes else None, answer, accepted)


def _problem(name: str, mechanism: int) -> _Refusal | None:
    """The fault in the name of a user, or in the number of a mechanism."""
    if not name:
        return _Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in MECHANISMS:
        return _Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return None


def _deletion_problem(known: Mapping[str, str], name: str, mechanism: int) -> _Refusal | None:
    problem = _problem(name, mechanism)
    if problem is None and name_of(MECHANISMS[mechanism], _kept_name(name)) not in known:
        return _Refusal(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return problem


def _upsertion_problem(
    upsertion: AlterUserScramCredentialsRequest.ScramCredentialUpsertion, room: int
) -> _Refusal | None:
    problem = _problem(upsertion.name, upsertion.mechanism)
    if problem is not None:
        return problem
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    if upsertion.iterations < ITERATIONS_MIN:
        return _Refusal(unacceptable, "Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        return _Refusal(unacceptable, "Too many iterations")
    if len(upsertion.name) > USER_MAX:
        return _Refusal(unacceptable, f"A username has at most {USER_MAX} characters")
    if not _kept_name(upsertion.name):
        return _Refusal(unacceptable, "SASLprep (RFC 4013) forbids a character of the username")
    if len(upsertion.salt) > SALT_MAX:
        return _Refusal(unacceptable, f"A salt has at most {SALT_MAX} bytes")
    if room <= 0:
        return _Refusal(unacceptable, f"There are {CREDENTIALS_MAX} credentials")
    return None


def _upserted(upsertion: AlterUserScramCredentialsRequest.ScramCredentialUpsertion) -> dict[str, str | None]:
    mechanism = MECHANISMS[upsertion.mechanism]
    made = credential(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)
    return {name_of(mechanism, _kept_name(upsertion.name)): text_of(made)}


def _kept_name(name: str) -> str:
    """The name under which a user is kept, as a login will look for it; "" if no login can."""
    try:
        return prepared(name)
    except ValueError:
        return ""
