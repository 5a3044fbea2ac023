"""The coordinator moves to another node while consumers wait for a rebalance: they find it and become stable there."""

from threading import Event


def test_a_coordinator_moves_during_a_rebalance(tenure_factory, start_worker):
    tenure = tenure_factory(topics={"orders": 12}, nodes=3)
    group = tenure.group("workers")
    work_is_done = Event()
    start_worker(tenure.bootstrap_servers, "worker-1", on_revoke=work_is_done.wait)
    start_worker(tenure.bootstrap_servers, "worker-2")
    generation = group.wait_until_stable(members=2).generation
    start_worker(tenure.bootstrap_servers, "worker-3")
    group.wait_until(state="PreparingRebalance")  # worker-3 waits in JoinGroup until worker-1 has done its work
    former = tenure.coordinator_of("workers")
    tenure.move("workers", to=(former + 1) % 3)
    work_is_done.set()
    group.wait_until_stable(members=3)
    assert group.generation > generation
    assert sorted(len(topics["orders"]) for topics in group.assignment.values()) == [4, 4, 4]
