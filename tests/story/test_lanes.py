"""Lanes show which seat was taken when, and what happened to it."""

from __future__ import annotations

from typing import Any

from coordinator.story.entries import Timeline
from coordinator.story.events import After, fields_of
from coordinator.story.lanes import Lane, Mark, hold, lane_json, lanes_of
from coordinator.story.runs import runs
from tests.support.told import cause, event


def ended(at_ms: int, before: list[str], after: list[str], outcome: str = "completed", **more: Any) -> Any:
    """The event of a rebalance that ends; a name of one letter is a member id, a longer one an instance id."""
    seats = [
        After(f"m-{name}" if len(name) > 1 else name, name if len(name) > 1 else None, "c", "/h", None)
        for name in after
    ]
    fields = {
        "outcome": outcome, "generation_before": 2, "state": "Stable", "causes": [cause("member_joined", "m")],
        "began_ms": at_ms - 5, "preparing_ms": 3, "completing_ms": 2, "protocol_type": "consumer",
        "members_before": len(before), "members_after": len(after), "before": before, "after": seats,
    }  # fmt: skip
    return event("rebalance_ended", at_ms, **fields | more)


def replaced(at_ms: int, name: str = "seat", **more: Any) -> Any:
    """The event of a static member's restart."""
    fields = {
        "member_id": f"{name}-{at_ms}", "old_member_id": f"{name}-before-{at_ms}", "group_instance_id": name,
        "state": "Stable", "client_id": "c", "client_host": "/h", "rebalances": False,
    }  # fmt: skip
    return event("member_replaced", at_ms, **fields | more)


def lanes(*events: Any, names: tuple[str, ...] = ()) -> dict[str, Lane]:
    """The lanes of these events; names: the seats of the group's present members."""
    entries = Timeline("g").add_all(events).entries
    return lanes_of(entries, runs("g", entries, 10**13), names)


def test_a_rebalance_says_who_has_a_seat() -> None:
    """A member before had its seat, a member that is missing after has lost it, a new member's seat begins."""
    drawn = lanes(ended(100, ["gone", "seat"], ["seat", "x"]), ended(200, ["seat", "x"], ["x"]))
    assert {name: lane.spans for name, lane in drawn.items()} == {
        "gone": [(None, 100)],
        "seat": [(None, 200)],
        "x": [(100, None)],
    }


def test_a_group_that_empties_or_goes_frees_all_seats() -> None:
    """An emptied rebalance does it, a deletion, and a log that has nothing of the group."""
    assert lanes(ended(100, ["seat"], [], "emptied"))["seat"].spans == [(None, 100)]
    deleted = event("group_deleted", 200, offsets=0, expired=False)
    assert lanes(ended(100, [], ["seat"]), deleted)["seat"].spans == [(100, 200)]
    forgotten = event("group_loaded", 200, state="Dead", members=0, write_failed=True)
    assert lanes(ended(100, [], ["seat"]), forgotten)["seat"].spans == [(100, 200)]


def test_a_seat_that_a_standby_takes_changes_hands() -> None:
    """The lost member's span ends where the standby's begins, also if its own began before the first event."""
    fields = {
        "member_id": "m-spare", "group_instance_id": "spare", "client_id": "c", "client_host": "/h",
        "old_member_id": "m-lost", "old_group_instance_id": "lost", "old_client_id": "c", "old_client_host": "/h",
        "kind": "member_expired", "waited_ms": 5, "leads": False, "standbys": 0,
    }  # fmt: skip
    drawn = lanes(event("seat_taken", 100, **fields), names=("spare",))
    assert {name: lane.spans for name, lane in drawn.items()} == {"lost": [(None, 100)], "spare": [(100, None)]}


def test_a_rebalance_that_was_not_completed_moves_nobody() -> None:
    """All members keep their seats."""
    for outcome in ("superseded", "unloaded"):
        assert lanes(ended(100, [], ["seat"]), ended(200, ["seat"], [], outcome))["seat"].spans == [(100, None)]


def test_members_that_a_record_has_no_room_for_are_not_gone() -> None:
    """A record names only some members of a large group: the others may still be there."""
    drawn = lanes(ended(100, [], ["seat", "other"]), ended(200, [], ["seat"], members_after=150))
    assert drawn["other"].spans == [(100, None)]


