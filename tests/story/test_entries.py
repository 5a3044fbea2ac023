"""Events become entries: one entry per rebalance, however many records tell of it, and no entry is guessed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.story.entries import Timeline, timelines
from tests.support.told import cause as cause_of
from tests.support.told import event, shown, told


def cause(*member_ids: str, kind: str = "member_left") -> dict[str, Any]:
    """The cause of a rebalance, by these members."""
    return cause_of(kind, *member_ids)


def started(at_ms: int, first: dict[str, Any], generation: int = 3) -> Any:
    """The event of a rebalance that begins."""
    return event("rebalance_started", at_ms, generation=generation, cause=first, members=2, state="Stable", pending=[])


def ended(at_ms: int, began_ms: int, *causes: dict[str, Any], before: int = 3) -> Any:
    """The event of a rebalance that ends."""
    return event(
        "rebalance_ended",
        at_ms,
        generation=before + 1,
        generation_before=before,
        causes=list(causes),
        outcome="completed",
        began_ms=began_ms,
        members_before=2,
        members_after=1,
    )


def pending(at_ms: int, member_id: str) -> Any:
    """The event of a member id that a client got."""
    return event("member_pending", at_ms, member_id=member_id, client_id="c", client_host="/h", lapses_ms=at_ms + 10)


def replaced(at_ms: int, seat: str, state: str, *, rebalances: bool = False) -> Any:
    """The event of the second member of a seat taking it."""
    members = {"member_id": f"{seat}-2", "old_member_id": f"{seat}-1"}
    return event("member_replaced", at_ms, **members, state=state, rebalances=rebalances)


def fenced(at_ms: int, seat: str) -> Any:
    """The event of the first member of a seat, fenced in a waiting request when the second took the seat."""
    return event(
        "member_fenced", at_ms, member_id=f"{seat}-1", current_member_id=f"{seat}-2", kind="conflict", waited=True
    )


def test_a_rebalance_is_one_entry() -> None:
    """The entry lasts from begin to end; the record of the end has the final fields."""
    first, second = cause("a"), cause("b")
    timeline = Timeline("g").add_all([started(10, first), event("rebalance_cause", 11, cause=second)])
    assert len(shown(timeline)) == 1
    assert (shown(timeline)[0]["outcome"], shown(timeline)[0]["causes"]) == (None, [first, second])
    timeline.add(ended(20, 10, first, second))
    (entry,) = shown(timeline)
    assert (entry["type"], entry["at_ms"], entry["ended_ms"], entry["outcome"]) == ("rebalance", 10, 20, "completed")
    assert (entry["cause"], entry["causes"]) == (first, [first, second])
    assert (entry["generation_before"], entry["generation"], entry["members_after"]) == (3, 4, 1)


def test_only_a_rebalance_of_the_consumer_protocol_has_targets() -> None:
    """It has none at first, and nobody must give up partitions; in the classic protocol there is nothing to count."""
    for group_type, wanted in ((None, (None, None)), ("consumer", (0, []))):
        timeline = Timeline("g")
        begin = started(1, cause("m"))
        timeline.add(begin if group_type is None else replace(begin, group_type=group_type))
        (entry,) = shown(timeline)
        assert (entry.get("targets"), entry.get("revoking")) == wanted


def test_each_cause_has_its_time_where_a_record_tells() -> None:
    """The first cause has the time of the begin; a cause without a record has no time."""
    first, lost, second, third = (cause(name) for name in "abcd")
    timeline = Timeline("g").add_all([started(10, first), event("rebalance_cause", 12, cause=second)])
    assert shown(timeline)[0]["causes_at_ms"] == [10, 12]
    timeline.add(ended(20, 10, first, lost, second, third))
    assert shown(timeline)[0]["causes_at_ms"] == [10, None, 12, None]
    (entry,) = shown(Timeline("g").add_all([ended(20, 10, first, second)]))
    assert entry["causes_at_ms"] == [10, None]


def test_an_end_whose_beginning_is_missing_stands_for_itself() -> None:
    """Retention or a gap may have removed the begin, so the end alone makes the entry."""
    (entry,) = shown(Timeline("g").add_all([ended(20, 10, cause("a"))]))
    assert (entry["at_ms"], entry["cause"], entry["outcome"]) == (10, cause("a"), "completed")


def test_a_beginning_whose_end_is_missing_is_told_as_that() -> None:
    """When another rebalance begins, the outcome of the first is "unknown"."""
    timeline = Timeline("g").add_all([started(10, cause("a")), started(30, cause("b"), 5)])
    assert [entry["outcome"] for entry in shown(timeline)] == ["unknown", None]
    timeline.add(ended(40, 30, cause("b"), before=5))
    assert [entry["outcome"] for entry in shown(timeline)] == ["unknown", "completed"]


def test_an_end_of_another_rebalance_does_not_end_this_one_as_its_own() -> None:
    """An end names the generation at which its rebalance began. A group has one at a time, so no other is under way."""
    timeline = Timeline("g").add_all([started(10, cause("a")), ended(40, 30, cause("b"), before=7)])
    assert [(entry["at_ms"], entry["outcome"]) for entry in shown(timeline)] == [(10, "unknown"), (30, "completed")]


def test_other_groups_are_passed_over() -> None:
    """A timeline is of one group."""
    timeline = Timeline("g").add_all([replace(started(10, cause("a")), group="h")])
    assert shown(timeline) == []


def test_a_gap_is_every_groups() -> None:
    """The missing events may be this group's."""
    gap = told("events_dropped", at_ms=9, events=3, first_ms=5, last_ms=9)
    (entry,) = shown(Timeline("g").add_all([gap]))
    assert (entry["type"], entry["events"], entry["first_ms"]) == ("gap", 3, 5)


