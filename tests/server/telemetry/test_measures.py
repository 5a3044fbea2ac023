"""Measures count each note once, under the right name, and count groups only for a scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.group import notes
from coordinator.group.causes import CauseKind, Origin
from coordinator.group.course import Outcome
from coordinator.group.group import Group
from coordinator.group.state import State
from coordinator.server.telemetry.measures import (
    COUNTED_AT_ONCE,
    OTHER_GROUPS,
    STORMS_WATCHED_MAX,
    Loads,
    Measures,
    census,
    seats_away,
)
from coordinator.story.counts import ABSENT_MS, STORM_MIN, STORM_MS
from protocol.messages import API_KEYS, HeartbeatResponse, LeaveGroupResponse, OffsetCommitResponse
from schemas.errors import ErrorCode
from tests.group.consumer.test_static import seats
from tests.group.harness import GROUP, Bench
from tests.server.telemetry.test_note_lines import CAUSE, ENDED

HEARTBEAT = API_KEYS["Heartbeat"]


def changed(note: notes.Note, **fields: Any) -> notes.Note:
    """Return the same note with other fields."""
    return type(note)(**dict(zip(note.FIELDS, note, strict=True)) | fields)


def started(group: str, **cause: Any) -> notes.RebalanceStarted:
    """Return the start of a rebalance."""
    return notes.RebalanceStarted(group, 1, "Stable", CAUSE._replace(**cause), 2)


def take(measures: Measures, happened: Iterable[notes.Note], at_ms: int = 0) -> None:
    """Count notes of one time."""
    measures.take([notes.Noted(0, at_ms, [*happened])])


def test_rebalances_add_up_by_cause_and_by_group(measures: Measures) -> None:
    """Fifty rebalances add up to fifty, by cause and by group."""
    take(measures, [started(f"g-{number % 3}") for number in range(30)])
    take(measures, [started("g-0", kind=CauseKind.MEMBER_LEFT, reason="", join_reason=None) for _ in range(20)])
    assert measures.rebalances.total() == measures.by_group.total() == measures.happened[notes.RebalanceStarted] == 50
    assert measures.rebalances[CauseKind.MEMBER_JOINED, Origin.CLIENT] == 30
    assert measures.rebalances[CauseKind.MEMBER_LEFT, Origin.INFERRED] == 20
    assert measures.by_group["g-0"] == 30


def test_a_further_cause_is_no_further_rebalance(measures: Measures) -> None:
    """A further cause of a rebalance that has begun doesn't count as another rebalance."""
    take(measures, [started("g"), notes.RebalanceCause("g", 1, CAUSE)])
    assert measures.rebalances.total() == 1


def test_groups_that_somebody_makes_up_make_up_no_series() -> None:
    """Groups beyond the limit share one series; a deleted group frees its series for the next group."""
    measures = Measures(groups_max=30)
    restarts = [
        notes.MemberReplaced(f"g-{number}", 5, "m-2", "m-1", "i-1", "Stable", "c", "/h") for number in range(80)
    ]
    take(measures, [*[started(f"g-{number}") for number in range(80)], *restarts])
    assert (
        len(measures.by_group) == len(measures.by_group_cause) == len(measures.storms) == len(measures.restarts) == 31
    )
    assert measures.by_group[OTHER_GROUPS] == measures.restarts[OTHER_GROUPS, False] == 50
    take(measures, [notes.GroupDeleted("g-0", 1, 0), started("new")])
    assert measures.by_group["new"] == measures.by_group_cause["new"][CauseKind.MEMBER_JOINED] == 1
    for counts in (measures.by_group, measures.by_group_cause, measures.storms, measures.restarts):
        assert all("g-0" not in (key if isinstance(key, tuple) else (key,)) for key in counts)
    none = Measures(groups_max=0)
    take(none, [started("g")])
    assert none.by_group == {OTHER_GROUPS: 1}


