"""The names of notes are an interface, and so are Kafka's words in log lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.causes import CauseKind
from coordinator.group.client import Client
from coordinator.group.notes import (
    CONSUMER,
    TEXTS,
    GenerationStarted,
    GroupDeleted,
    MemberFenced,
    MemberJoined,
    MemberPending,
    Note,
    PendingExpired,
    RebalanceCompleted,
    RebalanceEnded,
    place_text,
)
from tests.group.harness import SESSION_MS, WALL_MS, Bench
from tests.server.telemetry.test_note_lines import ENDED, EVENTS

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
    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in TEXTS} == NAMES


def test_every_note_says_which_group_and_generation() -> None:
    """Group and generation are the first two fields of each note."""
    assert all(kind.FIELDS[:2] == ("group", "generation") for kind in TEXTS)


def test_the_page_of_events_has_each_of_them_with_its_fields() -> None:
    """docs/run/events.md has every note and cause, and exactly its fields: people write assertions from it."""
    root = Path(__file__).parents[2]
    page = (root / "docs/run/events.md").read_text(encoding="utf-8").partition("\n# What `tenure doctor` finds")[0]
    rows = {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `")}
    assert rows.keys() >= NAMES
    rooms = (root / "coordinator" / room for room in ("server", "site", "loop"))
    server = "".join(path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py"))
    assert [name for name in rows.keys() - NAMES if f'"{name}"' not in server] == []
    for kind in TEXTS:
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


def text_of(note: Note) -> str:
    """The text of a log line."""
    return TEXTS[type(note)](note, place_text(12))


@pytest.mark.parametrize(
    "name, words",
    [
        (
            "rebalance_started",
            (
                "Preparing to rebalance group g in state PreparingRebalance with old generation 3 "
                "(__consumer_offsets-12) (reason: "
            ),
        ),
        (
            "rebalance_ended",
            (
                "Rebalance of group g from generation 3 (__consumer_offsets-12) is over: every member has its "
                "assignment; waited longest for m-1 to join, 20 ms"
            ),
        ),
        ("generation_started", "Stabilized group g generation 4 (__consumer_offsets-12) with 2 members"),
        (
            "rebalance_completed",
            (
                "Assignment received from leader m-1 for group g for generation 4. The group has 2 members, 1 of "
                "which are static."
            ),
        ),
        ("group_converted", "Converted group g to a consumer group in generation 5 with 3 members"),
        ("group_emptied", "Group g with generation 5 is now empty (__consumer_offsets-12)"),
        ("member_expired", "in group g has been removed after session timeout expiration"),
        ("pending_expired", "Pending member m-1 in group g has been removed after session timeout expiration."),
        (
            "member_replaced",
            (
                "Static member with groupInstanceId=i-1 and unknown member id joins group g in Stable state. Replacing "
                "previously mapped member m-1 with"
            ),
        ),
        (
            "member_fenced",
            (
                "Request memberId=m-1 for static member with groupInstanceId=i-1 is fenced by current memberId=m-2 "
                "during operation heartbeat"
            ),
        ),
        ("member_left", "Member m-1 has left group g through explicit `LeaveGroup`; client reason: done"),
        (
            "target_assigned",
            "[GroupId g] Computed a new target assignment for epoch 5 with 'uniform' assignor: 2 members, 3 topic",
        ),
        ("member_revoking", "Member m-1 with groupInstanceId=i-1 is asked to give up 3 topic partitions"),
        ("member_away", "Static member m-1 with instance id i-1 temporarily left the group"),
        (
            "instance_id_unreleased",
            (
                "Static member m-2 with instance id i-1 cannot join the group because the instance id is owned by "
                "member m-1 (c, /h; the owner is d, /i, heard of 700 ms ago)"
            ),
        ),
        (
            "client_refused",
            (
                "Group g refuses member m-1 with groupInstanceId=i-1 with GROUP_MAX_SIZE_REACHED: the group is full, "
                "until a member is gone (client c, /h)"
            ),
        ),
        ("hold_ended", "Group g lets 3 held members in: no expected member is missing"),
        ("rebalance_stuck", "Group g could not complete rebalance because no members rejoined"),
    ],
)
def test_lines_keep_the_words_that_people_grep_for(name: str, words: str) -> None:
    """People and scripts search for Kafka's wording."""
    assert words in text_of(EVENTS[name])


def test_a_rebalance_of_the_consumer_protocol_ends_from_an_epoch() -> None:
    """Such a group has no generations."""
    fields = dict(zip(ENDED.FIELDS, ENDED, strict=True)) | {"group_type": CONSUMER}
    text = text_of(RebalanceEnded(**fields))
    assert text.startswith("Rebalance of group g from epoch 3 (__consumer_offsets-12) is over: ")


def test_a_fenced_request_without_a_member_id_has_no_empty_name() -> None:
    """The line says that the id is missing."""
    note = MemberFenced("g", 1, "", "m-2", "i-1", "heartbeat")
    assert text_of(note).startswith("Request without a member id for static member with groupInstanceId=i-1 is ")


def test_the_two_ways_of_a_note_have_their_own_words() -> None:
    """Lines differ for deleted and expired, left and lapsed, static and dynamic."""
    pairs: list[tuple[Note, Note]] = [
        (GroupDeleted("g", 1, 0), GroupDeleted("g", 1, 0, expired=True)),
        (PendingExpired("g", 1, "m"), PendingExpired("g", 1, "m", left=True)),
        (MemberJoined("g", 1, "m", None, "c", "/h"), MemberJoined("g", 1, "m", "i", "c", "/h")),
    ]
    for one, other in pairs:
        assert text_of(one) != text_of(other)
