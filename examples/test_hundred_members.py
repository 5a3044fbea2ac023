"""One of 100 members flaps. With an instance id nothing moves; without one each restart is two rebalances of all."""

import pytest


@pytest.mark.tenure(topics={"orders": 100})
def test_a_static_member_flaps_and_nothing_moves(tenure, start_worker):
    group = tenure.group("workers")
    group.fill(99, topics=["orders"])  # members without clients
    worker = start_worker(tenure.bootstrap_servers, "flapping", group_instance_id="flapping")
    group.wait_until_stable(members=100)
    with group.no_rebalance():
        for number in (1, 2, 3):
            worker.restart()
            group.wait_until(restarts=number)


@pytest.mark.tenure(topics={"orders": 100})
def test_a_dynamic_member_flaps_and_all_rebalance_twice(tenure, start_worker):
    group = tenure.group("workers")
    group.fill(99, topics=["orders"], heartbeat_interval_ms=100)
    worker = start_worker(tenure.bootstrap_servers, "flapping")
    group.wait_until_stable(members=100)
    with group.rebalances(exactly=2):
        worker.stop()
        group.wait_until_stable(members=99)
        worker.start()
        group.wait_until_stable(members=100)
    assert [rebalance.cause for rebalance in group.rebalances[-2:]] == ["member_left", "member_joined"]
