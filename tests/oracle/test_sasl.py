"""SASL on Apache Kafka and on Tenure: the same bytes go to both, and the answers are compared byte by byte.

Both servers have the same properties file. A dialogue is a list of frames. Each is sent when the one before has its
answer; a server that closes the connection ends the dialogue. What a server chooses by chance (the nonces of SCRAM) is
left out, and of a good answer to ApiVersions only its beginning counts.
"""

from __future__ import annotations

import hmac
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import new
from typing import Any

import jwt
import pytest

from coordinator.security.sasl.scram import DIGESTS, salted
from protocol.header import encode_request
from protocol.messages import (
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    DescribeGroupsRequest,
    DescribeUserScramCredentialsRequest,
    Message,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.interop.java.tools import Tools
from tests.server.test_key_source import provider
from tests.support.apache import ApacheKafka
from tests.support.certificates import Certificates
from tests.support.patience import WITHIN_S
from tests.support.raw import Closed, Connection
from tests.support.tenure import Tenure, wait_until
from tests.support.tokens import claims, first_message, jwk, jwks, private_key
from tests.support.tokens import token as signed

pytestmark = pytest.mark.oracle

LISTENERS = {"OPEN": "PLAINTEXT", **dict.fromkeys(("SASL", "TIMED", "SHORT", "BEARER", "OWN"), "SASL_PLAINTEXT")}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PROPERTIES = "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n" + "".join(
    f'listener.name.{name}.plain.sasl.jaas.config={PLAIN_MODULE} required user_alice="secret" '
    '"user_bob"="o\\\\"ther";\n'
    f"listener.name.{name}.scram-sha-256.sasl.jaas.config={SCRAM_MODULE} required;\n"
    f"listener.name.{name}.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required;\n"
    for name in ("sasl", "timed", "short")
)
PROPERTIES += """\
listener.name.timed.connections.max.reauth.ms=3600000
listener.name.short.plain.connections.max.reauth.ms=500
connection.failed.authentication.delay.ms=20
listener.name.bearer.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.bearer.oauthbearer.sasl.jaas.config=\
    org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.bearer.oauthbearer.sasl.server.callback.handler.class=\
    org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.bearer.sasl.oauthbearer.expected.audience=kafka,tenure
listener.name.bearer.sasl.oauthbearer.expected.issuer=https://idp
listener.name.own.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.own.oauthbearer.sasl.server.callback.handler.class=\
    org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.own.sasl.oauthbearer.expected.audience=kafka,tenure
listener.name.own.sasl.oauthbearer.expected.issuer=https://idp
"""

CLOSED = "closed"
SAID = 10
"""Bytes of a good answer to ApiVersions that count: the correlation id and the error."""


@pytest.fixture(scope="module")
def servers(
    kafka_is_here: None, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[tuple[ApacheKafka, Tenure]]:
    """Both servers. The keys of tokens are in a file; for OWN they are at a provider with a CA of its own."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(jwks(jwk("rsa"), jwk("ec")))
    text = f"{PROPERTIES}listener.name.bearer.sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}\n"
    with ExitStack() as stack:
        idp = stack.enter_context(provider(certificates.server))
        idp.content = keys.read_bytes()
        text += f"listener.name.own.sasl.oauthbearer.jwks.endpoint.url=https://localhost:{idp.server_port}/keys\n"
        text += "listener.name.own.oauthbearer.sasl.jaas.config="
        text += "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        text += 'unsecuredLoginStringClaim_sub="node" '  # with an option Kafka's node makes itself a token
        text += f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.ca}";\n'
        kafka = stack.enter_context(ApacheKafka(listeners=LISTENERS, properties=text))
        yield kafka, stack.enter_context(Tenure(listeners=LISTENERS, properties=text))


def port_of(server: ApacheKafka | Tenure, listener: str) -> int:
    """The port of a listener."""
    return int(server.bootstrap_of(listener).rpartition(":")[2])


def sized(content: bytes) -> bytes:
    """A frame of any content."""
    return struct.pack(">i", len(content)) + content


def framed(request: Message, version: int) -> bytes:
    """A request."""
    return encode_request(request, version, 7, "client")


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    """A SaslHandshake."""
    return framed(SaslHandshakeRequest(mechanism=mechanism), version)


def token(content: bytes, version: int = 2) -> bytes:
    """A SaslAuthenticate."""
    return framed(SaslAuthenticateRequest(auth_bytes=content), version)


VERSIONS = framed(ApiVersionsRequest(), 0)
UNKNOWN_VERSION = sized(struct.pack(">hhih", 18, 99, 7, -1))
BAD_SOFTWARE = framed(ApiVersionsRequest(client_software_name="-", client_software_version="1"), 3)
METADATA = framed(MetadataRequest(topics=[]), 4)
GROUPS = framed(DescribeGroupsRequest(groups=["nobody's"]), 0)
RIGHT, BOB = b"\0alice\0secret", b'\0bob\0o"ther'

DIALOGUES: dict[str, Sequence[bytes]] = {
    "right": [VERSIONS, handshake(), token(RIGHT)],
    "right, version 0": [handshake(), token(RIGHT, 0)],
    "right, version 1": [handshake(), token(RIGHT, 1)],
    "an escaped quote in the password": [handshake(), token(BOB)],
    "for oneself": [handshake(), token(b"alice\0alice\0secret")],
    "for another": [handshake(), token(b"bob\0alice\0secret")],
    "wrong password": [handshake(), token(b"\0alice\0wrong")],
    "wrong password, version 0": [handshake(), token(b"\0alice\0wrong", 0)],
    "unknown user": [handshake(), token(b"\0mallory\0wrong")],
    "no password": [handshake(), token(b"\0alice\0")],
    "no name": [handshake(), token(b"\0\0secret")],
    "one part": [handshake(), token(b"alice")],
    "two parts": [handshake(), token(b"alice\0secret")],
    "five parts": [handshake(), token(b"a\0b\0c\0d\0e")],
    "an empty token": [handshake(), token(b"")],
    "no UTF-8": [handshake(), token(b"\0\xff\0\xff")],
    "bare token": [handshake(version=0), sized(RIGHT), GROUPS],
    "bare token, wrong": [handshake(version=0), sized(b"\0alice\0wrong")],
    "a token with a header where a bare one is due": [handshake(version=0), token(RIGHT)],
    "a bare token where one with a header is due": [handshake(), sized(RIGHT)],
    "unknown mechanism": [handshake("SCRAM-SHA-1")],
    "unknown mechanism, version 0": [handshake("plain", 0)],
    "a mechanism without users": [handshake("GSSAPI")],
    "handshake twice": [handshake(), handshake()],
    "handshake twice, another mechanism": [handshake(), handshake("SCRAM-SHA-256")],
    "token first": [token(RIGHT)],
    "versions twice": [VERSIONS, VERSIONS],
    "versions after the handshake": [handshake(), VERSIONS],
    "metadata first": [METADATA],
    "metadata behind versions": [VERSIONS, METADATA],
    "an unknown version of ApiVersions": [UNKNOWN_VERSION, VERSIONS, handshake(), token(RIGHT)],
    "a name that no software has": [BAD_SOFTWARE, handshake(), token(RIGHT)],
    "an unknown version of SaslHandshake": [sized(struct.pack(">hhih", 17, 2, 7, -1))],
    "an unknown version of SaslAuthenticate": [handshake(), sized(struct.pack(">hhih", 36, 3, 7, -1))],
    "an unknown API": [sized(struct.pack(">hhih", 999, 0, 7, -1))],
    "garbage": [sized(b"\x60\x01garbage")],
    "HTTP": [b"GET / HTTP/1.1\r\n\r\n"],
    "a size below 0": [struct.pack(">i", -2)],
    "a huge frame": [struct.pack(">i", 2**30)],
    "handshake when authenticated": [handshake(), token(RIGHT), handshake(), token(RIGHT), GROUPS],
    "SCRAM, broken": [handshake("SCRAM-SHA-256"), token(b"hello")],
}

TIMED: dict[str, Sequence[bytes]] = {
    "again at once": [handshake(), token(RIGHT), handshake(), token(RIGHT)],
    "again twice at once": [handshake(), token(RIGHT), handshake(), token(RIGHT), handshake(), token(RIGHT)],
    "again, version 0": [handshake(), token(RIGHT, 0), handshake(), token(RIGHT, 1)],
    "again as another": [handshake(), token(RIGHT), handshake(), token(BOB)],
    "again, wrong password": [handshake(), token(RIGHT), handshake(), token(b"\0alice\0wrong")],
    "again by another mechanism": [handshake(), token(RIGHT), handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=x")],
    "again by an unknown mechanism": [handshake(), token(RIGHT), handshake("X")],
    "something else in between": [handshake(), token(RIGHT), handshake(), VERSIONS],
    "metadata in between": [handshake(), token(RIGHT), VERSIONS, handshake(), token(RIGHT)],
    "again, bare": [handshake(version=0), sized(RIGHT), handshake(version=0), sized(RIGHT)],
    "bare, then not": [handshake(version=0), sized(RIGHT), handshake(), token(RIGHT)],
}


def talk(port: int, frames: Sequence[bytes]) -> list[str]:
    """The answers to a dialogue."""
    heard = []
    with Connection(port) as connection:
        for each in frames:
            try:
                connection.send_bytes(each)
                answer = connection.receive_frame()
            except (Closed, ConnectionError):
                heard.append(CLOSED)
                break
            if each is VERSIONS and len(answer) > SAID:
                answer = answer[: SAID - 4]
            heard.append(answer.hex())
    return heard


@pytest.mark.parametrize("name", DIALOGUES)
def test_dialogue(servers: tuple[ApacheKafka, Tenure], name: str) -> None:
    """Tenure answers as Kafka does."""
    kafka, tenure = (talk(port_of(server, "SASL"), DIALOGUES[name]) for server in servers)
    assert tenure == kafka


@pytest.mark.parametrize("name", [name for name, frames in DIALOGUES.items() if METADATA not in frames])
def test_dialogue_without_sasl(servers: tuple[ApacheKafka, Tenure], name: str) -> None:
    """The same frames on a listener without SASL; but answers to Metadata have addresses."""
    kafka, tenure = (talk(port_of(server, "OPEN"), DIALOGUES[name]) for server in servers)
    assert tenure == kafka


@pytest.mark.parametrize("name", TIMED)
def test_dialogue_in_a_session_with_an_end(servers: tuple[ApacheKafka, Tenure], name: str) -> None:
    """Re-authentication goes as in Kafka."""
    kafka, tenure = (talk(port_of(server, "TIMED"), TIMED[name]) for server in servers)
    assert tenure == kafka


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("last", ["versions", "groups", "handshake"])
def test_an_ended_session(servers: tuple[ApacheKafka, Tenure], version: int, last: str) -> None:
    """Its next request closes the connection, unless it is a handshake."""
    heard: list[list[str]] = []
    for server in servers:
        with Connection(port_of(server, "SHORT")) as connection:
            heard.append([])
            for each in (handshake(), token(RIGHT, version)):
                connection.send_bytes(each)
                heard[-1].append(connection.receive_frame().hex())
            with pytest.raises(TimeoutError):  # neither closes by itself
                wait_until(lambda: not connection.is_silent(), "the end", 0.6)
            request = {"versions": VERSIONS, "groups": GROUPS, "handshake": handshake()}[last]
            connection.send_bytes(request)
            try:
                heard[-1].append(connection.receive_frame().hex())
            except Closed:
                heard[-1].append(CLOSED)
    assert heard[0] == heard[1]


# SCRAM.


def proof(mechanism: str, first: str, answer: bytes, password: str) -> tuple[bytes, bytes]:
    """A client's last message, and the server's signature that has to follow."""
    fields = dict(part.split("=", 1) for part in answer.decode().split(","))
    digest = DIGESTS[mechanism]
    salted_password = salted(mechanism, password, b64decode(fields["s"]), int(fields["i"]))
    last = f"c=biws,r={fields['r']}"
    said = f"{first.removeprefix('n,,')},{answer.decode()},{last}".encode()
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    signature = hmac.digest(new(digest, client_key).digest(), said, digest)
    made = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server_key = hmac.digest(salted_password, b"Server Key", digest)
    return f"{last},p={b64encode(made).decode()}".encode(), hmac.digest(server_key, said, digest)


def log_in(connection: Connection, mechanism: str, user: str, password: str) -> tuple[object, ...]:
    """Log in by SCRAM; returns what the server's answers say, without what is random."""
    asked = connection.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    first = f"n,,n={user},r=clientnonce"
    one = connection.ask(SaslAuthenticateRequest(auth_bytes=first.encode()), 2)
    assert one.error_code == 0, one
    last, signature = proof(mechanism, first, one.auth_bytes, password)
    two = connection.ask(SaslAuthenticateRequest(auth_bytes=last), 2)
    shown = re.sub("r=[^,]*,", "", one.auth_bytes.decode())
    is_signed = two.auth_bytes == b"v=" + b64encode(signature)
    return asked.mechanisms, shown, is_signed, two.error_code, two.error_message, two.session_lifetime_ms


def altered(
    name: str, mechanism: int, password: str, iterations: int = 4_096, salt: bytes = b"salt of a user"
) -> bytes:
    """Set a credential."""
    named = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}.get(mechanism, "SCRAM-SHA-256")
    salted_password = salted(named, password, salt, max(iterations, 1))
    one = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted_password
    )
    return framed(AlterUserScramCredentialsRequest(upsertions=[one]), 0)


