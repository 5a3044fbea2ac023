"""Each work runs for a moment against Tenure and an echo, and says something of each figure; how fast is not judged."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.cases import CASES, ECHO, TENURE, Case
from benchmarks.stage import turns

ROOT = Path(__file__).parent.parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


KILLED = "127.0.0.1:1:1"
"""A server that isn't there."""


DIFFERENT = [case for case in CASES if case.name not in {"heartbeat-1000", "storm-5000"}]
"""Those two are others with larger numbers."""


@pytest.mark.parametrize("case", DIFFERENT, ids=lambda case: case.name)
def test_each_case_runs_and_has_its_figures(case: Case, tmp_path: Path) -> None:
    """Every figure is a number that can be, and every figure of the table is among them."""
    out = tmp_path / "bench.json"
    done = bench(case.name, "--quick", "--servers", f"{ECHO},{TENURE}", "--out", str(out))
    assert done.returncode == 0, done.stderr
    measured = json.loads(out.read_text())["figures"][case.name]
    assert set(measured) == {ECHO, TENURE} & set(case.servers), done.stderr
    for (figures,) in measured.values():
        assert all(math.isfinite(value) and value >= 0 for name, value in figures.items() if "resident" not in name)
        assert {row.figure for row in case.rows} <= set(figures)
        assert figures["wall_s"] > 0
    assert "Tenure" in done.stdout


def test_a_page_is_written_when_asked(tmp_path: Path) -> None:
    """Between its markers, with what was measured."""
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "performance.md").read_text())
    arguments = ("--quick", "--servers", TENURE, "--out", str(tmp_path / "out.json"), "--page", str(page))
    done = bench("storm", *arguments)
    assert done.returncode == 0, done.stderr
    assert "50 dynamic members at once" in page.read_text()


def test_a_page_stays_when_a_measurement_fails(tmp_path: Path) -> None:
    """The others are shown and kept, the exit code says that something is missing."""
    page, out = tmp_path / "page.md", tmp_path / "out.json"
    page.write_text(text := (ROOT / "docs" / "performance.md").read_text())
    done = bench("storm", "--quick", "--servers", f"{TENURE},{KILLED}", "--out", str(out), "--page", str(page))
    assert done.returncode == 1
    assert "failed" in done.stderr
    assert "50 dynamic members at once" in done.stdout
    assert set(json.loads(out.read_text())["figures"]["storm"]) == {TENURE}
    assert page.read_text() == text


def test_cases_that_are_compared_take_turns() -> None:
    """One repetition of both, then the next."""
    first, second = (case for case in CASES if "workers" in case.name)
    order = [(case.name, repetition) for case, repetition, _ in turns([first, second], [TENURE], 2)]
    assert order == [(first.name, 0), (second.name, 0), (first.name, 1), (second.name, 1)]


def test_an_unknown_work_is_refused() -> None:
    """With what there is."""
    done = bench("nothing")
    assert done.returncode == 2
    assert "heartbeat" in done.stderr
