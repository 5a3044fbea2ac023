"""Dynamic members: they come, leave and die, and the group rebalances.

aiokafka 0.14 has no cooperative assignor.

House rule: conftest.py's.
"""

from __future__ import annotations

import pytest

from tests.interop.brokers import Broker
from tests.interop.fleet import Fleet, rebalanced_once


@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        ("confluent-kafka", "range"),
        ("confluent-kafka", "cooperative-sticky"),
        ("aiokafka", "range"),
        ("kafka-python", "range"),
        ("kafka-python", "cooperative-sticky"),
    ],
)
def test_members_come_leave_and_die(broker: Broker, fleet: Fleet, client: str, assignor: str, group: str) -> None:
    """A third member joins, leaves, and then one of the two that stay is killed.

    After each, those that live own every partition, and at no moment has a partition two owners. Eager members
    rebalance once each time, cooperative ones at least once.
    """
    first, second = (fleet.start(client, group, assignor=assignor) for _ in range(2))
    fleet.wait_until_shared([first, second])
    mark = broker.mark()

    third = fleet.start(client, group, assignor=assignor)
    fleet.wait_until_shared([first, second, third])
    joined = broker.rebalances(group, mark)
    mark = broker.mark()

    fleet.close(third)
    fleet.wait_until_shared([first, second])
    left = broker.rebalances(group, mark)
    mark = broker.mark()

    first.kill()
    fleet.wait_until_shared([second])
    expired = broker.rebalances(group, mark)

    assert fleet.double_ownerships() == []
    if assignor == "range":
        assert all(rebalanced_once(client, rebalances) for rebalances in (joined, left, expired))
    else:
        assert min(joined, left, expired) >= 1
