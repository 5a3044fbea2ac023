"""A worker sits on a record until its session is over: another one gets the record, and the late commit is refused."""

from threading import Event

import pytest


@pytest.mark.tenure(topics={"orders": 1})
def test_a_slow_consumer_loses_its_record_to_another_one(tenure, start_worker, produce):
    has_begun, may_end = Event(), Event()

    def be_slow(_value):
        has_begun.set()
        may_end.wait(30)

    slow = start_worker(tenure.bootstrap_servers, "slow", group_instance_id="slow", handle=be_slow)
    group = tenure.group("workers").wait_until_stable(members=1)
    produce(tenure.bootstrap_servers, b"order-1")
    assert has_begun.wait(30)
    tenure.advance(45, unheard=[("workers", "slow")])  # its session timeout passes at once
    other = start_worker(tenure.bootstrap_servers, "other", group_instance_id="other")
    group.wait_until(lambda group: group.committed == {("orders", 0): 1})
    assert group.rebalances[1].cause == "member_expired"
    may_end.set()
    group.wait_until(lambda _: slow.refused)
    assert other.records == slow.refused == [b"order-1"]