def removed(name: str, mechanism: int) -> bytes:
    """Remove a credential."""
    one = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)
    return framed(AlterUserScramCredentialsRequest(deletions=[one]), 0)


def described(*names: str) -> bytes:
    """Ask for credentials."""
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    return framed(DescribeUserScramCredentialsRequest(users=users or None), 0)


ALTERATIONS: dict[str, bytes] = {
    "a wrong deletion": removed("nobody", 1),
    "an unknown mechanism": removed("carol", 0),
    "an unknown mechanism of a new one": altered("carol", 3, "x"),
    "no name": altered("", 1, "x"),
    "no name to remove": removed("", 1),
    "too few iterations": altered("carol", 1, "x", 4_095),
    "too many iterations": altered("carol", 1, "x", 16_385),
    "most iterations": altered("dave", 1, "x", 16_384),
    "a fine one": altered("carol", 1, "x"),
    "another mechanism": altered("carol", 2, "x", 8_192),
    "a new one": altered("carol", 1, "y", 5_000),
    "removed": removed("carol", 1),
    "removed again": removed("carol", 1),
    "another user": described("dave"),
    "one user": described("carol"),
    "nobody": described("nobody"),
    "twice": described("carol", "carol"),
    "last of carol": removed("carol", 2),
    "carol": described("carol"),
    "without a salt": altered("dave", 2, "x", salt=b""),
    "last of dave": removed("dave", 1),
    "and the other": removed("dave", 2),
    "all": described(),
}


