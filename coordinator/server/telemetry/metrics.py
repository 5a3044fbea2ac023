"""Measures as metrics: their names, for Prometheus and for StatsD.

A metric that Kafka's coordinator has too carries the name that Kafka's JMX name usually gets in Prometheus
(kafka_coordinator_group_groupmetadatamanager_numgroups). All other names begin with tenure_.
docs/run/metrics.md lists all.

The server imports this module only for --http or tenure.statsd.

House rule: names are made here, and in server.scrape for what is not about groups; none ever changes its meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from coordinator.group import notes
from coordinator.group.causes import CauseKind
from coordinator.group.state import Kind, State
from coordinator.log.segments.counts import Counts, Histogram
from coordinator.server.telemetry.measures import Census, GroupSeries, Login, Measures
from coordinator.transaction.events import Outcome
from protocol.messages import API_KEYS
from schemas.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.log.cluster import StoreNumbers

KAFKA_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"
KAFKA_COORDINATOR = "kafka_server_group_coordinator_metrics_"
KAFKA_SOCKETS = "kafka_server_socket_server_metrics_"
KAFKA_CLEANER = "kafka_log_logcleanermanager_"

STATES = {
    State.EMPTY: "numgroupsempty",
    State.PREPARING_REBALANCE: "numgroupspreparingrebalance",
    State.COMPLETING_REBALANCE: "numgroupscompletingrebalance",
    State.STABLE: "numgroupsstable",
    State.DEAD: "numgroupsdead",
}

CONSUMER_STATES = (State.EMPTY, State.ASSIGNING, State.RECONCILING, State.STABLE, State.DEAD)
"""The states of a group of the consumer protocol."""

COUNTED: Mapping[type[notes.Note], tuple[str, str]] = {
    notes.MemberPending: ("tenure_member_ids_given", "Member ids that clients were told to join with (KIP-394)."),
    notes.PendingExpired: ("tenure_member_ids_lapsed", "Member ids that were not used in time, or given back."),
    notes.MemberJoined: ("tenure_members_joined", "Members that were added to a group."),
    notes.RebalanceHeld: ("tenure_rebalances_held", "Times that joins began to wait for expected members."),
    notes.ClientRefused: ("tenure_clients_refused", "Requests to join that were refused so that their clients end."),
    notes.MemberLeft: ("tenure_members_left", "Members that went by request, their own or an operator's."),
    notes.MemberExpired: ("tenure_members_expired", "Members that went because no heartbeat came in time."),
    notes.StandbyJoined: ("tenure_standbys_joined", "Times that a client began to wait as a standby."),
    notes.SeatTaken: ("tenure_seats_taken", "Seats that went to a standby without a rebalance."),
    notes.RebalanceStuck: ("tenure_rebalances_stuck", "Rebalance timeouts that passed without anybody joining."),
    notes.TargetAssigned: ("tenure_targets", "Targets that were made for group epochs."),
    notes.MemberRevoking: ("tenure_members_revoking", "Times that a member was asked to give up partitions."),
    notes.MemberAway: ("tenure_members_away", "Static members that left for a while."),
    notes.InstanceIdUnreleased: ("tenure_seats_refused", "Clients that wanted the seat of an active member."),
    notes.GroupEmptied: ("tenure_groups_emptied", "Groups whose last member went."),
    notes.GroupLoaded: ("tenure_groups_loaded", "Groups that were read from the log."),
    notes.GroupTooLarge: ("tenure_groups_too_large", "Records of groups that were too large to be written."),
    notes.UnexpectedRequest: ("tenure_unexpected_requests", "Requests that no correct client sends."),
}
"""Notes whose number is a counter: its name and its text."""

gauge, counter = GaugeMetricFamily, CounterMetricFamily
"""A metric without labels, of its name, text and value."""

HEARTBEAT, CONSUMER_HEARTBEAT = API_KEYS["Heartbeat"], API_KEYS["ConsumerGroupHeartbeat"]
API_NAMES = {key: name for name, key in API_KEYS.items()}


def families(measures: Measures, now: Census) -> Iterator[Metric]:
    """The metrics of groups."""
    yield from state_families(
        Counter({state.value: count for state, count in now.states.items()}),
        Counter({state.value: count for state, count in now.consumer_states.items()}),
    )
    text = "Group epochs that members or topics made; not those of members that went."
    yield counter(KAFKA_COORDINATOR + "consumer_group_rebalance_count", text, measures.epochs)
    yield gauge("tenure_unsettled_members", "Members that are not at the target of their group.", now.unsettled)
    yield gauge(KAFKA_GROUPS + "numoffsets", "Committed offsets.", now.offsets)
    yield gauge("tenure_pending_offsets", "Offsets of open transactions.", now.pending_offsets)
    yield gauge("tenure_members", "Members of all groups.", now.members)
    yield gauge("tenure_static_members", "Members with a group.instance.id.", now.static_members)
    yield gauge("tenure_pending_members", "Member ids that were given out and not used yet.", now.pending_members)

    removed = measures.offsets_removed
    yield counter(KAFKA_COORDINATOR + "offset_expiration_count", "Offsets that expired.", removed[True])
    yield counter(KAFKA_COORDINATOR + "offset_deletion_count", "Offsets deleted on request.", removed[False])

    yield from rebalance_families(
        measures.happened[notes.RebalanceCompleted],
        ((kind.value, by.value, count) for (kind, by), count in measures.rebalances.items()),
        {outcome.value: count for outcome, count in measures.ended.items()},
        measures.replaced,
    )
    yield _histograms(
        "tenure_rebalance_phase_seconds",
        "How long rebalances waited in each phase.",
        "phase",
        measures.phases,
    )
    yield _by("tenure_fencings", "Requests refused with FENCED_INSTANCE_ID.", "operation", measures.fenced)
    yield counter("tenure_members_dropped", "Members that did not join or sync in time.", measures.dropped)
    for note, (name, text) in COUNTED.items():
        yield counter(name, text, measures.happened[note])
    yield _answers(measures)
    yield from _series_of_groups(measures, now)


def rebalance_families(
    completed: int, begun: Iterable[tuple[str, str, int]], ended: Mapping[str, int], replaced: Counter[bool]
) -> Iterator[Metric]:
    """The metrics of rebalances and static restarts of all groups. begun: kind of the cause, its source, and count."""
    yield counter(KAFKA_COORDINATOR + "group_completed_rebalance_count", "Rebalances that completed.", completed)
    yield _counters("tenure_rebalances", "Rebalances, by cause and the cause's source.", ["cause", "source"], begun)
    yield _by("tenure_rebalances_ended", "Rebalances that ended, by outcome.", "outcome", ended)
    text = "Static members that came back, by whether it rebalanced."
    by_effect = {str(rebalances).lower(): replaced[rebalances] for rebalances in (False, True)}
    yield _by("tenure_static_restarts", text, "rebalances", by_effect)


def state_families(classic: Counter[str], consumer: Counter[str]) -> Iterator[Metric]:
    """The metrics of groups by protocol and state, also those that Kafka has since the consumer protocol (KIP-848)."""
    yield gauge(KAFKA_GROUPS + "numgroups", "Groups of the classic protocol.", classic.total())
    for state, name in STATES.items():
        yield gauge(KAFKA_GROUPS + name, f"Groups in state {state.value}.", classic[state.value])
    kinds = {Kind.CLASSIC.value: classic.total(), Kind.CONSUMER.value: consumer.total()}
    yield gauges(KAFKA_COORDINATOR + "group_count", "Groups, by protocol.", "protocol", kinds)
    states = {state.value: consumer[state.value] for state in CONSUMER_STATES}
    text = "Groups of the consumer protocol, by state."
    yield gauges(KAFKA_COORDINATOR + "consumer_group_count", text, "state", states)


def _answers(measures: Measures) -> Metric:
    repeated = {(HEARTBEAT, 0): measures.repeated_heartbeats, (CONSUMER_HEARTBEAT, 0): measures.repeated_beats}
    counts = measures.answers + Counter(repeated)
    rows = ((API_NAMES[api_key], ErrorCode(error).name, count) for (api_key, error), count in counts.items())
    return _counters("tenure_answers", "Answers, by API and the error on top.", ["api", "error"], rows)


def _series_of_groups(measures: Measures, now: Census) -> Iterator[Metric]:
    """The metrics with a series for each of the groups that came first (tenure.metrics.groups.max)."""
    yield from series_families(measures)
    away = {group_id: now.away[group_id] for group_id in sorted({*measures.by_group, *now.away})}
    yield gauges("tenure_group_seats_away", "Static members that are away.", "group", away)
    members = {group_id: count for group_id, (count, _) in sorted(now.groups.items())}
    yield gauges("tenure_group_members", "Members of these groups.", "group", members)
    generations = {group_id: generation for group_id, (_, generation) in sorted(now.groups.items())}
    yield gauges("tenure_group_generation", "Generation of these groups.", "group", generations)
    yield storm_family(measures)
    yield gauge("tenure_seats_away", "Static members of all groups that are away.", now.away.total())


def series_families(counts: GroupSeries) -> Iterator[Metric]:
    """The counters of groups with series: rebalances, those by the kind of their cause, static restarts, storms."""
    by_group = counts.by_group
    text = "Rebalances of the groups that rebalanced first; all others have the empty group id."
    yield _by("tenure_group_rebalances", text, "group", by_group)
    text = "The same, by the kind of the first cause."
    rows = (
        (group_id, kind.value if isinstance(kind, CauseKind) else kind, count)
        for group_id, causes in counts.by_group_cause.items()
        for kind, count in causes.items()
    )
    yield _counters("tenure_group_rebalance_causes", text, ["group", "cause"], rows)
    # From 0 on: a counter that begins at 1 has no increase, so nobody would be told.
    back = ((each, str(way).lower(), counts.restarts[each, way]) for each in by_group for way in (False, True))
    text = "Static members of these groups that came back, by whether it rebalanced."
    yield _counters("tenure_group_static_restarts", text, ["group", "rebalances"], back)
    text = "Storms of these groups: five rebalances within a minute."
    yield _by("tenure_group_storms", text, "group", {group_id: counts.storms[group_id] for group_id in by_group})


def storm_family(counts: GroupSeries) -> Metric:
    """The storms of all groups."""
    return counter("tenure_storms", "Storms of all groups.", counts.storms_before + counts.storms.total())


def transaction_families(ended: Counter[Outcome], since_ms: Sequence[int], wall_ms: int) -> Iterator[Metric]:
    """The metrics of transactions. since_ms: when each open one began."""
    counts = {outcome.value: ended[outcome] for outcome in Outcome}
    yield _by("tenure_transactions_ended", "Transactions that ended, by outcome.", "outcome", counts)
    yield gauge("tenure_transactions_open", "Transactions without all markers.", len(since_ms))
    age_s = max((wall_ms - min(since_ms, default=wall_ms)) / 1000, 0)
    yield gauge("tenure_transactions_oldest_seconds", "Time since the oldest open transaction began.", age_s)


def cluster_families(nodes: int, owners: Iterable[int | None], numbers: StoreNumbers | None) -> Iterator[Metric]:
    """The metrics of a node of several that share a store. owners: of the partitions; numbers: the store's."""
    yield gauge("tenure_cluster_nodes", "Nodes that live, as this node sees it.", nodes)
    owned = {"" if node is None else str(node): count for node, count in Counter(owners).items()}
    text = "Partitions of the log, by their node; empty: nobody's."
    yield gauges("tenure_cluster_partitions", text, "node", dict(sorted(owned.items())))
    if numbers is not None:
        yield from store_families(numbers)


