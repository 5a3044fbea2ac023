"""The rules of the consumer protocol (KIP-848), one for each thing that can happen to a group.

Requests of the classic protocol are refused: their sender is no member of such a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group import notes
from coordinator.group.consumer import course, describe, expire, leave, offsets
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.course import Outcome
from coordinator.group.refuse import refuse
from coordinator.group.rules import Rules
from coordinator.group.state import DEAD
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.group.events import JoinGroup, SyncGroup
    from coordinator.group.turn import Turn


def join(turn: Turn, _group: ConsumerGroup, event: JoinGroup) -> None:
    """A client of the classic protocol can't join a group that has members of the consumer protocol."""
    turn.answer(event.request, refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


def sync(turn: Turn, _group: ConsumerGroup, event: SyncGroup) -> None:
    """Nobody here syncs."""
    turn.answer(event.request, refuse(event, ErrorCode.UNKNOWN_MEMBER_ID))


def heartbeat(_group: ConsumerGroup, _member_id: str, _instance_id: str | None, _generation: int, _now_ms: int) -> int:
    """Nobody here sends heartbeats of the classic protocol."""
    return ErrorCode.UNKNOWN_MEMBER_ID


def serve(_turn: Turn, _group: ConsumerGroup) -> None:
    """All groups of the partition are read; there is nothing to do."""


def unload(turn: Turn, group: ConsumerGroup) -> None:
    """The partition goes. No request waits in a group of this kind."""
    if group.course is not None:
        course.end(turn, group, Outcome.UNLOADED)
    turn.note(notes.GroupUnloaded(group.group_id, group.generation))
    group.state = DEAD


CONSUMER: Rules[ConsumerGroup] = Rules(
    join=join,
    sync=sync,
    heartbeat=heartbeat,
    leave=leave.leave,
    timer_fired=expire.fired,
    load=expire.load,
    serve=serve,
    unload=unload,
    bury=describe.bury,
    admit=offsets.admit,
    fetch_error=offsets.fetch_error,
)
