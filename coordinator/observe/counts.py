"""The observer's metrics: counts of events since the start, groups by state, and how the observer itself does.

A metric that a server has too has its name and its meaning (coordinator.server.telemetry.metrics), so that the same
dashboards and alerts work. A rebalance counts when it ends, because only then its cause is known.

House rule: the history that a start reads doesn't count.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coordinator.server.telemetry.measures import OTHER_GROUPS, STORM_MIN, STORM_MS, STORMS_WATCHED_MAX
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
    """Counts of events. groups_max: groups with series of their own. For any thread."""

    def __init__(self, groups_max: int) -> None:
        self._groups_max = groups_max
        self._lock = Lock()
        self.rebalances: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[str] = Counter()
        self.replaced: Counter[str] = Counter()
        self.by_group: Counter[str] = Counter()
        self.by_group_cause: Counter[tuple[str, str]] = Counter()
        self.restarts: Counter[tuple[str, str]] = Counter()
        self.storms: Counter[str] = Counter()
        self.storms_before = 0
        """Storms of groups that are deleted: the sum of all never falls."""
        self.generations: dict[str, int] = {}
        self._newest: OrderedDict[str, deque[int]] = OrderedDict()

    def take(self, events: Iterable[RebalanceEvent]) -> None:
        """Count events."""
        with self._lock:
            for event in events:
                match event["type"]:
                    case "rebalance_ended":
                        self._ended(event)
                    case "member_replaced" if not event.get("after_load"):
                        rebalances = str(event["rebalances"]).lower()
                        self.replaced[rebalances] += 1
                        self.restarts[self._series(event["group"]), rebalances] += 1
                    case "group_deleted":
                        self._delete(event["group"])

    def _ended(self, event: RebalanceEvent) -> None:
        cause = event["causes"][0]
        self.rebalances[cause["kind"], cause["source"]] += 1
        self.ended[event["outcome"]] += 1
        series = self._series(event["group"])
        self.by_group[series] += 1
        self.by_group_cause[series, cause["kind"]] += 1
        self.storms[series] += self._begins_storm(event["group"], event["began_ms"])
        if series != OTHER_GROUPS:
            self.generations[series] = event["generation"]

    def _series(self, group: str) -> str:
        """The group id under which a group counts, with a series from now on."""
        with_series = len(self.by_group) - (OTHER_GROUPS in self.by_group)
        series = group if group in self.by_group or with_series < self._groups_max else OTHER_GROUPS
        self.by_group[series] += 0
        return series

    def _begins_storm(self, group: str, at_ms: int) -> bool:
        """Whether a storm begins with a rebalance of that time; see measures.STORM_MIN."""
        newest = self._newest.pop(group, None) or deque(maxlen=STORM_MIN)
        was_one = _is_storm(newest, at_ms)
        newest.append(at_ms)
        self._newest[group] = newest
        if len(self._newest) > STORMS_WATCHED_MAX:
            self._newest.popitem(last=False)
        return not was_one and _is_storm(newest, at_ms)

    def _delete(self, group: str) -> None:
        """Give the series of a group back."""
        if group == OTHER_GROUPS:
            return
        self.storms_before += self.storms[group]
        for by_group in (self.by_group, self.storms, self.generations, self._newest):
            by_group.pop(group, None)
        for by_label in (self.by_group_cause, self.restarts):
            for key in [key for key in by_label if key[0] == group]:
                del by_label[key]

    def families(self) -> list[Metric]:
        """The metrics of events."""
        with self._lock:
            return list(self._families())

    def _families(self) -> Iterator[Metric]:
        completed = self.ended["completed"]
        yield _counter(KAFKA_COORDINATOR + "group_completed_rebalance_count", "Rebalances that completed.", completed)
        text = "Rebalances, by cause and the cause's source."
        yield _by("tenure_rebalances", text, ("cause", "source"), self.rebalances)
        text = "Rebalances that ended, by outcome."
        yield _by("tenure_rebalances_ended", text, ("outcome",), _keyed(self.ended))
        text = "Static members that came back, by whether it rebalanced."
        replaced = {(each,): self.replaced[each] for each in ("false", "true")}
        yield _by("tenure_static_restarts", text, ("rebalances",), replaced)
        text = "Rebalances of the groups that rebalanced first; all others have the empty group id."
        yield _by("tenure_group_rebalances", text, ("group",), _keyed(self.by_group))
        text = "The same, by the kind of the first cause."
        yield _by("tenure_group_rebalance_causes", text, ("group", "cause"), self.by_group_cause)
        # From 0 on: a counter that begins at 1 has no increase, and no alert sees it.
        text = "Static members of these groups that came back, by whether it rebalanced."
        restarts = {(group, each): self.restarts[group, each] for group in self.by_group for each in ("false", "true")}
        yield _by("tenure_group_static_restarts", text, ("group", "rebalances"), restarts)
        text = "Storms of these groups: five rebalances within a minute."
        yield _by("tenure_group_storms", text, ("group",), {(group,): self.storms[group] for group in self.by_group})
        yield _counter("tenure_storms", "Storms of all groups.", self.storms_before + self.storms.total())
        generation = GaugeMetricFamily("tenure_group_generation", "Generation of these groups.", labels=["group"])
        for group, number in sorted(self.generations.items()):
            generation.add_metric([group], number)
        yield generation


def _is_storm(newest: deque[int], at_ms: int) -> bool:
    """Whether the newest rebalances of a group, which began at these times, are a storm."""
    return len(newest) == STORM_MIN and newest[0] > at_ms - STORM_MS


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


def _by(name: str, text: str, labels: Sequence[str], counts: Mapping[Any, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def _keyed(counts: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    return {(value,): count for value, count in counts.items()}
