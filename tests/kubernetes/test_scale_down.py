"""`tenure seats` beside a real control plane, with real consumers, on Tenure and Apache Kafka."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.kubernetes.stage import Stage, names
from tests.support.patience import WITHIN_S
from tests.support.tenure import wait_until

pytestmark = pytest.mark.kubernetes

CLIENTS = [
    "confluent-kafka",
    pytest.param("franz-go", marks=[pytest.mark.nightly, pytest.mark.programs("go")]),
    pytest.param("kafka-clients-4", marks=[pytest.mark.nightly, pytest.mark.programs("java", "javac", "mvn")]),
]
on_tenure = pytest.mark.parametrize("broker", ["tenure"], indirect=True)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_scale_down_frees_the_seats_of_its_pods(
    stage: Stage, client: str, record_property: Callable[[str, object], None]
) -> None:
    """5 to 3 replicas: the others own all partitions soon after the pods' end, and Events say why."""
    stage.create(5, client)
    with stage.controller("--free") as controller:
        stage.change({"replicas": 3})
        owned = stage.wait_until_owned(*names(0, 1, 2))
        controller.wait_for("freed w-[34] of group", count=2)
    took = owned - max(stage.node.ended.values())
    record_property("seconds until all partitions were owned", f"{took:.2f}")
    print(f"{took:.2f} s from the end of the last pod until all partitions were owned")
    assert sorted(reason for reason, _ in stage.events()) == ["SeatFreed", "SeatFreed"]


@on_tenure
def test_without_a_controller_a_seat_waits_for_its_session(stage: Stage) -> None:
    """The pod is gone, and its partitions still have its member as owner."""
    stage.create(2)
    stage.change({"replicas": 1})
    stage.wait_until_running({"w-0"})
    assert set(stage.owners().values()) == {"w-0", "w-1"}


@on_tenure
def test_a_dry_run_frees_nothing(stage: Stage) -> None:
    """Without --free the controller says which seats are free, and they stay."""
    stage.create(2)
    with stage.controller() as controller:
        stage.change({"replicas": 1})
        controller.wait_for("would free w-1 of group")
    assert stage.wait_until_owned(*names(0, 1))
    assert [reason for reason, _ in stage.events()] == ["SeatIsFree"]


def test_pods_that_come_back_keep_their_seats(stage: Stage) -> None:
    """A rolling restart, an eviction, a deleted pod, a crash loop: no seat goes, and the group stays as it is."""
    stage.create(3)
    all_names = names(0, 1, 2)
    since = stage.broker.mark()
    with stage.controller("--free") as controller:
        uids = {pod["metadata"]["uid"] for pod in stage.pods().values()}
        stage.change({"template": {"metadata": {"annotations": {"restarted": "once"}}}})
        stage.wait_until_running(set(all_names), but=uids)
        controller.wait_for("kept w-[012] of group .*: its pod comes back", count=3)
        stage.evict("w-2")
        controller.wait_for("kept w-2 of group", count=2)
        stage.wait_until_running(set(all_names))
        stage.delete_pod("w-1")
        controller.wait_for("kept w-1 of group", count=2)
        stage.wait_until_running(set(all_names))
        uid = stage.pods()["w-0"]["metadata"]["uid"]
        for _ in range(3):
            process = stage.node.processes[uid]
            assert process is not None
            process.send_signal(signal.SIGKILL)
            stage.fleet.wait("a new process", lambda old=process: stage.node.processes[uid] is not old)  # type: ignore[misc]
        stage.wait_until_owned(*all_names)
        assert not controller.lines("freed|would free|in doubt")
    assert stage.broker.rebalances(stage.group_id, since) == 0
    assert stage.events() == []


@on_tenure
def test_a_pod_that_was_forced_out_keeps_its_seat(stage: Stage) -> None:
    """The node is lost, its pod can't end, and somebody forces it out: its program may still run, so its seat stays."""
    stage.create(3)
    since = stage.broker.mark()
    with stage.controller("--free") as controller:
        stage.node.is_lost = True
        stage.change({"replicas": 2})
        wait_until(lambda: "deletionTimestamp" in stage.pods()["w-2"]["metadata"], "its pod shall end", WITHIN_S)
        stage.delete_pod("w-2", gracePeriodSeconds=0)
        controller.wait_for("kept in doubt w-2 of group")
        assert not controller.lines("freed|would free")
    assert stage.broker.rebalances(stage.group_id, since) == 0
    assert [reason for reason, _ in stage.events()] == ["SeatKept"]
