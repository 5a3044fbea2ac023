"""The rules of each kind of groups: one function for each thing that can happen to a group.

`Coordinator` finds the rules of a group by its kind. Another protocol brings another row of `RULES`. Requests of the
classic protocol to a group of the consumer protocol are in `consumer.classic_members` (KIP-848).

House rule: a rule takes the turn, to which it adds its effects, then the group, then the event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from coordinator.group import offsets
from coordinator.group.classic import expire, heartbeat, join, leave, residence, sync
from coordinator.group.consumer import classic_members, describe, expected, sessions
from coordinator.group.consumer import expire as consumer_expire
from coordinator.group.consumer import leave as consumer_leave
from coordinator.group.consumer import offsets as consumer_offsets
from coordinator.group.consumer.group import ConsumerGroup
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
from coordinator.group.group import Group
from coordinator.group.state import Kind
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


RULES: dict[Kind, Rules[Any]] = {
    Kind.CLASSIC: Rules[Group](
        join=join.join,
        sync=sync.sync,
        heartbeat=heartbeat.heartbeat,
        beat=heartbeat.beat,
        leave=leave.leave,
        timer_fired=expire.fired,
        load=residence.load,
        serve=residence.serve,
        resume=residence.resume,
        unload=residence.unload,
        settings_changed=residence.settings_changed,
        bury=residence.bury,
        admit=offsets.admit,
        fetch_error=lambda *_: ErrorCode.NONE,  # anybody may ask for committed offsets
    ),
    Kind.CONSUMER: Rules[ConsumerGroup](
        join=classic_members.join,
        sync=classic_members.sync,
        heartbeat=classic_members.heartbeat,
        beat=classic_members.beat,
        leave=consumer_leave.leave,
        timer_fired=consumer_expire.fired,
        load=consumer_expire.load,
        serve=lambda *_: None,  # no group changes
        resume=sessions.resume,
        unload=consumer_expire.unload,
        settings_changed=expected.settings_changed,
        bury=describe.bury,
        admit=consumer_offsets.admit,
        fetch_error=consumer_offsets.fetch_error,
    ),
}
"""The rules of each kind of groups."""
