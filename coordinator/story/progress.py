"""How far groups come, look by look: the memory behind the findings about progress.

A look is a group's description with its offset lines (`described.OffsetLine`). One look shows how far a group is; only
a later one shows that it stands still. A committed offset stands still once records came behind it: an offset at the
end of a log has nothing to do, and markers of transactions and aborted records can make its last offsets unreachable.
So where a stall would be named, somebody looks ahead once (`Progress.recall`), and tracks remember the answer. If an
open transaction is ahead, somebody asks once for its producer.

House rule: pure. Memory has the groups that were looked at within FORGOTTEN_MS, and no history of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from coordinator.story.described import SHARE
from coordinator.story.entries import REBALANCING

if TYPE_CHECKING:
    from coordinator.story.described import Ahead, BlockingTransaction, DescribedGroup, Expiry, Member, OffsetLine

TopicPartition = tuple[str, int]
Named = TypeVar("Named")

STUCK_MS = 20_000
"""A committed offset that stands for so long while records come stands still. Clients commit every 5 s by default."""

STUCK_MAX_MS = 5 * 60_000
"""A program that takes longer for a record leaves the group by default (max.poll.interval.ms)."""

GROWS_MS = 5_000
"""How long it takes to see whether records come."""

MARKERS_MAX = 10
"""So many records at the end of a log may be markers of transactions, which no consumer reads."""

FORGOTTEN_MS = 10 * 60_000

AGREE_MS = 30_000
"""After that all looks know of a topic's added partitions: they keep an answer about a topic for 20 s."""

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
    offset. first_end: of the log at that look. seen_ms: the newest look that has the end; 0 for none. has_moved:
    whether an earlier look had another offset. waits_ms: since when records wait behind the offset; None before a look
    saw that some came. longest_ms: the longest such wait that was over at last. back: None once the offset is as high
    again. first: None if no records wait. stable: where readers of committed records stop at the newest look, if a
    transaction keeps them from the end. ahead: where the next record is, once somebody looked from this offset on.
    holder: the transaction at `stable`, once somebody asked for it.

    There may be 100,000 of them, so this is one flat tuple.
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
        limit_ms = min(max(STUCK_MS, 2 * self.longest_ms), STUCK_MAX_MS)
        return self.waits_ms is not None and self.seen_ms - self.waits_ms >= limit_ms

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
        return 0 if self.start is None or self.offset is None else max(self.start - self.offset, 0)

    @property
    def left_ms(self) -> int | None:
        """In how long the log deletes records before the group reads them; None if it won't, as far as looks show."""
        if self.first is None or self.start is None or self.offset is None:
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


