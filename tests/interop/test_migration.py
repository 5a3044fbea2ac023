"""A group of confluent-kafka consumers goes from the classic to the consumer protocol and back, one after the other.

Each consumer is closed, and one with the other protocol comes in its place, as a rolling upgrade does it (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.consumers import SETTINGS, WITHIN_S, Member, Served, all_held, until
from tests.support.apache import AT_ONCE, VERSION_44, ApacheKafka
from tests.support.tenure import Tenure

SIZE = 3
PARTITIONS = 6
CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 100}
"""Settings of classic clients. They choose the interval of their heartbeats themselves."""

BOTH = {**SETTINGS, "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(
    params=[pytest.param("tenure", marks=pytest.mark.interop), pytest.param("apache", marks=pytest.mark.oracle)]
)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """A server with a topic: Tenure, or Apache Kafka 4.4.0, on which all of this holds too."""
    if request.param == "tenure":
        with Tenure(BOTH, directory=tmp_path) as running:
            create_topic(running)
            yield running
        return
    request.getfixturevalue("java")
    with ApacheKafka({**BOTH, **AT_ONCE}, version=VERSION_44) as kafka:
        create_topic(kafka)
        yield kafka


def create_topic(server: Served) -> None:
    """Create the topic of the group."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for created in admin.create_topics([NewTopic("orders", PARTITIONS, 1)]).values():
        created.result(WITHIN_S)


def shared(members: list[Member]) -> None:
    """Wait until the members share the topic evenly."""
    until(members, lambda: all_held(members, PARTITIONS), "the members share the partitions")


def started(server: Served, protocol: str, instance_id: str | None) -> Member:
    """A consumer; static and dynamic ones have groups of their own."""
    settings = CLASSIC if protocol == "classic" else {}
    group = "dynamic" if instance_id is None else "static"
    return Member(server, instance_id, ["orders"], protocol, group_id=group, **settings)


def replace(server: Served, members: list[Member], number: int, protocol: str, instance_id: str | None) -> None:
    """Close a consumer, and start one with another protocol in its place."""
    members[number].consumer.close()
    members[number] = started(server, protocol, instance_id)
    shared(members)


def roll(server: Served, *, static: bool) -> list[int]:
    """Roll a group there and back; how often partitions came or went at a member that stayed, for each replacement."""
    ids = [f"worker-{number}" if static else None for number in range(SIZE)]
    members = [started(server, "classic", instance_id) for instance_id in ids]
    try:
        shared(members)
        moves = []
        for protocol, number in product(("consumer", "classic"), range(SIZE)):
            before = [member.moves for member in members]
            replace(server, members, number, protocol, ids[number])
            moves.append(sum(members[other].moves - before[other] for other in range(SIZE) if other != number))
        assert is_stable(server, "static" if static else "dynamic")
    finally:
        for member in members:
            member.consumer.close()
    return moves


def is_stable(server: Served, group: str) -> bool:
    """Whether a group is Stable."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(WITHIN_S)
    return bool(described.state == ConsumerGroupState.STABLE)


def test_static_members_roll_and_nothing_moves(server: Served) -> None:
    """Each replacement takes its seat over: the others lose and get nothing, either way."""
    assert roll(server, static=True) == [0] * (2 * SIZE)


def test_dynamic_members_roll(server: Served) -> None:
    """Partitions move as members come and go; after each replacement all of them have an owner."""
    assert len(roll(server, static=False)) == 2 * SIZE