def test_what_became_of_a_member_id() -> None:
    """A member id is joined, lapsed or left; an unused one has no outcome."""
    timeline = Timeline("g").add_all(pending(number, name) for number, name in enumerate(["j", "k", "l", "m", "n"]))
    timeline.add(started(10, cause("j", kind="member_joined")))
    timeline.add(event("rebalance_cause", 11, cause=cause("n", kind="member_joined")))
    timeline.add(event("pending_expired", 12, member_id="k", left=False))
    timeline.add(event("pending_expired", 12, member_id="l", left=True))
    timeline.add(event("pending_expired", 12, member_id="never told", left=True))
    outcomes = {entry["member_id"]: entry["outcome"] for entry in shown(timeline) if entry["type"] == "pending"}
    assert outcomes == {"j": "joined", "k": "lapsed", "l": "left", "m": None, "n": "joined"}


def test_what_is_no_rebalance_is_an_entry_of_its_own() -> None:
    """Restarts, fencings and the group's deletion are entries of their own."""
    timeline = Timeline("g").add_all([
        event("member_replaced", 1, member_id="b-2", old_member_id="b-1", rebalances=False),
        event("member_fenced", 2, member_id="a-1", kind="conflict"),
        started(3, cause("a")),
        event("rebalance_stuck", 4),
        event("group_deleted", 5),
    ])  # fmt: skip
    assert [entry["type"] for entry in shown(timeline)] == ["static_restart", "fencing", "rebalance", "deleted"]
    assert shown(timeline)[2]["is_stuck"]


def test_a_restart_is_a_takeover_once_the_old_id_is_used_again() -> None:
    """Only a fencing of kind conflict makes a takeover, and only of its own seat."""
    timeline = Timeline("g").add_all(
        event("member_replaced", at_ms, member_id=f"{name}-2", old_member_id=f"{name}-1", rebalances=False)
        for at_ms, name in enumerate("ab")
    )
    timeline.add(event("member_fenced", 5, member_id="a-1", kind="self"))
    assert [entry["type"] for entry in shown(timeline)] == ["static_restart", "static_restart", "fencing"]
    timeline.add(event("member_fenced", 6, member_id="b-1", kind="conflict"))
    assert [entry["type"] for entry in shown(timeline)] == ["static_restart", "takeover", "fencing", "fencing"]


