"""`tenure seats` and static members of the consumer protocol (KIP-848), on Tenure and Apache Kafka 4.4.

What a server allows to remove is in tests/oracle/scripts/consumer_static.txt, in seat_of_a_pod_that_is_gone.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kubernetes.stage import Stage, names
from tests.support.apache import VERSION_44

pytestmark = [pytest.mark.kubernetes, pytest.mark.parametrize("broker", ["tenure", VERSION_44], indirect=True)]


@pytest.mark.parametrize("closes", [False, True])
def test_a_scale_down_frees_seats_of_the_consumer_protocol(
    stage: Stage, closes: bool, record_property: Callable[[str, object], None]
) -> None:
    """4 to 2 replicas: of members whose process ended, and of members that said that they would come back (-2)."""
    stage.protocol, stage.closes = "consumer", closes
    stage.create(4)
    with stage.controller("--free") as controller:
        stage.change({"replicas": 2})
        owned = stage.wait_until_owned(*names(0, 1))
        controller.wait_for("freed w-[23] of group", count=2)
    took = owned - max(stage.node.ended.values())
    record_property("seconds until all partitions were owned", f"{took:.2f}")
    print(f"{took:.2f} s from the end of the last pod until all partitions were owned, closes={closes}")
    assert sorted(reason for reason, _ in stage.events()) == ["SeatFreed", "SeatFreed"]


def test_without_a_controller_a_member_that_closed_keeps_its_partitions(stage: Stage) -> None:
    """The member is away, and may come back until its session ends."""
    stage.protocol, stage.closes = "consumer", True
    stage.create(2)
    stage.change({"replicas": 1})
    stage.wait_until_running({"w-0"})
    group = stage.group()
    assert group is not None
    assert {member.group_instance_id for member in group.members} == {"w-0", "w-1"}
