"""A client's TLS and SASL: what is wrong with the settings shows before it connects, and nobody is trusted unseen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.client.connection import Address, Connection, Deadline
from coordinator.client.errors import Unauthenticated, Unreachable
from coordinator.client.properties import PropertiesError, read
from coordinator.client.security import Security
from coordinator.config import ListenerConfig
from coordinator.security.sasl import Exchange
from coordinator.security.sasl.plain import plain_mechanism
from coordinator.security.tls import terms_of
from protocol.errors import ProtocolError
from protocol.messages import ListGroupsRequest, ListGroupsResponse
from tests.client.scripted import Scripted
from tests.support.certificates import PLAIN_PASSWORD, Certificates, make_certificates
from tests.support.patience import WITHIN_S

SECURITY = "org.apache.kafka.common.security"
PLAIN = f"{SECURITY}.plain.PlainLoginModule"
SCRAM = f"{SECURITY}.scram.ScramLoginModule"
OAUTH = f"{SECURITY}.oauthbearer.OAuthBearerLoginModule"


def sasl(mechanism: str, jaas: str, *lines: str) -> Security:
    """The security of a file with this login."""
    text = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}", *lines]
    return Security(read("\n".join(text), "f"))


def said(security: Security, *answers: bytes) -> list[bytes]:
    """The tokens of a login that gets these answers."""
    tokens, left = [], list(answers)

    def exchange(token: bytes) -> bytes:
        tokens.append(token)
        return left.pop(0)

    security.log_in(exchange)
    assert not left
    return tokens


def test_plain_logs_in_with_the_servers_side() -> None:
    """User and password are those of the login module."""
    security = sasl("PLAIN", rf'{PLAIN} required username="alice" password="se\\\\cr\\"et";')
    server = Exchange(plain_mechanism({"alice": 'se\\cr"et'}))
    users = []

    def exchange(token: bytes) -> bytes:
        step = server.step(token)
        users.append(step.user)
        return step.answer

    security.log_in(exchange)
    assert users == ["alice"]


def test_each_scram_login_has_a_nonce_of_its_own() -> None:
    """A nonce that comes twice would let old answers pass."""
    security = sasl("SCRAM-SHA-256", f'{SCRAM} required username="alice" password="secret";')
    firsts: list[bytes] = []

    def exchange(token: bytes) -> bytes:
        firsts.append(token)
        return b"nonsense"

    for _ in range(2):
        with pytest.raises(Unauthenticated, match="first message"):
            security.log_in(exchange)
    assert firsts[0] != firsts[1]
    assert firsts[0].startswith(b"n,,n=alice,r=")


def test_a_token_in_a_file_is_read_at_each_login(tmp_path: Path) -> None:
    """A token expires; whoever writes a new one into the file need not restart the command."""
    file = tmp_path / "a token"
    url = f"sasl.oauthbearer.token.endpoint.url=file://{str(file).replace(' ', '%20')}"
    security = sasl("OAUTHBEARER", f"{OAUTH} required;", url)
    with pytest.raises(Unauthenticated, match="a token: No such file"):
        said(security)
    file.write_text("first\n")
    assert said(security, b"") == [b"n,,\1auth=Bearer first\1\1"]
    file.write_text("second")
    assert said(security, b"") == [b"n,,\1auth=Bearer second\1\1"]


def test_a_token_in_the_login_module() -> None:
    """A token that doesn't change may stand in the file itself; extensions go along."""
    security = sasl("OAUTHBEARER", f'{OAUTH} required token="t" extension_pool="p";')
    assert said(security, b"") == [b"n,,\1auth=Bearer t\1pool=p\1\1"]


@pytest.mark.parametrize(
    ("mechanism", "jaas", "error"),
    [
        ("PLAIN", "", f"f: sasl.jaas.config: PLAIN needs it: {PLAIN} required"),
        ("PLAIN", f"{PLAIN} required", "no semicolon"),
        (
            "PLAIN",
            f'{SCRAM} required username="a" password="hidden";',
            "is not .*PlainLoginModule, the module of PLAIN",
        ),
        ("PLAIN", f'{PLAIN} required user_a="hidden";', "has no username"),
        ("SCRAM-SHA-256", f'{SCRAM} required username="hidden";', "has no password"),
        ("OAUTHBEARER", f"{OAUTH} required;", "token.endpoint.url: there is no URL of a file"),
    ],
)
def test_wrong_logins(mechanism: str, jaas: str, error: str) -> None:
    """The error names the key and shows no value of an option."""
    with pytest.raises(PropertiesError, match=error) as raised:
        sasl(mechanism, jaas)
    assert "hidden" not in str(raised.value)


