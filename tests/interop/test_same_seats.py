"""Same seats after everything was down: all members end, the group is empty, they start again in another order.

No server remembers former owners: the leader's client decides, from the list of members. If it orders them by instance
id, each gets its partitions again. If it orders them by member id, each does too, as long as no instance id begins with
another one and "-": a member id is the instance id, "-" and a random part.

House rule: conftest.py's.
"""

from __future__ import annotations

import pytest

from coordinator.client.client import Client
from coordinator.client.groups import remove_seats
from tests.interop.brokers import Broker, TenureBroker, create_topic
from tests.interop.client import ROOT, Ability
from tests.interop.clients import CLIENTS, clients_named, clients_that
from tests.interop.conftest import PARTITION_COUNT
from tests.interop.fleet import Fleet
from tests.support.patience import WITHIN_S
from tests.support.seats import set_of_group

PAGE = ROOT / "docs/run/rolling.md"

PLAIN = ("seat-0", "seat-1", "seat-2")
NESTED = ("seat", "seat-8")
"""The random part decides which member id comes first: `seat-3...` is before `seat-8-...`, `seat-a...` behind it."""

ROUNDS = 3

BY_MEMBER_ID = {"aiokafka", "sarama"}
"""Clients that order by member id. With the nested names they fail, unless the random parts happen to be in order."""

STICKY = {
    "sticky": ("aiokafka", "franz-go", "kafka-clients-3", "kafka-clients-4", "kafka-python"),
    "cooperative-sticky": ("confluent-kafka", "franz-go", "kafka-clients-3", "kafka-clients-4", "kafka-python", "kcat"),
}
"""The clients that have these assignors; sarama's sticky one isn't tried."""


def assert_same_seats(
    broker: Broker, fleet: Fleet, client: str, group: str, assignor: str, names: tuple[str, ...]
) -> None:
    """All start, end, and start again in the other order: each has its partitions each time."""
    seen = []
    for number in range(ROUNDS):
        order = names if number % 2 else names[::-1]
        consumers = {name: fleet.start(client, group, group_instance_id=name, assignor=assignor) for name in order}
        fleet.wait_until_shared(list(consumers.values()))
        seen.append([consumers[name].membership.partitions for name in names])
        for consumer in consumers.values():
            consumer.kill()
        with Client(broker.bootstrap, WITHIN_S) as admin:
            remove_seats(admin, group, dict.fromkeys(names, ""))  # as if their sessions had timed out
    assert seen == [seen[0]] * ROUNDS


@pytest.mark.parametrize(
    "client", clients_that(Ability.STATIC, Ability.RANGE, often=(), long={"confluent-kafka"}), indirect=True
)
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_each_has_its_partitions_after_a_full_stop(
    broker: Broker, fleet: Fleet, client: str, group: str, assignor: str
) -> None:
    """With any names if the client orders by instance id, else with names that don't begin with one another."""
    names = PLAIN if client in BY_MEMBER_ID else NESTED
    assert_same_seats(broker, fleet, client, group, assignor, names)


@pytest.mark.parametrize("client", clients_named("aiokafka", often=(), long={"aiokafka"}), indirect=True)
def test_the_assignor_by_instance_id(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """With the assignor of examples/same_seats, aiokafka does it with any names."""
    assert_same_seats(broker, fleet, client, group, "range-by-instance", NESTED)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        pytest.param(*each.values, assignor, marks=each.marks)
        for assignor, names in STICKY.items()
        for each in clients_named(*names, often={"confluent-kafka"}, long={"aiokafka"})
    ],
    indirect=["client"],
)
def test_sticky_assignors_need_expected_members(
    tenure_server: TenureBroker, client: str, group: str, assignor: str
) -> None:
    """All join before the leader assigns for the first time, so it has no former owners to start from.

    Apache Kafka has no expected members: there it depends on who joins first.
    """
    create_topic(tenure_server.bootstrap, topic := f"topic-{group}", PARTITION_COUNT)
    set_of_group(tenure_server.tenure.port, group, {"expected.instance.ids": ",".join(PLAIN)})
    with Fleet(tenure_server.bootstrap, topic, PARTITION_COUNT) as fleet:
        assert_same_seats(tenure_server, fleet, client, group, assignor, PLAIN)


@pytest.mark.interop
def test_the_page_says_what_was_seen() -> None:
    """The table of the page has each client that assigns by range and has instance ids, and how it orders members."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    said = {row[1].strip(): row[2].strip() for row in rows if row[1].strip() in CLIENTS}
    assert said == {
        name: "member id" if name in BY_MEMBER_ID else "instance id"
        for name, client in CLIENTS.items()
        if not client.cannot.keys() & {Ability.STATIC, Ability.RANGE}
    }