def test_a_storm_is_five_rebalances_within_a_minute(measures: Measures) -> None:
    """It counts once, however long it lasts; after a calmer minute another one may begin."""
    every_ms = STORM_MS // STORM_MIN - 1
    for number in range(4 * STORM_MIN):
        take(measures, [started("stormy")], number * every_ms)
        take(measures, [started("calm")], number * (every_ms + 2_000) * 2)
    assert (measures.storms["stormy"], measures.storms["calm"]) == (1, 0)
    later_ms = 4 * STORM_MIN * every_ms + STORM_MS
    for number in range(STORM_MIN - 1):
        take(measures, [started("stormy")], later_ms + number)
    assert measures.storms["stormy"] == 1
    take(measures, [started("stormy")], later_ms + STORM_MIN)
    assert measures.storms["stormy"] == 2


def test_few_groups_are_watched_for_storms(measures: Measures) -> None:
    """Those that rebalanced last."""
    take(measures, [started(str(number)) for number in range(STORMS_WATCHED_MAX + 5)])
    assert len(measures._newest) == STORMS_WATCHED_MAX


def test_a_seat_is_away_after_a_silence() -> None:
    """Only static members have seats; one that waits for an answer is there."""
    bench = Bench()
    static, other = (bench.static(name, session_ms=30_000) for name in "so")
    bench.settle(static, other, bench.dynamic("d"))
    group: Any = bench.coordinator.groups[GROUP]
    away_ms = bench.now_ms + ABSENT_MS
    assert seats_away(group, away_ms - 1) == 0
    assert seats_away(group, away_ms) == 2
    bench.dynamic("e").enter()
    static.join()
    assert seats_away(group, away_ms) == 1


def test_a_seat_with_a_short_session_is_away_before_the_session_ends() -> None:
    """After two thirds of the session."""
    bench = Bench()
    bench.settle(bench.static("s", session_ms=6_000))
    group: Any = bench.coordinator.groups[GROUP]
    assert [seats_away(group, bench.now_ms + silent_ms) for silent_ms in (3_999, 4_000)] == [0, 1]


def test_a_seat_of_the_consumer_protocol_is_away() -> None:
    """Its member said so, or was silent; a dynamic member has no seat."""
    play = seats()
    play.join("dynamic")
    now_ms, size = play.now().ms, len(play.group.static_members)
    assert seats_away(play.group, now_ms + ABSENT_MS - 1) == 0
    assert seats_away(play.group, now_ms + ABSENT_MS) == size
    play.beat("m0", -2, instance_id="i0")
    assert seats_away(play.group, now_ms) == 1


async def test_seats_away_of_groups_without_series_are_one_number() -> None:
    """Under the empty name."""
    bench = Bench()
    bench.settle(bench.static("s"))
    for series, away in (([GROUP], {GROUP: 1, OTHER_GROUPS: 0}), ([], {OTHER_GROUPS: 1})):
        found = await census([bench.coordinator], series, bench.now_ms + ABSENT_MS)
        assert found.away == away


def test_how_a_rebalance_ended_and_how_long_its_phases_took(measures: Measures) -> None:
    """A rebalance counts by its outcome; if it ends in its first phase, the second phase has no duration."""
    take(measures, [ENDED, changed(ENDED, outcome=Outcome.EMPTIED, preparing_ms=2_000, completing_ms=None)])
    assert measures.ended == {Outcome.COMPLETED: 1, Outcome.EMPTIED: 1}
    assert measures.phases["preparing"].total == pytest.approx(2.02)
    assert sum(measures.phases["preparing"].counts) == 2
    assert sum(measures.phases["completing"].counts) == 1


