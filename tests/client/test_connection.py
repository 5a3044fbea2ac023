"""One connection: versions, deadlines, and its end."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from typing import Any

import pytest

from coordinator.client.connection import Address, Connection, Deadline
from coordinator.client.errors import PortClosed, Refused, Unauthenticated, Unreachable
from coordinator.client.properties import read
from coordinator.client.security import Security
from coordinator.security.sasl import AuthenticationFailed, Exchange
from coordinator.security.sasl.scram import credential, salted, scram_mechanism
from protocol.errors import ProtocolError
from protocol.messages import DescribeGroupsRequest, ListGroupsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from schemas.errors import ErrorCode
from tests.client.scripted import HANG_UP, SILENCE, Clock, Scripted
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port
from tests.support.requests import response


def connect(server: Scripted, timeout: float = WITHIN_S) -> Connection:
    """A connection to a scripted server."""
    return Connection(Address("127.0.0.1", server.port), "test", Deadline(timeout, time.monotonic))


def soon(timeout: float = WITHIN_S) -> Deadline:
    """A deadline in real time."""
    return Deadline(timeout, time.monotonic)


def unsupported(*versions: tuple[int, int]) -> tuple[int, dict[str, Any]]:
    """A refusal of ApiVersions as in KIP-511: in version 0, with or without the range of ApiVersions itself."""
    keys = [{"api_key": 18, "min_version": low, "max_version": high} for low, high in versions]
    return 0, {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": keys}


def scripted_login(*lifetimes_ms: int) -> Scripted:
    """A server that lets alice in with "secret" by SCRAM; each login lasts as long as the next of `lifetimes_ms`."""
    salt = b"salt of sixteen!"
    known = credential("SCRAM-SHA-256", salted("SCRAM-SHA-256", "secret", salt, 4_096), salt, 4_096)
    mechanism = scram_mechanism("SCRAM-SHA-256", lambda user: (known, user == "alice"), lambda: "more")
    exchanges: list[Exchange] = []
    lifetimes = list(lifetimes_ms)

    def begin(request: SaslHandshakeRequest) -> Any:
        exchanges.append(Exchange(mechanism))
        wrong = request.mechanism != "SCRAM-SHA-256"
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if wrong else ErrorCode.NONE
        return {"error_code": code, "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}

    def go_on(request: SaslAuthenticateRequest) -> Any:
        try:
            step = exchanges[-1].step(request.auth_bytes)
        except AuthenticationFailed:
            return {"error_code": ErrorCode.SASL_AUTHENTICATION_FAILED, "error_message": "Authentication failed"}
        lifetime_ms = 0 if step.user is None else lifetimes.pop(0)
        return {"auth_bytes": step.answer, "session_lifetime_ms": lifetime_ms}

    return Scripted({"SaslHandshake": [begin], "SaslAuthenticate": [go_on], "ListGroups": [{}]})


def login_of(mechanism: str, password: str) -> Security:
    """How alice logs in."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'sasl.jaas.config={module} required username="alice" password="{password}";'
    return Security(read(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n{jaas}", "f"))


def test_a_login_comes_between_versions_and_requests() -> None:
    """ApiVersions, SaslHandshake v1, SaslAuthenticate, then requests, all on one connection."""
    with scripted_login(0) as server:
        address = Address("127.0.0.1", server.port)
        connection = Connection(address, "test", soon(), login_of("SCRAM-SHA-256", "secret"))
        connection.request(ListGroupsRequest(), 0, soon())
        connection.close()
    named = [(name, version) for name, version, _ in server.requests]
    token = ("SaslAuthenticate", 2)
    assert named == [("ApiVersions", 3), ("SaslHandshake", 1), token, token, ("ListGroups", 0)]
    assert server.connections == 1


def test_before_its_session_ends_the_client_logs_in_again() -> None:
    """KIP-368: behind a part of the lifetime a login on the same connection comes before the next request."""
    clock = Clock()
    with scripted_login(10_000, 20_000, 0) as server:
        deadline = Deadline(WITHIN_S, clock)
        address = Address("127.0.0.1", server.port)
        connection = Connection(address, "test", deadline, login_of("SCRAM-SHA-256", "secret"))
        for at_s, logins in ((7.9, 1), (8.0, 2), (23.9, 2), (24.1, 3), (10_000, 3)):
            clock.now = at_s
            connection.request(ListGroupsRequest(), 0, Deadline(WITHIN_S, clock))
            assert len(server.asked("SaslHandshake")) == logins, at_s
        connection.close()
    assert server.connections == 1


@pytest.mark.parametrize(
    ("mechanism", "password", "why"),
    [
        ("SCRAM-SHA-256", "wrong", "SCRAM-SHA-256: Authentication failed"),
        (
            "SCRAM-SHA-512",
            "secret",
            "SCRAM-SHA-512: UNSUPPORTED_SASL_MECHANISM, the server offers SCRAM-SHA-256, SCRAM-SHA-512",
        ),
    ],
)
def test_a_login_that_fails(mechanism: str, password: str, why: str) -> None:
    """The error has the server's words, or what it offers, and never the password."""
    with scripted_login() as server, pytest.raises(Unauthenticated) as raised:
        Connection(Address("127.0.0.1", server.port), "test", soon(), login_of(mechanism, password))
    assert str(raised.value) == f"127.0.0.1:{server.port}: {why}"


def test_versions_are_asked_first_and_name_the_software() -> None:
    """The first request is ApiVersions v3, with a name and a version as KIP-511 allows them."""
    with Scripted() as server:
        connect(server).close()
    (name, version, message) = server.requests[0]
    assert (name, version) == ("ApiVersions", 3)
    assert message.client_software_name == "tenure"
    assert message.client_software_version[0].isdigit()


@pytest.mark.parametrize(("named", "version"), [(((0, 2),), 2), (((0, 0),), 0), ((), 0)])
def test_versions_are_asked_again_in_the_version_that_the_server_names(
    named: tuple[tuple[int, int], ...], version: int
) -> None:
    """After a refusal in version 0, the client takes the version from the server's range, or 0 if there is none."""
    with Scripted({"ListGroups": [{}]}) as server:
        server.answer_first("ApiVersions", unsupported(*named))
        connection = connect(server)
        connection.request(ListGroupsRequest(), connection.version(ListGroupsRequest), soon())
        connection.close()
    assert [asked for name, asked, _message in server.requests if name == "ApiVersions"] == [3, version]
    assert server.connections == 1


def test_versions_refused_otherwise() -> None:
    """Any other error ends the connection, with the error's name."""
    refusal = {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    with Scripted({"ApiVersions": [refusal]}) as server, pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"):
        connect(server)


@pytest.mark.parametrize(("theirs", "common"), [((0, 99), 6), ((0, 3), 3), ((6, 99), 6)])
def test_highest_common_version(theirs: tuple[int, int], common: int) -> None:
    """The client takes the highest version that both sides know."""
    with Scripted(versions={"DescribeGroups": theirs}) as server:
        connection = connect(server)
        assert connection.version(DescribeGroupsRequest) == common
        connection.close()


@pytest.mark.parametrize(("theirs", "at_least"), [((7, 9), 0), ((0, 3), 4), ((0, -1), 0)])
def test_no_common_version(theirs: tuple[int, int], at_least: int) -> None:
    """The client refuses a server that is too new, too old or without the API, before it sends the request."""
    with Scripted(versions={"DescribeGroups": theirs}) as server:
        connection = connect(server)
        with pytest.raises(Refused, match=r"DescribeGroups.* is needed: UNSUPPORTED_VERSION") as refused:
            connection.version(DescribeGroupsRequest, at_least)
        connection.close()
    assert refused.value.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_silent_server_is_given_up_at_the_deadline() -> None:
    """The client waits for an answer only until the deadline."""
    with Scripted({"ListGroups": [SILENCE]}) as server:
        connection = connect(server)
        began = time.monotonic()
        with pytest.raises(Unreachable, match="did not answer in time"):
            connection.request(ListGroupsRequest(), 0, soon(0.05))
        connection.close()
    assert time.monotonic() - began > 0.04


def test_nothing_is_sent_after_the_deadline() -> None:
    """After the deadline the client sends nothing: a socket timeout of 0 seconds would mean something else."""
    with Scripted() as server:
        connection = connect(server)
        with pytest.raises(Unreachable, match="did not answer in time"):
            connection.request(ListGroupsRequest(), 0, soon(0))
        connection.close()
    assert server.asked("ListGroups") == []


def test_a_name_whose_address_is_lost_is_no_closed_port_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the name has an address while the client connects and none after that, the refusal is the error."""
    with refusing_port() as port:
        answers = [socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)]

        def resolve(*_: object, **__: object) -> Any:
            if not answers:
                raise socket.gaierror("no address")
            return answers.pop()

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        with pytest.raises(Unreachable, match="refused") as raised:
            Connection(Address("moving", port), "test", soon())
    assert not isinstance(raised.value, PortClosed)


def test_a_host_that_does_not_exist_is_named_as_one() -> None:
    """The words of the system alone don't say that it is the name that is wrong."""
    with pytest.raises(Unreachable, match=r"^no-such-host\.invalid:9092: there is no such host: ") as raised:
        Connection(Address("no-such-host.invalid", 9092), "test", soon())
    assert not isinstance(raised.value, PortClosed)


def test_server_that_hangs_up() -> None:
    """The end of the stream is a lost connection."""
    with Scripted({"ListGroups": [HANG_UP]}) as server:
        connection = connect(server)
        with pytest.raises(Unreachable, match="closed the connection"):
            connection.request(ListGroupsRequest(), 0, soon())
        connection.close()


@pytest.mark.parametrize(
    ("unanswered", "hint"),
    [
        ("ApiVersions", "perhaps it asks for TLS: security.protocol=SSL in the file of --command-config"),
        ("ListGroups", "perhaps it asks for a login: security.protocol=SASL_PLAINTEXT in the file of --command-config"),
    ],
)
def test_the_end_of_a_connection_hints_at_the_security_of_the_listener(unanswered: str, hint: str) -> None:
    """A listener with TLS answers nothing in plaintext, and one with a login answers ApiVersions only."""

    def ask(server: Scripted) -> None:
        with closing(connect(server)) as connection:
            connection.request(ListGroupsRequest(), 0, soon())

    with Scripted({unanswered: [HANG_UP]}) as server, pytest.raises(Unreachable) as raised:
        ask(server)
    assert str(raised.value).endswith(f"closed the connection, {hint}")


def test_a_login_at_a_listener_without_one_says_so() -> None:
    """Such a listener refuses SaslHandshake with ILLEGAL_SASL_STATE, as Kafka's does."""
    refusal = {"error_code": ErrorCode.ILLEGAL_SASL_STATE}
    login = login_of("SCRAM-SHA-256", "secret")
    with Scripted({"SaslHandshake": [refusal]}) as server, pytest.raises(Unauthenticated) as raised:
        Connection(Address("127.0.0.1", server.port), "test", soon(), login)
    assert str(raised.value).endswith("SCRAM-SHA-256: ILLEGAL_SASL_STATE, this listener has no login")


def test_nobody_listens() -> None:
    """A refused connection names the address."""
    with refusing_port() as port, pytest.raises(Unreachable, match=f"127.0.0.1:{port}: .*refused"):
        Connection(Address("127.0.0.1", port), "test", soon())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02ab",
        b"\x00\x00\x00\x08\x00\x00\x00\x02\x7f\xff\xff\xff",
        b"\x00\x00\x00\x0a\x00\x00\x00\x63" + bytes(6),
    ],
    ids=["http", "empty frame", "negative size", "no header", "absurd length", "another request's answer"],
)
def test_answer_that_is_not_kafkas(answer: bytes) -> None:
    """Any bytes that are no response raise a ProtocolError with the address, and never another exception."""
    with Scripted({"ListGroups": [answer]}) as server:
        connection = connect(server)
        with pytest.raises(ProtocolError, match=f"{server.bootstrap} does not speak"):
            connection.request(ListGroupsRequest(), 0, soon())
        connection.close()


def test_answer_in_pieces() -> None:
    """A response may arrive in any number of pieces."""
    many = response("ListGroups", groups=[{"group_id": f"group-{number}" * 20} for number in range(2_000)])
    with Scripted({"ListGroups": [many]}) as server:
        connection = connect(server)
        assert connection.request(ListGroupsRequest(), 4, soon()) == many
        connection.close()
