"""How far groups come, look by look: the memory behind the findings about progress.

A look is a group's description with its offset lines (`described.OffsetLine`). One look shows how far a group is; only
a later one shows that it stands still. A committed offset stands still once records came behind it: an offset at the
end of a log has nothing to do, and markers of transactions can make the last few offsets of a log unreachable.

House rule: pure. Memory has the groups that were looked at within FORGOTTEN_MS, and no history of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Track:
    """A topic partition of a group.

    line: of the newest look. since_ms: the first look with this offset. has_moved: whether an earlier one had another.
    end: of the log at the first look. waits_ms: since when records wait behind the offset; None before a look saw that
    some came. longest_ms: the longest such wait that was over at last. back: None once the offset is as high again.
    """

    line: OffsetLine
    since_ms: int
    end: int | None
    has_moved: bool = False
    waits_ms: int | None = None
    longest_ms: int = 0
    back: Back | None = None

    def take(self, line: OffsetLine, now_ms: int) -> None:
        """Take the next look."""
        former, self.line = self.line, line
        offset, end = line.current_offset, line.log_end_offset
        if offset != former.current_offset:
            if self.waits_ms is not None:
                self.longest_ms = max(self.longest_ms, now_ms - self.waits_ms)
            if offset is not None and former.current_offset is not None and offset < former.current_offset:
                self.back = Back(former.current_offset, offset, now_ms)
            self.since_ms, self.end, self.waits_ms, self.has_moved = now_ms, end, None, True
        elif _owner(line) != _owner(former):  # the new one has as much time
            self.end, self.waits_ms = end, None
        elif self.end is None:
            self.end = end
        elif self.waits_ms is None and end is not None and end > (offset or 0):
            has_grown, is_far = end > self.end, (line.lag or 0) > MARKERS_MAX
            self.waits_ms = now_ms if has_grown or is_far else None
        if self.back is not None and offset is not None and offset >= self.back.former:
            self.back = None

    def is_stuck(self, now_ms: int) -> bool:
        """Whether its member doesn't read it, though records wait."""
        limit_ms = min(max(STUCK_MS, 2 * self.longest_ms), STUCK_MAX_MS)
        return self.line.member is not None and self.waits_ms is not None and now_ms - self.waits_ms >= limit_ms


@dataclass(slots=True)
class GroupProgress:
    """A group. rebalancing_ms: the first look at this rebalance; None outside of one, or if the server says more of it.

    ownerless, idle: topic partitions without a member and members without a topic partition, by the first look in a row
    that showed them, while the group is Stable.
    """

    seen_ms: int = 0
    rebalancing_ms: int | None = None
    tracks: dict[TopicPartition, Track] = field(default_factory=dict)
    ownerless: dict[TopicPartition, int] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)

    def is_open(self, now_ms: int) -> bool:
        """Whether a later look may show more than this one."""
        return self.rebalancing_ms is not None or any(_is_open(track, now_ms) for track in self.tracks.values())


class Progress:
    """The groups that were looked at."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupProgress] = {}

    def look(
        self, group: DescribedGroup, lines: Iterable[OffsetLine], counts: Mapping[str, int], now_ms: int
    ) -> GroupProgress:
        """Take a look at a group. counts: partitions by topic. now_ms: Unix time."""
        known = self._groups.pop(group.group_id, None) or GroupProgress()
        self._groups[group.group_id] = known  # the newest comes last
        known.seen_ms = now_ms
        is_told = group.waiting is not None or (group.consumer is not None and group.consumer.awaited is not None)
        if is_told or group.state not in REBALANCING:
            known.rebalancing_ms = None
        elif known.rebalancing_ms is None:
            known.rebalancing_ms = now_ms
        tracks: dict[TopicPartition, Track] = {}
        for line in lines:
            if line.topic is None or line.partition is None:
                continue
            place = line.topic, line.partition
            track = known.tracks.get(place)
            if track is None:
                track = Track(line, now_ms, line.log_end_offset)
            track.take(line, now_ms)
            tracks[place] = track
        known.tracks = tracks
        is_stable = group.state == "Stable"
        known.ownerless = _since(known.ownerless, _ownerless(group.members, counts) if is_stable else (), now_ms)
        known.idle = _since(known.idle, _idle(group.members, counts) if is_stable else (), now_ms)
        while now_ms - next(iter(self._groups.values())).seen_ms > FORGOTTEN_MS:
            del self._groups[next(iter(self._groups))]
        return known

    @property
    def groups(self) -> list[str]:
        """The ids of the groups in memory; the one that was looked at last is the last."""
        return list(self._groups)


def _owner(line: OffsetLine) -> str | None:
    return None if line.member is None else line.member.member_id


def _is_open(track: Track, now_ms: int) -> bool:
    """Whether a topic partition may turn out to be stuck."""
    if track.line.member is None or track.has_moved or (track.line.lag or 0) <= 0 or track.is_stuck(now_ms):
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