def test_what_else_is_counted(measures: Measures) -> None:
    """The measures count restarts by their rebalance, fencings by operation, dropped members and removed offsets."""
    replaced = notes.MemberReplaced("g", 5, "m-2", "m-1", "i-1", "Stable", "client", "/h")
    take(
        measures,
        [
            replaced,
            changed(replaced, rebalances=True),
            replaced,
            notes.MemberFenced("g", 5, "m-1", "m-2", "i-1", "heartbeat"),
            notes.MembersDropped("g", 5, ("m-1", "m-2"), "sync"),
            notes.OffsetsRemoved("g", 5, (("t", 0), ("t", 1)), expired=True),
        ],
    )
    assert measures.replaced == {False: 2, True: 1}
    assert measures.fenced == {"heartbeat": 1}
    assert measures.dropped == 2
    assert measures.offsets_removed == {True: 2}


def test_answers_are_counted_by_the_error_on_top(measures: Measures) -> None:
    """Answers count by their top-level error; OffsetCommit has none there."""
    measures.answered(HEARTBEAT, HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    measures.answered(HEARTBEAT, HeartbeatResponse())
    measures.answered(API_KEYS["OffsetCommit"], OffsetCommitResponse())
    assert measures.answers == {(HEARTBEAT, 82): 1, (HEARTBEAT, 0): 1, (API_KEYS["OffsetCommit"], 0): 1}


def test_answers_with_errors_inside(measures: Measures) -> None:
    """Errors inside an answer count too: of one unknown member in LeaveGroup, or of a refused OffsetCommit."""
    left = [LeaveGroupResponse.MemberResponse(error_code=each) for each in (0, ErrorCode.UNKNOWN_MEMBER_ID)]
    measures.answered(API_KEYS["LeaveGroup"], LeaveGroupResponse(members=left))
    measures.answered(API_KEYS["LeaveGroup"], LeaveGroupResponse(members=left[:1]))
    partition = OffsetCommitResponse.OffsetCommitResponsePartition(error_code=ErrorCode.ILLEGAL_GENERATION)
    topic = OffsetCommitResponse.OffsetCommitResponseTopic(name="t", partitions=[partition])
    empty = OffsetCommitResponse.OffsetCommitResponseTopic(name="e", partitions=[])
    measures.answered(API_KEYS["OffsetCommit"], OffsetCommitResponse(topics=[empty, topic]))
    assert measures.answers == {
        (API_KEYS["LeaveGroup"], 25): 1,
        (API_KEYS["LeaveGroup"], 0): 1,
        (API_KEYS["OffsetCommit"], 22): 1,
    }


def test_recent_loads_are_of_the_last_half_minute() -> None:
    """Loads count as recent for half a minute; the histogram keeps all."""
    loads = Loads()
    loads.add(1_000, 10)
    loads.add(20_000, 30)
    assert loads.recent(30_000) == [10, 30]
    assert loads.recent(31_001) == [30]
    assert loads.seconds.total == pytest.approx(0.04)


async def test_a_census_of_very_many_groups_lets_the_loop_go_on() -> None:
    """Other callbacks run while the census counts very many groups, and it counts each group once."""
    groups = {str(number): Group(str(number), 0) for number in range(3 * COUNTED_AT_ONCE)}
    coordinator: Any = SimpleNamespace(groups=groups)
    loop, turns = asyncio.get_running_loop(), 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns < 2:
            loop.call_soon(turn)

    loop.call_soon(turn)
    found = await census([coordinator], ["7", "none"], 0)
    assert found.states == {State.EMPTY: len(groups)}
    assert found.groups == {"7": (0, 0)}
    assert not found.consumer_states
    assert turns == 2


def test_a_deleted_group_takes_no_storm_away() -> None:
    """The sum of all storms never falls, and a deleted group without a name leaves the series of all other groups."""
    measures = Measures(1)
    for second in range(STORM_MIN):
        take(measures, [started("a")], second)
    take(measures, [started("b"), notes.GroupDeleted("a", 1, 0), notes.GroupDeleted("", 1, 0)], STORM_MIN)
    assert measures.storms_before + measures.storms.total() == 1
    assert measures.by_group == {"": 1}