def test_a_token_endpoint_that_is_no_file() -> None:
    """Tokens of a server over HTTP are somebody else's work, which the error says."""
    with pytest.raises(PropertiesError, match="'https://idp/token' is no URL of a file"):
        sasl("OAUTHBEARER", f"{OAUTH} required;", "sasl.oauthbearer.token.endpoint.url=https://idp/token")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The files of `make_certificates`. No test changes them."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_server(files: Certificates, keystore: Path, client_auth: str = "none") -> Scripted:
    """A server with TLS that knows no groups."""
    config = ListenerConfig(
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(keystore),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(files.ca),
        ssl_client_auth=client_auth,
    )
    return Scripted({"ListGroups": [ListGroupsResponse()]}, context=terms_of(config).context)


def tls(*lines: str) -> Security:
    """The security of a file with TLS and these lines."""
    return Security(read("\n".join(("security.protocol=SSL", *lines)), "f"))


def pem(store: str, path: Path) -> Iterator[str]:
    """The lines for a PEM store."""
    yield f"ssl.{store}.type=PEM"
    yield f"ssl.{store}.location={path}"


def ask(server: Scripted, security: Security | None, host: str = "127.0.0.1") -> None:
    """Connect, and send one request."""
    deadline = Deadline(WITHIN_S, time.monotonic)
    connection = Connection(Address(host, server.port), "test", deadline, security)
    try:
        connection.request(ListGroupsRequest(), 0, deadline)
    finally:
        connection.close()


def test_a_server_that_the_truststore_knows(files: Certificates) -> None:
    """PEM in a file and in the setting, and PKCS12; by address and by name."""
    inline = files.ca.read_text().replace("\n", "\\n")
    stores = (
        list(pem("truststore", files.ca)),
        ["ssl.truststore.type=PEM", f"ssl.truststore.certificates={inline}"],
        [f"ssl.truststore.location={files.ca_p12}", f"ssl.truststore.password={PLAIN_PASSWORD}"],
    )
    with tls_server(files, files.server) as server:
        for store in stores:
            ask(server, tls(*store))
        ask(server, tls(*stores[0], "ssl.enabled.protocols=TLSv1.2"), "localhost")
    assert len(server.asked("ListGroups")) == len(stores) + 1


def test_a_server_that_is_not_trusted(files: Certificates) -> None:
    """Another CA, the machine's CAs, an expired certificate and another host's: no request is sent."""
    elsewhere = files.folder / "elsewhere.pem"
    elsewhere.write_text(files.authority.issue("elsewhere", hosts=("elsewhere",)).pem())
    ours = list(pem("truststore", files.ca))
    cases: tuple[tuple[Path, list[str], str], ...] = (
        (files.server, list(pem("truststore", files.foreign_ca)), "unable to get local issuer certificate"),
        (files.server, [], "unable to get local issuer certificate"),
        (files.expired, ours, "certificate has expired"),
        (elsewhere, ours, "certificate is not valid for '127.0.0.1'"),
    )
    for keystore, lines, why in cases:
        with tls_server(files, keystore) as server:
            with pytest.raises(Unauthenticated, match=f"{server.port}: the server's certificate: .*{why}"):
                ask(server, tls(*lines))
            assert server.requests == []
            if keystore == elsewhere:
                ask(server, tls(*lines, "ssl.endpoint.identification.algorithm="))


def test_a_server_that_asks_for_a_certificate(files: Certificates) -> None:
    """The keystore's certificate is shown; without a good one the server's refusal is the error."""
    ours = list(pem("truststore", files.ca))
    with tls_server(files, files.server, "required") as server:
        ask(server, tls(*ours, *pem("keystore", files.client)))
        for lines in ([], list(pem("keystore", files.foreign_client)), list(pem("keystore", files.expired_client))):
            with pytest.raises(Unauthenticated, match="the server refuses the TLS handshake: "):
                ask(server, tls(*ours, *lines))


def test_two_sides_of_which_one_speaks_tls(files: Certificates) -> None:
    """Another try may help, so both are failures of that kind."""
    with tls_server(files, files.server) as server, pytest.raises((ProtocolError, Unreachable)):
        ask(server, None)
    words = r"perhaps it speaks no TLS, which security\.protocol=SSL asks for"
    with Scripted() as server, pytest.raises(Unreachable, match=words):
        ask(server, tls(*pem("truststore", files.ca)))


def test_a_store_that_can_not_be_read(tmp_path: Path) -> None:
    """The error names the file of properties, the key and the store."""
    with pytest.raises(PropertiesError, match=r"^f: ssl\.truststore\.location: .*ca\.pem: no such file"):
        tls(*pem("truststore", tmp_path / "ca.pem"))


def test_kafkas_own_clients_get_absolute_paths(files: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's JVM has a working folder of its own."""
    monkeypatch.chdir(files.folder)
    found = tls("ssl.truststore.type=PEM", "ssl.truststore.location=ca.pem", "acks=all").of_kafka
    assert found == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.ca),
    }
