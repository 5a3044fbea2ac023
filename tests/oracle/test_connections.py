"""Limits on the number of connections, at the start and changed at run time: Apache Kafka and Tenure do the same.

Both have the listeners A, with a number of its own, B, and INTERNAL, which is the one of brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from protocol.messages import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from schemas.errors import ErrorCode
from tests.support.apache import INTERNAL, NODE_LOGIN, NODE_USER, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.raw import Closed, Connection
from tests.support.requests import configs_request, describe_configs_request
from tests.support.tenure import Tenure, wait_until

pytestmark = pytest.mark.oracle

LISTENERS = {"A": "PLAINTEXT", "B": "PLAINTEXT"}
PROPERTIES = "listener.name.a.max.connections=2\n"
LOGIN = f"""\
inter.broker.listener.name={INTERNAL}
listener.name.internal.sasl.enabled.mechanisms=PLAIN
listener.name.internal.plain.sasl.jaas.config={NODE_LOGIN}
"""
"""Kafka's node has this by itself."""
SET, DELETE = 0, 1
BROKER = 4
MOST = 8
"""Lower, and Kafka's controller, which has the same limit, may close the connections of its own broker."""


class Server:
    """One of the two. ports: by listener. connections: those that a test has opened."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._ports = ports
        self._connections = ExitStack()

    def connect(self, listener: str) -> Connection:
        """A connection, which has sent a request."""
        connection = self._connections.enter_context(Connection(self._ports[listener]))
        connection.send(ApiVersionsRequest(), 0)
        return connection

    def admin(self) -> Connection:
        """A connection to the listener of brokers."""
        connection = self.connect(INTERNAL)
        connection.receive()
        connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{NODE_USER}\0{NODE_USER}".encode()
        answer: Any = connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == 0
        return connection

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()


@pytest.fixture(scope="module")
def both(kafka_is_here: None) -> Iterator[tuple[Server, Server]]:
    """Kafka and Tenure."""
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka(listeners=LISTENERS, properties=PROPERTIES))
        listeners = {**LISTENERS, INTERNAL: "SASL_PLAINTEXT"}
        tenure = stack.enter_context(Tenure(listeners=listeners, properties=PROPERTIES + LOGIN))
        yield Server(kafka.ports), Server(dict(zip(listeners, tenure.ports, strict=True)))


@pytest.fixture
def servers(both: tuple[Server, Server]) -> Iterator[tuple[Server, Server]]:
    """The same; a test's connections end with it."""
    yield both
    for server in both:
        server.close()


def change(
    connection: Connection, name: str, value: str | None, *, node: str = "1", validate_only: bool = False
) -> int:
    """Change a setting of a node, or of all nodes (""). None: take the change back. Returns the error code."""
    answer: Any = connection.ask(configs_request(BROKER, [node], {name: value}, validate_only=validate_only), 1)
    return int(answer.responses[0].error_code)


def waits(connection: Connection, speaker: Connection) -> bool:
    """Whether a connection isn't served, while another one is."""
    for _ in range(20):
        speaker.ask(ApiVersionsRequest(), 0)
    return connection.is_silent()


def a_new_one_waits(server: Server, speaker: Connection) -> bool:
    """Whether a new connection to A waits. Kafka's broker learns of a change after its controller has answered."""
    return waits(server.connect("A"), speaker)


def is_served(connection: Connection) -> bool:
    """Whether the request that a connection has sent is answered."""
    answer: Any = connection.receive()
    return bool(answer.api_keys)


def has_closed(connection: Connection) -> bool:
    """Whether the server has closed a connection."""
    try:
        connection.ask(ApiVersionsRequest(), 0)
    except (Closed, BrokenPipeError):
        return True
    return False


