"""Consumers of the consumer protocol (KIP-848): a rolling restart, a new worker, and a twin that is turned away."""

import pytest

PROTOCOL = {"group_protocol": "consumer"}
pytestmark = pytest.mark.parametrize("start_worker", ["confluent-kafka"], indirect=True)


def start(start_worker, tenure, name):
    return start_worker(tenure.bootstrap_servers, name, group_instance_id=name, **PROTOCOL)


@pytest.mark.tenure(settings={"group.consumer.heartbeat.interval.ms": 1000})
def test_a_rolling_restart_moves_nothing(tenure, start_worker):
    tenure.create_topic("orders", partitions=12)
    workers = [start(start_worker, tenure, f"worker-{number}") for number in range(3)]
    group = tenure.group("workers").wait_until_stable(members=3)
    with group.no_rebalance(), group.nothing_moved():
        for number, worker in enumerate(workers, start=1):
            worker.restart()
            group.wait_until(restarts=number).wait_until_stable(members=3)


def test_a_new_worker_takes_only_its_share(tenure, start_worker):
    tenure.create_topic("orders", partitions=12)
    for number in range(3):
        start(start_worker, tenure, f"worker-{number}")
    group = tenure.group("workers").wait_until_stable(members=3)
    with group.rebalances(exactly=1, cause="member_joined"), group.moved_at_most(3):
        start(start_worker, tenure, "worker-3")
        group.wait_until_stable(members=4)


def test_a_twin_is_turned_away(tenure, start_worker):
    tenure.create_topic("orders", partitions=12)
    first = start(start_worker, tenure, "worker-1")
    group = tenure.group("workers").wait_until_stable(members=1)
    with group.no_rebalance(), group.same_seats():
        twin = start(start_worker, tenure, "worker-1")
        group.wait_until(lambda _: twin.error is not None)
    assert first.error is None
