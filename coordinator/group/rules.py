"""The rules of a kind of groups: one function for each thing that can happen to a group.

House rule: a rule takes the turn, to which it adds its effects, then the group, then the event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from coordinator.group.effects import TimerKey
    from coordinator.group.events import JoinGroup, LeaveGroup, SyncGroup
    from coordinator.group.group import Group
    from coordinator.group.turn import Turn


class Rules(NamedTuple):
    """The rules of one kind of groups.

    heartbeat: takes group, member id, instance id, generation and `Now.ms`; returns the error code.
    load: the group was read from the log. serve: all groups of the partition are read. unload: the partition goes.
    """

    join: Callable[[Turn, Group, JoinGroup], None]
    sync: Callable[[Turn, Group, SyncGroup], None]
    heartbeat: Callable[[Group, str, str | None, int, int], int]
    leave: Callable[[Turn, Group, LeaveGroup], None]
    timer_fired: Callable[[Turn, Group, TimerKey], None]
    load: Callable[[Turn, Group], None]
    serve: Callable[[Turn, Group], None]
    unload: Callable[[Turn, Group], None]
