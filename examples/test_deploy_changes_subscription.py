"""A deploy lets static workers read a second topic: their restarts alone don't rebalance the group, as on Kafka."""

import pytest


@pytest.mark.tenure(topics={"orders": 6, "payments": 6})
def test_a_new_topic_waits_for_the_next_rebalance(tenure, start_worker):
    names = ["worker-1", "worker-2", "worker-3"]
    workers = [start_worker(tenure.bootstrap_servers, name, group_instance_id=name) for name in names]
    group = tenure.group("workers").wait_until_stable(members=3)
    with group.no_rebalance():
        for number, worker in enumerate(workers, start=1):
            worker.topics = ["orders", "payments"]
            worker.restart()
            group.wait_until(restarts=number)
    assert topics(group) == {"orders"}  # nobody reads payments yet
    start_worker(tenure.bootstrap_servers, "worker-4", topics=["orders", "payments"])
    group.wait_until_stable(members=4)
    assert topics(group) == {"orders", "payments"}


def topics(group):
    return {topic for seat in group.assignment.values() for topic in seat}
