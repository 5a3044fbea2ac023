"""How far groups come, look by look: the memory behind the findings about progress.

A look is a group's description with its offset lines (`described.OffsetLine`). One look shows how far a group is; only
a later one shows that it stands still. A committed offset stands still once records came behind it: an offset at the
end of a log has nothing to do, and markers of transactions can make the last few offsets of a log unreachable.

House rule: pure. Memory has the groups that were looked at within FORGOTTEN_MS, and no history of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from coordinator.story.entries import REBALANCING

if TYPE_CHECKING:
    from coordinator.story.described import DescribedGroup, Member, OffsetLine

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


class Back(NamedTuple):
    """A committed offset that went back. at_ms: the look that found it."""

    former: int
    offset: int
    at_ms: int


class Track(NamedTuple):
    """A topic partition of a group.

    line: of the newest look; its end and start are the newest known. since_ms: the first look with this offset. end: of
    the log at the first look. seen_ms: the newest look that has its end; 0 for none. has_moved: whether an earlier look
    had another offset. waits_ms: since when records wait behind the offset; None before a look saw that some came.
    longest_ms: the longest such wait that was over at last. back: None once the offset is as high again.
    """

    line: OffsetLine
    since_ms: int
    end: int | None
    seen_ms: int = 0
    has_moved: bool = False
    waits_ms: int | None = None
    longest_ms: int = 0
    back: Back | None = None

    def taken(self, line: OffsetLine, now_ms: int) -> Track:
        """The track after the next look."""
        former = self.line
        offset, end, first_end = line.current_offset, line.log_end_offset, self.end
        since_ms, has_moved, waits_ms = self.since_ms, self.has_moved, self.waits_ms
        longest_ms, back = self.longest_ms, self.back
        if offset != former.current_offset:
            if waits_ms is not None:
                longest_ms = max(longest_ms, now_ms - waits_ms)
            if offset is not None and former.current_offset is not None and offset < former.current_offset:
                back = Back(former.current_offset, offset, now_ms)
            since_ms, first_end, waits_ms, has_moved = now_ms, end, None, True
        elif _owner(line) != _owner(former):  # the new one has as much time
            first_end, waits_ms = end, None
        elif first_end is None:
            first_end = end
        elif waits_ms is None and end is not None and end > (offset or 0):
            has_grown, is_far = end > first_end, (line.lag or 0) > MARKERS_MAX
            if has_grown or is_far:
                waits_ms = max(self.seen_ms, now_ms - GROWS_MS) if (former.lag or 0) > 0 else now_ms
        if back is not None and offset is not None and offset >= back.former:
            back = None
        seen_ms = now_ms
        if end is None:
            seen_ms = self.seen_ms
            line = line._replace(log_end_offset=former.log_end_offset, log_start_offset=former.log_start_offset)
        return Track(line, since_ms, first_end, seen_ms, has_moved, waits_ms, longest_ms, back)

    @property
    def is_stuck(self) -> bool:
        """Whether its member doesn't read it, though records wait: as of the newest look that has its end."""
        limit_ms = min(max(STUCK_MS, 2 * self.longest_ms), STUCK_MAX_MS)
        return self.line.member is not None and self.waits_ms is not None and self.seen_ms - self.waits_ms >= limit_ms


class GroupProgress(NamedTuple):
    """A group after a look. number: of the look. seen_ms: its time.

    rebalancing_ms: the first look at this rebalance; None outside of one, or if the server says more of it.
    ownerless, idle: topic partitions without a member and members without a topic partition, by the first look in a row
    that showed them, while the group is Stable.
    """

    number: int = 0
    seen_ms: int = 0
    rebalancing_ms: int | None = None
    tracks: Mapping[TopicPartition, Track] = MappingProxyType({})
    ownerless: Mapping[TopicPartition, int] = MappingProxyType({})
    idle: Mapping[str, int] = MappingProxyType({})

    def is_open(self, now_ms: int) -> bool:
        """Whether a later look may show more than this one."""
        return self.rebalancing_ms is not None or any(_is_open(track, now_ms) for track in self.tracks.values())

    @property
    def is_suspect(self) -> bool:
        """Whether a partition may be about to stand still, or a rebalance takes its time."""
        return self.rebalancing_ms is not None or any(each.waits_ms is not None for each in self.tracks.values())

    def is_seen(self, pair: TopicPartition) -> bool:
        """Whether the newest look shows how far the group is there."""
        track = self.tracks.get(pair)
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
        question of this look was sent. A look at the group that was taken since then counts, and this one doesn't.
        """
        known = self._groups.get(group.group_id, NEVER)
        if begun is not None and known.number > begun:
            return known
        self.looks += 1
        is_told = group.waiting is not None or (group.consumer is not None and group.consumer.awaited is not None)
        rebalancing_ms = None if is_told or group.state not in REBALANCING else known.rebalancing_ms or now_ms
        is_stable = group.state == "Stable"
        taken = GroupProgress(
            self.looks,
            now_ms,
            rebalancing_ms,
            known.tracks if lines is None else _tracks(known, lines, now_ms),
            _since(known.ownerless, _ownerless(group.members, counts) if is_stable else (), now_ms),
            _since(known.idle, _idle(group.members, counts) if is_stable else (), now_ms),
        )
        self._groups.pop(group.group_id, None)
        self._groups[group.group_id] = taken  # the newest comes last
        while now_ms - next(iter(self._groups.values())).seen_ms > FORGOTTEN_MS:
            del self._groups[next(iter(self._groups))]
        return taken

    @property
    def groups(self) -> list[str]:
        """The ids of the groups in memory; the one that was looked at last is the last."""
        return list(self._groups)


def _tracks(known: GroupProgress, lines: Iterable[OffsetLine], now_ms: int) -> dict[TopicPartition, Track]:
    tracks: dict[TopicPartition, Track] = {}
    for line in lines:
        if line.topic is not None and line.partition is not None:
            place = line.topic, line.partition
            end = line.log_end_offset
            former = known.tracks.get(place) or Track(line, now_ms, end, 0 if end is None else now_ms)
            tracks[place] = former.taken(line, now_ms)
    return tracks


def _owner(line: OffsetLine) -> str | None:
    return None if line.member is None else line.member.member_id


def _is_open(track: Track, now_ms: int) -> bool:
    """Whether a topic partition may turn out to be stuck."""
    if track.line.member is None or track.has_moved or (track.line.lag or 0) <= 0 or track.is_stuck:
        return False
    return track.waits_ms is not None or now_ms - track.since_ms < GROWS_MS


def _since(former: Mapping[Named, int], found: Iterable[Named], now_ms: int) -> dict[Named, int]:
    return {each: former.get(each, now_ms) for each in found}


def _ownerless(members: Collection[Member], counts: Mapping[str, int]) -> Iterable[TopicPartition]:
    """The topic partitions that no member has, of the topics of which members have some."""
    owned = {pair for member in members for pair in member.topic_partitions}
    topics = {topic for topic, _ in owned} & counts.keys()
    return sorted({(topic, index) for topic in topics for index in range(counts[topic])} - owned)


def _idle(members: Collection[Member], counts: Mapping[str, int]) -> Iterable[str]:
    """The members without a topic partition that subscribe to topics with some."""
    return [
        member.member_id
        for member in members
        if member.assignment is not None
        and not member.topic_partitions
        and not member.is_standby
        and any(map(counts.get, member.subscription or ()))
    ]
