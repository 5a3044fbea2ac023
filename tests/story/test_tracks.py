"""Tracks of topic partitions: columns for those at rest say the same as a track for each.

test_progress.py and test_progress_diagnosis.py have the sense of them.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import pytest

from coordinator.story.described import Member
from coordinator.story.offsets import NO_OFFSET, Ahead, OffsetLine, TopicOffsets
from coordinator.story.tracks import MARKERS_MAX, Track, Tracks
from tests.story.test_diagnosis import NOW_MS
from tests.support.length import rounds
from tests.support.placed import placed

ONE = Member("m-1", None, "c", "/h", {"t": [0]}, frozenset({"t"}))
OTHER = replace(ONE, member_id="m-2")


def in_full(told: TopicOffsets) -> TopicOffsets:
    """The same, with a line for each topic partition."""
    return told._replace(lines=dict(zip(told.indexes, told.all_lines("t"), strict=True)))


def known_of(tracks: Tracks) -> dict[int, Track]:
    """The tracks, but for the end at their first look: at rest it is the newest one, which decides the same."""
    return {index: track._replace(first_end=None) for index, track in tracks.items()}


def next_line(chance: random.Random, line: OffsetLine) -> OffsetLine:
    """The line at a later look."""
    offset, end = line.current_offset, line.log_end_offset or 0
    grown = end + chance.choice((0, 0, 1, MARKERS_MAX + 1))
    match chance.randrange(10):
        case 0:
            return OffsetLine("t", line.partition, None, grown, line.member)
        case 1:
            return OffsetLine("t", line.partition, offset, None, line.member)
        case 2:
            return OffsetLine("t", line.partition, max((offset or 0) - 2, 0), grown, line.member)
        case 3:
            return OffsetLine("t", line.partition, offset, grown, chance.choice((None, ONE, OTHER)))
        case 4:
            return OffsetLine("t", line.partition, offset or 0, grown, line.member, ahead=Ahead(grown))
        case 5 | 6:
            return OffsetLine("t", line.partition, offset, grown, line.member, 0)
    return OffsetLine("t", line.partition, grown, grown, line.member)


@pytest.mark.rounds
@pytest.mark.parametrize("seed", range(rounds(20, 60, 2_000)))
def test_columns_say_what_a_track_for_each_would_say(seed: int) -> None:
    """Partitions come and go, move, grow, stand, go back, and can't be seen for a while: both say the same of them."""
    chance = random.Random(seed)
    lines = {index: OffsetLine("t", index, 3, 3, ONE) for index in (0, 1, 2, 5, 9)}
    columns, full, now_ms, at_rest = Tracks(), Tracks(), NOW_MS, 0
    for _ in range(60):
        now_ms += chance.choice((1_000, 5_000, 30_000))
        lines = {index: next_line(chance, line) for index, line in lines.items()}
        if chance.random() < 0.2:
            gone = chance.choice(list(lines))
            lines = {index: line for index, line in lines.items() if index != gone}
            lines[chance.randrange(12)] = OffsetLine("t", gone, 3, chance.choice((3, 9)), ONE)
            lines = {index: line._replace(partition=index) for index, line in lines.items()}
        told = placed(lines.values())["t"]
        columns, full = columns.taken("t", told, now_ms), full.taken("t", in_full(told), now_ms)
        assert known_of(columns) == known_of(full)
        assert columns.sums == full.sums
        uneasy = {index for index, track in full.items() if track.is_uneasy}
        assert {index for index, track in columns.busy.items() if track.is_uneasy} == uneasy
        at_rest += len(columns) - len(columns.busy)
    assert at_rest > 0


@pytest.mark.parametrize(("end", "waits_ms"), [(3, NOW_MS + 2_000), (5, NOW_MS + 1_000)])
def test_what_comes_behind_a_log_that_was_cut_waits(end: int, waits_ms: int) -> None:
    """A topic is made anew, or truncated, to where the group has read or behind that: its next record waits at once."""
    track = Tracks().taken("t", placed([OffsetLine("t", 0, 3, 9, ONE)])["t"], NOW_MS)[0]
    cut = track.taken(OffsetLine("t", 0, 3, end, ONE), NOW_MS + 1_000)
    assert cut.waits_ms is None
    assert cut.taken(OffsetLine("t", 0, 3, end + 1, ONE), NOW_MS + 2_000).waits_ms == waits_ms


def test_a_topic_partition_that_is_not_there_has_no_track() -> None:
    """Also between others, and behind the last one."""
    tracks = Tracks().taken("t", placed([OffsetLine("t", index, 3, 3, ONE) for index in (1, 3)])["t"], NOW_MS)
    assert [index for index in range(5) if index in tracks] == list(tracks) == [1, 3]
    assert tracks.get(2) is None


def test_looks_are_values() -> None:
    """A thread may read one while another takes the next."""
    first = Tracks().taken("t", placed([OffsetLine("t", 0, 3, 3, ONE)])["t"], NOW_MS)
    former = dict(first)
    second = first.taken("t", placed([OffsetLine("t", 0, 4, 4, ONE)])["t"], NOW_MS + 1)
    assert dict(first) == former != dict(second)


def test_a_topic_partition_at_rest_costs_little_memory() -> None:
    """An observer of 100,000 topic partitions remembers all of them."""
    count = 1_000
    columns = [ONE] * count, [5] * count, [5] * count
    tracks = Tracks().taken("t", TopicOffsets(range(count), *columns, {}), NOW_MS)
    kept = [getattr(tracks, name) for name in Tracks.__slots__ if name != "_members"]
    assert sum(map(sys.getsizeof, kept)) < 48 * count
    assert not tracks.busy
    assert tracks[0].end != NO_OFFSET