def test_credentials_are_changed_and_described_as_in_kafka(servers: tuple[ApacheKafka, Tenure]) -> None:
    """Each request gets the same bytes; Kafka shows a change a moment after its answer."""
    kafka, tenure = servers
    for name, request in ALTERATIONS.items():
        (ours,) = talk(port_of(tenure, "OPEN"), [request])
        assert ours, name
        wait_until(lambda: talk(port_of(kafka, "OPEN"), [request]) == [ours], name, WITHIN_S)  # noqa: B023


@pytest.mark.parametrize("mechanism", [1, 2])
def test_login_by_scram(servers: tuple[ApacheKafka, Tenure], mechanism: int) -> None:
    """Right and wrong passwords get the same; a session goes on when its credential is changed or gone."""
    name = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}[mechanism]
    user = f"erin-{mechanism}"
    heard = []
    for server in servers:
        open_port, port = port_of(server, "OPEN"), port_of(server, "TIMED")
        talk(open_port, [altered(user, mechanism, "secret", 8_192)])
        wait_until(lambda: known_to(port, name, user, "secret"), "the credential", WITHIN_S)  # noqa: B023
        said: list[object] = []
        with Connection(port) as living:
            said.append(log_in(living, name, user, "secret"))
            with Connection(port) as wrong:
                said.append(log_in(wrong, name, user, "wrong"))
            talk(open_port, [altered(user, mechanism, "new", 4_096)])
            wait_until(lambda: known_to(port, name, user, "new"), "the new credential", WITHIN_S)  # noqa: B023
            said.append(connection_lives(living))
            talk(open_port, [removed(user, mechanism)])
            wait_until(lambda: not known_to(port, name, user, "new"), "its end", WITHIN_S)  # noqa: B023
            said.append(connection_lives(living))
        heard.append(said)
    assert heard[0] == heard[1]


