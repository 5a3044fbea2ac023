"""One of 100 members flaps: with an instance id nothing moves, without one each restart is two rebalances."""

import pytest


@pytest.mark.tenure(topics={"orders": 100})
def test_a_static_member_flaps_and_nothing_moves(tenure, start_worker):
    group = tenure.group("workers")
    group.fill(99, topics=["orders"])
    worker = start_worker(tenure.bootstrap_servers, "flapping", group_instance_id="flapping")
    group.wait_until_stable(members=100)
    with group.no_rebalance(), group.nothing_moved():
        for number in (1, 2, 3):
            worker.restart()
            group.wait_until(restarts=number)


@pytest.mark.tenure(topics={"orders": 100})
def test_a_dynamic_member_flaps_and_all_rebalance(tenure, start_worker):
    group = tenure.group("workers")
    group.fill(99, topics=["orders"], heartbeat_interval_ms=100)
    worker = start_worker(tenure.bootstrap_servers, "flapping")
    group.wait_until_stable(members=100)
    with group.rebalances(exactly=2):
        worker.stop()
        group.wait_until_stable(members=99)
        worker.start()
        group.wait_until_stable(members=100)
