"""Our own commands on Apache Kafka and on Tenure, through TLS and SASL, with one client properties file for both.

What lets a command in, and each way to be kept out, with its exit code and the words that the server and OpenSSL have.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from coordinator.cli.groups import app
from tests.cli.conftest import Ran, run_app
from tests.support.apache import ApacheKafka
from tests.support.certificates import PLAIN_PASSWORD, Certificates, make_certificates
from tests.support.patience import WITHIN_S
from tests.support.tenure import Tenure
from tests.support.tokens import jwk, jwks, token

pytestmark = pytest.mark.together
LISTENERS = {
    "OPEN": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "OAUTH": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "LATE": "SSL",
    "BOTH": "SASL_SSL",
}
SECURITY = "org.apache.kafka.common.security"
PLAIN = f"{SECURITY}.plain.PlainLoginModule"
SCRAM = f"{SECURITY}.scram.ScramLoginModule"
OAUTH = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"
SCRAM_PASSWORD = "pass,word=1"


def server_properties(files: Certificates) -> str:
    """The settings that a node needs for all listeners."""
    mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    lines = [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={files.server}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={files.ca}",
        "listener.name.mutual.ssl.client.auth=required",
        "listener.name.late.ssl.keystore.type=PEM",
        f"listener.name.late.ssl.keystore.location={files.expired}",
    ]
    for listener in ("sasl", "both"):
        lines += [
            f"listener.name.{listener}.sasl.enabled.mechanisms={mechanisms}",
            f'listener.name.{listener}.plain.sasl.jaas.config={PLAIN} required user_alice="secret";',
            f"listener.name.{listener}.scram-sha-256.sasl.jaas.config={SCRAM} required;",
            f"listener.name.{listener}.scram-sha-512.sasl.jaas.config={SCRAM} required;",
        ]
    return "\n".join(lines) + "\n"


def token_properties(keys: Path) -> str:
    """The settings that a node needs for tokens that `keys` can check."""
    where = "listener.name.oauth"
    handler = f"{SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    return f"""{where}.sasl.enabled.mechanisms=OAUTHBEARER
{where}.oauthbearer.sasl.jaas.config={OAUTH} required;
{where}.oauthbearer.sasl.server.callback.handler.class={handler}
{where}.sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}
{where}.sasl.oauthbearer.expected.audience=kafka
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The certificates of servers and clients."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


Node = ApacheKafka | Tenure


@pytest.fixture(scope="module", params=["tenure", pytest.param("apache", marks=pytest.mark.oracle)])
def node(request: pytest.FixtureRequest, files: Certificates) -> Iterator[Node]:
    """A server with all listeners, and bob's credentials for both SCRAM mechanisms."""
    keys = files.folder / "keys.json"
    keys.write_bytes(jwks(jwk("rsa")))
    properties = server_properties(files) + token_properties(keys)
    made: Node
    if request.param == "apache":
        request.getfixturevalue("kafka_is_here")
        made = ApacheKafka(listeners=LISTENERS, properties=properties)
    else:
        made = Tenure(listeners=LISTENERS, properties=properties)
    with made as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap_of("OPEN")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            added = UserScramCredentialUpsertion("bob", ScramCredentialInfo(mechanism, 4096), SCRAM_PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([added]).values():
                future.result(WITHIN_S)
        yield started


class Commands:
    """Runs a command against a listener with a file of these lines."""

    def __init__(self, node: Node, files: Certificates, folder: Path) -> None:
        self.node = node
        self.files = files
        self._folder = folder

    def run(self, listener: str, *lines: str, timeout_s: float = WITHIN_S) -> Ran:
        """`tenure groups list`; the timeout is not waited for if another try would end alike."""
        file = self._folder / "client.properties"
        file.write_text("\n".join((f"security.protocol={LISTENERS[listener]}", *lines)))
        where = ("--bootstrap-server", self.node.bootstrap_of(listener), "--command-config", str(file))
        return run_app(app, "list", *where, "--timeout", str(timeout_s))

    def trust(self) -> list[str]:
        """The lines that trust the CA."""
        return ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.files.ca}"]


@pytest.fixture
def commands(node: Node, files: Certificates, tmp_path: Path) -> Commands:
    """Commands with the server."""
    return Commands(node, files, tmp_path)


def login(mechanism: str, module: str, user: str, password: str) -> list[str]:
    """The lines of a login."""
    jaas = f'sasl.jaas.config={module} required username="{user}" password="{password}";'
    return [f"sasl.mechanism={mechanism}", jaas]


