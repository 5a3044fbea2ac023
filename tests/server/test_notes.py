"""Notes become lines: every note has a stable name, its fields, and words that people grep for."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from coordinator.client.groups import LEAVE_REASON
from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind
from coordinator.group.course import Outcome, Pending, Phase, Seat, Waited
from coordinator.group.events import Client
from coordinator.server.lines import Lines
from coordinator.server.notes import Noted, NoteLines, event_name, reason_of, text_of
from tests.server.harness import ManualClock

CAUSE = Cause(CauseKind.MEMBER_JOINED, ("m-1",), "i-1", "client", "/10.0.0.1", "because", 1, 9)

SEAT = Seat("m-1", "i-1", "client", "/10.0.0.1", b"bytes")
ENDED = notes.RebalanceEnded(
    group="g",
    generation=4,
    outcome=Outcome.COMPLETED,
    generation_before=3,
    state="Stable",
    causes=(CAUSE,),
    further_causes=0,
    began_ms=1_000,
    preparing_ms=20,
    completing_ms=3,
    waited_for=Waited("m-1", Phase.PREPARING, 20),
    late=("m-2",),
    lapsed=(),
    leader="m-1",
    protocol_type="consumer",
    protocol_name="range",
    before=(SEAT,),
    after=(SEAT, SEAT),
)

EVENTS = {
    "rebalance_ended": ENDED,
    "rebalance_started": notes.RebalanceStarted("g", 3, "Stable", CAUSE, 2, (Pending("m-2", "c", "/h", 5),)),
    "rebalance_cause": notes.RebalanceCause("g", 3, CAUSE),
    "generation_started": notes.GenerationStarted("g", 4, "m-1", "range", 2),
    "rebalance_completed": notes.RebalanceCompleted("g", 4, "m-1", 2, 1, ("m-2",)),
    "rebalance_stuck": notes.RebalanceStuck("g", 4),
    "group_emptied": notes.GroupEmptied("g", 5),
    "group_loaded": notes.GroupLoaded("g", 5, "Stable", 2),
    "group_unloaded": notes.GroupUnloaded("g", 5),
    "group_deleted": notes.GroupDeleted("g", 5, 7),
    "member_pending": notes.MemberPending("g", 5, "m-1", "client", "/10.0.0.1"),
    "pending_expired": notes.PendingExpired("g", 5, "m-1"),
    "member_joined": notes.MemberJoined("g", 5, "m-1", "i-1", "client", "/10.0.0.1"),
    "member_replaced": notes.MemberReplaced("g", 5, "m-2", "m-1", "i-1", "Stable", "client", "/10.0.0.1"),
    "member_fenced": notes.MemberFenced("g", 5, "m-1", "m-2", "i-1", "heartbeat", Client("c", "/h")),
    "member_left": notes.MemberLeft("g", 5, "m-1", None, "client", "/10.0.0.1", "done"),
    "member_expired": notes.MemberExpired("g", 5, "m-1", "i-1", "client", "/10.0.0.1"),
    "members_dropped": notes.MembersDropped("g", 5, ("m-1", "m-2"), "did not sync in time"),
    "leader_elected": notes.LeaderElected("g", 5, "m-1", "m-2"),
    "offsets_created_group": notes.OffsetsCreatedGroup("g", 0),
    "offsets_removed": notes.OffsetsRemoved("g", 5, (("orders", 1),), expired=True),
    "group_too_large": notes.GroupTooLarge("g", 5, 200, 100),
    "unexpected_request": notes.UnexpectedRequest("g", 5, "m-1", "odd"),
}


def line_of(note: notes.Note) -> dict[str, Any]:
    """The JSON line of a note on partition 12."""
    stream = io.StringIO()
    NoteLines(Lines(stream, "json", 1, ManualClock())).take([Noted(12, 0, [note])])
    line: dict[str, Any] = json.loads(stream.getvalue())
    return line


def test_every_note_is_here() -> None:
    """The table of this file has every kind of note, under the name that it has in the log."""
    kinds = {kind for kind in vars(notes).values() if isinstance(kind, type) and issubclass(kind, notes.Note)}
    assert {type(note) for note in EVENTS.values()} == kinds - {notes.Note}
    assert {event_name(type(note).__name__): note for note in EVENTS.values()} == EVENTS


@pytest.mark.parametrize("name", EVENTS)
def test_a_json_line_has_all_fields_of_its_note(name: str) -> None:
    """Name, partition and each field as it is."""
    note = EVENTS[name]
    line = line_of(note)
    assert line["event"] == name
    assert line["partition"] == 12
    for field in note.FIELDS:
        value = getattr(note, field)
        if not isinstance(value, Cause | Client | Outcome | tuple):
            assert line[field] == json.loads(json.dumps(value))
    assert "g" in line["message"]


def test_what_a_note_has_of_others_is_an_object() -> None:
    """Members that are waited for, clients and pending ids have names; those before and after are counted."""
    line = line_of(ENDED)
    assert (line["outcome"], line["before"], line["after"], line["late"]) == ("completed", 1, 2, ["m-2"])
    assert line["waited_for"] == {"member_id": "m-1", "phase": "preparing", "ms": 20}
    assert line["causes"] == [line_of(EVENTS["rebalance_started"])["cause"]]
    pending = {"member_id": "m-2", "client_id": "c", "client_host": "/h", "lapses_ms": 5}
    assert line_of(EVENTS["rebalance_started"])["pending"] == [pending]
    assert line_of(EVENTS["member_fenced"])["client"] == {"client_id": "c", "client_host": "/h"}
    assert line_of(EVENTS["member_fenced"])["current_client"] is None


def test_a_cause_is_an_object() -> None:
    """Who, on which request, and whether the client said so."""
    assert line_of(EVENTS["rebalance_started"])["cause"] == {
        "kind": "member_joined",
        "member_ids": ["m-1"],
        "group_instance_id": "i-1",
        "client_id": "client",
        "client_host": "/10.0.0.1",
        "source": "client",
        "reason": "because",
        "meaning": None,
        "join_reason": 1,
        "api_version": 9,
    }


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
        ("rebalance_stuck", "Group g could not complete rebalance because no members rejoined"),
    ],
)
def test_lines_keep_the_words_that_people_grep_for(name: str, words: str) -> None:
    """Kafka's wording, where scripts and people look for it."""
    assert words in text_of(EVENTS[name], 12)


