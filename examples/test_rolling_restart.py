"""A rolling restart of static members: no rebalance, nothing moves, and each worker was seen to be back."""


def test_a_rolling_restart_moves_nothing(tenure, start_worker):
    tenure.create_topic("orders", partitions=12)
    names = ["worker-1", "worker-2", "worker-3"]
    workers = [start_worker(tenure.bootstrap_servers, name, group_instance_id=name) for name in names]
    group = tenure.group("workers").wait_until_stable(members=3)
    with group.no_rebalance():
        for number, worker in enumerate(workers, start=1):
            worker.restart()
            group.wait_until(restarts=number)
