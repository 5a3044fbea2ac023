"""The joins that a group holds: which of them come from one client."""

from __future__ import annotations

from coordinator.group import events
from coordinator.group.arrivals import Held
from protocol.messages import JoinGroupRequest
from tests.group.harness import SOMEBODY


def held(member_id: str, instance: str | None) -> Held:
    """A held join."""
    body = JoinGroupRequest(group_instance_id=instance)
    return Held(events.JoinGroup("", 5, SOMEBODY, body, "1"), member_id, 0)


def test_a_client_that_asks_again_has_the_same_key() -> None:
    """A static one by its instance id, whatever member id it gets; a dynamic one by its member id. They never mix."""
    assert held("a-1", "a").key == held("a-2", "a").key
    assert held("a", None).key == held("a", None).key
    assert len({held("a", "a").key, held("a", None).key, held("b", None).key}) == 3
