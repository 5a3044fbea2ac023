"""Notes become lines: every note has a stable name, its fields, and words that people grep for."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind
from coordinator.group.client import Client
from coordinator.group.course import Outcome, Pending, Phase, Snapshot, Waited
from coordinator.loop.lines import Lines
from coordinator.server.telemetry.note_lines import NoteLines
from coordinator.story.making import USUAL
from coordinator.story.schema import event_name
from tests.server.harness import ManualClock

CAUSE = Cause(CauseKind.MEMBER_JOINED, ("m-1",), "i-1", "client", "/10.0.0.1", "because", 1, 9)

SEAT = Snapshot("m-1", "i-1", "client", "/10.0.0.1", b"bytes")
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
    "group_converted": notes.GroupConverted("g", 5, "consumer", 3),
    "group_emptied": notes.GroupEmptied("g", 5),
    "group_loaded": notes.GroupLoaded("g", 5, "Stable", 2),
    "group_unloaded": notes.GroupUnloaded("g", 5),
    "group_deleted": notes.GroupDeleted("g", 5, 7),
    "member_pending": notes.MemberPending("g", 5, "m-1", "client", "/10.0.0.1"),
    "pending_expired": notes.PendingExpired("g", 5, "m-1"),
    "rebalance_held": notes.RebalanceHeld("g", 5, ("i-2",), 1, 5_000),
    "hold_ended": notes.HoldEnded("g", 5, 3),
    "client_refused": notes.ClientRefused(
        "g", 5, "m-1", "i-1", "GROUP_MAX_SIZE_REACHED", "the group is full", "a member is gone", Client("c", "/h")
    ),
    "member_joined": notes.MemberJoined("g", 5, "m-1", "i-1", "client", "/10.0.0.1"),
    "member_replaced": notes.MemberReplaced("g", 5, "m-2", "m-1", "i-1", "Stable", "client", "/10.0.0.1"),
    "member_fenced": notes.MemberFenced("g", 5, "m-1", "m-2", "i-1", "heartbeat", Client("c", "/h")),
    "member_left": notes.MemberLeft("g", 5, "m-1", None, "client", "/10.0.0.1", "done"),
    "member_expired": notes.MemberExpired("g", 5, "m-1", "i-1", "client", "/10.0.0.1"),
    "members_dropped": notes.MembersDropped("g", 5, ("m-1", "m-2"), "did not sync in time"),
    "standby_joined": notes.StandbyJoined("g", 5, "m-3", "i-3", "client", "/10.0.0.1", 1),
    "standby_seated": notes.StandbySeated("g", 5, "m-3", None, "client", "/10.0.0.1", 70, 0),
    "standby_gone": notes.StandbyGone("g", 5, "m-3", None, "client", "/10.0.0.1", "left", 0),
    "seat_taken": notes.SeatTaken(
        "g", 5, "m-3", None, "client", "/10.0.0.1", "m-1", "i-1", "c", "/h", "member_expired", 70, True, 0
    ),
    "leader_elected": notes.LeaderElected("g", 5, "m-1", "m-2"),
    "offsets_created_group": notes.OffsetsCreatedGroup("g", 0),
    "offsets_removed": notes.OffsetsRemoved("g", 5, (("orders", 1),), expired=True),
    "group_too_large": notes.GroupTooLarge("g", 5, 200, 100),
    "target_assigned": notes.TargetAssigned("g", 5, "uniform", 2, 3, 1, (notes.TargetChange("m-1", "i-1", 3, 1, 4),)),
    "member_revoking": notes.MemberRevoking("g", 5, "m-1", "i-1", "client", "/10.0.0.1", 3, 60_000),
    "member_away": notes.MemberAway("g", 5, "m-1", "i-1", "client", "/10.0.0.1"),
    "instance_id_unreleased": notes.InstanceIdUnreleased(
        "g", 5, "m-2", "m-1", "i-1", 700, Client("c", "/h"), Client("d", "/i")
    ),
    "unexpected_request": notes.UnexpectedRequest("g", 5, "m-1", "odd"),
}


def line_of(note: notes.Note) -> dict[str, Any]:
    """Return the JSON line of a note on partition 12."""
    stream = io.StringIO()
    NoteLines(Lines(stream, "json", 1, ManualClock())).take([notes.Noted(12, 0, [note])])
    line: dict[str, Any] = json.loads(stream.getvalue())
    return line


def test_every_note_is_here() -> None:
    """The table of this file has every kind of note, under its name in the log."""
    assert {type(note) for note in EVENTS.values()} == {*notes.TEXTS}
    assert {event_name(type(note).__name__): note for note in EVENTS.values()} == EVENTS


@pytest.mark.parametrize("name", EVENTS)
def test_a_json_line_has_all_fields_of_its_note(name: str) -> None:
    """A JSON line has the note's name, the partition and each field unchanged."""
    note = EVENTS[name]
    line = line_of(note)
    assert line["event"] == name
    assert line["partition"] == 12
    for field in note.FIELDS:
        value = getattr(note, field)
        if field in USUAL or field == "topic_names":
            assert field not in line
        elif not isinstance(value, Cause | Client | Outcome | tuple):
            assert line[field] == json.loads(json.dumps(value))
    assert "g" in line["message"]


def test_a_json_line_has_the_principal_of_a_client_that_authenticated() -> None:
    """In the note, in its cause, and in a client of it; so has the text."""
    joined = notes.MemberJoined("g", 1, "m-1", None, "app", "/10.0.0.1", "User:alice")
    assert line_of(joined)["principal"] == "User:alice"
    assert "(client app, /10.0.0.1, User:alice)" in line_of(joined)["message"]
    cause = Cause(CauseKind.MEMBER_JOINED, ("m-1",), None, "app", "/10.0.0.1", principal="User:alice")
    started = notes.RebalanceStarted("g", 1, "Stable", cause)
    assert line_of(started)["cause"]["principal"] == "User:alice"
    deleted = notes.GroupDeleted("g", 1, 0, client=Client("app", "/10.0.0.1", "User:alice"))
    assert line_of(deleted)["client"] == {"client_id": "app", "client_host": "/10.0.0.1", "principal": "User:alice"}


def test_what_a_note_has_of_others_is_an_object() -> None:
    """Members that the group waits for, clients and pending ids are objects; members before and after are counts."""
    line = line_of(ENDED)
    assert (line["outcome"], line["before"], line["after"], line["late"]) == ("completed", 1, 2, ["m-2"])
    assert line["waited_for"] == {"member_id": "m-1", "phase": "preparing", "ms": 20}
    assert line["causes"] == [line_of(EVENTS["rebalance_started"])["cause"]]
    pending = {"member_id": "m-2", "client_id": "c", "client_host": "/h", "lapses_ms": 5}
    assert line_of(EVENTS["rebalance_started"])["pending"] == [pending]
    assert line_of(EVENTS["member_fenced"])["client"] == {"client_id": "c", "client_host": "/h"}
    assert line_of(EVENTS["member_fenced"])["current_client"] is None


def test_a_cause_is_an_object() -> None:
    """A cause is an object with the client, its request, and whether the client gave the reason."""
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
