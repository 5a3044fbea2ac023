"""The names of notes are an interface."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.causes import CauseKind
from coordinator.group.client import Client
from coordinator.group.notes import (
    GenerationStarted,
    MemberJoined,
    MemberPending,
    Note,
    PendingExpired,
    RebalanceCompleted,
)
from tests.group.harness import SESSION_MS, WALL_MS, Bench

NAMES = {
    "member_away",
    "member_revoking",
    "target_assigned",
    "client_refused",
    "generation_started",
    "group_converted",
    "group_deleted",
    "group_emptied",
    "group_loaded",
    "group_too_large",
    "group_unloaded",
    "hold_ended",
    "instance_id_unreleased",
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
    "rebalance_ended",
    "rebalance_held",
    "rebalance_started",
    "rebalance_stuck",
    "seat_taken",
    "standby_gone",
    "standby_joined",
    "standby_seated",
    "unexpected_request",
}
"""The names in log lines, metrics and events; people search for these."""


def test_no_note_is_renamed() -> None:
    """A new note is added to NAMES; no name is ever removed."""
    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in Note.__subclasses__()} == NAMES


def test_every_note_says_which_group_and_generation() -> None:
    """Group and generation are the first two fields of each note."""
    assert all(kind.FIELDS[:2] == ("group", "generation") for kind in Note.__subclasses__())


def test_the_page_of_events_has_each_of_them_with_its_fields() -> None:
    """docs/run/events.md has every note and cause, and exactly its fields: people write assertions from it."""
    root = Path(__file__).parents[2]
    page = (root / "docs/run/events.md").read_text(encoding="utf-8").partition("\n# What `tenure doctor` finds")[0]
    rows = {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `")}
    assert rows.keys() >= NAMES
    rooms = (root / "coordinator" / room for room in ("server", "site", "loop"))
    server = "".join(path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py"))
    assert [name for name in rows.keys() - NAMES if f'"{name}"' not in server] == []
    for kind in Note.__subclasses__():
        row = rows[re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()]
        # Names of topics are for those who decode snapshots; no line has them.
        assert set(re.findall(r"`(\w+)`", row.split(" | ")[2])) == {*kind.FIELDS[2:]} - {"topic_names"}, row
    assert all(kind.value in page for kind in CauseKind)


def test_a_note_is_a_value() -> None:
    """A note can be compared, printed and kept, and never changes."""
    left = MemberPending("g", 1, "m", client_id="c", client_host="/h")
    assert left == MemberPending("g", 1, "m", "c", "/h") != PendingExpired("g", 1, "m")
    assert repr(PendingExpired("g", 1, "m")) == "PendingExpired(group='g', generation=1, member_id='m', left=False)"
    with pytest.raises(AttributeError):
        left.group = "other"  # type: ignore[misc]
    wrong: Any = PendingExpired
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("g",), {}),
        (("g", 1, "m", True, 5), {}),
        (("g", 1, "m"), {"group": "g"}),
        (("g", 1, "m"), {"x": 1}),
    ]
    for values, named in calls:
        with pytest.raises((AssertionError, AttributeError)):
            wrong(*values, **named)


def test_what_is_told_of_members_that_come() -> None:
    """Every field is right, because the core makes some of these notes without their constructor."""
    bench = Bench(group_initial_rebalance_delay_ms=0)
    static = bench.static("s", client=Client("s-id", "/s-host"))
    dynamic = bench.dynamic("d", client=Client("d-id", "/d-host"))
    bench.settle(static)
    dynamic.enter()
    static.join()
    bench.assign(static, dynamic)
    group = bench.group().group_id
    assert bench.said(MemberPending) == [
        MemberPending(
            group=group,
            generation=1,
            member_id=dynamic.member_id,
            client_id="d-id",
            client_host="/d-host",
            lapses_ms=WALL_MS + SESSION_MS,
        )
    ]
    assert bench.said(MemberJoined) == [
        MemberJoined(
            group=group,
            generation=0,
            member_id=static.member_id,
            group_instance_id="s",
            client_id="s-id",
            client_host="/s-host",
        ),
        MemberJoined(
            group=group,
            generation=1,
            member_id=dynamic.member_id,
            group_instance_id=None,
            client_id="d-id",
            client_host="/d-host",
        ),
    ]
    assert bench.said(GenerationStarted) == [
        GenerationStarted(
            group=group, generation=number, leader=static.member_id, protocol_name="range", members=number
        )
        for number in (1, 2)
    ]
    assert bench.said(RebalanceCompleted) == [
        RebalanceCompleted(group=group, generation=number, leader=static.member_id, members=number, static_members=1)
        for number in (1, 2)
    ]
