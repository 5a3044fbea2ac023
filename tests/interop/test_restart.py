"""The coordinator is killed with SIGKILL and started again under its members.

House rule: conftest.py's.
"""

from __future__ import annotations

import time

import pytest

from tests.interop.brokers import Broker
from tests.interop.client import Ability
from tests.interop.clients import CLIENTS, clients_named, clients_that
from tests.interop.fleet import ConsumerProcess, Fleet, patient
from tests.support.length import rounds

SETTLED_S = 1.5
RETURN_SESSION_TIMEOUT_MS = 60_000
"""Longer than either server takes to come back and a JVM to start, also on a busy machine."""


@pytest.mark.rounds
@pytest.mark.parametrize("client", clients_that(Ability.OUTLIVE), indirect=True)
def test_members_outlive_the_coordinator(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Static and dynamic members alike go on where they were; in `make test-long` past a whole session timeout.

    The same generation, member ids and partitions, no rebalance; the member id of a seat that was restarted just before
    is the one that counts (KAFKA-9659). Committed offsets stay, and commits go on with the old generation.
    """
    cannot = CLIENTS[client].cannot
    past_a_session_s = 1.1 * broker.restart_session_timeout_ms / 1_000
    settings = patient(broker.restart_session_timeout_ms)
    static_group, dynamic_group = f"{group}-static", f"{group}-dynamic"
    dynamic = [fleet.start(client, dynamic_group, **settings)]
    static = []
    if Ability.STATIC not in cannot:
        static = [
            fleet.start(client, static_group, group_instance_id=f"seat-{number}", **settings) for number in range(2)
        ]
        fleet.wait_until_shared(static)
        fleet.stay_away(static[0])
        static[0] = fleet.start(client, static_group, group_instance_id="seat-0", **settings)
        fleet.wait_until_shared(static)
    fleet.wait_until_shared(dynamic)
    consumers = [*static, *dynamic]
    before = [consumer.membership for consumer in consumers]
    text = "" if Ability.METADATA in cannot else "text"
    committed = [
        {partition: (partition + 10, text) for partition in membership.partitions}
        for membership in before
        if Ability.COMMIT not in cannot
    ]
    for consumer, offsets in zip(consumers, committed, strict=False):
        assert fleet.commit(consumer, offsets)["event"] == "committed"
    mark = broker.mark()

    broker.kill()
    broker.start()

    for consumer, membership, offsets in zip(consumers, before, committed, strict=False):
        first = membership.partitions[0]
        answer = fleet.commit(consumer, {first: (99, text)})
        assert (answer["event"], answer.get("generation")) == ("committed", membership.generation)
        assert fleet.read_committed(consumer, membership.partitions) == {**offsets, first: (99, text)}
    fleet.wait_while_polling(consumers, rounds(SETTLED_S, past_a_session_s, past_a_session_s))

    assert broker.rebalances(static_group, mark) == 0
    assert broker.rebalances(dynamic_group, mark) == 0
    assert [consumer.membership for consumer in consumers] == before


@pytest.mark.parametrize(
    "client", clients_that(Ability.STATIC, Ability.WAIT, often=(), long={"confluent-kafka"}), indirect=True
)
def test_a_static_member_restarts_while_the_coordinator_is_down(
    broker: Broker, fleet: Fleet, client: str, group: str
) -> None:
    """A consumer that dies with the coordinator and starts before it is back finds its seat: nothing has moved."""
    settings = patient(RETURN_SESSION_TIMEOUT_MS)
    first, second = (fleet.start(client, group, group_instance_id=seat, **settings) for seat in ("seat-0", "seat-1"))
    generation = fleet.wait_until_shared([first, second])
    seat = first.membership
    mark = broker.mark()

    broker.kill()
    first.kill()
    again = fleet.start(client, group, group_instance_id="seat-0", **settings)
    broker.start()

    assert fleet.wait_until_shared([again, second]) == generation
    assert again.membership.partitions == seat.partitions
    assert broker.rebalances(group, mark) == 0


@pytest.mark.parametrize("client", clients_that(Ability.OUTLIVE, often=(), long={"confluent-kafka"}), indirect=True)
def test_coordinator_dies_in_a_rebalance(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A third member's arrival has made the first give up its partitions when the coordinator is killed.

    The rebalance is forgotten with it; the members start another, and end with every partition owned once.
    """
    settings = patient(broker.restart_session_timeout_ms)
    first, second = (fleet.start(client, group, **settings) for _ in range(2))
    generation = fleet.wait_until_shared([first, second])
    joined = time.monotonic()

    third = fleet.start(client, group, **settings)
    fleet.wait_for_event(first, "revoked", joined)
    broker.kill()
    broker.start()

    assert fleet.wait_until_shared([first, second, third]) > generation
    assert fleet.double_ownerships() == []


@pytest.mark.parametrize("client", clients_named("kcat"), indirect=True)
def test_kcat_ends_with_the_coordinator(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """kcat ends when no server answers; if it starts again within its session timeout, it finds its seat."""

    def start() -> list[ConsumerProcess]:
        settings = patient(RETURN_SESSION_TIMEOUT_MS)
        return [fleet.start(client, group, group_instance_id=seat, **settings) for seat in ("seat-0", "seat-1")]

    members = start()
    generation = fleet.wait_until_shared(members)
    mark = broker.mark()

    broker.kill()
    for member in members:
        fleet.wait_for_event(member, "fatal")
    broker.start()
    assert fleet.wait_until_shared(start()) == generation
    assert broker.rebalances(group, mark) == 0
