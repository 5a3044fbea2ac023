"""A fourth worker joins three, which use the cooperative protocol: only its share moves."""

import pytest


@pytest.mark.parametrize("start_worker", ["confluent-kafka", "kafka-python"], indirect=True)
@pytest.mark.tenure(topics={"orders": 12})
def test_a_fourth_worker_takes_three_of_twelve(tenure, start_worker):
    group = tenure.group("workers")
    for name in ("worker-1", "worker-2", "worker-3"):
        start_worker(tenure.bootstrap_servers, name, assignor="cooperative-sticky")
    group.wait_until(lambda group: shares(group) == [4, 4, 4])
    before = len(group.rebalances)
    # In the first one, three members give a topic partition up. Each asks for another; one may serve them all.
    with group.moved_at_most(3), group.rebalances(at_least=2, at_most=4):
        start_worker(tenure.bootstrap_servers, "worker-4", assignor="cooperative-sticky")
        group.wait_until(lambda group: shares(group) == [3, 3, 3, 3])
    assert group.rebalances[before].cause == "member_joined"


def shares(group):
    """How many topic partitions each member has."""
    return [len(seat.get("orders", [])) for seat in group.assignment.values()]
