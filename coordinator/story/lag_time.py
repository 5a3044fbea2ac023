"""How far groups are behind in time, and whether they catch up: from what looks saw, without a request.

While a topic partition has records to read, each look adds where its log ended and what was committed; its history
begins with the look before, at which there was nothing to read. So the record at the committed offset came between two
looks. For records that were there at the first look, nobody knows when they came: `behind_ms` is then a lower bound.

House rule: memory has only topic partitions with records to read, each with SAMPLES_MAX looks.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from coordinator.story.progress import GroupProgress, TopicPartition

SAMPLES_MAX = 16
"""Looks of a topic partition in memory; when there are more, every second one of the older ones goes."""


class Sample(NamedTuple):
    """A look at a topic partition: where its log ended, and what was committed."""

    at_ms: int
    end: int
    offset: int


class LagTime(NamedTuple):
    """The lag of a topic partition. lag: records. behind_ms: the age of the record at the committed offset.

    is_least: whether it was there at the first look, so that behind_ms is the least. in_s, out_s: records that come and
    that are read in a second; not known after one look. catch_up_s: until all is read; None for never.
    """

    lag: int
    behind_ms: int
    is_least: bool
    in_s: float
    out_s: float
    is_rate_known: bool = True

    @property
    def catch_up_s(self) -> float | None:
        """See the class."""
        return self.lag / (self.out_s - self.in_s) if self.out_s > self.in_s else None


class LagTimes:
    """The topic partitions with records to read, by group. For one writer, and readers on any thread."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[TopicPartition, list[Sample]]] = {}
        self._seen_ms: dict[str, int] = {}

    def take(self, group_id: str, seen: GroupProgress) -> None:
        """Take a look at a group."""
        former, present = self._samples.get(group_id, {}), dict[tuple[str, int], list[Sample]]()
        tracks = (((topic, index), each) for topic, own in seen.tracks.items() for index, each in own.items())
        for place, track in tracks:
            offset, end = track.offset, track.end
            if offset is None or end is None or end <= offset:
                continue
            samples = former.get(place, [])
            if track.seen_ms != seen.seen_ms:
                present[place] = samples
                continue
            if (
                place not in former
                and group_id in self._seen_ms
                and ((track.has_moved and track.back is None) or (track.first_end or 0) <= offset)
            ):
                samples = [Sample(self._seen_ms[group_id], offset, offset)]
            elif samples and (offset < samples[-1].offset or end < samples[-1].end):
                samples = []  # an admin moved the offset, or the topic is another one
            elif len(samples) >= SAMPLES_MAX:
                samples = [*samples[0:-2:2], *samples[-2:]]
            present[place] = [*samples, Sample(seen.seen_ms, end, offset)]
        self._samples[group_id] = present
        self._seen_ms[group_id] = seen.seen_ms

    def forget(self, groups: Container[str]) -> None:
        """Forget all but these groups."""
        self._samples = {name: samples for name, samples in self._samples.items() if name in groups}
        self._seen_ms = {name: at_ms for name, at_ms in self._seen_ms.items() if name in groups}

    def of(self, group_id: str) -> Mapping[TopicPartition, LagTime]:
        """The lag of each topic partition of a group that has records to read."""
        return {place: _lag_time(samples) for place, samples in self._samples.get(group_id, {}).items() if samples}

    @property
    def groups(self) -> list[str]:
        """The ids of the groups that were looked at."""
        return sorted(self._samples)


def _lag_time(samples: list[Sample]) -> LagTime:
    first, last = samples[0], samples[-1]
    passed_s = (last.at_ms - first.at_ms) / 1000
    in_s, out_s = ((last.end - first.end) / passed_s, (last.offset - first.offset) / passed_s) if passed_s else (0, 0)
    came_ms: float = first.at_ms
    after = bisect_right(samples, last.offset, key=attrgetter("end"))
    if after:  # the record came between two looks
        one, other = samples[after - 1], samples[after]
        came_ms = one.at_ms + (other.at_ms - one.at_ms) * (last.offset - one.end) / (other.end - one.end)
    return LagTime(last.end - last.offset, round(last.at_ms - came_ms), not after, in_s, out_s, passed_s > 0)