LOGINS = {
    "PLAIN": login("PLAIN", PLAIN, "alice", "secret"),
    "SCRAM-SHA-256": login("SCRAM-SHA-256", SCRAM, "bob", SCRAM_PASSWORD),
    "SCRAM-SHA-512": login("SCRAM-SHA-512", SCRAM, "bob", SCRAM_PASSWORD),
}


@pytest.mark.parametrize("mechanism", LOGINS)
@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
def test_a_login(commands: Commands, listener: str, mechanism: str) -> None:
    """Name and password let the command in, with and without TLS; another password doesn't, at once."""
    trust = commands.trust()
    assert commands.run(listener, *trust, *LOGINS[mechanism]).code == 0
    wrong = [line.replace('password="', 'password="x') for line in LOGINS[mechanism]]
    ran = commands.run(listener, *trust, *wrong, timeout_s=3600)
    assert (ran.code, ran.out) == (4, "")
    assert f"{mechanism}: Authentication failed" in ran.err
    assert ran.err.count("\n") == 1


def test_a_mechanism_that_the_listener_has_not(commands: Commands) -> None:
    """The line says what the server offers."""
    ran = commands.run("OAUTH", *LOGINS["PLAIN"], timeout_s=3600)
    assert (ran.code, ran.err.count("\n")) == (4, 1)
    assert "PLAIN: UNSUPPORTED_SASL_MECHANISM, the server offers OAUTHBEARER" in ran.err


def test_a_token(commands: Commands, tmp_path: Path) -> None:
    """A signed token lets the command in, from the login module and from a file; an expired one doesn't, at once."""
    mechanism = "sasl.mechanism=OAUTHBEARER"
    good = token(aud="kafka")
    assert commands.run("OAUTH", mechanism, f'sasl.jaas.config={OAUTH} required token="{good}";').code == 0
    file = tmp_path / "token"
    file.write_text(good + "\n")
    url = f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}"
    assert commands.run("OAUTH", mechanism, f"sasl.jaas.config={OAUTH} required;", url).code == 0
    now_s = int(time.time())
    file.write_text(token(aud="kafka", iat=now_s - 7200, exp=now_s - 3600))
    ran = commands.run("OAUTH", mechanism, f"sasl.jaas.config={OAUTH} required;", url, timeout_s=3600)
    assert (ran.code, ran.err.count("\n")) == (4, 1)
    assert "OAUTHBEARER: " in ran.err


def test_trust_in_the_server(commands: Commands) -> None:
    """The CA lets the command trust; another one, an expired certificate and the machine's CAs don't, at once."""
    files = commands.files
    trust = commands.trust()
    p12 = [f"ssl.truststore.location={files.ca_p12}", f"ssl.truststore.password={PLAIN_PASSWORD}"]
    for lines in (trust, p12):
        assert commands.run("TLS", *lines).code == 0
    other = ["ssl.truststore.type=PEM", f"ssl.truststore.location={files.foreign_ca}"]
    for listener, lines, why in (
        ("TLS", other, "unable to get local issuer certificate"),
        ("TLS", [], "unable to get local issuer certificate"),
        ("LATE", trust, "certificate has expired"),
    ):
        ran = commands.run(listener, *lines, timeout_s=3600)
        assert (ran.code, ran.err.count("\n")) == (4, 1)
        assert f"the server's certificate: {why}" in ran.err


def test_the_commands_certificate(commands: Commands) -> None:
    """A server that asks for a certificate gets one; without a good one its refusal is the line, at once."""
    files = commands.files
    for store in (
        ["ssl.keystore.type=PEM", f"ssl.keystore.location={files.client}"],
        [f"ssl.keystore.location={files.client_p12}", f"ssl.keystore.password={PLAIN_PASSWORD}"],
    ):
        assert commands.run("MUTUAL", *commands.trust(), *store).code == 0
    for lines in (
        [],
        ["ssl.keystore.type=PEM", f"ssl.keystore.location={files.foreign_client}"],
        ["ssl.keystore.type=PEM", f"ssl.keystore.location={files.expired_client}"],
    ):
        ran = commands.run("MUTUAL", *commands.trust(), *lines, timeout_s=3600)
        assert (ran.code, ran.err.count("\n")) == (4, 1)
        assert "the server refuses the TLS handshake: " in ran.err
