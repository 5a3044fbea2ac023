"""The client chooses a node, and asks again. Time is a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client import client as module
from coordinator.client.client import ATTEMPTS_MAX, COORDINATOR_MOVED, Client, Node, parse_addresses
from coordinator.client.connection import Address, Connection, Deadline
from coordinator.client.errors import Refused, Unreachable
from protocol.errors import ProtocolError
from protocol.messages import DescribeGroupsRequest, HeartbeatRequest, ListGroupsRequest, ListGroupsResponse
from schemas.errors import ErrorCode
from tests.client.scripted import HANG_UP, Clock, Scripted, served
from tests.support.patience import WITHIN_S
from tests.support.ports import refusing_port


def client_of(bootstrap: str, clock: Clock | None = None, timeout: float = 5.0) -> Client:
    """A client whose time passes only when it pauses."""
    clock = clock or Clock()
    return Client(bootstrap, timeout, clock=clock, pause=clock.pause)


def described(*groups: tuple[str, int]) -> dict[str, Any]:
    """An answer with a group id and an error code for each."""
    return {"groups": [{"group_id": name, "error_code": code, "group_state": "Stable"} for name, code in groups]}


def describe(client: Client, *group_ids: str) -> dict[str, str | Refused]:
    """The state of each group."""

    def results(response: Any, _node: object) -> list[tuple[str, int, str]]:
        return [(group.group_id, group.error_code, group.group_state) for group in response.groups]

    return client.ask_coordinators(group_ids, lambda asked: DescribeGroupsRequest(groups=asked), results)


def error_code(answer: object) -> int:
    """The error code of a refusal."""
    assert isinstance(answer, Refused)
    return answer.error_code


@pytest.mark.parametrize(
    "text, addresses",
    [
        ("localhost:9092", [Address("localhost", 9092)]),
        ("a:1, b:2", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9092", [Address("::1", 9092)]),
    ],
)
def test_bootstrap_names_addresses(text: str, addresses: list[Address]) -> None:
    """The text is HOST:PORT, several with commas; a v6 host has brackets, and is shown with them."""
    assert parse_addresses(text) == addresses
    assert ",".join(map(str, addresses)) == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "is not HOST:PORT") for text in ("", "localhost", "localhost:", ":9092", "h:0", "h:x", "a:1,", "h:²")),
        ("::1:9092", "is not HOST:PORT"),
        ("h:65536", "has a port above 65535"),
        ("http://h:1", "is a URL, leave out what stands before the host"),
    ],
)
def test_bootstrap_that_is_no_address_is_a_value_error(text: str, why: str) -> None:
    """The error names the wrong part and why it is wrong, before the client sends anything."""
    with pytest.raises(ValueError, match=why):
        Client(text)


def closes(*_: object) -> Connection:
    """Refuse a connection, as a node on another machine."""
    raise Unreachable("another machine: Connection refused")


def test_nobody_listens() -> None:
    """The client tries a port that refuses until the deadline, and not longer."""
    clock = Clock()
    client = Client("127.0.0.1:1", 5.0, clock=clock, pause=clock.pause, connect=closes)
    with pytest.raises(Unreachable, match="refused"):
        client.request(ListGroupsRequest())
    assert 4.0 < clock.now <= 5.0
    assert clock.pauses == sorted(clock.pauses)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_closed_port_of_this_machine_is_given_up_soon(host: str) -> None:
    """After less than a second, whatever the deadline; several tries, because a server may just be starting there."""
    with refusing_port() as port:
        for timeout in (5.0, 60.0):
            clock = Clock()
            with pytest.raises(Unreachable, match="refused"):
                client_of(f"{host}:{port}", clock, timeout).request(ListGroupsRequest())
            assert clock.now < 1.0
            assert len(clock.pauses) > 2
        clock = Clock()
        with pytest.raises(Unreachable, match="refused"):
            describe(client_of(f"{host}:{port}", clock), "g")
        assert clock.now < 1.0


def test_a_closed_port_beside_another_address_is_tried_until_the_deadline() -> None:
    """The other one may answer later: a bootstrap address, or a node that takes the groups of one that is gone."""
    clock = Clock()

    def connect(address: Address, client_id: str, deadline: Deadline) -> Connection:
        return closes() if address.host == "elsewhere" else Connection(address, client_id, deadline)

    with refusing_port() as port, Scripted() as server:
        client = Client(f"elsewhere:1,127.0.0.1:{port}", 5.0, clock=clock, pause=clock.pause, connect=connect)
        with pytest.raises(Unreachable, match="another machine"):
            client.request(ListGroupsRequest())
        assert clock.now > 4.0
        gone = {"key": "a", "node_id": 2, "host": "127.0.0.1", "port": port}
        for _ in range(8):  # for more than a second
            server.answer_first("FindCoordinator", {"coordinators": [gone]})
        server.answers("DescribeGroups", described(("a", 0)))
        with client_of(server.bootstrap, clock) as client:
            assert describe(client, "a") == {"a": "Stable"}


def test_each_wait_is_told_and_its_end() -> None:
    """The client tells of a wait before it connects and before it pauses, and that it is over with an answer."""
    told: list[bool] = []
    clock = Clock()
    with Scripted({"ListGroups": [HANG_UP, {}]}) as server:
        client = Client(server.bootstrap, on_wait=told.append, clock=clock, pause=clock.pause)
        with client:
            client.request(ListGroupsRequest())
            assert told == [True, True, True, False]
            client.request(ListGroupsRequest())
            assert told[4:] == [False]


def test_a_caller_may_try_again_by_itself() -> None:
    """After `try_once` a call fails with its first try, and the client tells of no wait."""
    told: list[bool] = []
    clock = Clock()
    with Scripted({"ListGroups": [HANG_UP]}) as server:
        client = Client(server.bootstrap, on_wait=told.append, clock=clock, pause=clock.pause)
        client.try_once()
        with client, pytest.raises(Unreachable, match="closed the connection"):
            client.request(ListGroupsRequest())
    assert (told, clock.pauses, len(server.asked("ListGroups"))) == ([], [], 1)


def test_tries_are_bounded_whatever_the_clock_says() -> None:
    """The client ends its tries even if the clock stands still."""
    pauses: list[float] = []
    with refusing_port() as port, pytest.raises(Unreachable):
        Client(f"127.0.0.1:{port}", 5.0, clock=lambda: 0.0, pause=pauses.append).request(ListGroupsRequest())
    assert len(pauses) == ATTEMPTS_MAX - 1


def test_next_bootstrap_address_is_asked_when_one_is_dead() -> None:
    """One living address is enough, and costs no pause."""
    clock = Clock()
    with (
        refusing_port() as port,
        Scripted() as server,
        client_of(f"127.0.0.1:{port},{server.bootstrap}", clock) as client,
    ):
        assert [node.node_id for node in client.nodes()] == [7]
    assert clock.pauses == []


def test_the_cluster_lives_on_without_the_only_bootstrap_address() -> None:
    """The nodes that an answer named are asked then, also by another client that shares the list of them."""
    gone: set[int] = set()
    known: list[Address] = []

    def connect(address: Address, client_id: str, deadline: Deadline) -> Connection:
        return closes() if address.port in gone else Connection(address, client_id, deadline)

    with Scripted() as first, Scripted() as second:
        brokers = [
            {"node_id": number, "host": "127.0.0.1", "port": server.port}
            for number, server in enumerate((first, second))
        ]
        first.answers("Metadata", {"brokers": brokers})
        clock = Clock()
        for answered in (2, 1):
            with Client(first.bootstrap, known=known, clock=clock, pause=clock.pause, connect=connect) as client:
                assert len(client.nodes()) == answered
                client.close()
                gone.add(first.port)
                assert [node.node_id for node in client.nodes()] == [7]


def test_lost_connection_is_made_anew() -> None:
    """If a connection is lost before the answer, the client sends the request again over another one."""
    with Scripted({"ListGroups": [HANG_UP, {}]}) as server, client_of(server.bootstrap) as client:
        assert client.request(ListGroupsRequest()) == ListGroupsResponse()
        assert server.connections == 2
        client.request(ListGroupsRequest())
    assert server.connections == 2


def test_server_that_is_not_kafka_is_not_asked_again() -> None:
    """After broken bytes the client doesn't ask again, and doesn't use the connection again."""
    answers = {"ListGroups": [b"HTTP/1.1 400 Bad Request\r\n\r\n", {}]}
    clock = Clock()
    with Scripted(answers) as server, client_of(server.bootstrap, clock) as client:
        with pytest.raises(ProtocolError, match=f"{server.bootstrap} does not speak Kafka's protocol"):
            client.request(ListGroupsRequest())
        assert clock.pauses == []
        client.request(ListGroupsRequest())
    assert server.connections == 2


def test_closed_client_connects_anew() -> None:
    """A closed client keeps everything but its connections."""
    with Scripted() as server:
        client = client_of(server.bootstrap)
        client.nodes()
        client.close()
        client.nodes()
        client.close()
    assert server.connections == 2


def test_coordinators_are_found_in_one_request() -> None:
    """FindCoordinator v4 takes all groups at once (KIP-699); a coordinator gets one request for all of its groups."""
    with Scripted({"DescribeGroups": [described(("a", 0), ("b", 0))]}) as server, client_of(server.bootstrap) as client:
        assert describe(client, "a", "b", "a") == {"a": "Stable", "b": "Stable"}
    assert [message.coordinator_keys for message in server.asked("FindCoordinator")] == [["a", "b"]]
    assert [message.groups for message in server.asked("DescribeGroups")] == [["a", "b"]]


def test_coordinators_are_found_one_by_one_on_older_servers() -> None:
    """Before version 4 FindCoordinator takes one key; the rest is the same."""
    answers = {"DescribeGroups": [described(("a", 0), ("b", 0))]}
    with served(answers, {"FindCoordinator": (0, 3)}) as (server, client):
        assert describe(client, "a", "b") == {"a": "Stable", "b": "Stable"}
    assert [message.key for message in server.asked("FindCoordinator")] == ["a", "b"]
    assert [message.groups for message in server.asked("DescribeGroups")] == [["a", "b"]]


@pytest.mark.parametrize("code", sorted(COORDINATOR_MOVED))
def test_moving_coordinator_is_looked_up_again(code: ErrorCode) -> None:
    """After error codes 14, 15 and 16 the client finds the coordinator again and asks about the groups concerned."""
    answers = {"DescribeGroups": [described(("a", 0), ("b", code)), described(("b", 0))]}
    with Scripted(answers) as server, client_of(server.bootstrap) as client:
        assert describe(client, "a", "b") == {"a": "Stable", "b": "Stable"}
    assert [message.coordinator_keys for message in server.asked("FindCoordinator")] == [["a", "b"], ["b"]]
    assert [message.groups for message in server.asked("DescribeGroups")] == [["a", "b"], ["b"]]


def test_a_client_that_asks_often_remembers_coordinators_until_they_move() -> None:
    """It asks again only for a group that has moved, and for all of a node that doesn't answer."""
    known: dict[str, Node] = {}
    clock = Clock()
    moved = described(("a", 0), ("b", ErrorCode.NOT_COORDINATOR))
    settled = described(("a", 0), ("b", 0))
    with (
        Scripted({"DescribeGroups": [settled, settled, moved, described(("b", 0)), HANG_UP, settled]}) as server,
        Client(server.bootstrap, 5.0, coordinators=known, clock=clock, pause=clock.pause) as client,
    ):
        for _ in range(4):
            assert describe(client, "a", "b") == {"a": "Stable", "b": "Stable"}
    asked = [message.coordinator_keys for message in server.asked("FindCoordinator")]
    assert asked == [["a", "b"], ["b"], ["a", "b"]]
    assert known.keys() == {"a", "b"}


