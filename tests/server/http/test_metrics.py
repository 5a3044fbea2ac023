"""A scrape says what was counted, in a text that Prometheus's own parser reads."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from coordinator.group import notes
from coordinator.group.state import State
from coordinator.server.http.metrics import Around, exposition
from coordinator.server.measures import Census, Measures
from protocol.messages import API_KEYS, JoinGroupResponse
from schemas.errors import ErrorCode
from tests.server.test_measures import started
from tests.server.test_notes import ENDED, EVENTS

NOW = Census(Counter({State.STABLE: 2, State.EMPTY: 1}), 5, 3, 1, 7, {"g-0": (4, 9)})

AROUND = Around(connections=3, events_dropped=0, partitions={"active": 49, "loading": 1})

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(measures: Measures, accept: str = "") -> Samples:
    """Every value of a scrape, by name and labels."""
    text, content_type = exposition(measures, NOW, AROUND, accept)
    read = parse_openmetrics if "openmetrics" in content_type else parse
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read(text.decode())
        for sample in family.samples
    }


def test_rebalances_by_cause_add_up() -> None:
    """Between two scrapes fifty begin: the counter grows by fifty."""
    measures = Measures()
    measures.take([started("g-0")])
    before = samples(measures)
    measures.take([started(f"g-{number % 2}") for number in range(50)])
    after = samples(measures)

    def total(found: Samples, name: str) -> float:
        return sum(value for (sample, _), value in found.items() if sample == name)

    for name in ("tenure_rebalances_total", "tenure_group_rebalances_total"):
        assert total(after, name) - total(before, name) == 50
    assert after["tenure_rebalances_total", (("cause", "member_joined"), ("source", "client"))] == 51


def test_what_there_is() -> None:
    """Groups by state under Kafka's names, members, and the groups with series of their own."""
    found = samples(Measures())
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroups", ()] == 3
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupsstable", ()] == 2
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance", ()] == 0
    assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets", ()] == 7
    assert found["tenure_members", ()] == 5
    assert found["tenure_connections", ()] == 3
    assert found["tenure_partitions", (("standing", "loading"),)] == 1
    assert found["tenure_group_members", (("group", "g-0"),)] == 4
    assert found["tenure_group_generation", (("group", "g-0"),)] == 9


def test_every_note_and_answer_is_told_in_both_formats() -> None:
    """One of each kind; histograms add up and end with all of them."""
    measures = Measures()
    measures.take([*EVENTS.values(), ENDED])
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


def test_a_scrape_has_the_process_too() -> None:
    """CPU, memory and files, as every Prometheus dashboard expects them."""
    found = samples(Measures())
    assert found["process_resident_memory_bytes", ()] > 1e6
    assert found["process_open_fds", ()] > 0


def test_the_page_about_metrics_has_all_of_them() -> None:
    """By name, and no other."""
    text, _ = exposition(Measures(), NOW, AROUND, "")
    made = {family.name for family in parse(text.decode())}
    page = (Path(__file__).parents[3] / "docs" / "http.md").read_text()
    told = {name.removesuffix("_total") for name in re.findall(r"^\| `(\w+)", page, re.MULTILINE)}
    assert told == {name for name in made if not name.startswith("process_")}
