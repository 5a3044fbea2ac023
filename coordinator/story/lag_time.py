"""The lag of groups in time, and whether they catch up, from looks at their offsets.

While a topic partition has records to read, each look adds where its log ended and what was committed; its history
begins with the look before, at which there was nothing to read. So the record at the committed offset came between two
looks. A record that was there at the first look came before it. ListOffsets with a time tells where a log ended then,
if its records' timestamps are right: `questions` and `learn` come nearer to the record's age with each answer. Without
an answer `behind_ms` is a lower bound.

Each group, and each of its topics, also has a past for a graph, an hour long.

House rule: pure. Memory has the groups that were looked at within FORGOTTEN_MS: SAMPLES_MAX looks and POINTS_MAX
answers for each topic partition with records to read, and PASTS_MAX pasts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping
from math import sqrt
from operator import attrgetter
from typing import NamedTuple

from coordinator.story.progress import FORGOTTEN_MS, GroupProgress, TopicPartition

SAMPLES_MAX = 16
"""Looks of a topic partition in memory; when there are more, every second one of the older ones goes."""

POINTS_MAX = 16
"""Answers of a topic partition in memory: enough to tell an age out of 30 days to a tenth."""

QUESTIONS_MAX = 2_000
"""Topic partitions of one question."""

AGE_MIN_MS, AGE_MAX_MS, NARROW = 1_000, 30 * 86_400_000, 1.1
"""Answers tell apart ages of a second to 30 days that differ by more than a tenth."""

RATE_MS = 2 * 60_000
"""Rates are averages over this time: clients commit every 5 s by default."""

COMMIT_S = 5
"""Seconds between two commits of a client, by default: records of that time may be read and not yet committed."""

PAST_MS, PAST_MAX, PAST_STEP_MS = 3_600_000, 120, 2_000
"""The length of a past, its most moments, and the first distance of two; it doubles until an hour has room."""

PASTS_MAX = 10_000
"""40 MB of memory."""


class Sample(NamedTuple):
    """A look at a topic partition: where its log ended, and what was committed.

    stable: where readers of committed records stopped; None for the end.
    """

    at_ms: int
    end: int
    offset: int
    stable: int | None = None


class Point(NamedTuple):
    """Where a log ended at a time, as timestamps of its records show."""

    end: int
    at_ms: int


class Rates(NamedTuple):
    """Records that come, and that are read, in a second."""

    in_s: float
    out_s: float


class LagTime(NamedTuple):
    """The lag of a topic partition, a topic or a group. lag: records. behind_ms: the age of the oldest one.

    stable_lag: that of readers of committed records, for whom records of open transactions don't count.
    is_least: whether the record may be older than behind_ms. rates: None after one look.
    catch_up_s: the time until all is read, None for never, 0 if all that waits may be read and not committed yet; of
    several topic partitions that of the slowest one.
    """

    lag: int = 0
    stable_lag: int = 0
    behind_ms: int = 0
    is_least: bool = False
    rates: Rates | None = None
    catch_up_s: float | None = 0.0

    @property
    def is_wait_known(self) -> bool:
        """Whether looks tell when all is read, or that it never will be."""
        return self.rates is not None or not self.lag

    @property
    def keeps_up(self) -> bool:
        """Whether the group reads records as they come: its lag is what its clients haven't committed yet."""
        return self.lag > 0 and self.rates is not None and self.catch_up_s == 0


class Moment(NamedTuple):
    """A look at several topic partitions: how many, and the sums of the ends of their logs and of their offsets."""

    at_ms: int
    partitions: int
    end: int
    offset: int

    @property
    def lag(self) -> int:
        """The records to read."""
        return self.end - self.offset


class GroupLag(NamedTuple):
    """The lag of a group: of its topic partitions with records to read, of each topic, and of all for None.

    past: of each topic and of all, for a graph. Only a page reads it, so nobody else pays for its moments.
    """

    partitions: Mapping[TopicPartition, LagTime]
    sums: Mapping[str | None, LagTime]
    past: Mapping[str | None, Past]


EACH = len(Moment._fields)


