"""Tracks: how far a topic partition of a group came, look by look. `progress` has those of all groups.

A committed offset stands still once records came behind it: an offset at the end of a log has nothing to do, and
markers of transactions and aborted records can make its last offsets unreachable. So where a stall would be named,
somebody looks ahead once (`Progress.recall`), and tracks remember the answer.

House rule: pure, and values: a look makes others.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coordinator.story.described import Member
from coordinator.story.offsets import Ahead, BlockingTransaction, Expiry, OffsetLine, TopicOffsets

STUCK_MS = 20_000
"""A committed offset that stands for so long while records come stands still. Clients commit every 5 s by default."""

STUCK_MAX_MS = 5 * 60_000
"""A program that takes longer for a record leaves the group by default (max.poll.interval.ms)."""

GROWS_MS = 5_000
"""How long it takes to see whether records come."""

MARKERS_MAX = 10
"""So many records at the end of a log may be markers of transactions, which no consumer reads."""

SOON_MS, MOVES_MIN = 3_600_000, 3
"""Within an hour, and after the first offset of a log moved so often: then what it deletes overtakes what is read."""


class Back(NamedTuple):
    """A committed offset that went back. at_ms: the look that found it."""

    former: int
    offset: int
    at_ms: int


class First(NamedTuple):
    """The first look since records wait: its time, the offset, and the start of the log. moves: of the latter."""

    at_ms: int
    offset: int
    start: int
    moves: int = 0


class Track(NamedTuple):
    """A topic partition of a group.

    member, offset: of the newest look. end, start, expiry: the newest known ones. since_ms: the first look with this
    offset. first_end: of the log at that look, or where it was cut to. seen_ms: the newest look that has the end; 0 for
    none. has_moved: whether an earlier look had another offset. waits_ms: since when records wait behind the offset;
    None before a look saw that some came. longest_ms: the longest such wait that was over at last. back: None once the
    offset is as high again. first: None if no records wait. stable: where readers of committed records stop at the
    newest look, if a transaction keeps them from the end. ahead: where the next record is, once somebody looked from
    this offset on. holder: the transaction at `stable`, once somebody asked for it.

    One flat tuple costs little; `Tracks` keeps most of them for less.
    """

    member: Member | None
    offset: int | None
    end: int | None
    start: int | None
    expiry: Expiry | None
    since_ms: int
    first_end: int | None
    seen_ms: int = 0
    has_moved: bool = False
    waits_ms: int | None = None
    longest_ms: int = 0
    back: Back | None = None
    first: First | None = None
    stable: int | None = None
    ahead: Ahead | None = None
    holder: BlockingTransaction | None = None

    @property
    def position(self) -> int:
        """As of `OffsetLine`."""
        return (self.offset or 0) if self.ahead is None else self.ahead.offset

    @property
    def lag(self) -> int:
        """How many records wait; 0 if nobody knows."""
        return 0 if self.offset is None or self.end is None else self.end - self.position

    @property
    def unread(self) -> int:
        """How many records wait; without a committed offset, all that the log has."""
        return self.lag if self.offset is not None else max((self.end or 0) - (self.start or 0), 0)

    def taken(self, line: OffsetLine, now_ms: int) -> Track:
        """The track after the next look."""
        offset, end, member, first_end = line.current_offset, line.log_end_offset, line.member, self.first_end
        since_ms, has_moved, waits_ms = self.since_ms, self.has_moved, self.waits_ms
        longest_ms, back = self.longest_ms, self.back
        if offset != self.offset:
            if waits_ms is not None:
                longest_ms = max(longest_ms, now_ms - waits_ms)
            if offset is not None and self.offset is not None and offset < self.offset:
                back = Back(self.offset, offset, now_ms)
            since_ms, first_end, waits_ms, has_moved = now_ms, end, None, True
        elif line.has_all or (member and member.member_id) != (self.member and self.member.member_id):
            # Nothing waits for the same member, or another one has as much time.
            first_end, waits_ms = end, None
        elif first_end is None:
            first_end = end
        elif waits_ms is None and end is not None and end > line.position:
            has_grown, is_far = end > first_end, (line.lag or 0) > MARKERS_MAX
            if has_grown or is_far:
                waits_ms = max(self.seen_ms, now_ms - GROWS_MS) if self.lag > 0 else now_ms
        if back is not None and offset is not None and offset >= back.former:
            back = None
        seen_ms, start = now_ms, line.log_start_offset
        if end is None:
            seen_ms, end, start = self.seen_ms, self.end, self.start
        elif first_end is not None and end < first_end:
            first_end = end  # the log was cut, or another one has its name
        first = _first(self, offset, start, now_ms)
        expiry = line.expiry or (self.expiry if first else None)
        known = member, offset, end, start, expiry
        stands = since_ms, first_end, seen_ms
        is_ahead = line.stable_offset, line.ahead, line.holder
        return Track(*known, *stands, has_moved, waits_ms, longest_ms, back, first, *is_ahead)

    @property
    def is_stuck(self) -> bool:
        """Whether its member doesn't read it, though records wait: as of the newest look that has its end."""
        return self.member is not None and self.stands

    @property
    def stands(self) -> bool:
        """Whether the offset stands, though records wait."""
        if self.waits_ms is None or self.seen_ms - self.waits_ms < STUCK_MS:
            return False
        return self.seen_ms - self.waits_ms >= min(2 * self.longest_ms, STUCK_MAX_MS)

    def is_doubtful(self, line: OffsetLine, now_ms: int) -> bool:
        """Whether to look ahead of the next look's line: a stall would be named, or a few records stand for a while."""
        stable = line.log_end_offset if line.stable_offset is None else line.stable_offset
        is_known = line.ahead is not None and (line.ahead.is_record or line.ahead.is_refused)
        is_young = 2 * (now_ms - self.since_ms) < STUCK_MS
        if is_known or stable is None or stable <= line.position or is_young:
            return False
        return (line.lag or 0) <= MARKERS_MAX or self.taken(line, now_ms).stands

    def is_unnamed(self, line: OffsetLine, now_ms: int) -> bool:
        """Whether a stall would be named at a transaction for which nobody asked."""
        return line.holder is None and line.is_held and self.taken(line, now_ms).is_stuck

    @property
    def is_uneasy(self) -> bool:
        """Whether a finding may say something about it: records wait, or its offset went back."""
        return self.waits_ms is not None or self.first is not None or self.back is not None or self.lag > 0

    @property
    def is_held(self) -> bool:
        """Whether an open transaction keeps readers of committed records from reading on."""
        return self.stable is not None and self.stable <= self.position

    @property
    def made_ms(self) -> int | None:
        """The timestamp of the next record, if no look saw the offset move, so that it may stand for longer than known.

        Timestamps are the producers'. One that is younger than the first look tells nothing more.
        """
        made_ms = None if self.ahead is None or self.has_moved else self.ahead.made_ms
        return made_ms if made_ms is not None and made_ms < self.since_ms else None

    @property
    def lost(self) -> int:
        """How many records the log deleted before the group read them."""
        if self.start is None or self.offset is None or self.start <= self.offset:
            return 0
        return self.start - self.offset

    @property
    def left_ms(self) -> int | None:
        """In how long the log deletes records before the group reads them; None if it won't, as far as looks show."""
        if self.first is None or self.start is None or self.offset is None:
            return None
        if self.expiry is None and self.first.moves < MOVES_MIN:
            return None
        passed_ms = max(self.seen_ms - self.first.at_ms, 1)
        reads = max(self.offset - self.first.offset, 0) / passed_ms
        if self.expiry is not None and self.offset + reads * self.expiry.within_ms < self.expiry.offset:
            return self.expiry.within_ms
        closes = (self.start - self.first.start) / passed_ms - reads
        if self.first.moves < MOVES_MIN or closes <= 0:
            return None
        left_ms = int((self.offset - self.start) / closes)
        return left_ms if left_ms < SOON_MS else None