def store_families(numbers: StoreNumbers) -> Iterator[Metric]:
    """The metrics of the store that nodes share."""
    age_s = numbers.lease_age_ms / 1000
    yield gauge("tenure_store_lease_age_seconds", "Time since the store last kept this node's lease.", age_s)
    lapses = "Times that the lease wasn't kept in time, so that the node said NOT_COORDINATOR to everything."
    yield counter("tenure_store_lease_lapses", lapses, numbers.lapses)
    yield _by("tenure_store_calls", "Calls to the store; Txn writes.", "call", numbers.calls)
    yield counter("tenure_store_calls_lost", "Calls without an answer; they are made again.", numbers.lost)
    text, seconds = "How long answers of the store took.", numbers.seconds
    yield HistogramMetricFamily("tenure_store_call_seconds", text, buckets(seconds), seconds.total)
    yield gauge("tenure_store_used_bytes", "The part of the store's file that is in use.", numbers.used)
    yield gauge("tenure_store_bytes", "The size of the store's file.", numbers.size)
    yield gauge("tenure_store_quota_bytes", "The size at which the store refuses writes.", numbers.quota)
    yield gauge("tenure_store_alarms", "Alarms of the store: it is full, or corrupt.", len(numbers.alarms))


def log_families(logs: Mapping[str, Counts]) -> Iterator[Metric]:
    """The metrics of the logs: that of groups and those of topics, each with a thread of its own."""

    def histograms(name: str, text: str, histogram: Callable[[Counts], Histogram]) -> Metric:
        return _histograms(name, text, "log", {log: histogram(counts) for log, counts in logs.items()})

    def counters(name: str, text: str, count: Callable[[Counts], int]) -> Metric:
        return _by(name, text, "log", {log: count(counts) for log, counts in logs.items()})

    yield histograms("tenure_log_append_seconds", "How long a write took until it was durable.", lambda of: of.appends)
    yield histograms("tenure_log_flush_seconds", "How long fdatasync took, for each write.", lambda of: of.flushes)
    yield histograms(
        "tenure_log_journal_wait_seconds",
        "How long windows waited for room in the journal, for each that did.",
        lambda of: of.journal_waits,
    )
    yield counters("tenure_log_appended_bytes", "Bytes that were appended.", lambda of: of.bytes)
    yield counters("tenure_log_failures", "Appends that failed because of the disk.", lambda of: of.failures)
    yield histograms("tenure_compaction_seconds", "How long compactions took.", lambda of: of.compactions)
    yield counters("tenure_compaction_failures", "Compactions that were put off.", lambda of: of.compaction_failures)
    yield counters("tenure_compaction_before_bytes", "Bytes of compacted logs, before.", lambda of: of.bytes_before)
    yield counters("tenure_compaction_after_bytes", "Bytes of compacted logs, after.", lambda of: of.bytes_after)
    dirtiest = 100 * max(of.dirty_ratio for of in logs.values())
    yield gauge(KAFKA_CLEANER + "max_dirty_percent", "Percent of the dirtiest log that isn't compacted.", dirtiest)


