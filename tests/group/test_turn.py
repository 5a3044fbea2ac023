"""Rules share these: the check of a member's ids, session timers, and settings for fixes."""

from __future__ import annotations

import pytest

from coordinator.config import GroupConfig
from coordinator.group.client import NOBODY, Now
from coordinator.group.group import Group, Member
from coordinator.group.turn import Turn
from schemas.errors import ErrorCode


@pytest.mark.parametrize(
    ("member_id", "instance_id", "expected", "fenced"),
    [
        ("s-1", "s", ErrorCode.NONE, 0),
        ("s-1", None, ErrorCode.NONE, 0),
        ("d-1", None, ErrorCode.NONE, 0),
        ("s-0", "s", ErrorCode.FENCED_INSTANCE_ID, 1),
        ("d-1", "s", ErrorCode.FENCED_INSTANCE_ID, 1),
        ("", "s", ErrorCode.FENCED_INSTANCE_ID, 1),
        ("s-1", "other", ErrorCode.UNKNOWN_MEMBER_ID, 0),
        ("s-0", None, ErrorCode.UNKNOWN_MEMBER_ID, 0),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID, 0),
    ],
)
def test_who_is_who(member_id: str, instance_id: str | None, expected: ErrorCode, fenced: int) -> None:
    """The instance id is checked first, then the member id; a static member may leave its instance id out."""
    group = Group("g", None)
    group.add(Member("s-1", "s", "c", "/h", 1, 1, [("range", b"")]))
    group.add(Member("d-1", None, "c", "/h", 1, 1, [("range", b"")]))
    turn = Turn(GroupConfig(), Now(0, 0))
    assert turn.validate_member(group, member_id, instance_id, "sync-group", NOBODY) is expected
    assert len(turn.effects.notes) == fenced


def test_a_timer_is_armed_once_and_never_too_late() -> None:
    """A later deadline arms no timer; an earlier one replaces the timer."""
    group, member = Group("g", None), Member("m", None, "c", "/h", 1, 10_000, [("range", b"")])
    armed = []
    for now_ms, within_ms in ((0, 10_000), (5_000, 10_000), (6_000, 1_000)):
        turn = Turn(GroupConfig(), Now(now_ms, 0))
        turn.expect(group, member, within_ms)
        armed.append([timer.at_ms for timer in turn.effects.timers])
    assert armed == [[10_000], [], [7_000]]


def test_a_fix_is_off_unless_switched_on() -> None:
    """The setting names a fix by its ticket; a group's own settings win over the server's."""
    ticket, on = "kafka-12759", GroupConfig(fixes=frozenset({"kafka-12759"}))
    assert not Turn(GroupConfig(), Now(0, 0)).fixed(ticket, "g")
    assert Turn(on, Now(0, 0)).fixed(ticket, "g")
    own = {"g": on.group_settings._replace(fixes=frozenset()), "h": on.group_settings}
    assert [Turn(on, Now(0, 0), group_configs=own).fixed(ticket, each) for each in ("g", "h", "i")] == [
        False,
        True,
        True,
    ]
    assert [Turn(GroupConfig(), Now(0, 0), group_configs=own).fixed(ticket, each) for each in ("g", "h", "i")] == [
        False,
        True,
        False,
    ]
