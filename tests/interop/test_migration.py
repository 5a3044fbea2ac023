"""A group of confluent-kafka consumers goes from the classic to the consumer protocol and back, one after the other.

Each consumer is closed, and one with the other protocol comes in its place, as a rolling upgrade does it (KIP-848).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.cli.conftest import Ran, at, make_app, run_app
from tests.interop.consumers import SETTINGS, Member, Served, all_held, until
from tests.support.apache import AT_ONCE, VERSION, VERSION_44, ApacheKafka
from tests.support.patience import WITHIN_S
from tests.support.ports import port_of
from tests.support.seats import set_of_group
from tests.support.tenure import Tenure, wait_until

SIZE = 3
PARTITIONS = 6
CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 100}
"""Settings of classic clients. They choose the interval of their heartbeats themselves."""
STATIC_HEARTBEAT_MS = 1_000
"""librdkafka waits so long for an answer. Without one, a consumer that is closed doesn't say that it will be back."""

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


def poll_for(members: list[Member], seconds: float) -> None:
    """Let the members poll for a while."""
    end = time.monotonic() + seconds
    until(members, lambda: time.monotonic() >= end, f"polls of {seconds:g} s")


def roll(server: Served, *, static: bool) -> list[int]:
    """Roll a group there and back; how often partitions came or went at a member that stayed, for each replacement."""
    ids = [f"worker-{number}" if static else None for number in range(SIZE)]
    if static:
        interval = {"consumer.heartbeat.interval.ms": str(STATIC_HEARTBEAT_MS)}
        set_of_group(port_of(server.bootstrap), "static", interval)
    members = [started(server, "classic", instance_id) for instance_id in ids]
    try:
        shared(members)
        moves = []
        for protocol, number in product(("consumer", "classic"), range(SIZE)):
            before = [member.moves for member in members]
            replace(server, members, number, protocol, ids[number])
            if static:  # the others hear of a move with their next heartbeat
                poll_for(members, 1.1 * STATIC_HEARTBEAT_MS / 1_000)
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


def checked(server: Served, group: str, *more: str) -> Ran:
    """Ask whether a group may move, or how it moved."""
    return run_app(make_app("migrate"), "migrate", "check", group, *more, *at(server.bootstrap))


def kinds(ran: Ran) -> dict[str, str]:
    """The points of an answer: what was found, by kind."""
    return {each["kind"]: each["found"] for each in ran.json["points"]}


def until_found(server: Served, group: str, kind: str, words: str) -> None:
    """Wait for a point: a server keeps an event a moment after it has answered the consumer."""

    def is_found() -> bool:
        return words in kinds(checked(server, group, "--output", "json")).get(kind, "")

    wait_until(is_found, f"{kind}: {words}", WITHIN_S)


def test_a_check_before_a_roll_in_it_and_after_it(server: Served) -> None:
    """The check tells which way a group of static members has to go, and afterwards that no partition moved.

    Their session of 50 s is longer than the server's, so the group first gets that of its own, as a step says.
    """
    ids = [f"worker-{number}" for number in range(SIZE)]
    long: dict[str, Any] = {"session_timeout_ms": 50_000}
    members = [Member(server, each, ["orders"], "classic", group_id="checked", **CLASSIC, **long) for each in ids]
    try:
        shared(members)
        setting = "consumer.session.timeout.ms=50000"
        ran = checked(server, "checked", "--output", "json")
        assert (ran.code, ran.json["stage"]) == (0, "may_move")
        assert {"server_ready", "keep_range", "static", "session_shorter"} <= kinds(ran).keys()
        assert f"tenure groups settings checked --set {setting}" in ran.json["steps"]
        settings = ("groups", "settings", "checked", "--set", setting)
        assert run_app(make_app("groups"), *settings, *at(server.bootstrap)).code == 0
        assert "session" in kinds(checked(server, "checked", "--output", "json"))
        for number, instance_id in enumerate(ids):
            members[number].consumer.close()
            members[number] = Member(server, instance_id, ["orders"], "consumer", group_id="checked")
            shared(members)
            ran = checked(server, "checked", "--output", "json")
            assert (ran.code, ran.json["stage"]) == ((1, "under_way") if number < SIZE - 1 else (0, "moved"))
        until_found(server, "checked", "seats_kept", f"each topic partition stayed with its member; {SIZE} returns of")
        assert checked(server, "checked").out.startswith("checked has moved to group.protocol=consumer\n")
    finally:
        for member in members:
            member.consumer.close()


def test_a_check_after_dynamic_members_rolled(server: Served) -> None:
    """The check tells before that partitions will move, and afterwards which ones did."""
    members = [started(server, "classic", None) for _ in range(SIZE)]
    try:
        shared(members)
        assert "dynamic" in kinds(checked(server, "dynamic", "--output", "json"))
        for number in range(SIZE):
            replace(server, members, number, "consumer", None)
        until_found(server, "dynamic", "moved", str(SIZE))
        until_found(server, "dynamic", "seats_moved", "orders-")
        assert checked(server, "dynamic").code == 0
    finally:
        for member in members:
            member.consumer.close()


@pytest.mark.oracle
def test_an_old_broker_is_told_first(java: None) -> None:
    """Apache Kafka 3.9 has a preview of the protocol: the check says which release it is, and blocks the group."""
    with ApacheKafka(BOTH, version=VERSION) as kafka:
        create_topic(kafka)
        with_one = started(kafka, "classic", "worker-0")
        try:
            until([with_one], lambda: all_held([with_one], PARTITIONS), "the member has the partitions")
            ran = checked(kafka, "static")
        finally:
            with_one.consumer.close()
    assert ran.code == 1
    assert "blocked Apache Kafka 3.9 has the consumer protocol as a preview at most\n" in ran.out
    assert "step 1  update all brokers to Apache Kafka 4\n" in ran.out
