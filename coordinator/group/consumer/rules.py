"""The rules of the consumer protocol (KIP-848), one for each thing that can happen to a group.

`classic_members` has the rules for requests of the classic protocol.
"""

from __future__ import annotations

from coordinator.group import notes
from coordinator.group.consumer import classic_members, course, describe, expected, expire, leave, offsets, sessions
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.course import Outcome
from coordinator.group.rules import Rules
from coordinator.group.state import DEAD
from coordinator.group.turn import Turn


def unload(turn: Turn, group: ConsumerGroup) -> None:
    """The coordinator drops the partition. No request waits in a group of this kind."""
    if group.course is not None:
        course.end(turn, group, Outcome.UNLOADED)
    turn.note(notes.GroupUnloaded(group.group_id, group.generation))
    group.state = DEAD


CONSUMER_RULES: Rules[ConsumerGroup] = Rules(
    join=classic_members.join,
    sync=classic_members.sync,
    heartbeat=classic_members.heartbeat,
    beat=classic_members.beat,
    leave=leave.leave,
    timer_fired=expire.fired,
    load=expire.load,
    serve=lambda *_: None,  # no group changes
    resume=sessions.resume,
    unload=unload,
    settings_changed=expected.settings_changed,
    bury=describe.bury,
    admit=offsets.admit,
    fetch_error=offsets.fetch_error,
)
