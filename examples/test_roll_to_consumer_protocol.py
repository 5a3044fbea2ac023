"""Static workers roll from the classic to the consumer protocol and back, one after the other: no partition moves."""

import pytest

pytestmark = pytest.mark.parametrize("start_worker", ["confluent-kafka"], indirect=True)


@pytest.mark.tenure(settings={"group.consumer.heartbeat.interval.ms": 1000})
def test_a_roll_to_the_consumer_protocol_and_back_moves_nothing(tenure, start_worker):
    tenure.create_topic("orders", partitions=12)
    names = ["worker-0", "worker-1", "worker-2"]
    workers = [start_worker(tenure.bootstrap_servers, name, group_instance_id=name) for name in names]
    group = tenure.group("workers").wait_until_stable(members=3)
    steps = [(protocol, worker) for protocol in ("consumer", "classic") for worker in workers]
    with group.no_rebalance(), group.nothing_moved():
        for number, (protocol, worker) in enumerate(steps, start=1):
            worker.settings["group_protocol"] = protocol
            worker.restart()
            group.wait_until(restarts=number).wait_until_stable(members=3)
    assert all(worker.error is None for worker in workers)
