"""The coordinator is killed between a commit's record and its answer: the commit holds, and the group goes on."""


def test_a_crash_under_a_commit_loses_nothing(tenure_factory, start_worker, produce, tmp_path):
    tenure = tenure_factory(topics={"orders": 1}, data_dir=tmp_path / "data")
    worker = start_worker(tenure.bootstrap_servers, "worker-1", group_instance_id="worker-1")
    group = tenure.group("workers").wait_until_stable(members=1)
    with group.no_rebalance():
        tenure.faults.add("OffsetCommit -> kill")
        produce(tenure.bootstrap_servers, b"before")
        tenure.wait_until_killed()
        tenure.start()
        assert group.committed == {("orders", 0): 1}
        produce(tenure.bootstrap_servers, b"after")
        group.wait_until(lambda group: group.committed == {("orders", 0): 2})
    assert worker.records == [b"before", b"after"]