def known_to(port: int, mechanism: str, user: str, password: str) -> bool:
    """Whether a user can log in."""
    with Connection(port) as connection:
        try:
            return log_in(connection, mechanism, user, password)[3] == 0
        except (AssertionError, Closed):
            return False


def connection_lives(connection: Connection) -> bool:
    """Whether requests are still answered."""
    connection.send_bytes(VERSIONS)
    try:
        return bool(connection.receive_frame())
    except Closed:
        return False


def test_an_unknown_user_gets_a_salt_on_tenure_alone(servers: tuple[ApacheKafka, Tenure]) -> None:
    """Kafka refuses the first message of an unknown user, which tells who exists; the end is the same."""
    kafka, tenure = (port_of(server, "SASL") for server in servers)
    first = b"n,,n=mallory,r=clientnonce"
    (_, refused) = talk(kafka, [handshake("SCRAM-SHA-256"), token(first)])
    with Connection(tenure) as connection:
        ours = log_in(connection, "SCRAM-SHA-256", "mallory", "x")
    text = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    assert ours[3:5] == (58, text)
    assert text.encode().hex() in refused


# OAUTHBEARER.

GOOD: dict[str, Any] = {"iss": "https://idp", "aud": "kafka", "exp": 4_000_000_000}
CONFIRMED = token(b"\x01")
LIFETIME = slice(-18, -2)
"""Digits of the session's lifetime in the last answer."""

