"""A scrape has all counts, in a text that Prometheus's own parser reads."""

from __future__ import annotations

import re
from collections import Counter
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from coordinator.group import notes
from coordinator.group.causes import Cause, CauseKind
from coordinator.group.state import State
from coordinator.log.cluster import StoreNumbers
from coordinator.log.segments.counts import Histogram
from coordinator.server.runtime.partition import Standing
from coordinator.server.scrape import server_families
from coordinator.server.telemetry.measures import SECONDS, Census, Login, Measures
from coordinator.server.telemetry.metrics import (
    cluster_families,
    families,
    log_families,
    login_families,
    quota_families,
    transaction_families,
)
from coordinator.site.site import exposition
from coordinator.transaction.events import Outcome
from protocol.messages import API_KEYS, JoinGroupResponse
from schemas.errors import ErrorCode
from tests.server.telemetry.test_measures import started, take
from tests.server.telemetry.test_note_lines import ENDED, EVENTS

NOW = Census(
    Counter({State.STABLE: 2, State.EMPTY: 1}),
    5,
    3,
    1,
    7,
    {"g-0": (4, 9)},
    Counter({State.RECONCILING: 4}),
    6,
    Counter({"g-0": 2, "": 1}),
    8,
)

LOADS = Histogram(SECONDS)


def store_numbers() -> StoreNumbers:
    """Return the numbers of a store that is full."""
    took = Histogram(SECONDS)
    took.add(0.004)
    return StoreNumbers(750, 2, {"Txn": 30, "Range": 4}, 5, took, 2_000, 3_000, 9_000, ["NOSPACE"])


class Handshakes(list[str]):
    """Handshakes under way, and the numbers of others."""

    completed, failed = 11, 4


class Connections(list[str]):
    """Open connections."""

    handshakes = Handshakes(["one", "two"])


def of_server(*recent_loads_ms: int) -> list[Metric]:
    """Return the metrics of a server that are not about groups."""
    standings = [Standing.ACTIVE] * 49 + [Standing.LOADING]
    runtime: Any = SimpleNamespace(
        partitions=[SimpleNamespace(standing=each) for each in standings],
        loads=SimpleNamespace(seconds=LOADS, recent=lambda _now_ms: list(recent_loads_ms)),
        ms=lambda: 0,
    )
    connections: Any = Connections("abc")
    events: Any = SimpleNamespace(dropped=6)
    return list(server_families(runtime, connections, events))


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def made(measures: Measures) -> list[Metric]:
    """Return all metrics."""
    own = *families(measures, NOW), *of_server(20, 40)
    rest = *login_families(measures), *quota_families(measures), *cluster_families(2, [7, None, 7], store_numbers())
    transactions = transaction_families(Counter({Outcome.TIMED_OUT: 3}), [9_000, 5_500], 10_000)
    return [*own, *log_families(measures.logs), *transactions, *rest]


def samples(measures: Measures, accept: str = "") -> Samples:
    """Return every value of a scrape, by name and labels."""
    text, content_type = exposition(made(measures), accept)
    read = parse_openmetrics if "openmetrics" in content_type else parse
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read(text.decode())
        for sample in family.samples
    }


def test_rebalances_by_cause_add_up(measures: Measures) -> None:
    """If fifty rebalances begin between two scrapes, the counter grows by fifty."""
    take(measures, [started("g-0")])
    before = samples(measures)
    take(measures, [started(f"g-{number % 2}") for number in range(50)])
    after = samples(measures)

    def total(found: Samples, name: str) -> float:
        return sum(value for (sample, _), value in found.items() if sample == name)

    for name in ("tenure_rebalances_total", "tenure_group_rebalances_total"):
        assert total(after, name) - total(before, name) == 50
    assert after["tenure_rebalances_total", (("cause", "member_joined"), ("source", "client"))] == 51


def test_what_there_is() -> None:
    """A scrape has groups by state under Kafka's names, members, and the groups with series of their own."""
    found = samples(Measures())
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroups", ()] == 3
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsstable", ()] == 2
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance", ()] == 0
    assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets", ()] == 7
    assert found["tenure_members", ()] == 5
    assert found["tenure_connections", ()] == 3
    assert found["tenure_tls_handshakes_under_way", ()] == 2
    assert found["tenure_tls_handshakes_total", ()] == 11
    assert found["tenure_tls_handshake_failures_total", ()] == 4
    assert found["tenure_events_dropped_total", ()] == 6
    assert found["tenure_partitions", (("standing", "loading"),)] == 1
    assert found["tenure_group_members", (("group", "g-0"),)] == 4
    assert found["tenure_group_generation", (("group", "g-0"),)] == 9
    assert found["tenure_group_seats_away", (("group", "g-0"),)] == 2
    assert found["tenure_group_seats_away", (("group", ""),)] == 1
    assert found["tenure_seats_away", ()] == 3
    assert (found["tenure_storms_total", ()], found["tenure_static_restarts_total", (("rebalances", "true"),)]) == (
        0,
        0,
    )


