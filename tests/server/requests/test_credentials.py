"""Requests of SASL where none is due, and those about credentials."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from coordinator.security.sasl.scram import salted
from coordinator.server.requests.credentials import SALT_MAX, USER_MAX
from protocol.messages import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from schemas.errors import ErrorCode
from tests.server.harness import Peer
from tests.support.raw import Connection, ask
from tests.support.tenure import Tenure


async def test_sasl_on_a_listener_without_it(peer: Peer) -> None:
    """Both requests are refused, and the connection goes on."""
    for version in (0, 1):
        answer = await peer.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in (0, 1, 2):
        answer = await peer.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), version)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert (await peer.ask(MetadataRequest(topics=[]), 4)).brokers


# Credentials of SCRAM.

SHA_256, SHA_512 = 1, 2


def upsertion(
    name: str, mechanism: int = SHA_256, iterations: int = 4_096, salt: bytes = b"salt", password: str = "secret"
) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    """A credential, as a client salts it."""
    salted_password = salted("SCRAM-SHA-512" if mechanism == SHA_512 else "SCRAM-SHA-256", password, salt, iterations)
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted_password
    )


def deletion(name: str, mechanism: int = SHA_256) -> AlterUserScramCredentialsRequest.ScramCredentialDeletion:
    """The end of a credential."""
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(peer: Peer, *changes: object) -> dict[str, tuple[int, str | None]]:
    """Change credentials; returns error and message by user."""
    request = AlterUserScramCredentialsRequest()
    for change in changes:
        if isinstance(change, AlterUserScramCredentialsRequest.ScramCredentialDeletion):
            request.deletions.append(change)
        else:
            assert isinstance(change, AlterUserScramCredentialsRequest.ScramCredentialUpsertion)
            request.upsertions.append(change)
    answer = await peer.ask(request, 0)
    return {result.user: (result.error_code, result.error_message) for result in answer.results}


async def described(peer: Peer, *users: str) -> dict[str, object]:
    """The known users: their iterations by mechanism, or an error."""
    names = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in users]
    answer = await peer.ask(DescribeUserScramCredentialsRequest(users=names or None), 0)
    return {
        result.user: result.error_code or {info.mechanism: info.iterations for info in result.credential_infos}
        for result in answer.results
    }


async def test_credentials_are_kept_and_described(peer: Peer) -> None:
    """A user has a credential per mechanism; the last one of a mechanism counts, and a removed one is gone."""
    assert await described(peer) == {}
    fine = (ErrorCode.NONE, None)
    assert await alter(peer, upsertion("alice"), upsertion("bob", SHA_512, 8_192)) == {"alice": fine, "bob": fine}
    assert await alter(peer, upsertion("alice", SHA_512), upsertion("bob", SHA_512)) == {"alice": fine, "bob": fine}
    assert await described(peer) == {"alice": {SHA_256: 4_096, SHA_512: 4_096}, "bob": {SHA_512: 4_096}}
    assert await alter(peer, deletion("alice"), deletion("bob", SHA_512)) == {"alice": fine, "bob": fine}
    assert await described(peer) == {"alice": {SHA_512: 4_096}}
    assert await described(peer, "alice", "bob") == {
        "alice": {SHA_512: 4_096},
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert await described(peer, "alice", "alice") == {"alice": ErrorCode.DUPLICATE_RESOURCE}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x" * (USER_MAX + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a\u0007"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", iterations=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", salt=bytes(SALT_MAX + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("alice", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("alice", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("alice"), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
async def test_what_is_no_credential_is_refused(peer: Peer, change: object, error: ErrorCode) -> None:
    """It has an error of its own; the rest of the request counts."""
    answer = await alter(peer, change, upsertion("bob"))
    assert answer.pop("bob") == (ErrorCode.NONE, None)
    assert [code for code, _ in answer.values()] == [error]
    assert await described(peer) == {"bob": {SHA_256: 4_096}}


async def test_a_user_comes_once_in_a_request(peer: Peer) -> None:
    """Also with two mechanisms; but if one of the two is itself wrong, that error comes instead."""
    twice = {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert {
        name: code for name, (code, _) in (await alter(peer, upsertion("alice"), upsertion("alice", 2))).items()
    } == twice
    missing = await alter(peer, deletion("alice"), upsertion("alice"))
    assert missing["alice"][0] == ErrorCode.RESOURCE_NOT_FOUND
    assert await described(peer) == {}


async def test_a_name_is_kept_as_a_login_looks_for_it(peer: Peer) -> None:
    """SASLprep (RFC 4013) makes a Roman nine two letters, for whoever asks."""
    assert (await alter(peer, upsertion("\u2168")))["\u2168"][0] == ErrorCode.NONE
    assert await described(peer) == {"IX": {SHA_256: 4_096}}
    assert await described(peer, "\u2168") == {"\u2168": {SHA_256: 4_096}}
    assert (await alter(peer, deletion("\u2168")))["\u2168"][0] == ErrorCode.NONE


async def test_credentials_survive_a_restart(tmp_path: Path) -> None:
    """They and what is made up for other names are on disk; neither password nor salted password is."""
    with Tenure(directory=tmp_path, listeners=LISTENERS, properties=PROPERTIES) as tenure:
        one = upsertion("alice", salt=b"a salt of alice")
        ask(tenure.port, AlterUserScramCredentialsRequest(upsertions=[one]), 0)
        before = [first_answer(tenure, user) for user in ("alice", "mallory")]
        tenure.restart()
        assert [first_answer(tenure, user) for user in ("alice", "mallory")] == before
        kept = (tmp_path / "data" / "topics.json").read_text()
        assert b64encode(one.salt).decode() in kept
        assert b64encode(one.salted_password).decode() not in kept


LISTENERS = {"OPEN": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
PROPERTIES = "sasl.enabled.mechanisms=SCRAM-SHA-256\n"


def first_answer(tenure: Tenure, user: str) -> dict[str, str]:
    """Salt and iterations that a user is told."""
    with Connection(tenure.ports[1]) as connection:
        connection.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=nonce".encode()), 2)
    fields = dict(part.split("=", 1) for part in answer.auth_bytes.decode().split(","))
    assert fields.pop("r").startswith("nonce")
    return fields
