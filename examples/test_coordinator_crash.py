"""The coordinator is killed and comes back: the group goes on where it was, and no committed offset is lost."""


def test_a_crash_of_the_coordinator_loses_no_commit(tenure_factory, start_worker, produce, tmp_path):
    tenure = tenure_factory(topics={"orders": 1}, data_dir=tmp_path / "data")
    group = tenure.group("workers")
    worker = start_worker(tenure.bootstrap_servers, "worker-1", group_instance_id="worker-1")
    group.wait_until_stable(members=1)
    produce(tenure.bootstrap_servers, b"before")
    group.wait_until(lambda group: group.committed == {("orders", 0): 1})
    with group.no_rebalance():
        tenure.kill()
        tenure.start()
        assert group.committed == {("orders", 0): 1}
        produce(tenure.bootstrap_servers, b"after")
        group.wait_until(lambda group: group.committed == {("orders", 0): 2})
    assert worker.records == [b"before", b"after"]
