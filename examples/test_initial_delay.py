"""Workers that start within group.initial.rebalance.delay.ms of each other join in one rebalance."""

import pytest


@pytest.mark.tenure(topics={"orders": 6}, settings={"group.initial.rebalance.delay.ms": 3000})
def test_three_workers_join_in_one_rebalance(tenure, start_worker):
    group = tenure.group("workers")
    tenure.freeze()  # the delay is over when the test says so
    for name in ("worker-1", "worker-2", "worker-3"):
        start_worker(tenure.bootstrap_servers, name)
    group.wait_until(state="PreparingRebalance", members=3)
    tenure.advance(3)
    tenure.advance(3)  # members came during the first 3 s, so the delay goes on once
    group.wait_until_stable(members=3)
    assert group.generation == len(group.rebalances) == 1
