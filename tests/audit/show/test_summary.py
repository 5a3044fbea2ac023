"""The names in summary.json are an interface for other programs."""

from __future__ import annotations

import json
from pathlib import Path

from coordinator.audit.show.summary import summary, write_summary
from tests.audit.audited import audited
from tests.audit.scenes import GROUP, HOUR_MS, SECOND_MS, START_MS, Scene, clean, static_members


def test_summary_of_the_script(tmp_path: Path) -> None:
    """summary.json has the names and numbers that docs/ask-why/audit-files.md explains."""
    scene = clean().commit(7, partition=2)
    size = sum(map(len, scene.batches))
    result = audited(scene.write(tmp_path))
    found = summary(result)
    assert found["groups"][GROUP].pop("bytes") > 0
    assert found == {
        "source": str(tmp_path),
        "records_by_type": {"group_metadata": 7, "offset_commit": 5},
        "findings": {},
        "groups": {
            GROUP: {
                "window": {"first_ms": START_MS, "last_ms": START_MS + HOUR_MS + 10 * SECOND_MS},
                "rebalances": 4,
                "at_least": True,
                "static_restarts": {},
                "static_rejoins": {},
                "takeovers": {},
                "returns": {"a": 1, "b": 1},
                "committed": {"orders-2": 7},
                "type": "classic",
                "generation": 1,
                "members": 2,
                "deleted": False,
                "partition": 0,
                "rebalances_forgotten": 0,
                "causes": {"joined": 1, "removed": 1},
                "causes_told": {},
                "old_clients": {},
            }
        },
        "partitions": {"0": {"bytes": size, "groups": 1}},
        "notes": [],
    }
    write_summary(tmp_path / "out", result)
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary(result)


def test_findings_are_counted_by_check(tmp_path: Path) -> None:
    """The summary has a count for each check that found something."""
    scene = Scene().group(static_members(a=1), 1).commit(5).commit(4).commit(3)
    result = audited(scene.write(tmp_path))
    assert summary(result)["findings"] == {"commit_back": 2}


def test_group_on_two_partitions_is_there_once(tmp_path: Path) -> None:
    """A group on two partitions is in the summary once, with the partition where it has more records."""
    Scene(0).commit(5).commit(6).write(tmp_path)
    Scene(1).commit(9).write(tmp_path)
    result = audited(tmp_path)
    assert summary(result)["groups"][GROUP]["committed"] == {"orders-0": 6}