LOGINS = {
    Login.SUCCEEDED: "Clients that logged in.",
    Login.FAILED: "Clients that could not log in.",
    Login.SUCCEEDED_AGAIN: "Sessions that were renewed.",
    Login.FAILED_AGAIN: "Sessions that ended because their client could not log in again.",
}


def login_families(measures: Measures) -> Iterator[Metric]:
    """The metrics of SASL. Only names of the settings are labels, so that no client makes series."""
    for way, text in LOGINS.items():
        rows = ((*where, count) for (*where, ended), count in measures.logins.items() if ended is way)
        yield _counters(KAFKA_SOCKETS + way.value, text, ["listener", "mechanism"], rows)


def quota_families(measures: Measures) -> Iterator[Metric]:
    """The metrics of quotas, for principals with series of their own and the others together."""
    labels = ["quota", "principal"]
    answers = ((*series, count) for series, count in measures.throttles.items())
    yield _counters("tenure_throttled_answers", "Answers whose client had to wait after.", labels, answers)
    waits = ((*series, ms / 1000) for series, ms in measures.throttled_ms.items())
    yield _counters("tenure_throttled_seconds", "How long clients had to wait.", labels, waits)
    delays = {limit: measures.delays[limit] for limit in ("ip", "max", "rate")}
    yield _by("tenure_connections_delayed", "Connections that had to wait, or were closed for it.", "limit", delays)


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """A gauge with a label. values: by the label's value."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _by(name: str, text: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    return _counters(name, text, [label], counts.items())


def _counters(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> CounterMetricFamily:
    """A counter with several labels. rows: the values of the labels, and behind them the count."""
    family = CounterMetricFamily(name, text, labels=labels)
    for *values, count in sorted(rows):
        family.add_metric(values, count)
    return family


def _histograms(name: str, text: str, label: str, histograms: Mapping[str, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=[label])
    for value, histogram in histograms.items():
        family.add_metric([value], buckets(histogram), histogram.total)
    return family


def buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus's buckets: the number of values up to each upper end."""
    found: list[tuple[str, float]] = []
    below = 0
    for end, count in zip([*map(str, histogram.ends), "+Inf"], histogram.counts, strict=True):
        below += count
        found.append((end, below))
    return found
