"""The observer's metrics: counts of events since the start, groups by state, and how the observer itself does.

A metric that a server has too has its name and its meaning (coordinator.server.telemetry.metrics), so that the same
dashboards and alerts work. A rebalance counts when it ends, because only then its cause is known.

House rule: the history that a start reads doesn't count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coordinator.server.telemetry.measures import GROUPS_MAX, OTHER_GROUPS
from coordinator.server.telemetry.metrics import CONSUMER_STATES, KAFKA_COORDINATOR, KAFKA_GROUPS, STATES

if TYPE_CHECKING:
    from coordinator.observe.live import Live
    from coordinator.timeline.schema import RebalanceEvent

CLASSIC, CONSUMER = "classic", "consumer"


class Progress(NamedTuple):
    """How the observer does. behind: records that it hasn't read yet. is_away: whether the cluster doesn't answer.

    requests: beside those for the log. lost: events that could not be written to a file or topic.
    """

    records: int
    unreadable: int
    behind: int
    requests: int
    lost: int
    is_away: bool


class Counts:
    """Counts of events. For any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.rebalances: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[str] = Counter()
        self.replaced: Counter[str] = Counter()
        self.by_group: Counter[str] = Counter()
        self.generations: dict[str, int] = {}

    def take(self, events: Iterable[RebalanceEvent]) -> None:
        """Count events."""
        with self._lock:
            for event in events:
                match event["type"]:
                    case "rebalance_ended":
                        self._ended(event)
                    case "member_replaced" if not event.get("after_load"):
                        self.replaced[str(event["rebalances"]).lower()] += 1
                    case "group_deleted":
                        self.by_group.pop(event["group"], None)
                        self.generations.pop(event["group"], None)

    def _ended(self, event: RebalanceEvent) -> None:
        group = event["group"]
        cause = event["causes"][0]
        self.rebalances[cause["kind"], cause["source"]] += 1
        self.ended[event["outcome"]] += 1
        with_series = len(self.by_group) - (OTHER_GROUPS in self.by_group)
        series = group if group in self.by_group or with_series < GROUPS_MAX else OTHER_GROUPS
        self.by_group[series] += 1
        if series != OTHER_GROUPS:
            self.generations[series] = event["generation"]

    def families(self) -> Iterator[Metric]:
        """The metrics of events."""
        with self._lock:
            rebalances, ended, replaced = dict(self.rebalances), dict(self.ended), dict(self.replaced)
            by_group, generations = dict(self.by_group), dict(self.generations)
        completed = CounterMetricFamily(
            KAFKA_COORDINATOR + "group_completed_rebalance_count",
            "Rebalances that completed.",
            value=ended.get("completed", 0),
        )
        yield completed
        causes = CounterMetricFamily(
            "tenure_rebalances", "Rebalances, by cause and the cause's source.", labels=["cause", "source"]
        )
        for labels, count in sorted(rebalances.items()):
            causes.add_metric(labels, count)
        yield causes
        yield _by("tenure_rebalances_ended", "Rebalances that ended, by outcome.", "outcome", ended)
        text = "Static members that came back, by whether it rebalanced."
        yield _by("tenure_static_restarts", text, "rebalances", replaced)
        text = "Rebalances of the groups that rebalanced first; all others have the empty group id."
        yield _by("tenure_group_rebalances", text, "group", by_group)
        generation = GaugeMetricFamily("tenure_group_generation", "Generation of these groups.", labels=["group"])
        for group, number in sorted(generations.items()):
            generation.add_metric([group], number)
        yield generation


def live_families(live: Live, series: Iterable[str]) -> Iterator[Metric]:
    """The metrics of groups as the cluster describes them. series: the groups with members of their own."""
    states = live.states
    classic = Counter({state: count for (kind, state), count in states.items() if kind != CONSUMER})
    consumer = Counter({state: count for (kind, state), count in states.items() if kind == CONSUMER})
    yield _gauge(KAFKA_GROUPS + "numgroups", "Groups of the classic protocol.", classic.total())
    for state, name in STATES.items():
        yield _gauge(KAFKA_GROUPS + name, f"Groups in state {state.value}.", classic[state.value])
    kinds = GaugeMetricFamily(KAFKA_COORDINATOR + "group_count", "Groups, by protocol.", labels=["protocol"])
    kinds.add_metric([CLASSIC], classic.total())
    kinds.add_metric([CONSUMER], consumer.total())
    yield kinds
    by_state = GaugeMetricFamily(
        KAFKA_COORDINATOR + "consumer_group_count", "Groups of the consumer protocol, by state.", labels=["state"]
    )
    for state in CONSUMER_STATES:
        by_state.add_metric([state.value], consumer[state.value])
    yield by_state
    known = live.members
    yield _gauge("tenure_members", "Members of all groups, as described last.", sum(list(known.values())))
    members = GaugeMetricFamily("tenure_group_members", "Members of these groups.", labels=["group"])
    for group in sorted(series):
        if group in known:
            members.add_metric([group], known[group])
    yield members


def progress_families(progress: Progress) -> Iterator[Metric]:
    """The metrics of the observer itself."""
    yield _counter("tenure_observer_records", "Records that were read.", progress.records)
    yield _counter("tenure_observer_unreadable_records", "Records that make no sense.", progress.unreadable)
    yield _gauge("tenure_observer_behind_records", "Records that were not read yet.", progress.behind)
    yield _counter("tenure_observer_requests", "Requests to the cluster about its groups.", progress.requests)
    yield _counter("tenure_events_dropped", "Events that could not be kept.", progress.lost)
    yield _gauge("tenure_observer_cluster_away", "1 while the cluster doesn't answer.", int(progress.is_away))


class ObserverMetrics:
    """All metrics; see coordinator.server.http.site.Measured."""

    def __init__(self, counts: Counts, live: Live, progress: Callable[[], Progress]) -> None:
        self._counts = counts
        self._live = live
        self._progress = progress

    async def now(self) -> list[Metric]:
        """As Measured."""
        series = [group for group in list(self._counts.by_group) if group != OTHER_GROUPS]
        return [
            *self._counts.families(),
            *live_families(self._live, series),
            *progress_families(self._progress()),
        ]


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _by(name: str, text: str, label: str, counts: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
