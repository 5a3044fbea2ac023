"""Expected members with real clients: what a client sees whose join is held or refused, or whose name is taken off.

House rule: the members of a group are of one client, so that a failure names it. Apache Kafka has no expected members,
so these run on Tenure alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.client.client import Client
from coordinator.client.groups import describe_groups
from coordinator.story.described import Group
from tests.interop.brokers import TenureBroker, create_topic
from tests.interop.client import Ability
from tests.interop.clients import clients_named, clients_that
from tests.interop.conftest import PARTITION_COUNT
from tests.interop.fleet import ConsumerProcess, Fleet, patient
from tests.interop.test_consumer_protocol import SETTINGS, SETTLED_S, hears, settle
from tests.support.patience import WITHIN_S
from tests.support.seats import set_of_group
from tests.support.tenure import Tenure

SEATS = ("seat-0", "seat-1", "seat-2")
HELD = ("aiokafka", "confluent-kafka", "franz-go", "kafka-clients-3", "kafka-clients-4", "kafka-python")
FULL, UNKNOWN = "GROUP_MAX_SIZE_REACHED", "UNKNOWN_MEMBER_ID"
TRIES_AGAIN = {"confluent-kafka", "franz-go", "sarama"}
ENDS = {"aiokafka", "kafka-clients-3", "kafka-clients-4", "kafka-python", "platformatic-kafka"}
REBALANCE_TIMEOUT_MS = 3_000


@pytest.fixture(scope="module")
def tenure_server() -> Iterator[TenureBroker]:
    """Yield one server with the settings of the scenarios of the consumer protocol."""
    with Tenure(SETTINGS) as tenure:
        yield TenureBroker(tenure)


@pytest.fixture
def fleet(tenure_server: TenureBroker, group: str) -> Iterator[Fleet]:
    """Yield consumers on a topic of this test alone."""
    create_topic(tenure_server.bootstrap, topic := f"topic-{group}", PARTITION_COUNT)
    with Fleet(tenure_server.bootstrap, topic, PARTITION_COUNT) as fleet:
        yield fleet


def missing(broker: TenureBroker, group: str) -> list[str]:
    """The expected members that are missing, by the group's description."""
    with Client(broker.bootstrap, WITHIN_S) as client:
        described = describe_groups(client, [group])[group]
    assert isinstance(described, Group)
    return [] if described.expects is None else described.expects.missing


def wait_for_offsets(fleet: Fleet, members: list[ConsumerProcess]) -> None:
    """Wait until members have their offsets. One in Java ends with UNKNOWN_MEMBER_ID if it is removed before."""
    for member in members:
        fleet.wait_for_event(member, "fetched")


def expect(port: int, group: str, **own: str) -> None:
    """Set a group's settings; a name here has _ in place of each dot."""
    set_of_group(port, group, {name.replace("_", "."): value for name, value in own.items()})


@pytest.mark.parametrize("client", clients_named(*HELD, often={"confluent-kafka"}), indirect=True)
@pytest.mark.long
def test_a_held_client_outlives_its_rebalance_timeout(client: str) -> None:
    """The group asks it to join again. It does, and takes part in the one rebalance when the last member is there."""
    settings = {"tenure.topics": "orders:6", "group.min.session.timeout.ms": str(REBALANCE_TIMEOUT_MS)}
    with Tenure(settings) as server, Fleet(server.bootstrap, "orders", 6) as fleet:
        expect(server.port, "held", expected_instance_ids="seat-0..2", expected_instance_ids_timeout_ms="600000")
        mark = server.mark()

        def start(seat: str) -> ConsumerProcess:
            return fleet.start(client, "held", group_instance_id=seat, **patient(REBALANCE_TIMEOUT_MS))

        members = [start(seat) for seat in SEATS[:2]]
        server.wait_for_event("rebalance_held", "held", since=mark)
        clock = fleet.start("confluent-kafka", "clock")  # it polls, which not every client does while its join is held
        fleet.wait_while_polling([clock], 2.5 * REBALANCE_TIMEOUT_MS / 1_000)
        assert server.count("rebalance_started", "held", since=mark) == 0
        members.append(start(SEATS[2]))
        fleet.close(clock)
        assert fleet.wait_until_shared(members) == 1
        assert server.count("rebalance_started", "held", since=mark) == 1
        assert server.count("hold_ended", "held", since=mark) == 1


