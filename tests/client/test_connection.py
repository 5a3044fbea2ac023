"""One connection: versions, deadlines, and its end."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from coordinator.client.connection import Address, Connection, Deadline
from coordinator.client.errors import PortClosed, Refused, Unreachable
from protocol.errors import ProtocolError
from protocol.messages import ApiVersionsResponse, DescribeGroupsRequest, ListGroupsRequest, ListGroupsResponse
from schemas.errors import ErrorCode
from tests.client.scripted import HANG_UP, SILENCE, Scripted
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port


def connect(server: Scripted, timeout: float = WITHIN_S) -> Connection:
    """A connection to a scripted server."""
    return Connection(Address("127.0.0.1", server.port), "test", Deadline(timeout, time.monotonic))


def soon(timeout: float = WITHIN_S) -> Deadline:
    """A deadline in real time."""
    return Deadline(timeout, time.monotonic)


def unsupported(*versions: tuple[int, int]) -> tuple[int, ApiVersionsResponse]:
    """A refusal of ApiVersions as in KIP-511: in version 0, with or without the range of ApiVersions itself."""
    keys = [ApiVersionsResponse.ApiVersion(api_key=18, min_version=low, max_version=high) for low, high in versions]
    return 0, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)


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
    with Scripted({"ListGroups": [ListGroupsResponse()]}) as server:
        server.answer_first("ApiVersions", unsupported(*named))
        connection = connect(server)
        connection.request(ListGroupsRequest(), connection.version(ListGroupsRequest), soon())
        connection.close()
    assert [asked for name, asked, _message in server.requests if name == "ApiVersions"] == [3, version]
    assert server.connections == 1


def test_versions_refused_otherwise() -> None:
    """Any other error ends the connection, with the error's name."""
    response = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with Scripted({"ApiVersions": [response]}) as server, pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"):
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


def test_server_that_hangs_up() -> None:
    """The end of the stream is a lost connection."""
    with Scripted({"ListGroups": [HANG_UP]}) as server:
        connection = connect(server)
        with pytest.raises(Unreachable, match="closed the connection"):
            connection.request(ListGroupsRequest(), 0, soon())
        connection.close()


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
    many = ListGroupsResponse(
        groups=[ListGroupsResponse.ListedGroup(group_id=f"group-{number}" * 20) for number in range(2_000)]
    )
    with Scripted({"ListGroups": [many]}) as server:
        connection = connect(server)
        assert connection.request(ListGroupsRequest(), 4, soon()) == many
        connection.close()