def test_transactions() -> None:
    """A scrape has the open ones, the age of the oldest, and those that ended, by outcome, from 0 on."""
    found = samples(Measures())
    assert found["tenure_pending_offsets", ()] == 8
    assert (found["tenure_transactions_open", ()], found["tenure_transactions_oldest_seconds", ()]) == (2, 4.5)
    for outcome, count in (("committed", 0), ("aborted", 0), ("timed_out", 3), ("fenced", 0)):
        assert found["tenure_transactions_ended_total", (("outcome", outcome),)] == count
    (oldest,) = [each for each in transaction_families(Counter(), [], 1) if each.name.endswith("oldest_seconds")]
    assert oldest.samples[0].value == 0


def test_groups_with_series_have_counters_from_zero_on(measures: Measures) -> None:
    """Prometheus sees no increase in a counter that begins at 1. Causes are as many as there are."""
    take(measures, [started("g"), started("g"), started("g", kind=CauseKind.MEMBER_LEFT)])
    found = samples(measures)
    of_group = ("group", "g")
    assert found["tenure_group_storms_total", (of_group,)] == 0
    for rebalances in ("true", "false"):
        assert found["tenure_group_static_restarts_total", (of_group, ("rebalances", rebalances))] == 0
    assert found["tenure_group_rebalance_causes_total", (("cause", "member_joined"), of_group)] == 2
    assert found["tenure_group_rebalance_causes_total", (("cause", "member_left"), of_group)] == 1
    for number in range(2):
        take(measures, [started("g")], number)
    found = samples(measures)
    assert found["tenure_group_storms_total", (of_group,)] == found["tenure_storms_total", ()] == 1


def test_groups_of_the_consumer_protocol_have_kafkas_names(measures: Measures) -> None:
    """By protocol, by state, and epochs as Kafka counts them: those of members that go are not among them."""
    kinds = ("member_joined", "member_left", "member_expired", "topics_changed", "regex_resolved")
    causes = [Cause(CauseKind(kind), ("m",)) for kind in kinds]
    take(measures, [notes.RebalanceStarted("g", 1, "Stable", causes[0], group_type=notes.CONSUMER)])
    take(measures, [notes.RebalanceCause("g", 2, cause, notes.CONSUMER) for cause in causes[1:]])
    take(measures, [notes.RebalanceStarted("h", 1, "Stable", causes[0])])
    fields: dict[str, Any] = dict(zip(ENDED.FIELDS, ENDED, strict=True)) | {"group_type": notes.CONSUMER}
    take(measures, [ENDED, notes.RebalanceEnded(**fields)])
    found = samples(measures)
    name = "kafka_server_group_coordinator_metrics_"
    assert found[name + "group_count", (("protocol", "consumer"),)] == 4
    assert found[name + "group_count", (("protocol", "classic"),)] == 3
    assert found[name + "consumer_group_count", (("state", "Reconciling"),)] == 4
    assert found[name + "consumer_group_count", (("state", "Assigning"),)] == 0
    assert found[name + "consumer_group_rebalance_count_total", ()] == 3
    assert found["tenure_unsettled_members", ()] == 6
    for phase in ("preparing", "completing", "assigning", "reconciling"):
        assert found["tenure_rebalance_phase_seconds_count", (("phase", phase),)] == 1


def test_every_note_and_answer_is_in_both_formats(measures: Measures) -> None:
    """Every note and answer is in both formats, and a histogram's last bucket has all its values."""
    take(measures, [*EVENTS.values(), ENDED])
    measures.answered(API_KEYS["JoinGroup"], JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED))
    plain, open_metrics = samples(measures), samples(measures, "application/openmetrics-text; version=1.0.0")
    for found in (plain, open_metrics):
        assert found["tenure_answers_total", (("api", "JoinGroup"), ("error", "MEMBER_ID_REQUIRED"))] == 1
        assert found["tenure_members_expired_total", ()] == 1
        assert found["tenure_static_restarts_total", (("rebalances", "false"),)] == 1
        assert found["tenure_rebalance_phase_seconds_bucket", (("le", "+Inf"), ("phase", "preparing"))] == 2
        assert found["tenure_rebalance_phase_seconds_count", (("phase", "completing"),)] == 2
    assert measures.happened.total() == len(EVENTS) + 1
    assert measures.happened[notes.MemberPending] == 1


