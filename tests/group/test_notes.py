"""The names of notes are an interface."""

from __future__ import annotations

import re

from coordinator.group.notes import Note

NAMES = {
    "generation_started",
    "group_deleted",
    "group_emptied",
    "group_loaded",
    "group_too_large",
    "group_unloaded",
    "leader_elected",
    "member_expired",
    "member_fenced",
    "member_joined",
    "member_left",
    "member_pending",
    "member_replaced",
    "members_dropped",
    "offsets_created_group",
    "offsets_removed",
    "pending_expired",
    "rebalance_cause",
    "rebalance_completed",
    "rebalance_started",
    "rebalance_stuck",
    "unexpected_request",
}
"""What log lines, metrics and events are called by; people grep for these."""


def test_no_note_is_renamed() -> None:
    """A new one is added to this list; none ever leaves it."""
    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in Note.__subclasses__()} == NAMES


def test_every_note_says_which_group_and_generation() -> None:
    """They come first in each."""
    assert all(list(kind.__dataclass_fields__)[:2] == ["group", "generation"] for kind in Note.__subclasses__())
