"""Clients of the consumer protocol (KIP-848): every scenario on Tenure, and the same on Apache Kafka 4.4.0.

The settings are the server's: a member may be silent for 15 s, longer than a program takes to start, and sends two
heartbeats a second. A group whose static members roll has Kafka's defaults. A static member that closes says that it
will be back; one that is killed says nothing, so its seat is taken until its session is over.

House rule: conftest.py's. The epoch of a group is the server's own, from ConsumerGroupDescribe.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Collection, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from protocol.messages import ConsumerGroupDescribeRequest
from tests.interop.brokers import ApacheBroker, Broker, TenureBroker, create_topic
from tests.interop.client import Ability
from tests.interop.clients import CLIENTS, clients_named, clients_that
from tests.interop.conftest import PARTITION_COUNT
from tests.interop.fleet import ConsumerProcess, Fleet
from tests.support.apache import VERSION_44, ApacheKafka
from tests.support.length import rounds
from tests.support.patience import WITHIN_S
from tests.support.ports import port_of
from tests.support.raw import ask
from tests.support.seats import set_of_group
from tests.support.tenure import Tenure

SESSION_TIMEOUT_MS = 15_000
SOON_MS = 4_000
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": str(SOON_MS),
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
}
IN_PYTHON = {"confluent-kafka"}
SEATS = ("seat-0", "seat-1", "seat-2")
SETTLED_S = 1.5
SLOW_HEARTBEAT_S = 5.0
DEFAULTS = {"consumer.heartbeat.interval.ms": "5000", "consumer.session.timeout.ms": "45000"}
"""Kafka's, as settings of a group."""
PAST_A_SESSION_S = 1.1 * SESSION_TIMEOUT_MS / 1_000
GROWN = PARTITION_COUNT + 3


@pytest.fixture(scope="module")
def apache_kafka(java: None) -> Iterator[ApacheBroker]:
    """Yield one node of Apache Kafka 4.4.0 for all scenarios."""
    with ApacheKafka(SETTINGS, version=VERSION_44) as kafka:
        yield ApacheBroker(kafka)


@pytest.fixture(scope="module")
def tenure_server() -> Iterator[TenureBroker]:
    """Yield one server of Tenure for all scenarios."""
    with Tenure(SETTINGS) as tenure:
        yield TenureBroker(tenure)


def speakers(
    *abilities: Ability, often: Collection[str] = IN_PYTHON, long: Collection[str] = ()
) -> pytest.MarkDecorator:
    """Parametrize a test with the clients that speak the protocol and have these abilities; see `clients_that`."""
    named = clients_that(Ability.CONSUMER_PROTOCOL, *abilities, often=often, long=long)
    return pytest.mark.parametrize("client", named, indirect=True)


def end_sessions_soon(broker: Broker, fleet: Fleet, members: list[ConsumerProcess]) -> None:
    """Set the session timeout of their group to a few seconds, because one of these members is about to be silent.

    It counts from a member's next heartbeat. If a busy machine has none of that member in time, the session only lasts
    longer.
    """
    set_session_timeout(broker, members[0].settings.group, SOON_MS)
    fleet.wait_while_polling(members, SETTLED_S)


def set_session_timeout(broker: Broker, group: str, timeout_ms: int) -> None:
    """Set the session timeout of a group's members; each has it from its next heartbeat on."""
    set_of_group(port_of(broker.bootstrap), group, {"consumer.session.timeout.ms": str(timeout_ms)})


def send_heartbeats_slowly(broker: Broker, group: str) -> None:
    """Give the consumer protocol's members of a group Kafka's default heartbeat interval and session timeout.

    librdkafka waits one interval for the answer to a heartbeat. Without an answer it looks for its coordinator, and a
    consumer that is closed in that time doesn't say that it will be back. A busy machine may need longer than 500 ms.
    """
    set_of_group(port_of(broker.bootstrap), group, DEFAULTS)


def epoch_of(broker: Broker, group: str) -> int:
    """The group's epoch; it grows with each change that may move partitions."""
    answer = ask(port_of(broker.bootstrap), ConsumerGroupDescribeRequest(group_ids=[group]), 0)
    (described,) = answer.groups
    assert described.error_code == 0, described.error_message
    return int(described.group_epoch)