class Past:
    """Some of the looks at a topic or a group, a step away from each other."""

    __slots__ = ("_step_ms", "_values")

    def __init__(self) -> None:
        self._values = array("q")
        self._step_ms = PAST_STEP_MS

    def is_due(self, now_ms: int) -> bool:
        """Whether the newest one is a step away."""
        return not self._values or now_ms - self._values[-EACH] >= self._step_ms

    def add(self, moment: Moment) -> None:
        """Add a look that is due."""
        self._values.extend(moment)
        if len(self._values) > PAST_MAX * EACH and moment.at_ms - self._values[0] < PAST_MS:
            self._step_ms *= 2
            self._values = array("q", [number for each in self.moments[::2] for number in each])
        while moment.at_ms - self._values[0] > PAST_MS:
            del self._values[:EACH]

    @property
    def moments(self) -> list[Moment]:
        """The looks, in the order of time."""
        return list(self._newest_first())[::-1]

    def _newest_first(self) -> Iterator[Moment]:
        values = self._values[:]  # another thread may change them
        return (Moment(*values[at : at + EACH]) for at in range(len(values) - EACH, -1, -EACH))

    @property
    def rates(self) -> Rates | None:
        """Those of the last RATE_MS, or since the number of topic partitions changed."""
        found = self._newest_first()
        first = last = next(found)
        for each in found:
            if each.partitions != last.partitions or last.at_ms - first.at_ms >= RATE_MS:
                break
            first = each
        return _rates(last.at_ms - first.at_ms, last.end - first.end, last.offset - first.offset)


class LagTimes:
    """The lag of groups; see the module. Writers exclude each other; readers may be on any thread."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[TopicPartition, list[Sample]]] = {}
        self._points: dict[TopicPartition, list[Point]] = {}
        self._pasts: dict[str, dict[str | None, Past]] = {}
        """By group, then by topic; None for all topics together."""
        self._past_count = 0
        self._seen_ms: dict[str, int] = {}
        """The newest look at each group; the newest of all comes last."""

    def take(self, group_id: str, seen: GroupProgress) -> None:
        """Take a look at a group."""
        former, present = self._samples.get(group_id, {}), dict[tuple[str, int], list[Sample]]()
        former_ms = self._seen_ms.pop(group_id, None)
        for place, track in seen.uneasy.items():
            offset, end = track.position, track.end
            if track.offset is None or end is None or end <= offset:
                continue
            samples = former.get(place, [])
            if track.seen_ms != seen.seen_ms:
                present[place] = samples
                continue
            is_new = place not in former and (
                (track.has_moved and track.back is None) or (track.first_end or 0) <= offset
            )
            if is_new and former_ms is not None:
                samples = [Sample(former_ms, offset, offset)]
            elif samples and (offset < samples[-1].offset or end < samples[-1].end):
                samples = []  # an admin moved the offset, or the topic is another one
                self._points.pop(place, None)
            elif len(samples) >= SAMPLES_MAX:
                samples = [*samples[0:-2:2], *samples[-2:]]
            present[place] = [*samples, Sample(seen.seen_ms, end, offset, track.stable)]
        self._samples[group_id] = present
        self._seen_ms[group_id] = seen.seen_ms
        self._add_pasts(group_id, seen)
        since_ms = seen.seen_ms - FORGOTTEN_MS
        if next(iter(self._seen_ms.values())) < since_ms:
            self.forget({name for name, at_ms in self._seen_ms.items() if at_ms >= since_ms})

    def _add_pasts(self, group_id: str, seen: GroupProgress) -> None:
        known = self._pasts.setdefault(group_id, {})
        of_all = known.get(None)
        if of_all is not None and not of_all.is_due(seen.seen_ms):
            return
        sums: dict[str | None, Moment] = {}
        for topic, own in seen.tracks.items():
            partitions, end, offset = own.sums
            if partitions:
                sums[topic] = Moment(seen.seen_ms, partitions, end, offset)
        if sums:
            _, *counted = zip(*sums.values(), strict=True)
            partitions, ends, offsets = map(sum, counted)
            sums[None] = Moment(seen.seen_ms, partitions, ends, offsets)
        for gone in known.keys() - sums.keys():
            del known[gone]
            self._past_count -= 1
        for name, moment in sums.items():
            if name not in known:
                if self._past_count >= PASTS_MAX:
                    continue
                known[name] = Past()
                self._past_count += 1
            known[name].add(moment)

    def forget(self, groups: Container[str]) -> None:
        """Forget all but these groups."""
        for name in [name for name in self._seen_ms if name not in groups]:
            del self._samples[name], self._seen_ms[name]
            self._past_count -= len(self._pasts.pop(name))
        behind = {place for samples in self._samples.values() for place in samples}
        self._points = {place: points for place, points in self._points.items() if place in behind}

    # Ages from timestamps.

    def questions(self, groups: Iterable[str]) -> dict[TopicPartition, int]:
        """The times at which the ends of logs would tell more of these groups, as Unix time in ms."""
        asked: dict[TopicPartition, int] = {}
        for name in groups:
            for place, samples in self._samples.get(name, {}).items():
                if place in asked or not samples or samples[0].end <= samples[-1].offset:
                    continue
                now_ms = samples[-1].at_ms
                older, younger = self._around(place, samples)
                least_ms = max(now_ms - younger.at_ms, AGE_MIN_MS)
                most_ms = AGE_MAX_MS if older is None else now_ms - older.at_ms
                if most_ms > least_ms * NARROW and most_ms - least_ms > AGE_MIN_MS:
                    asked[place] = now_ms - round(sqrt(least_ms * most_ms))
                    if len(asked) == QUESTIONS_MAX:
                        return asked
        return asked

    def learn(self, asked: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Take the answers. ends: the first record that is as young as the time asked for, -1 for none."""
        for place, end in ends.items():
            points = [*self._points.get(place, ()), Point(2**63 - 1 if end < 0 else end, asked[place])]
            self._points[place] = points[-POINTS_MAX:]

    def _around(self, place: TopicPartition, samples: list[Sample]) -> tuple[Point | None, Point]:
        """The nearest known times before and after the record at the offset came, which is older than the samples."""
        first, offset = samples[0], samples[-1].offset
        points = self._points.get(place, ())
        younger = [each for each in points if each.end > offset and each.at_ms < first.at_ms]
        older = [each for each in points if each.end <= offset]
        return (
            max(older, key=attrgetter("at_ms"), default=None),
            min(younger, key=attrgetter("at_ms"), default=Point(first.end, first.at_ms)),
        )

    def _age(self, place: TopicPartition, samples: list[Sample]) -> tuple[int, bool]:
        """The age of the record at the committed offset, and whether it may be older."""
        last = samples[-1]
        after = bisect_right(samples, last.offset, key=attrgetter("end"))
        if after:  # the record came between two looks
            one, other = samples[after - 1], samples[after]
            before, behind = Point(one.end, one.at_ms), Point(other.end, other.at_ms)
        else:
            older, behind = self._around(place, samples)
            if older is None or older.at_ms >= behind.at_ms:
                return last.at_ms - behind.at_ms, True
            before = older
        part = (last.offset - before.end) / (min(behind.end, last.end) - before.end)
        return round(last.at_ms - before.at_ms - (behind.at_ms - before.at_ms) * part), False

    # Answers.

    def of(self, group_id: str) -> GroupLag:
        """The lag of a group."""
        behind = self._samples.get(group_id, {})
        partitions = {place: self._lag_time(place, samples) for place, samples in behind.items() if samples}
        by_topic: dict[str | None, list[LagTime]] = {}
        for (topic, _), each in partitions.items():
            by_topic.setdefault(topic, []).append(each)
            by_topic.setdefault(None, []).append(each)
        pasts = dict(self._pasts.get(group_id, {}))  # another thread may change them
        sums = {
            topic: _summed(by_topic.get(topic, ()), pasts[topic].rates if topic in pasts else None)
            for topic in by_topic.keys() | pasts.keys()
        }
        return GroupLag(partitions, sums, pasts)

    def _lag_time(self, place: TopicPartition, samples: list[Sample]) -> LagTime:
        last = samples[-1]
        first = next((each for each in reversed(samples) if last.at_ms - each.at_ms >= RATE_MS), samples[0])
        rates = _rates(last.at_ms - first.at_ms, last.end - first.end, last.offset - first.offset)
        lag, grown = last.end - last.offset, last.end - first.end - (last.offset - first.offset)
        stable_lag = lag if last.stable is None else max(last.stable - last.offset, 0)
        catch_up_s = None if rates is None else _catch_up_s(lag, grown, rates)
        return LagTime(lag, stable_lag, *self._age(place, samples), rates, catch_up_s)

    @property
    def groups(self) -> list[str]:
        """The ids of the groups that were looked at."""
        return sorted(self._samples)