def test_above_the_number_of_a_listener_connections_wait(servers: tuple[Server, Server]) -> None:
    """Each is served when another one closes, or when the number grows; other listeners go on."""
    for server in servers:
        first, second = server.connect("A"), server.connect("A")
        for each in (first, second):
            assert is_served(each)
        third = server.connect("A")
        assert waits(third, second)
        other = server.connect("B")
        assert is_served(other)
        assert waits(third, other)
        first.close()
        assert is_served(third)
        fourth = server.connect("A")
        assert waits(fourth, other)
        name = "listener.name.a.max.connections"
        assert change(other, name, "3") == 0
        assert is_served(fourth)
        assert change(other, name, None) == 0
        wait_until(partial(a_new_one_waits, server, other), "the old number", WITHIN_S)


def test_a_listeners_limits_are_changed_and_shown(servers: tuple[Server, Server]) -> None:
    """With the same codes and sources. Tenure refuses names without an effect, which Kafka takes."""
    codes, values = [], []
    for server in servers:
        admin, seen = server.admin(), []
        for limit in ("max.connections", "max.connection.creation.rate"):
            for value in ("3", "0", "-1", "x", ""):
                for node in ("1", ""):
                    seen.append(change(admin, f"listener.name.b.{limit}", value, node=node, validate_only=True))
        for node, name, value in CHANGES:
            assert change(admin, name, value, node=node) == 0
        _, name, value = CHANGES[-1]
        wait_until(partial(has_value, admin, name, value), "the last change", WITHIN_S)
        values.append([each for node in ("1", "") for each in shown(admin, node)])
        for node, name, _ in CHANGES:
            assert change(admin, name, None, node=node) == 0
        codes.append(seen)
        others = [
            change(admin, f"listener.name.{each}.max.connections", "3", validate_only=True) for each in ("C", "c")
        ]
        assert others == ([0, 0] if server is servers[0] else [ErrorCode.INVALID_REQUEST] * 2)
    assert codes[1] == codes[0]
    for expected, found in zip(*values, strict=True):
        assert found == expected


CHANGES = (
    ("1", "listener.name.a.max.connections", "70"),
    ("", "listener.name.a.max.connections", "80"),
    ("", "listener.name.b.max.connection.creation.rate", "900"),
    ("1", "max.connections", "1000"),
)


def has_value(connection: Connection, name: str, value: str) -> bool:
    """Whether a changed limit of the node is in effect."""
    return any(each[:2] == (name, value) for each in shown(connection, "1"))


def shown(connection: Connection, node: str) -> list[tuple[object, ...]]:
    """The limits on connections that a node has, or all nodes ("") have: all fields, and where values come from."""
    answer: Any = connection.ask(describe_configs_request(BROKER, node, include_synonyms=True), 4)
    (result,) = answer.results
    assert result.error_code == 0
    return sorted(
        (
            each.name,
            each.value,
            each.read_only,
            each.config_source,
            each.is_sensitive,
            each.config_type,
            [(one.name, one.value, one.source) for one in each.synonyms],
        )
        for each in result.configs
        if "max.connection" in each.name and not each.name.startswith("tenure.")
    )


def test_when_max_connections_falls_connections_close_and_the_listener_of_brokers_goes_on(
    servers: tuple[Server, Server],
) -> None:
    """It has as many places of its own, and others make room for it. Who has no place waits until the number grows."""
    for server in servers:
        admin = server.admin()
        clients = [server.connect(listener) for listener in "AA" + MOST * "B"]
        for each in clients:
            assert is_served(each)
        assert change(admin, "max.connections", str(MOST)) == 0
        wait_until(partial(has_value, admin, "max.connections", str(MOST)), "the lower number", WITHIN_S)
        for _ in range(MOST - 1):
            server.admin()
        for each in clients:
            wait_until(partial(has_closed, each), "the end of a connection", WITHIN_S)
        waiting = [server.connect(listener) for listener in ("B", INTERNAL)]
        assert all(waits(each, admin) for each in waiting)
        assert change(admin, "max.connections", None) == 0
        assert all(is_served(each) for each in waiting)