class GroupProgress(NamedTuple):
    """A group after a look. number: of the look. seen_ms: its time. first_ms: that of the first look in memory.

    rebalancing_ms: the first look at this rebalance; None outside of one, or if the server says more of it. tracks: by
    topic and partition. ownerless, idle: topic partitions without a member and members without a topic partition, by
    the first look in a row that showed them while the group was Stable; a rebalance ends no row. is_shared: whether
    several members may read a topic partition, so that no track has a member. uneasy: the tracks of which a finding may
    say something. They are few in a healthy group, so what reads them alone costs little with 100,000 tracks.
    """

    number: int = 0
    seen_ms: int = 0
    rebalancing_ms: int | None = None
    tracks: Mapping[str, Mapping[int, Track]] = MappingProxyType({})
    ownerless: Mapping[TopicPartition, int] = MappingProxyType({})
    idle: Mapping[str, int] = MappingProxyType({})
    is_shared: bool = False
    uneasy: Mapping[TopicPartition, Track] = MappingProxyType({})
    first_ms: int | None = None

    def is_open(self, now_ms: int) -> bool:
        """Whether a later look may show more than this one."""
        return self.rebalancing_ms is not None or any(
            _is_open(track, now_ms) for track in self.uneasy.values() if self.is_shared or track.member is not None
        )

    @property
    def undecided(self) -> list[tuple[str, Track]]:
        """The topic partitions with records to read that may stand still, though looks don't say so yet."""
        return [
            (name, track)
            for name, track in self.each()
            if (self.is_shared or track.member is not None)
            and track.lag > 0
            and not (track.has_moved or track.stands)
            and track.since_ms < track.seen_ms
        ]

    @property
    def is_suspect(self) -> bool:
        """Whether a partition may be about to stand still, or a rebalance takes its time."""
        return self.rebalancing_ms is not None or any(each.waits_ms is not None for each in self.uneasy.values())

    def each(self) -> Iterator[tuple[str, Track]]:
        """The uneasy tracks, each with the name of its topic partition."""
        for (topic, index), track in self.uneasy.items():
            yield f"{topic}-{index}", track

    def of_members(self, member_ids: Collection[str]) -> dict[str, list[Track]]:
        """All tracks of these members."""
        found: dict[str, list[Track]] = {}
        for tracks in self.tracks.values():
            for track in tracks.values():
                if track.member is not None and track.member.member_id in member_ids:
                    found.setdefault(track.member.member_id, []).append(track)
        return found

    def track(self, pair: TopicPartition) -> Track | None:
        """The track of a topic partition."""
        return self.tracks.get(pair[0], {}).get(pair[1])

    def is_seen(self, pair: TopicPartition) -> bool:
        """Whether the newest look shows how far the group is there."""
        track = self.track(pair)
        return track is not None and track.seen_ms == self.seen_ms


NEVER = GroupProgress()