def test_a_coordinator_that_does_not_speak_kafka_is_looked_up_again() -> None:
    """Another program got the address of a coordinator that went elsewhere: the next call asks where it is."""
    with (
        Scripted({"DescribeGroups": [described(("a", 0))]}) as server,
        Scripted({"ApiVersions": [b"HTTP/1.1 400 Bad Request"]}) as other,
        Client(server.bootstrap, WITHIN_S, coordinators={"a": Node(7, Address("127.0.0.1", other.port))}) as client,
    ):
        with pytest.raises(ProtocolError, match="does not speak Kafka's protocol"):
            describe(client, "a")
        assert describe(client, "a") == {"a": "Stable"}
    assert len(server.asked("FindCoordinator")) == 1


def test_memory_of_coordinators_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are too many, all of them go."""
    monkeypatch.setattr(module, "REMEMBERED_MAX", 2)
    known: dict[str, Node] = {}
    with (
        Scripted({"DescribeGroups": [described(("a", 0), ("b", 0)), described(("c", 0))]}) as server,
        Client(server.bootstrap, 5.0, coordinators=known) as client,
    ):
        describe(client, "a", "b")
        assert known.keys() == {"a", "b"}
        describe(client, "c")
    assert known.keys() == {"c"}


def test_coordinator_that_is_not_there_yet_is_looked_up_again() -> None:
    """After COORDINATOR_NOT_AVAILABLE, while __consumer_offsets is being created, the client tries again."""
    missing = {"coordinators": [{"key": "a", "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}]}
    with Scripted({"DescribeGroups": [described(("a", 0))]}) as server, client_of(server.bootstrap) as client:
        server.answer_first("FindCoordinator", missing)
        assert describe(client, "a") == {"a": "Stable"}
    assert len(server.asked("FindCoordinator")) == 2


def test_coordinator_that_moves_for_ever_is_an_answer_in_time() -> None:
    """At the deadline the error is the group's answer, and the other group has its result."""
    answers = {"DescribeGroups": [described(("a", 0), ("b", 16)), described(("b", 16))]}
    clock = Clock()
    with Scripted(answers) as server, client_of(server.bootstrap, clock) as client:
        result = describe(client, "a", "b")
    assert result["a"] == "Stable"
    assert error_code(result["b"]) == ErrorCode.NOT_COORDINATOR
    assert 4.0 < clock.now <= 5.0