def _rates(passed_ms: int, came: int, was_read: int) -> Rates | None:
    """The rates of a time; None if no time passed. An offset that an admin moved back counts as nothing read."""
    return Rates(max(came, 0) * 1000 / passed_ms, max(was_read, 0) * 1000 / passed_ms) if passed_ms else None


def _catch_up_s(lag: int, grown: int, rates: Rates) -> float | None:
    """The time until all is read, as of `LagTime`. grown: by how much the lag grew in the time of these rates.

    A client commits now and then, so a look sees up to a commit's records too many: then out_s may be a little less
    than in_s, or a little more, though the group reads each record as it comes.
    """
    uncommitted = max(rates.in_s * COMMIT_S, 1)
    if rates.out_s > 0 and grown <= uncommitted and lag <= 2 * uncommitted:
        return 0.0
    return lag / (rates.out_s - rates.in_s) if rates.out_s > rates.in_s else None


def _summed(found: Iterable[LagTime], rates: Rates | None) -> LagTime:
    parts = list(found)
    waits_s = [each.catch_up_s for each in parts if each.rates is not None]
    longest_s = None if None in waits_s else max([each for each in waits_s if each is not None], default=0.0)
    oldest = max(parts, key=attrgetter("behind_ms"), default=LagTime())
    is_known = not parts or bool(waits_s)
    return LagTime(
        sum(each.lag for each in parts),
        sum(each.stable_lag for each in parts),
        oldest.behind_ms,
        oldest.is_least,
        rates if is_known else None,
        longest_s,
    )