@pytest.mark.parametrize(
    "client",
    clients_named(*TRIES_AGAIN, *ENDS, often={"confluent-kafka"}, long={"aiokafka", "kafka-python"}),
    indirect=True,
)
def test_a_client_that_the_classic_protocol_refuses(
    tenure_server: TenureBroker, fleet: Fleet, client: str, group: str
) -> None:
    """It ends with an error, or says it and tries again; docs/run/group-settings.md has the same table."""
    tenure = tenure_server.tenure
    expect(tenure.port, group, expected_instance_ids="seat-0", unexpected_instance_ids="refused")
    mark = tenure.mark()
    other = fleet.start(client, group, group_instance_id="other")

    def tries_again() -> bool:
        return bool(other.named("notice")) and tenure.count("client_refused", group, since=mark) > 1

    fleet.wait("it ends, or tries again", lambda: bool(other.named("fatal")) or tries_again())
    assert bool(other.named("fatal")) == (client in ENDS), other.describe()


@pytest.mark.parametrize("client", clients_that(Ability.CONSUMER_PROTOCOL, Ability.STATIC), indirect=True)
def test_the_consumer_protocol_refuses_others_and_removes_names(
    tenure_server: TenureBroker, fleet: Fleet, client: str, group: str
) -> None:
    """Others hear GROUP_MAX_SIZE_REACHED, with an instance id or without one; no member notices.

    franz-go goes on trying; the other clients end. Names that are taken off the list go with one epoch. Their programs
    join again, and are refused. @platformatic/kafka goes on with its partitions; only its heartbeats have an error.
    """

    def start(seat: str | None) -> ConsumerProcess:
        return fleet.start(client, group, group_instance_id=seat, protocol="consumer")

    port = tenure_server.tenure.port
    expect(port, group, expected_instance_ids="seat-0..2", unexpected_instance_ids="refused")
    members = [start(seat) for seat in SEATS[:2]]
    epoch = settle(tenure_server, fleet, members, group)
    assert missing(tenure_server, group) == [SEATS[2]]
    others = [start("other"), start(None)]
    fleet.wait("others are refused", lambda: all(hears(other, FULL) for other in others))
    if client != "franz-go":
        fleet.wait("they end", lambda: all(other.named("fatal") for other in others))
    fleet.wait_while_polling(members, SETTLED_S)
    assert settle(tenure_server, fleet, members, group) == epoch

    members.append(start(SEATS[2]))
    epoch = settle(tenure_server, fleet, members, group)
    assert missing(tenure_server, group) == []
    wait_for_offsets(fleet, members)
    mark = tenure_server.mark()
    expect(port, group, expected_instance_ids=SEATS[0])
    said = UNKNOWN if client == "platformatic-kafka" else FULL
    fleet.wait("their programs hear of it", lambda: all(hears(member, said) for member in members[1:]))
    assert settle(tenure_server, fleet, members[:1], group) == epoch + 1
    left = tenure_server.tenure.events("member_left", group, since=mark)
    assert sorted(event["group_instance_id"] for event in left) == [*SEATS[1:]]


@pytest.mark.parametrize(
    "client", clients_named("confluent-kafka", "kafka-clients-4", often=(), long={"confluent-kafka"}), indirect=True
)
@pytest.mark.parametrize("rule", ["allowed", "held"])
def test_the_consumer_protocol_holds_nobody(
    tenure_server: TenureBroker, fleet: Fleet, client: str, group: str, rule: str
) -> None:
    """Another member comes in at once, also with `held`. One that is taken off the list joins again by itself."""
    port = tenure_server.tenure.port
    expect(port, group, expected_instance_ids="seat-0..1", unexpected_instance_ids=rule)
    members = [fleet.start(client, group, group_instance_id=name, protocol="consumer") for name in (SEATS[0], "other")]
    epoch = settle(tenure_server, fleet, members, group)
    assert missing(tenure_server, group) == [SEATS[1]]
    wait_for_offsets(fleet, members)
    expect(port, group, expected_instance_ids=SEATS[1])
    fleet.wait("it has joined again", lambda: members[0].membership.generation >= epoch + 2)
    assert settle(tenure_server, fleet, members, group) == epoch + 2
