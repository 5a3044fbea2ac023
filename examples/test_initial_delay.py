"""Workers that start within group.initial.rebalance.delay.ms join in one rebalance."""

import pytest


@pytest.mark.tenure(topics={"orders": 6}, settings={"group.initial.rebalance.delay.ms": 3000})
def test_three_workers_join_in_one_rebalance(tenure, start_worker):
    group = tenure.group("workers")
    tenure.freeze()  # the delay ends when the test says so
    for name in ("worker-1", "worker-2", "worker-3"):
        start_worker(tenure.bootstrap_servers, name)
    group.wait_until(state="PreparingRebalance", members=3)
    tenure.advance(6)  # who joins within the delay makes it longer, once
    tenure.thaw()
    group.wait_until_stable(members=3)
    assert group.generation == 1
