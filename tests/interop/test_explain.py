"""Tenure explains real clients: a roll of static consumers, of dynamic ones, and two with one instance id.

House rule: conftest.py's. Only Tenure has timelines, so these tests don't run on Apache Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.client.client import Client
from coordinator.client.events import EventReader
from coordinator.story.entries import Timeline
from tests.interop.brokers import TenureBroker, create_topic
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.support.told import shown

pytestmark = pytest.mark.interop

PARTITION_COUNT = 10
SEATS = tuple(f"seat-{number}" for number in range(5))
SESSION_TIMEOUT_MS = 15_000
"""Longer than a program takes to start on a busy machine."""
SETTLED_S = 1.5


@pytest.fixture
def group() -> str:
    """Return an id that no other test has."""
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def five(tenure_server: TenureBroker) -> Iterator[Fleet]:
    """Yield a fleet on a topic of its own."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    create_topic(tenure_server.bootstrap, topic, PARTITION_COUNT)
    with Fleet(tenure_server.bootstrap, topic, PARTITION_COUNT) as fleet:
        yield fleet


def timeline_of(broker: TenureBroker, group: str) -> list[dict[str, Any]]:
    """Return the group's timeline."""
    with Client(broker.bootstrap) as client:
        return shown(Timeline(group).add_all(EventReader(client).read()))


def of_type(entries: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the entries of that type."""
    return [entry for entry in entries if entry["type"] == kind]


def rolled(fleet: Fleet, start: Callable[[str], ConsumerProcess], leave: bool) -> list[ConsumerProcess]:
    """Start five consumers and restart each once: closed, or killed."""
    consumers = {seat: start(seat) for seat in SEATS}
    fleet.wait_until_shared(list(consumers.values()))
    for seat in SEATS:
        if leave:
            fleet.close(consumers[seat])
        else:
            consumers[seat].kill()
        consumers[seat] = start(seat)
        fleet.wait_until_shared(list(consumers.values()))
    return list(consumers.values())


def test_a_roll_of_static_consumers_is_five_restarts(tenure_server: TenureBroker, five: Fleet, group: str) -> None:
    """A roll of five static consumers is one restart of each seat, without a rebalance or a fencing."""

    def start(seat: str) -> ConsumerProcess:
        return five.start("confluent-kafka", group, group_instance_id=seat, session_timeout_ms=SESSION_TIMEOUT_MS)

    consumers = rolled(five, start, leave=False)
    five.wait(
        "all restarts are in the timeline",
        lambda: len(of_type(timeline_of(tenure_server, group), "static_restart")) == len(SEATS),
    )
    entries = timeline_of(tenure_server, group)
    restarts = of_type(entries, "static_restart")
    assert [entry["group_instance_id"] for entry in restarts] == list(SEATS)
    assert not any(entry["rebalances"] for entry in restarts)
    assert entries[-len(SEATS) :] == restarts, "nothing happened between the restarts or behind them"
    assert of_type(entries, "fencing") == []
    assert all(consumer.running for consumer in consumers)


@pytest.mark.long
def test_a_roll_of_dynamic_consumers_is_all_its_rebalances(
    tenure_server: TenureBroker, five: Fleet, group: str
) -> None:
    """The timeline has each rebalance of the log, in its order, with the cause of every departure and arrival."""

    def start(seat: str) -> ConsumerProcess:
        assert seat in SEATS
        return five.start("confluent-kafka", group)

    mark = tenure_server.mark()
    rolled(five, start, leave=True)

    def all_explained() -> bool:
        entries = of_type(timeline_of(tenure_server, group), "rebalance")
        return len(entries) == tenure_server.rebalances(group, mark) and entries[-1]["outcome"] is not None

    five.wait("every rebalance is in the timeline", all_explained)
    causes = [cause for entry in of_type(timeline_of(tenure_server, group), "rebalance") for cause in entry["causes"]]
    kinds = [cause["kind"] for cause in causes]
    assert kinds.count("member_left") == len(SEATS)
    assert kinds.count("member_joined") == 2 * len(SEATS)


@pytest.mark.toolchain
@pytest.mark.programs("go")
def test_followers_are_no_causes_in_a_roll_of_cooperative_consumers(
    tenure_server: TenureBroker, five: Fleet, group: str
) -> None:
    """franz-go gives each JoinGroup a reason, also if it joins because the group rebalances."""

    def start(seat: str) -> ConsumerProcess:
        assert seat in SEATS
        return five.start("franz-go", group, assignor="cooperative-sticky")

    rolled(five, start, leave=True)
    rebalances = of_type(timeline_of(tenure_server, group), "rebalance")
    assert len(rebalances) > len(SEATS)
    followed = [cause for entry in rebalances for cause in entry["causes"][1:] if cause["kind"] == "member_rejoined"]
    assert [cause for cause in followed if cause["meaning"] != "partitions_revoked"] == []


def test_two_consumers_with_one_instance_id_are_one_conflict(
    tenure_server: TenureBroker, five: Fleet, group: str
) -> None:
    """A fencing names both clients and their hosts."""
    first = five.start("confluent-kafka", group, group_instance_id="seat")
    five.wait_until_shared([first])
    second = five.start("confluent-kafka", group, group_instance_id="seat")
    five.wait("the first is fenced", lambda: bool(first.named("fatal")))
    five.wait("the fencing is in the timeline", lambda: bool(of_type(timeline_of(tenure_server, group), "fencing")))
    five.wait_while_polling([second], SETTLED_S)
    (fencing,) = of_type(timeline_of(tenure_server, group), "fencing")
    parties: list[dict[str, Any]] = [fencing["client"], fencing["current_client"]]
    assert fencing["kind"] == "conflict"
    assert [fencing["member_id"], fencing["current_member_id"]] == [
        first.membership.member_id,
        second.membership.member_id,
    ]
    assert [party["client_id"] for party in parties] == ["rdkafka"] * 2
    assert [party["client_host"] for party in parties] == ["/127.0.0.1"] * 2
