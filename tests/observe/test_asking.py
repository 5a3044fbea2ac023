"""Clients share a connection, fresh answers and one budget; a request that changes something never leaves."""

from __future__ import annotations

import pytest

from coordinator.client.client import Cluster
from coordinator.client.errors import Unreachable
from coordinator.client.groups import delete_groups, list_groups
from coordinator.observe import asking
from coordinator.observe.asking import Asking, Budget
from protocol.messages import DescribeConfigsRequest
from tests.client.scripted import HANG_UP, Clock, Scripted
from tests.support.patience import WITHIN_S


def test_clients_share_a_connection_and_fresh_answers() -> None:
    """Ten clients cost a cluster as much as one, until an answer is too old."""
    clock = Clock()
    with Scripted({"ListGroups": [{}]}) as server:
        shared = Asking(Cluster(server.bootstrap), Budget(), clock=clock)
        for _ in range(10):
            with shared.open() as client:
                list_groups(client)
        assert (len(server.asked("ListGroups")), server.connections, shared.count) == (1, 1, 2)
        clock.now += asking.FRESH_S
        with shared.open() as client:
            list_groups(client)
        with shared.open(anew=True) as client:
            list_groups(client)
        assert (len(server.asked("ListGroups")), server.connections) == (3, 1)
        shared.close()


def test_a_lost_connection_is_opened_again() -> None:
    """After a lost connection the next try connects anew."""
    with Scripted({"ListGroups": [HANG_UP, {}]}) as server:
        shared = Asking(Cluster(server.bootstrap), Budget())
        with shared.open() as client:
            assert list_groups(client) == []
        assert server.connections == 2
        shared.close()


def test_the_budget_makes_requests_wait_or_fail() -> None:
    """Some go at once, further ones at the pace; one that would wait too long fails and takes nothing."""
    clock = Clock()
    budget = Budget(per_s=10, at_once=2, clock=clock, pause=clock.pause)
    for _ in range(4):
        budget.take(1.0)
    assert clock.pauses == pytest.approx([0.1, 0.1])
    assert budget.share_left == pytest.approx(0.0)
    with pytest.raises(Unreachable):
        budget.take(0.05)
    clock.now += 0.1
    assert budget.share_left == pytest.approx(0.5)
    clock.now += 10
    assert budget.share_left == 1.0


def test_a_request_that_goes_at_once_makes_others_wait() -> None:
    """It counts; the next one in turn waits for it."""
    clock = Clock()
    budget = Budget(per_s=10, at_once=2, clock=clock, pause=clock.pause)
    for _ in range(4):
        budget.charge()
    assert not clock.pauses
    assert budget.share_left == pytest.approx(-1.0)
    budget.take(1.0)
    assert clock.pauses == pytest.approx([0.3])


def test_clients_with_connections_of_their_own_count_too() -> None:
    """What the reader of the log asks for costs the page its turns; it reads the log whatever the page does."""
    clock = Clock()
    budget = Budget(per_s=1, at_once=3, clock=clock, pause=clock.pause)
    with Scripted({"ListGroups": [{}], "DescribeConfigs": [{}]}) as server:
        shared = Asking(Cluster(server.bootstrap), budget, clock=clock)
        with shared.own(WITHIN_S) as client:
            client.nodes()
            client.request(DescribeConfigsRequest())
            client.nodes()
            assert shared.count == 3
            assert not clock.pauses
            assert budget.share_left == pytest.approx(0.0)
            client.request(DescribeConfigsRequest())
            assert clock.pauses == pytest.approx([1.0])
            client.nodes()
            with shared.open() as page:
                page.timeout = 1.0
                with pytest.raises(Unreachable, match="too many requests"):
                    list_groups(page)
        assert (shared.count, len(server.asked("ListGroups"))) == (5, 0)
        shared.close()


def test_nothing_is_changed() -> None:
    """A request that changes something isn't sent."""
    with Scripted() as server:
        shared = Asking(Cluster(server.bootstrap), Budget())
        with shared.open() as client, pytest.raises(AssertionError, match="DeleteGroups"):
            delete_groups(client, ["g"])
        assert server.asked("DeleteGroups") == []
        shared.close()
