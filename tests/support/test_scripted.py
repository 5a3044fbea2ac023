"""Members that do only what a test says."""

from __future__ import annotations

from coordinator.testing import Tenure
from tests.support.scripted import Member, hang_up, settle


def test_members_settle_though_each_comes_too_late() -> None:
    """Without an initial delay, each one's join is answered before the next one's is there."""
    with Tenure(topics={"t": 3}, settings={"group.initial.rebalance.delay.ms": 0}) as tenure:
        port = int(tenure.bootstrap_servers.rpartition(":")[2])
        members = [Member(port, "workers", name, 5) for name in ("one", "two", "three")]
        settle(*members)
        assert {member.generation for member in members} == {tenure.group("workers").generation}
        assert tenure.group("workers").state == "Stable"
        assert len(tenure.group("workers").assignment) == len(members)
    hang_up()