def test_a_return_that_only_the_log_shows_is_no_restart() -> None:
    """It may be a takeover: the count of entries says no more than their words. In the consumer protocol it is one."""
    replaced = {"member_id": "a-2", "old_member_id": "a-1", "rebalances": False, "inferred": True}
    timeline = Timeline("g").add_all([
        event("member_replaced", 1, **replaced),
        event("member_replaced", 2, **replaced, away_ms=5),
    ])  # fmt: skip
    assert [entry["type"] for entry in shown(timeline)] == ["static_return", "static_restart"]


def test_a_rebalance_that_is_told_by_its_end_stands_where_it_began() -> None:
    """Entries during the rebalance come after it; the restart that led to it comes before it, even if 1 ms later."""
    timeline = Timeline("g").add_all([
        event("member_replaced", 101, member_id="a-2", old_member_id="a-1", rebalances=True),
        event("member_replaced", 190, member_id="b-2", old_member_id="b-1", rebalances=False),
        ended(200, 100, cause("a-2")),
    ])  # fmt: skip
    assert [entry.get("member_id", entry["type"]) for entry in shown(timeline)] == ["a-2", "rebalance", "b-2"]


def test_a_seat_is_taken_in_the_millisecond_in_which_a_rebalance_began() -> None:
    """It comes after the rebalance's begin only if the group prepared. Loads and unused ids come before."""
    timeline = Timeline("g").add_all([
        event("group_loaded", 100, members=1),
        pending(100, "c"),
        replaced(100, "z", "Stable"),
        replaced(100, "b", "PreparingRebalance"),
        fenced(100, "b"),
        ended(200, 100, cause("c")),
    ])  # fmt: skip
    told = ["loaded", "pending", "static_restart", "rebalance", "takeover", "fencing"]
    assert [entry["type"] for entry in shown(timeline)] == told


@pytest.mark.parametrize("late_ms", [0, 1])
def test_a_seat_is_taken_that_leads_to_a_rebalance(late_ms: int) -> None:
    """The fencing of the waiting old member comes before the rebalance too, not during it."""
    timeline = Timeline("g").add_all([
        replaced(100 + late_ms, "a", "CompletingRebalance", rebalances=True),
        fenced(100 + late_ms, "a"),
        ended(200, 100, cause("a-2")),
    ])  # fmt: skip
    assert [entry["type"] for entry in shown(timeline)] == ["takeover", "fencing", "rebalance"]


def test_members_before_of_an_older_record_are_unknown() -> None:
    """Its field `members` is another number."""
    assert shown(Timeline("g").add_all([started(10, cause("a"))]))[0]["members_before"] is None
    newer = replace(started(10, cause("a")), members_before=4)
    assert shown(Timeline("g").add_all([newer]))[0]["members_before"] == 4


def test_a_load_ends_what_was_under_way() -> None:
    """The server stopped before it wrote the end; the load forgets member ids that clients have not used."""
    timeline = Timeline("g").add_all([pending(5, "x"), started(10, cause("a"))])
    timeline.add(event("group_loaded", 20, state="Stable", members=2))
    assert [(entry["type"], entry.get("outcome")) for entry in shown(timeline)] == [
        ("pending", "forgotten"),
        ("rebalance", "interrupted"),
        ("loaded", None),
    ]
    timeline.add(ended(40, 30, cause("b")))
    assert [entry.get("outcome") for entry in shown(timeline)] == ["forgotten", "interrupted", None, "completed"]


def test_a_load_at_another_node_names_both() -> None:
    """It is a load at a start if the node is the same, or if nothing tells which one it was."""
    timeline = Timeline("g").add_all([event("group_loaded", 1, node=1), event("group_loaded", 2, node=1)])
    timeline.add(event("leader_elected", 3, node=4))
    timeline.add(event("group_loaded", 4, node=2))
    assert [(entry.get("former_node"), entry.get("node")) for entry in shown(timeline)] == [(None, None)] * 2 + [(4, 2)]


