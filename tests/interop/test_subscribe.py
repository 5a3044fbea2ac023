"""Members join, share a topic, and idle on it.

House rule: conftest.py's.
"""

from __future__ import annotations

import pytest

from tests.interop.brokers import Broker
from tests.interop.clients import CLIENTS, PYTHON, clients_named, clients_that
from tests.interop.fleet import Fleet

MEMBERS = 4
IDLE_S = 2.0


@pytest.mark.parametrize("client", clients_that(often=(), long={"aiokafka"}), indirect=True)
def test_every_partition_has_one_owner_and_idle_consumers_live(
    broker: Broker, fleet: Fleet, client: str, group: str
) -> None:
    """Members own each partition of a topic exactly once, are answered by Fetch, and stay while nothing comes."""
    consumers = [fleet.start(client, group) for _ in range(MEMBERS)]
    generation = fleet.wait_until_shared(consumers)
    for consumer in consumers:
        answered = fleet.wait_for_event(consumer, "fetched", consumer.named("membership")[-1]["at"])
        assert set(answered["high_watermarks"].values()) == {0}

    mark = broker.mark()
    fleet.wait_while_polling(consumers, IDLE_S)

    assert broker.rebalances(group, mark) == 0
    assert {consumer.membership.generation for consumer in consumers} == {generation}
    assert fleet.double_ownerships() == []
    for consumer in consumers:
        fleet.close(consumer)


@pytest.mark.parametrize("client", clients_named("confluent-kafka", "kafka-clients-4"), indirect=True)
def test_clients_of_many_makers_share_one_group(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Clients of all makers speak one consumer protocol: with any leader each partition has one owner.

    The group has the three Python clients, and one in Java and two in Go if their toolchains are here.
    """
    members = [each.name for each in PYTHON]
    if client not in members:
        members += [name for name in (client, "franz-go", "sarama") if CLIENTS[name].missing is None]
    consumers = [fleet.start(name, group, assignor="range") for name in members]
    fleet.wait_until_shared(consumers)
    assert fleet.double_ownerships() == []
    for consumer in consumers:
        fleet.close(consumer)
