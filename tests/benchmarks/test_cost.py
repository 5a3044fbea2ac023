"""The cost of events: two servers do the same work, and only one of them keeps events."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import uvloop

from benchmarks import cost

SIDES = ("false", "true")
"""The servers' folders."""


@pytest.mark.long
def test_a_line_for_each_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a ratio, whether the servers were made once or several times."""
    monkeypatch.setattr(cost, "MEMBERS_PER_TURN", 10)
    monkeypatch.setattr(cost, "PAIRS_OF_SERVERS", 1)
    with (tmp_path / "log").open("w") as log:
        uvloop.run(cost.compared(tmp_path, log, [1, 3], pairs=2))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "3"]
    assert all(re.search(r"[1-9]\d* us without, +[1-9]\d* with; ratio \d+\.\d{3} ", line) for line in lines)


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.long)])
def test_both_rebalance_and_one_keeps_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    """The topic of events is in the one's folder, whichever server is made first."""
    monkeypatch.setattr(cost, "MEMBERS_PER_TURN", 10)
    with (tmp_path / "log").open("w") as log:
        turns = uvloop.run(cost.turns_of(tmp_path, log, 3, 2, is_first=is_first))
    assert len(turns) == 2
    kept = [[path.stat().st_size for path in (tmp_path / side).glob("__rebalance_events-0/*.log")] for side in SIDES]
    assert kept[0] == []
    assert sum(kept[1]) > 10_000
