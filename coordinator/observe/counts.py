"""The observer's metrics: counts of events since the start, groups by state, and how the observer itself does.

A metric that a server has too has its name and its meaning (coordinator.server.telemetry.metrics), so that the same
dashboards and alerts work. A rebalance counts when it ends, because only then its cause is known.

House rule: the history that a start reads doesn't count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from threading import Lock

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coordinator.client.offsets_log import OffsetsReader
from coordinator.group.notes import CLASSIC, CONSUMER
from coordinator.observe.live import Live
from coordinator.observe.watching import Watching
from coordinator.server.telemetry.measures import OTHER_GROUPS, GroupSeries
from coordinator.server.telemetry.metrics import rebalance_families, series_families, state_families, storm_family
from coordinator.story.events import GroupDeleted, MemberReplaced, RebalanceEnded, RebalanceEvent
from coordinator.story.lag_time import LagTime

TOPICS_MAX, PARTITIONS_MAX = 50, 100
"""Topics, and topic partitions with records to read, of a group that have series of their own for their lag."""


class Counts(GroupSeries):
    """Counts of events. groups_max: groups with series of their own. For any thread."""

    def __init__(self, groups_max: int) -> None:
        super().__init__(groups_max)
        self._lock = Lock()
        self.rebalances: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[str] = Counter()
        self.replaced: Counter[bool] = Counter()
        self.generations: dict[str, int] = {}

    def take(self, events: Iterable[RebalanceEvent]) -> None:
        """Count events."""
        with self._lock:
            for event in events:
                match event:
                    case RebalanceEnded():
                        self._ended(event)
                    case MemberReplaced() if not event.after_load:
                        self.replaced[event.rebalances] += 1
                        series = self._series(event.group)
                        self.by_group[series] += 0
                        self.restarts[series, event.rebalances] += 1
                    case GroupDeleted():
                        self._forget(event.group)
                        self.generations.pop(event.group, None)

    def _ended(self, event: RebalanceEnded) -> None:
        cause = event.causes[0]
        self.rebalances[cause.kind, cause.source] += 1
        self.ended[event.outcome] += 1
        series = self._series(event.group)
        self.by_group[series] += 1
        self.by_group_cause[series][cause.kind] += 1
        self.storms[series] += self._begins_storm(event.group, event.began_ms)
        if series != OTHER_GROUPS:
            self.generations[series] = event.generation

    def families(self) -> list[Metric]:
        """The metrics of events."""
        with self._lock:
            return list(self._families())

    def _families(self) -> Iterator[Metric]:
        begun = ((kind, source, count) for (kind, source), count in self.rebalances.items())
        yield from rebalance_families(self.ended["completed"], begun, self.ended, self.replaced)
        yield from series_families(self)
        yield storm_family(self)
        generation = GaugeMetricFamily("tenure_group_generation", "Generation of these groups.", labels=["group"])
        for group, number in sorted(self.generations.items()):
            generation.add_metric([group], number)
        yield generation


def live_families(live: Live, series: Iterable[str]) -> Iterator[Metric]:
    """The metrics of groups as the cluster describes them. series: the groups with members of their own."""
    states = live.states
    yield from state_families(
        Counter({state: count for (kind, state), count in states.items() if kind in {"", CLASSIC}}),
        Counter({state: count for (kind, state), count in states.items() if kind == CONSUMER}),
    )
    known = live.groups
    count = sum(len(group.members) for group in known.values())
    yield _gauge("tenure_members", "Members of all groups, as described last.", count)
    members = GaugeMetricFamily("tenure_group_members", "Members of these groups.", labels=["group"])
    for group in sorted(series):
        if group in known:
            members.add_metric([group], len(known[group].members))
    yield members


def finding_families(watching: Watching, groups_max: int) -> Iterator[Metric]:
    """The metrics of findings about progress. A kind that had a finding keeps its series."""
    counted = watching.counts()
    totals = Counter(dict.fromkeys(watching.kinds.copy(), 0))
    for (_, kind), count in counted.items():
        totals[kind] += count
    of_all = GaugeMetricFamily("tenure_findings", "Findings about the progress of groups.", labels=["kind"])
    for kind, count in sorted(totals.items()):
        of_all.add_metric([kind], count)
    yield of_all
    of_groups = GaugeMetricFamily("tenure_group_findings", "The same, of some groups.", labels=["group", "kind"])
    with_series = set(sorted({group for group, _ in counted})[:groups_max])
    for group, kind in sorted(key for key in counted if key[0] in with_series):
        of_groups.add_metric([group, kind], counted[group, kind])
    yield of_groups
    yield _gauge("tenure_observer_look_seconds", "The time between the last two looks at a group.", watching.round_s)


def lag_families(watching: Watching, groups_max: int) -> Iterator[Metric]:
    """The lag of some groups, in records and in time; kafka-lag-exporter gave most of the names."""
    prefix, of_group, of_topic = "kafka_consumergroup_group_", ["group"], ["group", "topic"]
    of_partition = [*of_topic, "partition"]
    text = "Records that come to the logs in a second."
    sums = GaugeMetricFamily(prefix + "sum_lag", "Records behind the ends of the logs.", labels=of_group)
    topic_sums = GaugeMetricFamily(prefix + "topic_sum_lag", "The same, of a topic.", labels=of_topic)
    lags = GaugeMetricFamily(
        prefix + "lag", "The same, of a topic partition with records to read.", labels=of_partition
    )
    most = GaugeMetricFamily(prefix + "max_lag", "The same, of the worst topic partition.", labels=of_group)
    stable = GaugeMetricFamily("tenure_group_stable_sum_lag", "For readers of committed records.", labels=of_group)
    oldest = GaugeMetricFamily(prefix + "max_lag_seconds", "Age of the oldest record to read.", labels=of_group)
    ages = GaugeMetricFamily(prefix + "lag_seconds", "The same, of a topic partition.", labels=of_partition)
    came = GaugeMetricFamily("tenure_group_topic_in_per_second", text, labels=of_topic)
    read = GaugeMetricFamily("tenure_group_topic_out_per_second", "Records that the group reads.", labels=of_topic)
    catch_up = GaugeMetricFamily("tenure_group_catch_up_seconds", "Until all is read; Inf: never.", labels=of_group)
    text = "The same, of a topic."
    topic_catch_up = GaugeMetricFamily("tenure_group_topic_catch_up_seconds", text, labels=of_topic)
    for group in watching.lag_times.groups[:groups_max]:
        found, told, _ = watching.lag_times.of(group)
        whole = told.get(None, LagTime())
        sums.add_metric([group], whole.lag)
        stable.add_metric([group], whole.stable_lag)
        most.add_metric([group], max((each.lag for each in found.values()), default=0))
        oldest.add_metric([group], whole.behind_ms / 1000)
        if whole.is_wait_known:
            catch_up.add_metric([group], inf if whole.catch_up_s is None else whole.catch_up_s)
        for topic, each in islice(sorted((topic, each) for topic, each in told.items() if topic), TOPICS_MAX):
            own = [group, topic]
            topic_sums.add_metric(own, each.lag)
            if each.rates is not None:
                came.add_metric(own, each.rates.in_s)
                read.add_metric(own, each.rates.out_s)
                topic_catch_up.add_metric(own, inf if each.catch_up_s is None else each.catch_up_s)
        for (topic, partition), each in sorted(found.items())[:PARTITIONS_MAX]:
            place = [group, topic, str(partition)]
            lags.add_metric(place, each.lag)
            ages.add_metric(place, each.behind_ms / 1000)
    yield from (sums, topic_sums, lags, most, stable, oldest, ages, came, read, catch_up, topic_catch_up)


def observer_families(reader: OffsetsReader | None, requests: int, lost: int, *, is_away: bool) -> Iterator[Metric]:
    """The metrics of the observer itself.

    reader: of the log of groups; None until the cluster has answered. requests: beside those for the log. lost: events
    that could not be written to a file or topic. is_away: whether the cluster doesn't answer.
    """
    records, unreadable, behind = (0, 0, 0) if reader is None else (reader.records, reader.passed_over, reader.behind)
    yield _counter("tenure_observer_records", "Records that were read.", records)
    yield _counter("tenure_observer_unreadable_records", "Records that make no sense.", unreadable)
    yield _gauge("tenure_observer_behind_records", "Records that were not read yet.", behind)
    yield _counter("tenure_observer_requests", "Requests to the cluster about its groups.", requests)
    yield _counter("tenure_events_dropped", "Events that could not be kept.", lost)
    yield _gauge("tenure_observer_cluster_away", "1 while the cluster doesn't answer.", int(is_away))


def post_family(posts: Mapping[str, int]) -> Metric:
    """The posts of the webhook."""
    family = CounterMetricFamily("tenure_webhook_posts", "Posts of the webhook, by outcome.", labels=["outcome"])
    for outcome, count in sorted(posts.items()):
        family.add_metric([outcome], count)
    return family


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)
