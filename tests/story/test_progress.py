"""The memory of looks. test_progress_diagnosis.py has what the findings make of it."""

from __future__ import annotations

from dataclasses import replace

from coordinator.story.described import Member, OffsetLine, StreamsSeat, Tasks
from coordinator.story.progress import FORGOTTEN_MS, GROWS_MS, Progress
from tests.story.test_diagnosis import NOW_MS
from tests.story.test_progress_diagnosis import ONE, PAIR, REBALANCES, STUCK, WORKS, looks

WORKS_FOR_NOBODY = Member("m", None, "c", "/h", {}, frozenset({"t"}))


def idle(member: Member) -> list[str]:
    """The idle members of a group with this one."""
    group = replace(PAIR, members=[member])
    return list(Progress().look(group, [], {"t": 4}, NOW_MS).idle)


def test_what_another_look_may_show() -> None:
    """One more look is worth while as long as a partition with records to read may stand still."""
    first = looks(PAIR, (0, (3, 5), (9, 9)))
    assert first.taken().is_open(NOW_MS)
    assert not first.taken().is_open(NOW_MS + GROWS_MS)
    assert not WORKS.taken().is_open(NOW_MS)
    assert not STUCK.taken().is_open(NOW_MS)
    assert REBALANCES.taken().is_open(NOW_MS)


def test_a_member_with_standby_tasks_is_not_idle() -> None:
    """A member of a streams group may have only standby or warm-up tasks: it works for the others."""
    member = replace(WORKS_FOR_NOBODY, streams=StreamsSeat("p", 0, Tasks({}, {"0": [1]}, {}), Tasks({}, {}, {})))
    assert idle(WORKS_FOR_NOBODY) == [WORKS_FOR_NOBODY.member_id]
    assert idle(member) == []


def test_groups_that_nobody_looks_at_are_forgotten() -> None:
    """The memory has those of the last ten minutes."""
    progress = Progress()
    WORKS.taken(progress)
    progress.look(replace(PAIR, group_id="second"), [], {}, NOW_MS)
    assert progress.groups == ["g", "second"]
    later = replace(PAIR, group_id="other")
    progress.look(later, [], {}, NOW_MS + FORGOTTEN_MS + 1)
    assert progress.groups == ["other"]


def test_a_look_that_began_before_another_was_taken_does_not_count() -> None:
    """Two threads may ask at the same time, and the older answer may come last: nothing goes back by that."""
    progress = Progress()
    begun = progress.looks
    newest = WORKS.taken(progress)
    line = OffsetLine("t", 0, 1, 9, ONE)
    assert progress.look(PAIR, [line], {}, NOW_MS, begun) is newest
    assert progress.look(PAIR, [line], {}, NOW_MS, progress.looks).tracks["t"][0].back is not None
    assert newest.tracks["t"][0].back is None
