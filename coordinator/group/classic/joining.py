"""The fields of a JoinGroup about its member; `join` and `static` share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.group.events import JoinGroup
    from coordinator.group.group import Group, Member, Waiting
    from coordinator.group.turn import Turn


def update(turn: Turn, group: Group, member: Member, event: JoinGroup, waiting: Waiting | None) -> None:
    """Take over a member's new data."""
    member.joined_by = event.client
    group.update(member, protocols_of(event), rebalance_timeout_of(event), event.body.session_timeout_ms, waiting)
    turn.watch(group, member)


def protocols_of(event: JoinGroup) -> list[tuple[str, bytes]]:
    """The protocols of a join, in its order of preference."""
    if event.protocols is None:
        event.protocols = [(protocol.name, protocol.metadata) for protocol in event.body.protocols]
    return event.protocols


def rebalance_timeout_of(event: JoinGroup) -> int:
    """The rebalance timeout of a join. Version 0 has none, so its session timeout counts."""
    return event.body.session_timeout_ms if event.version == 0 else event.body.rebalance_timeout_ms
