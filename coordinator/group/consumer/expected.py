"""Expected members in the consumer protocol: a group refuses others, removes old names, and says who is missing.

It holds no join: a heartbeat has to be answered at once, and a join stops nobody (docs/run/group-settings.md).

House rule: a member that the group knows is never refused.
"""

from __future__ import annotations

from coordinator.config import REFUSED
from coordinator.group.any_group import AnyGroup
from coordinator.group.causes import CauseKind
from coordinator.group.consumer import leave, reasons
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.events import GroupSettingsChanged
from coordinator.group.refusal import NOT_EXPECTED, RefusedRequest
from coordinator.group.turn import Turn
from protocol.messages import ConsumerGroupDescribeResponse

TAKEN_OFF = "not in expected.instance.ids"
"""Why such a member leaves, in a note."""


def admit(turn: Turn, group_id: str, group: AnyGroup | None, member_id: str, instance_id: str | None) -> None:
    """Raises RefusedRequest if a client that is no member yet is not expected, and the settings refuse others."""
    own = turn.expecting(group_id)
    if own is None or own.unexpected != REFUSED or instance_id in own.expected:
        return
    if group is not None and (member_id in group.members or instance_id in group.static_members):
        return
    raise RefusedRequest(*NOT_EXPECTED)


def settings_changed(turn: Turn, group: ConsumerGroup, event: GroupSettingsChanged) -> None:
    """Remove the members that the group stopped to expect, with one epoch. Their next heartbeats say so."""
    members = [seat for name in event.dropped if (seat := group.seat(name)) is not None]
    if members:
        leave.remove(turn, group, members, TAKEN_OFF, reasons.of_members(group, CauseKind.MEMBER_REMOVED, members))


def describe(turn: Turn, group: ConsumerGroup) -> ConsumerGroupDescribeResponse.ConsumerGroupExpects:
    """The expected members that are missing."""
    own = turn.expecting(group.group_id)
    missing = set() if own is None else set(own.expected).difference(group.static_members)
    return ConsumerGroupDescribeResponse.ConsumerGroupExpects(missing=sorted(missing))