def test_a_cluster_and_its_store() -> None:
    """Metrics show the live nodes, their partitions, those that nobody has, and the store's cost and size."""
    found = samples(Measures())
    assert found["tenure_cluster_nodes", ()] == 2
    assert found["tenure_cluster_partitions", (("node", "7"),)] == 2
    assert found["tenure_cluster_partitions", (("node", ""),)] == 1
    assert found["tenure_store_lease_age_seconds", ()] == 0.75
    assert found["tenure_store_lease_lapses_total", ()] == 2
    assert found["tenure_store_calls_total", (("call", "Txn"),)] == 30
    assert found["tenure_store_calls_lost_total", ()] == 5
    assert found["tenure_store_call_seconds_count", ()] == 1
    assert (found["tenure_store_bytes", ()], found["tenure_store_quota_bytes", ()]) == (3_000, 9_000)
    assert found["tenure_store_alarms", ()] == 1


def test_what_logs_cost(measures: Measures) -> None:
    """A scrape has the costs of the group log and the topics' logs; a bucket includes its upper end."""
    measures.logs["groups"].appended(1_000, 0.004, 0.003)
    measures.logs["groups"].appended(500, 0.2, 0.1)
    measures.logs["topics"].appended(7, 0.001, 0.0001)
    measures.logs["groups"].failed()
    measures.logs["groups"].compacted(9_000, 400, 2.0)
    measures.logs["topics"].dirty_ratio = 0.25
    found = samples(measures)
    of_groups = ("log", "groups")
    assert found["tenure_log_appended_bytes_total", (of_groups,)] == 1_500
    assert found["tenure_log_append_seconds_bucket", (("le", "0.005"), of_groups)] == 1
    assert found["tenure_log_append_seconds_count", (of_groups,)] == 2
    assert found["tenure_log_flush_seconds_sum", (of_groups,)] == pytest.approx(0.103)
    assert found["tenure_log_flush_seconds_bucket", (("le", "0.0001"), ("log", "topics"))] == 1
    assert found["tenure_log_failures_total", (of_groups,)] == 1
    assert found["tenure_compaction_seconds_count", (of_groups,)] == 1
    assert found["tenure_compaction_before_bytes_total", (of_groups,)] == 9_000
    assert found["tenure_compaction_after_bytes_total", (of_groups,)] == 400
    assert found["kafka_log_logcleanermanager_max_dirty_percent", ()] == 25


def test_loads_have_kafkas_figures() -> None:
    """Load times are the longest and the mean of the recent loads in ms; without loads the number is missing."""
    found = samples(Measures())
    assert found["kafka_server_group_coordinator_metrics_partition_load_time_max", ()] == 40
    assert found["kafka_server_group_coordinator_metrics_partition_load_time_avg", ()] == 30
    (none,) = [family.samples[0].value for family in of_server() if family.name.endswith("load_time_max")]
    assert isnan(none)


def test_a_principal_that_was_throttled_has_a_series(measures: Measures) -> None:
    """Whatever its name is: the format's own marks are escaped, so no name makes up another series."""
    name = 'User:CN=a"} 1\ntenure_fake{x="\\'
    measures.throttled("request_percentage", name, 1_500)
    for accept in ("", "application/openmetrics-text"):
        found = samples(measures, accept)
        labels = (("principal", name), ("quota", "request_percentage"))
        assert found["tenure_throttled_answers_total", labels] == 1
        assert found["tenure_throttled_seconds_total", labels] == 1.5
        assert not any(sample.startswith("tenure_fake") for sample, _ in found)


def test_logins_have_kafkas_names(measures: Measures) -> None:
    """Each way a login ends is a metric of Kafka's listeners, by listener and mechanism."""
    for number, way in enumerate(Login, 1):
        measures.logins["SASL", "PLAIN", way] = number
    found = samples(measures)
    labels = (("listener", "SASL"), ("mechanism", "PLAIN"))
    for name, count in (
        ("successful_authentication", 1),
        ("failed_authentication", 2),
        ("successful_reauthentication", 3),
        ("failed_reauthentication", 4),
    ):
        assert found[f"kafka_server_socket_server_metrics_{name}_total", labels] == count


def test_a_scrape_has_the_process_too() -> None:
    """A scrape has the process's CPU, memory and files, as every Prometheus dashboard expects."""
    found = samples(Measures())
    assert found["process_resident_memory_bytes", ()] > 1e6
    assert found["process_open_fds", ()] > 0


def test_the_page_about_metrics_has_all_of_them() -> None:
    """The page about metrics names each metric, and no other."""
    page = (Path(__file__).parents[3] / "docs/run/metrics.md").read_text()
    documented = {name.removesuffix("_total") for name in re.findall(r"^\| `([a-z]\w+)", page, re.MULTILINE)}
    assert documented == {family.name for family in made(Measures())}
