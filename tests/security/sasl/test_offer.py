"""The offer of a listener, and the settings that prevent it."""

from __future__ import annotations

import pytest

from coordinator.config import ConfigError, load
from coordinator.security.sasl import Exchange
from coordinator.security.sasl.offer import FRAME_MAX_BYTES, Parts, offer
from coordinator.security.sasl.scram import Credential, decoy
from tests.security.sasl.test_oauthbearer import Provider

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
USERS = f"listener.name.sasl.plain.sasl.jaas.config={JAAS}"


def offered(*settings: str) -> object:
    """The offer of the listener SASL."""
    return offer(load(sets=["listeners=SASL://:0", PROTOCOLS, *settings])[0], "SASL", PARTS)


def nobody(mechanism: str, user: str) -> tuple[Credential, bool]:
    """Find no SCRAM user."""
    return decoy(mechanism, user.encode(), 4_096), False


PARTS = Parts(nobody, lambda: "nonce", lambda *_: Provider(), lambda: 0)
BEARER = ("sasl.enabled.mechanisms=OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url=https://localhost/keys")
BEARER_JAAS = (
    "listener.name.sasl.oauthbearer.sasl.jaas.config="
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
)
PROTOCOLS = "listener.security.protocol.map=SASL:SASL_PLAINTEXT"


def test_a_listener_has_its_own_settings() -> None:
    """Its mechanisms, their users, the time of their sessions and the size of frames are its own."""
    config, _ = load(
        sets=[
            "listeners=SASL://:0",
            PROTOCOLS,
            USERS,
            "listener.name.sasl.sasl.enabled.mechanisms=PLAIN, GSSAPI",
            "connections.max.reauth.ms=5",
            "listener.name.sasl.plain.connections.max.reauth.ms=7",
            "listener.name.sasl.sasl.server.max.receive.size=100",
        ]
    )
    found = offer(config, "SASL", PARTS)
    assert tuple(found.mechanisms) == ("PLAIN",)
    assert found.passed_over == ("GSSAPI",)
    assert found.session_max_ms == {"PLAIN": 7}
    assert set(found.frame_max_bytes.values()) == {100}
    assert Exchange(found.mechanisms["PLAIN"]).step(b"\0alice\0secret").user == "alice"


def test_mechanisms_stand_in_kafkas_order() -> None:
    """A handshake lists them in the order of Java's HashSet; SCRAM needs no login module, but takes Kafka's."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    config, _ = load(
        sets=[
            "listeners=SASL://:0",
            PROTOCOLS,
            USERS,
            f"listener.name.sasl.scram-sha-256.sasl.jaas.config={module}",
            "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        ]
    )
    found = offer(config, "SASL", PARTS)
    assert tuple(found.mechanisms) == ("SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256")
    answer = Exchange(found.mechanisms["SCRAM-SHA-256"]).step(b"n,,n=alice,r=abc").answer
    assert answer == b"r=abcnonce,s=YWxpY2U=,i=4096"


def test_frames_have_a_limit_of_ours() -> None:
    """Kafka's default for a client that hasn't authenticated is half a megabyte."""
    config, _ = load(sets=["listeners=SASL://:0", PROTOCOLS, USERS, "sasl.enabled.mechanisms=PLAIN"])
    assert set(offer(config, "SASL", PARTS).frame_max_bytes.values()) == {FRAME_MAX_BYTES}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ((), "listener.name.sasl.sasl.enabled.mechanisms: none of GSSAPI is served; PLAIN"),
        (("sasl.enabled.mechanisms=",), "listener.name.sasl.sasl.enabled.mechanisms: none of an empty list"),
        (("sasl.enabled.mechanisms=PLAIN,PLANE",), "listener.name.sasl.sasl.enabled.mechanisms: there is no .* PLANE"),
        (
            ("sasl.enabled.mechanisms=PLAIN",),
            "listener.name.sasl.plain.sasl.jaas.config: the users of PLAIN are missing",
        ),
        (
            ("sasl.enabled.mechanisms=PLAIN", USERS.replace("required", "needed")),
            "listener.name.sasl.plain.sasl.jaas.config: behind .* stands none of",
        ),
        (
            ("sasl.enabled.mechanisms=PLAIN", USERS.replace("plain.PlainLogin", "scram.ScramLogin")),
            "listener.name.sasl.plain.sasl.jaas.config: .*ScramLoginModule is not .*PlainLoginModule",
        ),
        (
            ("sasl.enabled.mechanisms=OAUTHBEARER",),
            "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER takes signed tokens only",
        ),
        (
            ("sasl.enabled.mechanisms=OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url=ftp://x"),
            "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url: 'ftp://x' is no URL of",
        ),
        (
            (*BEARER, f"{BEARER_JAAS} ssl.truststore.type=PEM ssl.truststore.location='/nowhere';"),
            "listener.name.sasl.oauthbearer.sasl.jaas.config: ssl.truststore.location: /nowhere: no such file",
        ),
        (
            (*BEARER, f"{BEARER_JAAS} ssl.protocol=SSLv3;"),
            "listener.name.sasl.oauthbearer.sasl.jaas.config: ssl.protocol: 'SSLv3' is none of",
        ),
        (
            (*BEARER, f"{BEARER_JAAS} ssl.client.auth=required;"),
            "listener.name.sasl.oauthbearer.sasl.jaas.config: ssl.client.auth: no such option",
        ),
        (
            ("sasl.enabled.mechanisms=SCRAM-SHA-512", USERS.replace("plain.sasl", "scram-sha-512.sasl")),
            "listener.name.sasl.scram-sha-512.sasl.jaas.config: .*PlainLoginModule is not .*ScramLoginModule",
        ),
    ],
)
def test_a_wrong_setting_is_named(settings: tuple[str, ...], problem: str) -> None:
    """The setting stands there with what is wrong, and no password."""
    with pytest.raises(ConfigError, match=f"^{problem}") as raised:
        offered(*settings)
    assert "secret" not in str(raised.value)
