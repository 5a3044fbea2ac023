"""The ready alerts and the dashboard (examples/monitoring) beside the real metrics, promtool and a real Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from coordinator.server.telemetry.measures import Measures
from coordinator.site.site import exposition
from schemas.errors import ErrorCode
from tests.server.telemetry.test_metrics import made
from tests.support.patience import WITHIN_S
from tests.support.prometheus import Prometheus, program
from tests.support.scripted import Member, hang_up, settle
from tests.support.tenure import Tenure, wait_until

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "examples/monitoring"
RULES, TESTS = MONITORING / "tenure.rules.yml", MONITORING / "tenure.rules.test.yml"
COLUMNS = 24
"""The width of a dashboard of Grafana."""
NOT_HERE = ("tenure_store_", "tenure_cluster_", "tenure_group_seats_away")
"""Metrics that a single server doesn't have, and of seats whose members are away for long."""


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    found: dict[str, Any] = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    return found


def queries(panels: list[dict[str, Any]]) -> Iterator[str]:
    """The queries of panels, with values in place of Grafana's variables."""
    for panel in panels:
        for target in panel.get("targets", ()):
            query = re.sub(r"\$(job|instance|group)\b", ".*", target["expr"])
            yield query.replace("$__rate_interval", "1m").replace("$__range", "1h")


def metrics_in(text: str) -> set[str]:
    """The names of metrics in a text, without the suffixes of a histogram."""
    names = re.findall(r"\b(?:tenure|kafka)_[a-z_]+\b", text)
    return {re.sub(r"_(bucket|sum|count)$", "", name) if "_seconds_" in name else name for name in names}


def alerts() -> list[str]:
    """The names of the alerts."""
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def test_every_metric_is_one_of_the_servers() -> None:
    """A rule or panel about a metric that doesn't exist would stay silent for ever."""
    text, _ = exposition(made(Measures()), "")
    there = set(re.findall(r"^# TYPE (\S+)", text.decode(), re.MULTILINE))
    for file in (RULES, TESTS, MONITORING / "grafana-dashboard.json"):
        assert metrics_in(file.read_text()) <= there, file


def test_every_alert_is_tested_and_described() -> None:
    """A test lets it fire, and one beside it doesn't; the page says what to do."""
    tests, page = TESTS.read_text(), (ROOT / "docs/run/metrics.md").read_text()
    for name in alerts():
        assert len(re.findall(rf"alertname: {name}\n        exp_alerts:\n", tests)) == 1, name
        assert len(re.findall(rf"alertname: {name}\n        exp_alerts: \[\]\n", tests)) == 1, name
    assert re.findall(r"^\| `(Tenure\w+)`", page, re.MULTILINE) == alerts()


def test_the_dashboard_has_the_form_that_grafana_documents() -> None:
    """Ids differ, panels fit the grid and don't overlap, every target has a query, and every variable is defined."""
    found = dashboard()
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)
    assert {panel["type"] for panel in panels} == {"row", "stat", "timeseries", "table"}
    variables = {each["name"] for each in found["templating"]["list"]}
    targets = [target for panel in panels for target in panel.get("targets", ())]
    used = re.findall(r"\$\{?(\w+)", " ".join(target["expr"] for target in targets))
    assert set(used) - {"__rate_interval", "__range"} <= variables
    for panel in panels:
        assert panel["title"]
        assert panel["type"] == "row" or panel["targets"]
        for target in panel.get("targets", ()):
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.prometheus
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", RULES.name],
        ["check", "config", "--syntax-only", "prometheus.yml"],
        ["test", "rules", TESTS.name],
    ],
    ids=" ".join,
)
def test_promtool_has_no_objection(arguments: list[str]) -> None:
    """The rules and the configuration are well-formed, and the rules' own tests pass."""
    command = program("promtool")
    assert command is not None
    done = subprocess.run([command, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def is_answered(prometheus: Prometheus, query: str) -> bool:
    """Whether a query has a result, or need not have one."""
    found = prometheus.ask("query", query=query)["result"]
    return bool(found) or any(name.startswith(NOT_HERE) for name in metrics_in(query))


def change(member: Member) -> None:
    """Let a member come with another protocol, so that its group rebalances."""
    member.protocols = ["range", "roundrobin"] if member.protocols == ["range"] else ["range"]
    settle(member)


@pytest.mark.prometheus
@pytest.mark.long
def test_a_real_prometheus_fires_an_alert(tmp_path: Path) -> None:
    """It scrapes a running server; a storm makes the alert fire, and every query about groups is answered."""
    with Tenure({"tenure.http": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}) as server:
        (url,) = [line["url"] for line in server.events("http_listening")]
        with Prometheus(tmp_path, url.removeprefix("http://").rstrip("/"), RULES) as prometheus:
            assert prometheus.value("tenure_storms_total") == 0
            assert not prometheus.firing()
            one, two = (Member(server.port, "stormy", name, 9, instance="one") for name in ("one", "two"))
            settle(one)
            for _ in range(5):
                change(one)
            wait_until(lambda: "TenureRebalanceStorm" in prometheus.firing() or None, "the alert", WITHIN_S)
            assert prometheus.value('tenure_group_storms_total{group="stormy"}') == 1
            settle(two)

            def is_told(query: str) -> bool:
                """An increase has a value from the second scrape on, if the counter then still grows."""
                change(two)
                assert one.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
                return is_answered(prometheus, query)

            for query in queries(dashboard()["panels"]):
                wait_until(partial(is_told, query), query, WITHIN_S)
        hang_up()