def test_other_errors_are_answers_at_once() -> None:
    """The client doesn't ask again after an error that doesn't pass with time."""
    clock = Clock()
    answers = {"DescribeGroups": [described(("a", ErrorCode.GROUP_AUTHORIZATION_FAILED))]}
    with served(answers, clock=clock) as (_, client):
        assert error_code(describe(client, "a")["a"]) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert clock.pauses == []


def test_coordinator_lost_for_ever_is_unreachable() -> None:
    """If the coordinator closes each connection, the call has no result and raises Unreachable."""
    with (
        served({"DescribeGroups": [HANG_UP]}, clock=Clock()) as (_, client),
        pytest.raises(Unreachable, match="closed the connection"),
    ):
        describe(client, "a")


def test_group_that_the_server_leaves_out_is_refused() -> None:
    """Every requested group has an answer, even if the server leaves one out."""
    with Scripted({"DescribeGroups": [described()]}) as server, client_of(server.bootstrap) as client:
        assert error_code(describe(client, "a")["a"]) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_no_group_is_no_question() -> None:
    """Without groups the client sends nothing."""
    with Scripted() as server, client_of(server.bootstrap) as client:
        assert describe(client) == {}
    assert server.requests == []


def test_one_connection_per_node() -> None:
    """The client uses one connection per node, for one request after the other."""
    with Scripted({"Heartbeat": [{}]}) as server, client_of(server.bootstrap) as client:
        node = client.nodes()[0]
        for _ in range(3):
            client.request(HeartbeatRequest(group_id="g", member_id="m"), node)
    assert server.connections == 1
