"""A commit is lost on its way, or its answer is: the worker commits again, and the group doesn't rebalance."""

import pytest


@pytest.mark.parametrize("lost", ["drop-request", "drop-response"])
@pytest.mark.tenure(topics={"orders": 1})
def test_a_lost_commit_is_sent_again(tenure, start_worker, produce, lost):
    tenure.faults.add(f"OffsetCommit client_id=worker-1 -> {lost}")
    worker = start_worker(tenure.bootstrap_servers, "worker-1", group_instance_id="worker-1", request_timeout_ms=700)
    group = tenure.group("workers").wait_until_stable(members=1)
    with group.no_rebalance():
        produce(tenure.bootstrap_servers, b"order-1")
        group.wait_until(lambda _: tenure.requests.count("OffsetCommit", "worker-1") == 2)
        group.wait_until(lambda group: group.committed == {("orders", 0): 1})
    assert worker.refused == []