def _first(track: Track, offset: int | None, start: int | None, now_ms: int) -> First | None:
    """The first look since records wait, after the next look. The start of a log is known only while they do."""
    if start is None or offset is None:
        return None
    first = track.first or First(now_ms, offset, start)
    return first if start == track.start or track.first is None else first._replace(moves=first.moves + 1)


BUSY, NEW, UNMOVED = -2, -3, -1
"""In place of the offset of a topic partition that is not at rest, or that no look saw before; in place of the longest
wait of one whose offset no look saw move."""


class Tracks(Mapping[int, Track]):
    """The tracks of a topic of a group, by partition.

    There may be 100,000 of them, and most have read all: they are at rest. Their tracks differ in a few numbers, so
    columns keep these, in 45 bytes each, and a track is made when somebody asks for it. busy: all others.
    """

    __slots__ = ("_ends", "_indexes", "_longest_ms", "_members", "_offsets", "_seen_ms", "_since_ms", "busy")

    def __init__(self) -> None:
        self._indexes = array("i")
        self._members: Sequence[Member | None] = ()
        self._offsets = self._ends = self._since_ms = self._longest_ms = array("q")
        self._seen_ms = 0
        self.busy: dict[int, Track] = {}

    def taken(self, topic: str, told: TopicOffsets, now_ms: int) -> Tracks:
        """The tracks after the next look."""
        after = Tracks()
        after._seen_ms, after._members, after._ends = now_ms, told.members, array("q", told.ends)
        after._indexes, offsets = array("i", told.indexes), array("q", told.offsets)
        former, since_ms, longest_ms = self._columns_of(after._indexes)
        for index, line in told.lines.items():
            track = self.get(index) or _first_track(line, now_ms)
            after.busy[index] = track.taken(line, now_ms)
            offsets[bisect_left(told.indexes, index)] = BUSY
        changed = [at for at, (was, offset) in enumerate(zip(former, offsets, strict=True)) if was != offset != BUSY]
        for at in changed:
            was, offset = former[at], offsets[at]
            if was != NEW and (was == BUSY or offset < was):
                index = told.indexes[at]
                line = OffsetLine(topic, index, offset, told.ends[at], told.members[at])
                track = self[index].taken(line, now_ms)
                if track.is_uneasy:
                    after.busy[index], offsets[at] = track, BUSY
                since_ms[at], longest_ms[at] = track.since_ms, track.longest_ms if track.has_moved else UNMOVED
            else:
                since_ms[at] = now_ms
                if was == NEW:
                    longest_ms[at] = UNMOVED
                elif longest_ms[at] == UNMOVED:
                    longest_ms[at] = 0
        after._offsets, after._since_ms, after._longest_ms = offsets, since_ms, longest_ms
        return after

    def _columns_of(self, indexes: array[int]) -> tuple[array[int], array[int], array[int]]:
        """The columns that a look changes, for these partitions: offsets, since_ms, longest_ms."""
        columns = self._offsets, self._since_ms[:], self._longest_ms[:]
        if indexes == self._indexes:
            return columns
        places = {index: at for at, index in enumerate(self._indexes)}
        known = [places.get(index) for index in indexes]
        offsets, since_ms, longest_ms = (
            array("q", [NEW if at is None else column[at] for at in known]) for column in columns
        )
        return offsets, since_ms, longest_ms

    @property
    def sums(self) -> tuple[int, int, int]:
        """How many have an offset that is not beyond the end of its log, and the sums of these ends and positions."""
        read = [offset for offset, end in zip(self._offsets, self._ends, strict=True) if offset == end]
        behind = [
            (track.end, track.position)
            for track in self.busy.values()
            if track.offset is not None and track.end is not None and track.end >= track.position
        ]
        at_end = sum(read)
        return (
            len(read) + len(behind),
            at_end + sum(end for end, _ in behind),
            at_end + sum(position for _, position in behind),
        )

    def __getitem__(self, index: int) -> Track:
        if index in self.busy:
            return self.busy[index]
        at = bisect_left(self._indexes, index)
        if at == len(self._indexes) or self._indexes[at] != index:
            raise KeyError(index)
        offset, end, longest_ms = self._offsets[at], self._ends[at], self._longest_ms[at]
        stands = None, None, self._since_ms[at], end, self._seen_ms
        return Track(self._members[at], offset, end, *stands, longest_ms != UNMOVED, None, max(longest_ms, 0))

    def __iter__(self) -> Iterator[int]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)


def _first_track(line: OffsetLine, now_ms: int) -> Track:
    """The track of a topic partition that no look saw before."""
    end = line.log_end_offset
    known = line.member, line.current_offset, end, line.log_start_offset, line.expiry
    return Track(*known, now_ms, end, 0 if end is None else now_ms)
