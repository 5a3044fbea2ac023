"""The coordinator is killed with SIGKILL and started again under its members.

House rule: conftest.py's.
"""

from __future__ import annotations

import time

import pytest

from tests.interop.brokers import Broker
from tests.interop.client import Ability
from tests.interop.clients import clients_that
from tests.interop.fleet import Fleet


@pytest.mark.parametrize("client", clients_that(Ability.STATIC, Ability.METADATA), indirect=True)
def test_members_outlive_the_coordinator(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Static and dynamic members alike go on where they were, past a whole session timeout.

    The same generation, member ids and partitions, no rebalance; the member id of a seat that was restarted just before
    is the one that counts (KAFKA-9659). What was committed before is there, and commits go on with the old generation.
    """
    session_timeout_ms = broker.restart_session_timeout_ms
    static_group, dynamic_group = f"{group}-static", f"{group}-dynamic"
    static = [
        fleet.start(client, static_group, group_instance_id=f"seat-{number}", session_timeout_ms=session_timeout_ms)
        for number in range(2)
    ]
    dynamic = [fleet.start(client, dynamic_group, session_timeout_ms=session_timeout_ms)]
    fleet.wait_until_shared(static)
    fleet.wait_until_shared(dynamic)
    fleet.close(static[0])
    static[0] = fleet.start(client, static_group, group_instance_id="seat-0", session_timeout_ms=session_timeout_ms)
    fleet.wait_until_shared(static)
    consumers = [*static, *dynamic]
    before = [consumer.membership for consumer in consumers]
    for consumer, membership in zip(consumers, before, strict=True):
        offsets = {partition: (partition + 10, "before") for partition in membership.partitions}
        assert fleet.commit(consumer, offsets)["event"] == "committed"
    mark = broker.mark()

    broker.kill()
    broker.start()

    for consumer, membership in zip(consumers, before, strict=True):
        first = membership.partitions[0]
        committed = fleet.commit(consumer, {first: (99, "after")})
        assert (committed["event"], committed.get("generation")) == ("committed", membership.generation)
        expected = {partition: (partition + 10, "before") for partition in membership.partitions}
        assert fleet.read_committed(consumer, membership.partitions) == {**expected, first: (99, "after")}
    fleet.wait_while_polling(consumers, 1.1 * session_timeout_ms / 1_000)

    assert broker.rebalances(static_group, mark) == 0
    assert broker.rebalances(dynamic_group, mark) == 0
    assert [consumer.membership for consumer in consumers] == before


@pytest.mark.parametrize("client", clients_that(Ability.STATIC, Ability.WAIT), indirect=True)
def test_a_static_member_restarts_while_the_coordinator_is_down(
    broker: Broker, fleet: Fleet, client: str, group: str
) -> None:
    """A consumer that dies with the coordinator and starts before it is back finds its seat: nothing has moved."""
    session_timeout_ms = broker.restart_session_timeout_ms
    first, second = (
        fleet.start(client, group, group_instance_id=seat, session_timeout_ms=session_timeout_ms)
        for seat in ("seat-0", "seat-1")
    )
    generation = fleet.wait_until_shared([first, second])
    seat = first.membership
    mark = broker.mark()

    broker.kill()
    first.kill()
    again = fleet.start(client, group, group_instance_id="seat-0", session_timeout_ms=session_timeout_ms)
    broker.start()

    assert fleet.wait_until_shared([again, second]) == generation
    assert again.membership.partitions == seat.partitions
    assert broker.rebalances(group, mark) == 0


def test_coordinator_dies_in_a_rebalance(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A third member's arrival has made the first give up its partitions when the coordinator is killed.

    The rebalance is forgotten with it; the members start another, and end with every partition owned once.
    """
    session_timeout_ms = broker.restart_session_timeout_ms
    first, second = (fleet.start(client, group, session_timeout_ms=session_timeout_ms) for _ in range(2))
    generation = fleet.wait_until_shared([first, second])
    joined = time.monotonic()

    third = fleet.start(client, group, session_timeout_ms=session_timeout_ms)
    fleet.wait_for_event(first, "revoked", joined)
    broker.kill()
    broker.start()

    assert fleet.wait_until_shared([first, second, third]) > generation
    assert fleet.double_ownerships() == []