class Progress:
    """The groups that were looked at. Looks are values: a thread may read one while another takes the next."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupProgress] = {}
        self.looks = 0
        """How many were taken."""

    def look(
        self,
        group: DescribedGroup,
        lines: Iterable[OffsetLine] | None,
        counts: Mapping[str, int],
        now_ms: int,
        begun: int | None = None,
    ) -> GroupProgress:
        """Take a look at a group. counts: partitions by topic. now_ms: Unix time.

        lines: None if its offsets can't be seen: memory keeps what earlier looks saw. begun: `looks` when the first
        question of this look was sent. If a look at the group has a higher number, this one doesn't count.
        """
        known = self._groups.get(group.group_id, NEVER)
        if begun is not None and known.number > begun:
            return known
        self.looks += 1
        is_described = group.waiting is not None or (group.consumer is not None and group.consumer.awaited is not None)
        rebalancing_ms = None if is_described or group.state not in REBALANCING else known.rebalancing_ms or now_ms
        is_stable = group.state == "Stable"
        is_rebalancing = group.state in REBALANCING  # then nobody knows, and a time goes on if nothing has changed
        tracks, uneasy = (known.tracks, known.uneasy) if lines is None else _tracks(known, lines, now_ms)
        taken = GroupProgress(
            self.looks,
            now_ms,
            rebalancing_ms,
            tracks,
            known.ownerless
            if is_rebalancing
            else _since(known.ownerless, _ownerless(group.members, counts, known, now_ms) if is_stable else (), now_ms),
            known.idle
            if is_rebalancing
            else _since(known.idle, _idle(group.members, counts) if is_stable else (), now_ms),
            is_shared=group.kind == SHARE and bool(group.members),
            uneasy=uneasy,
            first_ms=now_ms if known.first_ms is None else known.first_ms,
        )
        self._groups.pop(group.group_id, None)
        self._groups[group.group_id] = taken  # the newest comes last
        while now_ms - next(iter(self._groups.values())).seen_ms > FORGOTTEN_MS:
            del self._groups[next(iter(self._groups))]
        return taken

    def recall(
        self, group_id: str, lines: Iterable[OffsetLine], now_ms: int
    ) -> tuple[list[OffsetLine], dict[TopicPartition, int], dict[TopicPartition, int]]:
        """These lines of a group, with what earlier looks saw ahead; and the questions of this look.

        They are the positions from which to look ahead, and where transactions begin whose producers nobody named.
        """
        known = self._groups.get(group_id, NEVER)
        told: list[OffsetLine] = []
        asked: dict[TopicPartition, int] = {}
        held: dict[TopicPartition, int] = {}
        for each in lines:
            line, lag = each, each.lag
            if (lag is None or lag > 0) and (pair := each.pair) is not None:
                track = known.track(pair)
                if track is not None and track.offset == each.current_offset:
                    line = each if track.ahead is None else each._replace(ahead=track.ahead)
                    if track.holder is not None and track.holder.start_offset == line.stable_offset:
                        line = line._replace(holder=track.holder)
                    if track.is_doubtful(line, now_ms):
                        asked[pair] = line.position
                    elif line.stable_offset is not None and track.is_unnamed(line, now_ms):
                        held[pair] = line.stable_offset
            told.append(line)
        return told, asked, held

    def newest(self, group_id: str) -> GroupProgress:
        """The newest look at a group."""
        return self._groups.get(group_id, NEVER)

    @property
    def groups(self) -> list[str]:
        """The ids of the groups in memory; the one that was looked at last is the last."""
        return list(self._groups)


def _tracks(
    known: GroupProgress, lines: Iterable[OffsetLine], now_ms: int
) -> tuple[dict[str, dict[int, Track]], dict[TopicPartition, Track]]:
    """All tracks after a look, and the uneasy ones."""
    tracks: dict[str, dict[int, Track]] = {}
    uneasy: dict[TopicPartition, Track] = {}
    for line in lines:
        topic, index = line.topic, line.partition
        if topic is not None and index is not None:
            track = known.track((topic, index))
            if track is None:
                end = line.log_end_offset
                new = line.member, line.current_offset, end, line.log_start_offset, line.expiry, now_ms, end
                track = Track(*new, 0 if end is None else now_ms)
            track = track.taken(line, now_ms)
            tracks.setdefault(topic, {})[index] = track
            if track.is_uneasy:
                uneasy[topic, index] = track
    return tracks, uneasy


def _is_open(track: Track, now_ms: int) -> bool:
    """Whether a topic partition may turn out to be stuck, or `Track.is_doubtful` may find that nothing waits."""
    if track.has_moved or track.lag <= 0 or track.stands:
        return False
    return track.waits_ms is not None or 2 * (now_ms - track.since_ms) < STUCK_MS


def _since(former: Mapping[Named, int], found: Iterable[Named], now_ms: int) -> dict[Named, int]:
    return {each: former.get(each, now_ms) for each in found}


def _ownerless(
    members: Collection[Member], counts: Mapping[str, int], known: GroupProgress, now_ms: int
) -> Iterable[TopicPartition]:
    """The topic partitions that no member has, of the topics of which members have some.

    Also those that an earlier look found a moment ago, if this one doesn't know yet that somebody added them.
    """
    owned: dict[str, set[int]] = {}
    for member in members:
        for topic, indexes in (member.assignment or {}).items():
            owned.setdefault(topic, set()).update(indexes)
    found = [
        (topic, index)
        for topic in sorted(owned.keys() & counts.keys())
        if owned[topic]
        for index in range(counts[topic])
        if index not in owned[topic]
    ]
    added = [
        (topic, index)
        for (topic, index), at_ms in known.ownerless.items()
        if now_ms - at_ms < AGREE_MS and index >= counts.get(topic, 0) and index not in owned.get(topic, {index})
    ]
    return [*found, *added]


def _idle(members: Collection[Member], counts: Mapping[str, int]) -> Iterable[str]:
    """The members without a topic partition that subscribe to topics with some."""
    return [
        member.member_id
        for member in members
        if member.assignment is not None
        and not member.topic_partitions
        and not member.is_standby
        and not member.is_spare
        and any(map(counts.get, member.subscription or ()))
    ]
