"""A topic beside the log of groups is read record by record."""

from __future__ import annotations

from pathlib import Path

from coordinator.audit.read.topics import read_records
from coordinator.log.segments.outside import find_logs
from tests.audit.scenes import Scene


def test_reading_goes_on_behind_damage(tmp_path: Path) -> None:
    """A damaged batch is None, and the records around it have their offsets."""
    scene = Scene().commit(1).commit(2).commit(3)
    scene.batches[1] = scene.batches[1][:-1] + b"\xff"
    (log,) = find_logs(scene.write(tmp_path))
    assert [each and each[0] for each in read_records(log)] == [0, None, 2]
