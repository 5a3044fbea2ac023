"""Each report of the logs has a line, with a level, words for people and fields for programs."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from coordinator.loop.lines import Lines
from coordinator.server.telemetry.log_reports import REPORTS, report
from tests.server.harness import ManualClock

FIELDS: dict[str, Any] = {
    "size": 7, "position": 40, "file": "00.log", "size_before": 9, "size_after": 3, "duration_s": 0.5, "reason": "full",
    "percent": 30, "commits": 2, "transactions": 1, "error": "broken", "stray": "a-0.x-stray", "folder": "a-0",
    "topic": "more", "partitions": 5, "declared": 3, "segments": 2, "log": "topics",
    "node": 2, "left": ["a-7"], "mode": "0755", "trace": "line 1", "used": 8, "quota": 13, "alarms": [],
    "key": "/c/own/000", "owner": "77", "store": "data",
}  # fmt: skip


ROOT = Path(__file__).parents[3]


def line_of(name: str) -> dict[str, Any]:
    """Return the line of a report about the log orders-0."""
    stream = io.StringIO()
    report(Lines(stream, "json", 1, ManualClock()), name, "orders-0", **FIELDS)
    line: dict[str, Any] = json.loads(stream.getvalue() or "{}")
    return line


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_is_a_line(name: str) -> None:
    """The line has the report's name, its level, all fields, and words."""
    line = line_of(name)
    assert (line["event"], line["level"]) == (name, REPORTS[name].level.value)
    assert {field: line[field] for field in FIELDS} == FIELDS
    assert "{" not in line["message"]


def test_words_name_the_log_and_what_is_wrong() -> None:
    """The words name the log and the problem."""
    assert line_of("compacted")["message"] == "orders-0: compacted from 9 to 3 bytes in 0.5 s"
    assert line_of("topic_not_shrunk")["message"] == "tenure.topics: more has 5 partitions already, not 3"
    assert "7 bytes from 40 of 00.log" in line_of("tail_cut")["message"]


def test_what_another_line_says_has_none() -> None:
    """A report of damage makes no line, because the runtime logs the damage and its own reaction."""
    assert line_of("partition_damaged") == {}


def test_the_page_of_a_cluster_has_its_lines() -> None:
    """docs/run/cluster-operations.md has all lines of the engine on etcd, and only lines that the server writes."""
    page = (ROOT / "docs/run/cluster-operations.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    engine, server = (
        "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "coordinator" / folder).rglob("*.py")))
        for folder in ("log", "server")
    )
    told = set(re.findall(r'log\("(\w+)"', engine))
    told |= {"store_fine", "store_full", "store_has_no_users", "store_old", "store_warned"}
    assert "lease_lost" in told
    assert rows >= told
    assert [name for name in rows if f'"{name}"' not in server] == []
