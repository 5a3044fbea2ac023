"""The long history: a short one of a real cluster is right, and the report names what is planted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster import long_history
from tests.cluster.test_linearizable import RIGHT, asked
from tests.support import cluster_history


@pytest.mark.etcd
@pytest.mark.cluster
def test_a_short_history_with_restarts_and_faults_is_linearizable(tmp_path: Path) -> None:
    """Members that restart keep their seats, whatever fails; the history has their joins."""
    history, faults, problems = long_history.record(0.25, seed=2)
    assert problems == []
    assert long_history.problems_of(history) == []
    assert faults.total() > 1
    assert any(each.kind == "join" and each.is_yes for each in history)
    cluster_history.write(history, tmp_path / "history")
    assert cluster_history.read(tmp_path / "history") == history


def test_the_report_names_each_planted_violation(capsys: pytest.CaptureFixture[str]) -> None:
    """A right history has none, and the exit code 0; a stale read and a lost seat give 1."""
    faults = Counter({"kill_node": 3})
    assert long_history.report(RIGHT, faults, [], 7) == 0
    told = capsys.readouterr().out
    assert "WRONG" not in told
    assert told.endswith("seed 7: linearizable, no seat moved\n")
    stale = asked("fetch", 9.76, 2, node=1)
    assert long_history.report([*RIGHT, stale], faults, ["g-0 had 1 and has 2"], 7) == 1
    told = capsys.readouterr().out
    assert "WRONG g: a read of 2 where [3] is possible" in told
    assert "WRONG g-0 had 1 and has 2" in told
