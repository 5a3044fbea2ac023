"""The demo of a standby, with real processes: a seat that a standby takes, beside the plain expiry."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from examples.demo.standby import Loss, summary

DEMO = [sys.executable, "-m", "examples.demo", "standby"]
WITHIN_S = 240.0


@pytest.mark.long
def test_a_standby_spares_the_others_a_rebalance() -> None:
    """Beside a standby the loss costs no rebalance and moves nothing; without one it costs one."""
    done = subprocess.run([*DEMO, "--output", "json"], capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    beside, without = json.loads(done.stdout)
    assert (beside["rebalances"], beside["moved"], beside["rebalancing_s"]) == (0, 0, 0.0)
    assert beside["generation_before"] == beside["generation_after"]
    assert without["rebalances"] == 1
    assert without["generation_after"] == without["generation_before"] + 1


def test_the_summary_has_both_side_by_side() -> None:
    """Each figure has a line, and each story a column."""
    lines = summary(
        [Loss("beside a standby", 0, 0.0, 1, 1, 0, 0.004), Loss("without a standby", 1, 0.06, 1, 2, 6, 0.06)]
    ).splitlines()
    assert lines[0].split("  ")[-1].strip() == "without a standby"
    assert lines[1].split() == ["rebalances", "0", "1"]
