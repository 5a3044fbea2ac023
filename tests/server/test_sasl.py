"""SASL of a whole server: OAUTHBEARER from its settings to a session, and settings that prevent the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.config import ConfigError
from coordinator.server.app import StartFailed
from coordinator.server.sasl import check
from protocol.messages import MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from schemas.errors import ErrorCode
from tests.server.harness import Peer, config_of, serving
from tests.server.test_key_source import provider
from tests.support.certificates import Certificates
from tests.support.tokens import first_message, jwk, jwks, token

LISTENERS = (
    "listeners=OPEN://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map=OPEN:PLAINTEXT,SASL:SASL_PLAINTEXT",
)
CHALLENGE = b'{"status":"invalid_token"}'


def settings(keys: Path) -> tuple[str, ...]:
    """A listener for tokens that the keys of a file have signed."""
    return (
        *LISTENERS,
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}",
        "sasl.oauthbearer.expected.audience=kafka",
    )


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The keys of a provider."""
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(jwk("ec")))
    return path


async def show(peer: Peer, text: str) -> object:
    """Show a token; returns the answer."""
    assert (await peer.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)).error_code == ErrorCode.NONE
    return await peer.ask(SaslAuthenticateRequest(auth_bytes=first_message(text)), 2)


async def test_a_token_lets_its_user_in_until_it_ends(keys: Path) -> None:
    """The session ends with the token, and no other request comes through behind that."""
    async with serving(*settings(keys)) as server:
        ends_s = server.clock.wall_ms() // 1_000 + 60
        peer = await server.peer(listener=1)
        answer = await show(peer, token("ec", "ES256", aud="kafka", exp=ends_s))
        assert getattr(answer, "session_lifetime_ms", 0) in range(59_000, 60_001)
        assert (await peer.ask(MetadataRequest(topics=[]), 4)).brokers
        assert [each.principal for each in server.connections()] == ["User:alice"]
        await server.advance(60_000)
        await peer.send(MetadataRequest(topics=[]), 4)
        assert await peer.is_closed()


@pytest.mark.parametrize("trusts", [True, False])
async def test_keys_behind_a_ca_of_ones_own(certificates: Certificates, keys: Path, trusts: bool) -> None:
    """Options of the login module name the CA, as in Kafka. Without them the server doesn't trust the provider."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    trust = f' ssl.truststore.type=PEM ssl.truststore.location="{certificates.ca}"' if trusts else ""
    with provider(certificates.server) as idp:
        given = [each for each in settings(keys) if "jwks" not in each]
        given.append(f"sasl.oauthbearer.jwks.endpoint.url=https://localhost:{idp.server_port}/keys")
        given.append(f"listener.name.sasl.oauthbearer.sasl.jaas.config={module}{trust};")
        async with serving(*given) as server:
            answer = await show(await server.peer(listener=1), token("ec", "ES256", aud="kafka"))
            assert getattr(answer, "error_code", -1) == ErrorCode.NONE
            assert (getattr(answer, "auth_bytes", b"") != CHALLENGE) is trusts
            assert bool(server.events("keys_not_read")) is not trusts


async def test_a_token_that_does_not_count(keys: Path) -> None:
    """The client gets a challenge, confirms it, and gets the failure after the pause."""
    async with serving(*settings(keys)) as server:
        peer = await server.peer(listener=1)
        answer = await show(peer, token("rsa", aud="kafka"))
        assert (getattr(answer, "error_code", -1), getattr(answer, "auth_bytes", b"")) == (ErrorCode.NONE, CHALLENGE)
        await peer.send(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        await server.advance(100)
        failure = await peer.receive()
        assert (failure.error_code, failure.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, CHALLENGE.decode())
        assert await peer.is_closed()
        (line,) = server.events("authentication_failed")
        assert line["reason"] == "no key has the name that the token gives"


async def test_a_mechanism_that_is_not_served_is_warned_of() -> None:
    """A listener may name Kerberos beside another mechanism: one line says that its clients can't log in by it."""
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    mechanisms = "sasl.enabled.mechanisms=GSSAPI,PLAIN"
    async with serving(*LISTENERS, mechanisms, f"listener.name.sasl.plain.sasl.jaas.config={users}") as server:
        (line,) = server.events("setting_ignored")
        assert line["level"] == "warn"
        text = "listener.name.sasl.sasl.enabled.mechanisms: GSSAPI is not served; clients log in by PLAIN"
        assert str(line["message"]).endswith(text)


async def test_a_file_without_keys_prevents_the_start(tmp_path: Path) -> None:
    """One line names the setting and what is wrong with the file."""
    with pytest.raises(StartFailed, match=r"jwks\.endpoint\.url: file:.*No such file"):
        async with serving(*settings(tmp_path / "missing.json")):
            pass


def test_settings_are_checked_before_anything_listens() -> None:
    """Also by the supervisor of several workers."""
    with pytest.raises(ConfigError, match="the users of PLAIN are missing"):
        check(config_of(*LISTENERS, "sasl.enabled.mechanisms=PLAIN"))
    check(config_of(*LISTENERS, "sasl.enabled.mechanisms=SCRAM-SHA-512"))