def test_marks_are_what_happened_to_a_seat() -> None:
    """A restart, one with a rebalance, a takeover and its fencing are marks with time and text."""
    client = {"client_id": "c", "client_host": "/h"}
    fenced = event(
        "member_fenced", 40, member_id="seat-before-30", current_member_id="seat-30", group_instance_id="seat",
        operation="heartbeat", client=client, current_client=client, waited=False, kind="conflict",
    )  # fmt: skip
    lane = lanes(replaced(10), replaced(20, rebalances=True), replaced(30), fenced)["seat"]
    assert [(mark.kind, mark.from_ms, mark.times, mark.rebalances) for mark in lane.marks] == [
        ("restart", 10, 1, 0),
        ("restart", 20, 1, 1),
        ("takeover", 30, 1, 0),
        ("fencing", 40, 1, 0),
    ]
    assert lane.spans == [(None, None)]
    assert lane.marks[0].text[0].startswith("restart: static member seat is back as seat-10")


def test_a_client_that_wanted_a_seat_marks_it() -> None:
    """A refusal in the consumer protocol is a mark on the lane of the seat's member, and moves nobody."""
    client = {"client_id": "c", "client_host": "/h"}
    refused = event(
        "instance_id_unreleased", 40, member_id="new", current_member_id="m-seat", group_instance_id="seat",
        silent_ms=5, client=client, current_client=client,
    )  # fmt: skip
    lane = lanes(ended(10, [], ["seat"], group_type="consumer"), refused)["seat"]
    (mark,) = lane.marks
    assert (mark.kind, mark.from_ms) == ("fencing", 40)
    assert mark.text[0].startswith("refused: new (c at h) wants the seat of seat")
    assert lane.spans == [(10, None)]


def test_a_run_of_restarts_is_one_mark() -> None:
    """The mark lasts from the first to the last restart; its kind is suspect if the doctor has a finding about it."""
    calm = [replaced(at_ms) for at_ms in range(0, 120_000, 30_000)]
    (mark,) = lanes(*calm)["seat"].marks
    assert (mark.kind, mark.from_ms, mark.until_ms, mark.times) == ("restart", 0, 90_000, 4)
    (mark,) = lanes(*(replaced(at_ms) for at_ms in range(0, 10_000, 1_000)))["seat"].marks
    assert (mark.kind, mark.times) == ("suspect", 10)


def test_members_of_now_have_a_lane() -> None:
    """A member that no entry names had its seat from the beginning; lanes are sorted by name."""
    drawn = lanes(ended(100, [], ["seat"]), names=("seat", "a"))
    assert list(drawn) == ["a", "seat"]
    assert drawn["a"].spans == [(None, None)]
    assert drawn["seat"].spans == [(100, None)]


def test_lanes_have_an_end() -> None:
    """The numbers of lanes, of spans and of marks have limits."""
    few: dict[str, Lane] = {}
    assert hold(few, ["a", "b"], 1, lanes_max=2)
    assert not hold(few, ["a", "c"], 2, lanes_max=2)
    assert {name: lane.spans for name, lane in few.items()} == {"a": [(1, None)], "b": [(1, 2)]}
    lane = Lane()
    for at_ms in range(0, 10, 2):
        lane.take(at_ms, spans_max=3)
        lane.free(at_ms + 1)
        lane.add(Mark("restart", at_ms, at_ms), marks_max=2)
    assert (lane.spans, len(lane.marks)) == ([(0, 1), (2, 3), (4, 5)], 2)


def test_a_lane_as_json() -> None:
    """Every field has a name."""
    lane = Lane([(None, 5)], [Mark("restart", 1, 2, 3, 4, ("words",))])
    assert fields_of(lane_json("seat", lane, 7)) == {
        "name": "seat",
        "standby_since_ms": 7,
        "spans": [{"from_ms": None, "until_ms": 5}],
        "marks": [{"kind": "restart", "from_ms": 1, "until_ms": 2, "times": 3, "rebalances": 4, "text": ("words",)}],
    }
