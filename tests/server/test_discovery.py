"""What clients learn about the cluster."""

from __future__ import annotations

from uuid import UUID

import pytest

from coordinator.group.events import Client
from coordinator.log.topics import Topic
from coordinator.server.call import Call
from coordinator.server.discovery import OFFSETS_TOPIC, Discovery
from coordinator.server.topics import Topics
from tests.server.harness import config_of


def discovery_of(*settings: str) -> Discovery:
    """With a topic of three partitions."""
    topic = Topic("orders", UUID(int=5), 3)
    return Discovery(config_of(*settings), "cluster", Topics({"orders": topic}, lambda _, __: None))


def call_through(listener: str, local_host: str = "10.0.0.9") -> Call:
    """A request that came through a listener."""
    return Call(3, 0, 1, Client("c", "/h"), listener, local_host, lambda _: None)


@pytest.mark.parametrize(
    "listen, advertised, expected",
    [
        ("127.0.0.1:9092", None, ("127.0.0.1", 9092)),
        ("127.0.0.1:9092", "kafka:19092", ("kafka", 19092)),
        ("0.0.0.0:9092", None, ("10.0.0.9", 9092)),
        (":9092", None, ("10.0.0.9", 9092)),
        ("[::]:9092", None, ("10.0.0.9", 9092)),
        (":9092", "kafka:19092", ("kafka", 19092)),
    ],
)
def test_a_client_is_told_an_address_that_it_can_reach(
    listen: str, advertised: str | None, expected: tuple[str, int]
) -> None:
    """The advertised one, else the listener's, else the one that this client reached."""
    settings = [f"listeners=PLAINTEXT://{listen}"]
    if advertised is not None:
        settings.append(f"advertised.listeners=PLAINTEXT://{advertised}")
    discovery = discovery_of(*settings)
    host, _, port = listen.rpartition(":")
    discovery.addresses["PLAINTEXT"] = (host.strip("[]"), int(port))
    node = discovery.node(call_through("PLAINTEXT"))
    assert (node.host, node.port) == expected


def test_each_listener_has_its_own_address() -> None:
    """Who came from inside is told the inside address, who came from outside the outside one."""
    discovery = discovery_of(
        "listeners=IN://:29092,OUT://:9092",
        "advertised.listeners=IN://broker:29092,OUT://localhost:9092",
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
    )
    assert discovery.node(call_through("IN"))[1:] == ("broker", 29092)
    assert discovery.node(call_through("OUT"))[1:] == ("localhost", 9092)


def test_topics_are_found_by_name_and_id() -> None:
    """The log's own topic among them, whose id is the same at every start."""
    discovery, again = discovery_of(), discovery_of()
    orders, offsets = discovery.topic("orders"), discovery.topic(OFFSETS_TOPIC)
    assert orders is not None
    assert offsets is not None
    assert [topic.name for topic in discovery.all_topics()] == [OFFSETS_TOPIC, "orders"]
    assert discovery.topic_by_id(orders.topic_id) is orders
    assert discovery.topic_by_id(offsets.topic_id) is offsets
    assert again.topic(OFFSETS_TOPIC) == offsets
    assert discovery.topic("absent") is None
    assert discovery.topic_by_id(UUID(int=6)) is None


def test_a_topic_has_as_many_partitions_as_it_says() -> None:
    """From 0 up, and no others."""
    discovery = discovery_of()
    assert [index for index in range(-2, 6) if discovery.has_partition("orders", index)] == [0, 1, 2]
    assert not discovery.has_partition("absent", 0)