def settle(broker: Broker, fleet: Fleet, members: list[ConsumerProcess], group: str) -> int:
    """Wait until the members share the topic and their callbacks have said so; the epoch of their group."""
    fleet.wait_until_shared(members)
    fleet.wait(
        "callbacks",
        lambda: all(owned_by_callbacks(member) == list(member.membership.partitions) for member in members),
    )
    return epoch_of(broker, group)


def owned_by_callbacks(member: ConsumerProcess) -> list[int]:
    """The partitions that a member has by its callbacks, which Java's client calls a little later."""
    return sorted(partition for partition, _, end in member.ownerships() if end == float("inf"))


def moves(members: list[ConsumerProcess], since: float) -> list[str]:
    """What the callbacks of these members said since a time: nothing, if nothing moved."""
    return [
        f"{member.settings.group_instance_id} {name} {event['partitions']}"
        for member in members
        for name in ("assigned", "revoked", "lost")
        for event in member.named(name, since)
        if event["partitions"]
    ]


def hears(member: ConsumerProcess, error: str) -> bool:
    """Whether the client has told its operator of an error, or has ended with it."""
    told = [f"{event['error']} {event['text']}" for event in member.named("fatal")]
    return any(error in text for text in told + [event["text"] for event in member.named("notice")])


@speakers()
def test_consumers_come_leave_and_die(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A third consumer joins and leaves again, and one of the others is killed: never two owners, in the end no gap."""
    first, second = (fleet.start(client, group, protocol="consumer") for _ in range(2))
    fleet.wait_until_shared([first, second])
    third = fleet.start(client, group, protocol="consumer")
    fleet.wait_until_shared([first, second, third])
    fleet.close(third)
    fleet.wait_until_shared([first, second])
    end_sessions_soon(broker, fleet, [first, second])
    first.kill()
    set_session_timeout(broker, group, SESSION_TIMEOUT_MS)  # a busy machine may silence the other one for SOON_MS
    fleet.wait_until_shared([second])
    assert fleet.double_ownerships() == []


@speakers(Ability.AWAY)
def test_roll_of_static_consumers_moves_nothing(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Each static consumer is closed and started again: the same epoch and partitions; the others notice nothing."""

    def start(seat: str) -> ConsumerProcess:
        return fleet.start(client, group, group_instance_id=seat, protocol="consumer")

    consumers = {seat: start(seat) for seat in SEATS}
    epoch = settle(broker, fleet, list(consumers.values()), group)
    before = {seat: consumer.membership for seat, consumer in consumers.items()}
    send_heartbeats_slowly(broker, group)
    fleet.wait_while_polling(list(consumers.values()), 2 * SETTLED_S)  # each hears of it
    for seat in SEATS:
        since = time.monotonic()
        fleet.close(consumers[seat])
        consumers[seat] = start(seat)
        fleet.wait_until_shared(list(consumers.values()))
        others = [consumer for other, consumer in consumers.items() if other != seat]
        fleet.wait_while_polling(others, SLOW_HEARTBEAT_S + SETTLED_S)
        assert moves(others, since) == []

    assert epoch_of(broker, group) == epoch
    for seat, consumer in consumers.items():
        assert consumer.membership.partitions == before[seat].partitions
        assert consumer.membership.member_id != before[seat].member_id
    offset = {before[SEATS[0]].partitions[0]: (5, "")}
    assert fleet.commit(consumers[SEATS[0]], offset)["event"] == "committed"


@pytest.mark.parametrize("client", clients_named("franz-go", "platformatic-kafka"), indirect=True)
def test_static_consumer_does_not_say_that_it_will_be_back(
    broker: Broker, fleet: Fleet, client: str, group: str
) -> None:
    """franz-go leaves out its instance id and is refused, so its seat stays taken; @platformatic/kafka leaves for good.

    The one has its seat back after its session, the other at once. Either way partitions move.
    """
    first, other = (fleet.start(client, group, group_instance_id=seat, protocol="consumer") for seat in SEATS[:2])
    epoch = settle(broker, fleet, [first, other], group)
    fleet.close(first)
    left = epoch_of(broker, group) - epoch
    assert left == (client == "platformatic-kafka")
    again = fleet.start(client, group, group_instance_id=SEATS[0], protocol="consumer")
    fleet.wait_until_shared([again, other])
    assert hears(again, "UNRELEASED_INSTANCE_ID") == (client == "franz-go")
    assert epoch_of(broker, group) == epoch + 2


@speakers(Ability.AWAY, often=())
def test_static_consumer_that_stays_away_expires(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A seat is kept while its consumer is away, and goes to the others when its session is over."""
    away, first, second = (fleet.start(client, group, group_instance_id=seat, protocol="consumer") for seat in SEATS)
    epoch = settle(broker, fleet, [away, first, second], group)
    since = time.monotonic()
    fleet.close(away)
    fleet.wait_while_polling([first, second], SETTLED_S)
    assert moves([first, second], since) == []
    assert epoch_of(broker, group) == epoch
    fleet.wait_until_shared([first, second])
    assert epoch_of(broker, group) == epoch + 1


@speakers(Ability.STATIC)
def test_twin_of_a_static_consumer_is_refused(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A second process with an instance id hears UNRELEASED_INSTANCE_ID; the first keeps its seat."""
    first, other = (fleet.start(client, group, group_instance_id=seat, protocol="consumer") for seat in SEATS[:2])
    epoch = settle(broker, fleet, [first, other], group)
    since = time.monotonic()
    twin = fleet.start(client, group, group_instance_id=SEATS[0], protocol="consumer")
    fleet.wait("the twin is refused", lambda: hears(twin, "UNRELEASED_INSTANCE_ID"))
    fleet.wait_while_polling([first, other], SETTLED_S)
    assert moves([first, other], since) == []
    assert not twin.membership.partitions
    assert epoch_of(broker, group) == epoch


@speakers(Ability.STATIC, often=(), long=IN_PYTHON)
def test_killed_static_consumer_waits_for_its_session(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Its seat is taken until its session is over. A client that gives up meanwhile is started again."""
    first, other = (fleet.start(client, group, group_instance_id=seat, protocol="consumer") for seat in SEATS[:2])
    epoch = settle(broker, fleet, [first, other], group)
    first.kill()
    again = fleet.start(client, group, group_instance_id=SEATS[0], protocol="consumer")
    fleet.wait("the seat is still taken", lambda: hears(again, "UNRELEASED_INSTANCE_ID"))
    fleet.wait("it ends, or has its seat", lambda: bool(again.named("fatal")) or fleet.shared([again, other]))
    if again.named("fatal"):
        fleet.wait_until_shared([other])
        again = fleet.start(client, group, group_instance_id=SEATS[0], protocol="consumer")
    fleet.wait_until_shared([again, other])
    assert epoch_of(broker, group) > epoch


@speakers(Ability.STATIC, often=(), long=IN_PYTHON)
def test_frozen_static_consumer_is_fenced(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A consumer that was frozen until its session was over finds another process in its seat.

    It gives up its partitions; @platformatic/kafka goes on with them and tells its operator without end.
    """
    first, other = (fleet.start(client, group, group_instance_id=seat, protocol="consumer") for seat in SEATS[:2])
    fleet.wait_until_shared([first, other])
    end_sessions_soon(broker, fleet, [first, other])
    first.send_signal(signal.SIGSTOP)
    set_session_timeout(broker, group, SESSION_TIMEOUT_MS)  # a busy machine may silence the others for SOON_MS
    fleet.wait_until_shared([other])
    twin = fleet.start(client, group, group_instance_id=SEATS[0], protocol="consumer")
    fleet.wait_until_shared([twin, other])
    epoch = epoch_of(broker, group)
    thawed = time.monotonic()
    first.send_signal(signal.SIGCONT)
    fleet.wait(
        "it gives up its partitions",
        lambda: bool(
            first.named("fatal")
            or first.named("lost", thawed)
            or first.named("revoked", thawed)
            or (client == "platformatic-kafka" and hears(first, "FENCED_INSTANCE_ID"))
        ),
    )
    fleet.wait_while_polling([twin, other], SETTLED_S)
    assert fleet.shared([twin, other])
    assert epoch_of(broker, group) == epoch


@pytest.mark.rounds
@speakers()
def test_consumers_outlive_the_coordinator(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """The coordinator is killed and starts again: same members, epoch and partitions, and commits go on.

    In `make test-long` that holds past a whole session.
    """
    has_seats = Ability.STATIC not in CLIENTS[client].cannot
    members = [
        fleet.start(client, group, group_instance_id=seat if has_seats else None, protocol="consumer")
        for seat in SEATS[:2]
    ]
    epoch = settle(broker, fleet, members, group)
    before = [member.membership for member in members]
    offsets = [{membership.partitions[0]: (10, "")} for membership in before]
    for member, offset in zip(members, offsets, strict=True):
        assert fleet.commit(member, offset)["event"] == "committed"
    since = time.monotonic()
    broker.kill()
    broker.start()
    for member, offset in zip(members, offsets, strict=True):
        assert fleet.read_committed(member, offset) == offset
        assert fleet.commit(member, offset)["event"] == "committed"
    fleet.wait_while_polling(members, rounds(SETTLED_S, PAST_A_SESSION_S, PAST_A_SESSION_S))
    assert [member.membership for member in members] == before
    assert moves(members, since) == []
    assert epoch_of(broker, group) == epoch


@speakers(Ability.STATIC, Ability.STAY, Ability.ROLL, often=())
def test_static_members_roll_from_one_protocol_to_the_other(
    broker: Broker, fleet: Fleet, client: str, group: str
) -> None:
    """A group of static members rolls to the consumer protocol and back, member by member: nothing moves.

    Each member takes over the seat of the one before it, so that the generation, or epoch, stays as it is.
    """

    def start(seat: str, protocol: str) -> ConsumerProcess:
        return fleet.start(
            client, group, group_instance_id=seat, session_timeout_ms=SESSION_TIMEOUT_MS, protocol=protocol
        )

    send_heartbeats_slowly(broker, group)
    consumers = {seat: start(seat, "classic") for seat in SEATS}
    generation = fleet.wait_until_shared(list(consumers.values()))
    before = {seat: consumer.membership.partitions for seat, consumer in consumers.items()}
    for protocol in ("consumer", "classic"):
        for seat in SEATS:
            since = time.monotonic()
            fleet.stay_away(consumers[seat])
            consumers[seat] = start(seat, protocol)
            assert fleet.wait_until_shared(list(consumers.values())) == generation
            others = [consumer for other, consumer in consumers.items() if other != seat]
            fleet.wait_while_polling(others, SLOW_HEARTBEAT_S + SETTLED_S)
            assert moves(others, since) == []
        assert {seat: consumer.membership.partitions for seat, consumer in consumers.items()} == before


@speakers(Ability.GROW, often=(), long=IN_PYTHON)
def test_topic_grows_under_its_consumers(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """New partitions of a topic reach its consumers."""
    members = [fleet.start(client, group, protocol="consumer") for _ in range(2)]
    epoch = settle(broker, fleet, members, group)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(fleet.topic, GROWN)])[fleet.topic].result(WITHIN_S)
    fleet.partition_count = GROWN
    fleet.wait_until_shared(members)
    assert epoch_of(broker, group) == epoch + 1
    assert fleet.double_ownerships() == []


@speakers(Ability.PATTERN, often=(), long=IN_PYTHON)
def test_regular_expression_finds_topics(broker: Broker, client: str, group: str) -> None:
    """A regular expression, which the server resolves, finds the topics of that form, also one that comes later."""
    prefix = f"prefix-{uuid.uuid4().hex[:8]}"
    settings = {"protocol": "consumer", "pattern": f"{prefix}.*"}
    create_topic(broker.bootstrap, f"{prefix}-early", PARTITION_COUNT)
    with Fleet(broker.bootstrap, f"{prefix}-early", PARTITION_COUNT) as early:
        members = [early.start(client, group, **settings) for _ in range(2)]
        early.wait_until_shared(members)
        assert early.double_ownerships() == []
    later = f"{group}-later"
    with Fleet(broker.bootstrap, f"{prefix}-late", PARTITION_COUNT) as late:
        members = [late.start(client, later, **settings) for _ in range(2)]
        late.wait("both are members", lambda: all(member.membership.generation > 0 for member in members))
        create_topic(broker.bootstrap, late.topic, PARTITION_COUNT)
        late.wait_until_shared(members)
        assert late.double_ownerships() == []