@pytest.mark.parametrize("kind", CauseKind)
def test_every_cause_has_words_and_names_its_member(kind: CauseKind) -> None:
    """What the coordinator saw, and that the client gave no reason if it was a request of its own."""
    words = reason_of(Cause(kind, ("m-1",), api_version=5))
    assert words.endswith("client reason: not provided") is (kind is not CauseKind.MEMBER_REMOVED)
    assert "m-1" in words or kind is CauseKind.GROUP_OVER_CAPACITY
    assert "client reason" not in reason_of(Cause(kind, ("m-1",)))


def test_the_reason_of_a_removal_is_the_operators() -> None:
    """The client gave none; what tools say for operators who gave none is no reason (KIP-800)."""

    def said(reason: str) -> str:
        return reason_of(Cause(CauseKind.MEMBER_REMOVED, ("m",), reason=reason, api_version=5))

    for nothing in ("", LEAVE_REASON, "member was removed by an admin"):
        assert said(nothing) == "member m is removed by an operator"
    assert said("host is gone") == "member m is removed by an operator, who says: host is gone"


def test_the_clients_reason_stands_beside_ours() -> None:
    """KIP-800's text and KIP-423's number, an unknown one as it is."""
    said = reason_of(Cause(CauseKind.MEMBER_REJOINED, ("m",), reason="rolling", join_reason=0, api_version=9))
    assert said.endswith("client reason: rolling, restart")
    assert reason_of(Cause(CauseKind.MEMBER_REJOINED, ("m",), join_reason=9, api_version=9)).endswith("number 9")


def test_the_two_ways_of_a_note_have_their_own_words() -> None:
    """Deleted or expired, left or lapsed, static or dynamic: people can tell."""
    pairs: list[tuple[notes.Note, notes.Note]] = [
        (notes.GroupDeleted("g", 1, 0), notes.GroupDeleted("g", 1, 0, expired=True)),
        (notes.PendingExpired("g", 1, "m"), notes.PendingExpired("g", 1, "m", left=True)),
        (notes.MemberJoined("g", 1, "m", None, "c", "/h"), notes.MemberJoined("g", 1, "m", "i", "c", "/h")),
    ]
    for one, other in pairs:
        assert text_of(one, 1) != text_of(other, 1)