def test_a_load_in_a_cluster_names_its_node() -> None:
    """Nodes there load groups also when no node starts, and the events of the former node may be away with it."""
    timeline = Timeline("g").add_all([event("group_loaded", at_ms, node=2, in_cluster=True) for at_ms in (1, 2)])
    timeline.add(event("group_loaded", 3, node=3, in_cluster=True))
    assert [(entry.get("former_node"), entry["node"]) for entry in shown(timeline)] == [(None, 2)] * 2 + [(2, 3)]


def test_a_load_after_a_failed_write_ends_what_was_open() -> None:
    """Its outcome is "unloaded", or "unknown" if the log has a later generation."""
    timeline = Timeline("g").add_all([started(10, cause("a"))])
    before = shown(timeline)[0]["generation_before"]
    timeline.add(event("group_loaded", 20, generation=before, state="Stable", members=2, write_failed=True))
    assert shown(timeline)[0]["outcome"] == "unloaded"
    timeline = Timeline("g").add_all([started(10, cause("a"))])
    timeline.add(event("group_loaded", 20, generation=before + 1, state="Stable", members=2, write_failed=True))
    assert shown(timeline)[0]["outcome"] == "unknown"


def held(at_ms: int, *missing: str) -> Any:
    """The event of joins that wait for expected members."""
    return event("rebalance_held", at_ms, missing=list(missing), missing_count=len(missing), until_wall_ms=9_000)


def hold_ended(at_ms: int, *missing: str) -> Any:
    """The event of joins that come in, without these members."""
    return event("hold_ended", at_ms, joins=2, missing=list(missing), missing_count=len(missing))


def test_a_hold_is_one_entry_that_its_end_completes() -> None:
    """The entry names who was missing when it began, who still was when it ended, and how many joins came in."""
    (open_one,) = shown(Timeline("g").add_all([held(1, "a", "b")]))
    assert (open_one["type"], open_one["outcome"], open_one["missing"]) == ("held", None, ["a", "b"])
    first, second = shown(Timeline("g").add_all([held(1, "a", "b"), hold_ended(5), held(6, "c"), hold_ended(8, "c")]))
    assert (first["at_ms"], first["ended_ms"], first["outcome"], first["joins"]) == (1, 5, "arrived", 2)
    assert (second["outcome"], second["still_missing"], second["still_missing_count"]) == ("timed_out", ["c"], 1)


@pytest.mark.parametrize("end", ["group_loaded", "group_deleted", "group_converted"])
def test_a_hold_that_no_record_ends_is_interrupted(end: str) -> None:
    """The coordinator started anew, or the group went; the next hold is another one."""
    first, _, other = shown(Timeline("g").add_all([held(1, "a"), event(end, 4), held(6, "b"), held(7, "c")]))[:3]
    assert (first["outcome"], first["ended_ms"]) == ("interrupted", 4)
    assert other["outcome"] == "interrupted", "another hold began, so a record is missing"


def test_an_end_of_a_hold_without_its_beginning() -> None:
    """The entry has no names of its beginning."""
    (only,) = shown(Timeline("g").add_all([hold_ended(5, "a")]))
    assert (only["at_ms"], only["missing"], only["until_wall_ms"], only["outcome"]) == (5, None, None, "timed_out")


def test_each_timeline_of_several_groups_has_its_own_events_and_all_gaps() -> None:
    """Events that were dropped may be of any group; a group that nobody asked for has no timeline."""
    found = timelines(
        ["g", "h"], [event("events_dropped", 1), event("group_deleted", 2), told("group_deleted", group="i")]
    )
    assert {name: [entry.type for entry in each.entries] for name, each in found.items()} == {
        "g": ["gap", "deleted"],
        "h": ["gap"],
    }
