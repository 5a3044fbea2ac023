"""A commit is lost on its way, or its answer is: the worker commits again, and the group doesn't rebalance."""

import pytest


@pytest.mark.parametrize("fault", ["drop-request", "drop-response", "disconnect", "disconnect-after"])
@pytest.mark.tenure(topics={"orders": 1})
def test_a_lost_commit_is_sent_again(tenure, start_worker, produce, fault):
    worker = start_worker(tenure.bootstrap_servers, "worker-1", group_instance_id="worker-1", socket_timeout_ms=500)
    group = tenure.group("workers").wait_until_stable(members=1)
    (lost,) = tenure.faults.add(f"OffsetCommit client_id=worker-1 -> {fault}")
    with group.no_rebalance():
        produce(tenure.bootstrap_servers, b"order-1")
        group.wait_until(lambda group: lost.fired and group.committed == {("orders", 0): 1})
        produce(tenure.bootstrap_servers, b"order-2")
        group.wait_until(lambda group: group.committed == {("orders", 0): 2})
    assert worker.records == [b"order-1", b"order-2"]
