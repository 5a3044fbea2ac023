"""A deploy lets static workers read a second topic. Their restarts cost no rebalance, so nobody reads it at first.

Apache Kafka does the same: a static member that restarts keeps its seat, whatever it subscribes to. The next rebalance
gives the topic to all who subscribe to it.
"""

import pytest

BOTH = ["orders", "payments"]


@pytest.mark.tenure(topics={"orders": 6, "payments": 6})
def test_a_new_topic_waits_for_the_next_rebalance(tenure, start_worker):
    names = ["worker-1", "worker-2", "worker-3"]
    workers = [start_worker(tenure.bootstrap_servers, name, group_instance_id=name) for name in names]
    group = tenure.group("workers").wait_until_stable(members=3)
    with group.no_rebalance():
        for number, worker in enumerate(workers, start=1):
            worker.restart(topics=BOTH)
            group.wait_until(restarts=number)
    assert topics_with_a_reader(group) == {"orders"}
    with group.rebalances(exactly=1, cause="member_joined"):
        start_worker(tenure.bootstrap_servers, "worker-4", group_instance_id="worker-4", topics=BOTH)
        group.wait_until_stable(members=4)
    assert topics_with_a_reader(group) == {"orders", "payments"}


def topics_with_a_reader(group):
    return {topic for seat in group.assignment.values() for topic in seat}
