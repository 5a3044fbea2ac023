"""How far groups come, look by look: the memory behind the findings about progress.

A look is a group's description with its offsets (`offsets.GroupOffsets`). One look shows how far a group is; only a
later one shows that it stands still: `tracks` says when. Where a stall would be named, somebody looks ahead once
(`Progress.recall`). If an open transaction is ahead, somebody asks once for its producer.

House rule: pure. Memory has the groups that were looked at within FORGOTTEN_MS, and no history of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from coordinator.story.described import SHARE, Group, Member
from coordinator.story.entries import REBALANCING
from coordinator.story.offsets import GroupOffsets, TopicOffsets
from coordinator.story.tracks import STUCK_MS, Track, Tracks

TopicPartition = tuple[str, int]
Named = TypeVar("Named")

FORGOTTEN_MS = 10 * 60_000

AGREE_MS = 30_000
"""After that all looks know of a topic's added partitions: they keep an answer about a topic for 20 s."""


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
    tracks: Mapping[str, Tracks] = MappingProxyType({})
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
    def undecided(self) -> list[tuple[TopicPartition, Track]]:
        """The topic partitions with records to read that may stand still, though looks don't say so yet."""
        return [
            (pair, track)
            for pair, track in self.uneasy.items()
            if (self.is_shared or track.member is not None)
            and track.lag > 0
            and not (track.has_moved or track.stands)
            and track.since_ms < track.seen_ms
        ]

    @property
    def is_suspect(self) -> bool:
        """Whether a partition may be about to stand still, or a rebalance takes its time."""
        return self.rebalancing_ms is not None or any(each.waits_ms is not None for each in self.uneasy.values())

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
        return self.tracks.get(pair[0], NOTHING).get(pair[1])

    def is_seen(self, pair: TopicPartition) -> bool:
        """Whether the newest look shows how far the group is there."""
        track = self.track(pair)
        return track is not None and track.seen_ms == self.seen_ms


NOTHING = Tracks()
NEVER = GroupProgress()


class Progress:
    """The groups that were looked at. Looks are values: a thread may read one while another takes the next."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupProgress] = {}
        self.looks = 0
        """How many were taken."""

    def look(
        self,
        group: Group,
        offsets: GroupOffsets | None,
        counts: Mapping[str, int],
        now_ms: int,
        begun: int | None = None,
    ) -> GroupProgress:
        """Take a look at a group. counts: partitions by topic. now_ms: Unix time.

        offsets: None if they can't be seen: memory keeps what earlier looks saw. begun: `looks` when the first
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
        tracks = known.tracks
        if offsets is not None:
            tracks = {
                topic: known.tracks.get(topic, NOTHING).taken(topic, told, now_ms) for topic, told in offsets.items()
            }
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
            uneasy={
                (topic, index): track
                for topic, own in tracks.items()
                for index, track in own.busy.items()
                if track.is_uneasy
            },
            first_ms=now_ms if known.first_ms is None else known.first_ms,
        )
        self._groups.pop(group.group_id, None)
        self._groups[group.group_id] = taken  # the newest comes last
        while now_ms - next(iter(self._groups.values())).seen_ms > FORGOTTEN_MS:
            del self._groups[next(iter(self._groups))]
        return taken

    def recall(
        self, group_id: str, offsets: GroupOffsets, now_ms: int
    ) -> tuple[GroupOffsets, dict[TopicPartition, int], dict[TopicPartition, int]]:
        """These offsets of a group, with what earlier looks saw ahead; and the questions of this look.

        They are the positions from which to look ahead, and where transactions begin whose producers nobody named.
        """
        known = self._groups.get(group_id, NEVER)
        told: dict[str, TopicOffsets] = {}
        asked: dict[TopicPartition, int] = {}
        held: dict[TopicPartition, int] = {}
        for topic, own in offsets.items():
            lines = dict(own.lines)
            for index, each in own.lines.items():
                track = known.track((topic, index))
                if track is None or track.offset != each.current_offset:
                    continue
                line = each if track.ahead is None else each._replace(ahead=track.ahead)
                if line.is_beyond_end:  # the log was cut, or another one has its name
                    line = each
                if track.holder is not None and track.holder.start_offset == line.stable_offset:
                    line = line._replace(holder=track.holder)
                if track.is_doubtful(line, now_ms):
                    asked[topic, index] = line.position
                elif line.stable_offset is not None and track.is_unnamed(line, now_ms):
                    held[topic, index] = line.stable_offset
                lines[index] = line
            told[topic] = own._replace(lines=lines)
        return told, asked, held

    def newest(self, group_id: str) -> GroupProgress:
        """The newest look at a group."""
        return self._groups.get(group_id, NEVER)

    @property
    def groups(self) -> list[str]:
        """The ids of the groups in memory; the one that was looked at last is the last."""
        return list(self._groups)


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
