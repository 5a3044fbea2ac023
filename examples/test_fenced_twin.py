"""Two programs with one instance id: the second takes the seat, and the first one must stop."""

import pytest


@pytest.mark.parametrize("start_worker", ["confluent-kafka"], indirect=True)
@pytest.mark.tenure(topics={"orders": 6})
def test_a_twin_takes_the_seat_and_the_first_worker_ends(tenure, start_worker):
    first = start_worker(tenure.bootstrap_servers, "first", group_instance_id="worker-1")
    group = tenure.group("workers").wait_until_stable(members=1)
    with group.no_rebalance(), group.nothing_moved():
        start_worker(tenure.bootstrap_servers, "second", group_instance_id="worker-1")
        group.wait_until(takeovers=1, fencings=1)
        first.thread.join()
    assert "fenced" in first.error
    (fencing,) = group.fencings
    assert fencing.is_conflict
    assert group.members[0].member_id == fencing.current_member_id
