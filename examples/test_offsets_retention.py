"""A group without members loses its offsets after offsets.retention.minutes, 7 days: its workers begin anew."""

import pytest

DAY = 24 * 3600


@pytest.mark.tenure(topics={"orders": 1}, settings={"log.retention.ms": -1})  # else the record goes after 7 days too
def test_a_week_without_workers_forgets_what_they_committed(tenure, start_worker, produce):
    group = tenure.group("workers")
    worker = start_worker(tenure.bootstrap_servers, "worker-1")
    produce(tenure.bootstrap_servers, b"order-1")
    group.wait_until(lambda group: group.committed == {("orders", 0): 1})
    worker.stop()
    group.wait_until(state="Empty")
    tenure.advance(6 * DAY)
    assert group.committed == {("orders", 0): 1}
    tenure.advance(1 * DAY + 600)  # the coordinator looks for old offsets every 10 minutes
    group.wait_until(state="Dead")
    worker.start()
    group.wait_until(lambda group: group.committed == {("orders", 0): 1})
    assert worker.records == [b"order-1", b"order-1"]
