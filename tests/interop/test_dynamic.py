"""Dynamic members: they come, leave and die, and the group rebalances.

House rule: conftest.py's.
"""

from __future__ import annotations

import pytest

from tests.interop.brokers import Broker
from tests.interop.client import Ability
from tests.interop.clients import clients_that
from tests.interop.fleet import Fleet, rebalanced_once

DYING_SESSION_TIMEOUT_MS = 3_000
"""Only the member that is killed has a short one: the others may be slow."""


def test_members_come_leave_and_die(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """A third member joins, leaves, and then one of the two that stay is killed.

    After each, those that live own every partition, and at no moment has a partition two owners. Eager members
    rebalance once each time.
    """
    assert all(rebalanced_once(client, rebalances) for rebalances in come_leave_and_die(broker, fleet, client, group))


@pytest.mark.parametrize("client", clients_that(Ability.COOPERATIVE, often=(), long={"confluent-kafka"}), indirect=True)
def test_cooperative_members_come_leave_and_die(broker: Broker, fleet: Fleet, client: str, group: str) -> None:
    """Members that give up only moving partitions do the same; they rebalance at least once each time."""
    assert min(come_leave_and_die(broker, fleet, client, group, assignor="cooperative-sticky")) >= 1


def come_leave_and_die(broker: Broker, fleet: Fleet, client: str, group: str, **settings: str) -> tuple[int, int, int]:
    """Return the number of rebalances while a third member joins and leaves, and another one expires."""
    dying = fleet.start(client, group, session_timeout_ms=DYING_SESSION_TIMEOUT_MS, **settings)
    second = fleet.start(client, group, **settings)
    fleet.wait_until_shared([dying, second])
    mark = broker.mark()

    third = fleet.start(client, group, **settings)
    fleet.wait_until_shared([dying, second, third])
    joined = broker.rebalances(group, mark)
    mark = broker.mark()

    fleet.close(third)
    fleet.wait_until_shared([dying, second])
    left = broker.rebalances(group, mark)
    mark = broker.mark()

    dying.kill()
    fleet.wait_until_shared([second])
    expired = broker.rebalances(group, mark)

    assert fleet.double_ownerships() == []
    return joined, left, expired
