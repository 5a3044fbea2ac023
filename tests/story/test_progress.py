"""The memory of looks. test_progress_diagnosis.py has what the findings make of it."""

from __future__ import annotations

from dataclasses import replace

from coordinator.story.described import Member, StreamsSeat, Tasks
from coordinator.story.offsets import Ahead, BlockingTransaction, OffsetLine
from coordinator.story.progress import FORGOTTEN_MS, GroupProgress, Progress
from coordinator.story.tracks import GROWS_MS, MARKERS_MAX, STUCK_MS
from tests.story.test_diagnosis import NOW_MS
from tests.story.test_progress_diagnosis import ONE, PAIR, REBALANCES, STUCK, WORKS, looks
from tests.support.placed import placed

WORKS_FOR_NOBODY = Member("m", None, "c", "/h", {}, frozenset({"t"}))


def idle(member: Member) -> list[str]:
    """The idle members of a group with this one."""
    group = replace(PAIR, members=[member])
    return list(Progress().look(group, {}, {"t": 4}, NOW_MS).idle)


def test_what_another_look_may_show() -> None:
    """One more look is worth while as long as a partition with records to read may stand still."""
    first = looks(PAIR, (0, (3, 5), (9, 9)))
    assert first.taken().is_open(NOW_MS)
    assert first.taken().is_open(NOW_MS + STUCK_MS // 2 - 1)
    assert not first.taken().is_open(NOW_MS + STUCK_MS // 2)
    assert not WORKS.taken().is_open(NOW_MS)
    assert not STUCK.taken().is_open(NOW_MS)
    assert REBALANCES.taken().is_open(NOW_MS)


def test_only_topic_partitions_with_something_to_say_are_uneasy() -> None:
    """Findings and lag in time read these alone: of 100,000 topic partitions, those that have read all cost nothing."""
    progress = Progress()

    def taken(*offsets: int, at_ms: int) -> GroupProgress:
        ends = 9, 9, 9, 30
        lines = [OffsetLine("t", index, offset, ends[index], ONE) for index, offset in enumerate(offsets)]
        return progress.look(PAIR, placed(lines), {"t": 4}, at_ms)

    assert set(taken(9, 9, 9, 9, at_ms=NOW_MS).uneasy) == {("t", 3)}  # has records to read
    newest = taken(9, 5, 9, 9, at_ms=NOW_MS + GROWS_MS)
    assert set(newest.tracks["t"]) == {0, 1, 2, 3}
    assert set(newest.uneasy) == {("t", 1), ("t", 3)}  # one went back
    assert progress.look(PAIR, None, {"t": 4}, NOW_MS + 2 * GROWS_MS).uneasy == newest.uneasy


def test_topic_partitions_without_a_member() -> None:
    """Those of a topic of which members have others; a topic that nobody has says nothing."""
    assert list(Progress().look(PAIR, {}, {"t": 3, "other": 2}, NOW_MS).ownerless) == [("t", 2)]


def test_a_member_with_standby_tasks_is_not_idle() -> None:
    """A member of a streams group may have only standby or warm-up tasks: it works for the others."""
    member = replace(WORKS_FOR_NOBODY, streams=StreamsSeat("p", 0, Tasks({}, {"0": [1]}, {}), Tasks({}, {}, {})))
    assert idle(WORKS_FOR_NOBODY) == [WORKS_FOR_NOBODY.member_id]
    assert idle(member) == []


def test_groups_that_nobody_looks_at_are_forgotten() -> None:
    """The memory has those of the last ten minutes."""
    progress = Progress()
    WORKS.taken(progress)
    progress.look(replace(PAIR, group_id="second"), {}, {}, NOW_MS)
    assert progress.groups == ["g", "second"]
    later = replace(PAIR, group_id="other")
    progress.look(later, {}, {}, NOW_MS + FORGOTTEN_MS + 1)
    assert progress.groups == ["other"]


def test_a_look_that_began_before_another_was_taken_does_not_count() -> None:
    """Two threads may ask at the same time, and the older answer may come last: nothing goes back by that."""
    progress = Progress()
    begun = progress.looks
    newest = WORKS.taken(progress)
    line = OffsetLine("t", 0, 1, 9, ONE)
    assert progress.look(PAIR, placed([line]), {}, NOW_MS, begun) is newest
    assert progress.look(PAIR, placed([line]), {}, NOW_MS, progress.looks).tracks["t"][0].back is not None
    assert newest.tracks["t"][0].back is None


def test_what_is_ahead_is_asked_for_where_a_stall_would_be_named() -> None:
    """Once for each committed offset: from where the last answer ended, and not again once a record was found."""
    progress = Progress()

    def line(end: int, offset: int = 3, ahead: Ahead | None = None) -> OffsetLine:
        return OffsetLine("t", 0, offset, end, ONE, ahead=ahead)

    def asked(told: OffsetLine, at_ms: int) -> dict[tuple[str, int], int]:
        """The question that a look has; without an answer the line is taken."""
        offsets, questions, _ = progress.recall("g", placed([told]), at_ms)
        progress.look(PAIR, offsets, {}, at_ms)
        return questions

    many = 4 + MARKERS_MAX
    assert asked(line(3), NOW_MS) == {}
    assert asked(line(many), NOW_MS + 1) == {}
    assert asked(line(many), NOW_MS + STUCK_MS - 1) == {}
    assert asked(line(many), NOW_MS + STUCK_MS + 1) == {("t", 0): 3}
    later_ms = NOW_MS + STUCK_MS + 2
    seen = progress.look(PAIR, placed([line(many, ahead=Ahead(many))]), {}, later_ms)
    assert (seen.tracks["t"][0].is_stuck, seen.tracks["t"][0].lag) == (False, 0)
    assert asked(line(many), later_ms) == {}
    cut = placed([line(many - 1)])
    assert progress.recall("g", cut, later_ms)[0] == cut, "nobody looked ahead in the log that has its name now"
    assert asked(line(many + 2), later_ms) == {("t", 0): many}
    for known in (Ahead(many, is_record=True), Ahead(many, is_refused=True)):
        progress.look(PAIR, placed([line(many + 2, ahead=known)]), {}, later_ms)
        assert asked(line(many + 3), later_ms + STUCK_MS) == {}
        seen = progress.look(PAIR, placed([line(many + 3, ahead=known)]), {}, later_ms + STUCK_MS)
        assert seen.tracks["t"][0].is_stuck
    moved = line(many + 3, offset=4)
    assert asked(moved, later_ms) == {}
    assert progress.recall("g", placed([moved]), later_ms)[0] == placed([moved])


def test_a_few_records_that_stand_are_looked_at_before_a_stall() -> None:
    """They may be markers; so lag in time is right also where no look saw them come."""
    progress = Progress()
    line = OffsetLine("t", 0, 3, 4, ONE)
    progress.look(PAIR, placed([line]), {}, NOW_MS)
    assert progress.recall("g", placed([line]), NOW_MS + STUCK_MS // 2 - 1)[1] == {}
    assert progress.recall("g", placed([line]), NOW_MS + STUCK_MS // 2)[1] == {("t", 0): 3}
    held = line._replace(stable_offset=3)  # behind it a transaction is open
    assert progress.recall("g", placed([held]), NOW_MS + STUCK_MS)[1] == {}
    assert line._replace(ahead=Ahead(4)).lag == 0


def test_the_producer_of_an_open_transaction_is_asked_for_once() -> None:
    """Where a stall would be named at it, and again if another transaction holds readers there."""
    progress = Progress()

    def asked(line: OffsetLine, at_ms: int) -> dict[tuple[str, int], int]:
        offsets, _, held = progress.recall("g", placed([line]), at_ms)
        holders = {pair: BlockingTransaction(offset, "billing-1", 7, NOW_MS) for pair, offset in held.items()}
        (known,) = offsets["t"].lines.values()
        progress.look(PAIR, placed([known._replace(holder=holders.get(("t", 0), known.holder))]), {}, at_ms)
        return held

    many = 4 + MARKERS_MAX
    held = OffsetLine("t", 0, 3, many, ONE, stable_offset=3)
    assert asked(held, NOW_MS) == {}
    assert asked(held, NOW_MS + 1) == {}
    assert asked(held, NOW_MS + STUCK_MS - 1) == {}
    assert asked(held, NOW_MS + STUCK_MS + 1) == {("t", 0): 3}
    assert asked(held, NOW_MS + STUCK_MS + 2) == {}
    assert asked(held._replace(stable_offset=2), NOW_MS + STUCK_MS + 3) == {("t", 0): 2}
    assert asked(held._replace(stable_offset=4), NOW_MS + STUCK_MS + 4) == {}