TOKENS: dict[str, bytes] = {
    "good": first_message(signed(**GOOD)),
    "an elliptic curve": first_message(signed("ec", "ES256", **GOOD)),
    "without a kid": first_message(signed(kid=None, **GOOD)),
    "for oneself": first_message(signed(**GOOD), "n,a=alice,"),
    "for another": first_message(signed(**GOOD), "n,a=bob,"),
    "several audiences": first_message(signed(**{**GOOD, "aud": ["x", "tenure"]})),
    "another audience": first_message(signed(**{**GOOD, "aud": "x"})),
    "no audience": first_message(signed(**{**GOOD, "aud": None})),
    "another issuer": first_message(signed(**{**GOOD, "iss": "x"})),
    "expired": first_message(signed(**{**GOOD, "exp": 1_000})),
    "no end": first_message(signed(**{**GOOD, "exp": None})),
    "no beginning": first_message(signed(**{**GOOD, "iat": None})),
    "not yet": first_message(signed(nbf=3_999_999_999, **GOOD)),
    "no user": first_message(signed(sub=None, **GOOD)),
    "an empty user": first_message(signed(sub=" ", **GOOD)),
    "a user with spaces": first_message(signed(sub=" alice ", **GOOD)),
    "another key": first_message(signed("another-rsa", kid="rsa", **GOOD)),
    "an unknown key": first_message(signed("another-rsa", **GOOD)),
    "unsigned": first_message(jwt.encode(claims(**GOOD), "", "none")),
    "symmetric": first_message(jwt.encode(claims(**GOOD), "x" * 32, "HS256", headers={"kid": "rsa"})),
    "an extension of the header": first_message(
        jwt.encode(claims(**GOOD), private_key("rsa"), "RS256", headers={"kid": "rsa", "crit": ["x"], "x": 1})
    ),
    "garbage": first_message("abc"),
    "an extension": b"n,,\x01auth=Bearer %b\x01traceId=7\x01\x01" % signed(**GOOD).encode(),
    "no message": b"hello",
}


