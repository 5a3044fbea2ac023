"""The rules of a kind of groups: one function for each thing that can happen to a group.

House rule: a rule takes the turn, to which it adds its effects, then the group, then the event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from coordinator.group.effects import TimerKey
from coordinator.group.events import (
    CommitOffsets,
    CommitPrepared,
    GroupSettingsChanged,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from coordinator.group.turn import Turn
from schemas.errors import ErrorCode

G = TypeVar("G")
"""The class of the groups."""


class Rules(NamedTuple, Generic[G]):
    """The rules of one kind of groups.

    heartbeat: takes group, member id, instance id, generation and `Now.ms`; returns the error code, or None if that
    takes more than a later deadline. beat: does all that a heartbeat asks for; returns the error code.
    load: the group was read from the log. serve: all groups of the partition are read. unload: the partition goes.
    resume: members can reach the coordinator again.
    settings_changed: the settings that the group has of its own are others than before.
    bury: an empty group becomes Dead, and the log forgets it.
    admit: whether a group takes a commit. fetch_error: whether a member, or None, may ask for offsets at its epoch.
    """

    join: Callable[[Turn, G, JoinGroup], None]
    sync: Callable[[Turn, G, SyncGroup], None]
    heartbeat: Callable[[G, str, str | None, int, int], int | None]
    beat: Callable[[Turn, G, Heartbeat], int]
    leave: Callable[[Turn, G, LeaveGroup], None]
    timer_fired: Callable[[Turn, G, TimerKey], None]
    load: Callable[[Turn, G], None]
    serve: Callable[[Turn, G], None]
    resume: Callable[[Turn, G], None]
    unload: Callable[[Turn, G], None]
    settings_changed: Callable[[Turn, G, GroupSettingsChanged], None]
    bury: Callable[[Turn, G], None]
    admit: Callable[[Turn, G, CommitOffsets | CommitPrepared], ErrorCode]
    fetch_error: Callable[[G, str | None, int], ErrorCode]
