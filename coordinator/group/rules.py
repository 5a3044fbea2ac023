"""What a kind of groups brings along: a rule for each thing that can happen to one of its groups.

House rule: a rule takes the turn that it adds its effects to, the group, and the event.
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
    """Of one kind of groups.

    heartbeat: group, member id, instance id, generation and `Now.ms`; the error code. load: the group was read from the
    log. serve: all groups of its partition are there. unload: the partition goes.
    """

    join: Callable[[Turn, Group, JoinGroup], None]
    sync: Callable[[Turn, Group, SyncGroup], None]
    heartbeat: Callable[[Group, str, str | None, int, int], int]
    leave: Callable[[Turn, Group, LeaveGroup], None]
    timer_fired: Callable[[Turn, Group, TimerKey], None]
    load: Callable[[Turn, Group], None]
    serve: Callable[[Turn, Group], None]
    unload: Callable[[Turn, Group], None]