@pytest.mark.parametrize("name", TOKENS)
def test_token(servers: tuple[ApacheKafka, Tenure], name: str) -> None:
    """Tokens count, or not, as on Kafka, with the same words in each step; lifetimes are about equal."""
    heard = [
        talk(port_of(server, "BEARER"), [handshake("OAUTHBEARER"), token(TOKENS[name]), CONFIRMED])
        for server in servers
    ]
    lifetimes = [int(said[1][LIFETIME], 16) for said in heard if len(said[1]) > -LIFETIME.start]
    assert all(abs(each - lifetimes[0]) < WITHIN_S * 1_000 for each in lifetimes)
    for said in heard:
        if len(said[1]) > -LIFETIME.start:
            said[1] = said[1][: LIFETIME.start]
    assert heard[1] == heard[0]


def test_keys_of_a_provider_with_a_ca_of_its_own(servers: tuple[ApacheKafka, Tenure]) -> None:
    """The options ssl.* of the login module count on both: its tokens let users in, and no others do."""
    for server in servers:
        port = port_of(server, "OWN")
        for name, is_let_in in (("good", True), ("an elliptic curve", True), ("another key", False)):
            said = talk(port, [handshake("OAUTHBEARER"), token(TOKENS[name]), VERSIONS])
            assert (b"invalid_token".hex() not in said[1]) is is_let_in
            assert (said[2][8:12] == "0000") is is_let_in  # the error of ApiVersions, behind the correlation id


# Kafka's own tool.


def kafka_configs(tools: Tools, server: ApacheKafka | Tenure, *arguments: str) -> str:
    """The words of kafka-configs about the credentials of users."""
    where = ("--bootstrap-server", server.bootstrap_of("OPEN"), "--entity-type", "users")
    done = tools.run("configs", *where, *arguments)
    return (done.out + done.err).replace(server.bootstrap_of("OPEN"), "the server")


def test_kafkas_own_tool_sets_and_removes_credentials(servers: tuple[ApacheKafka, Tenure]) -> None:
    """Its words are the same, and the user can log in."""
    steps = [
        ("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=a secret]"),
        ("--alter", "--add-config", "SCRAM-SHA-512=[password=other]"),
        ("--describe",),
        ("--alter", "--delete-config", "SCRAM-SHA-512"),
        ("--describe",),
        ("--alter", "--delete-config", "SCRAM-SHA-512"),
    ]
    with Tools() as tools:
        for step in steps:
            kafka, tenure = (kafka_configs(tools, server, *step, "--entity-name", "frank") for server in servers)
            assert sorted(re.split(r"\W+", tenure)) == sorted(re.split(r"\W+", kafka)), (
                "Kafka names mechanisms in any order"
            )
    for server in servers:
        assert known_to(port_of(server, "SASL"), "SCRAM-SHA-256", "frank", "a secret")
