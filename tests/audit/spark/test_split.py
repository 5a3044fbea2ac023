"""A task reads its ranges."""

from __future__ import annotations

import gc
import importlib
import pickle
import sys
import zipfile
from pathlib import Path

import pytest

from coordinator.audit.read.logs import plan
from coordinator.audit.read.tables import SCHEMAS, to_rows
from coordinator.audit.spark.split import RAW, Split, raw_rows, read_plan, read_split, write_plan
from tests.audit.scenes import Scene, clean

pytestmark = pytest.mark.spark


def test_task_is_read_range_by_range(tmp_path: Path) -> None:
    """A task reads one range after the other, and its rows are in order."""
    ranges = plan(clean().write(tmp_path), range_size=300).ranges
    split = pickle.loads(pickle.dumps(Split(ranges)))
    batches = list(read_split(split, "batches"))
    assert len(batches) == 1 + len(ranges)
    assert [row[4] for batch in batches for row in to_rows(batch)] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]


def test_plan_is_handed_on(scene: Scene, tmp_path: Path) -> None:
    """A plan arrives with everything that a reader needs, with its gaps too."""
    scene.batches[3:3] = [b"\0" * 99]
    ranges = plan(scene.write(tmp_path / "log"), range_size=700).ranges
    assert any(each.gaps for each in ranges)
    assert read_plan(write_plan(tmp_path / "plan.json", ranges)) == ranges


def test_task_without_ranges_has_columns(tmp_path: Path) -> None:
    """A task without ranges gives one batch without rows, because Spark needs one."""
    (batch,) = read_split(Split([]), "members")
    assert batch.schema == SCHEMAS["members"]


def test_raw_rows_are_the_file(scene: Scene, tmp_path: Path) -> None:
    """The raw rows have each batch of the file and the bytes that are no batch."""
    scene.batches[-1] = scene.batches[-1][:-1]
    (of,) = plan(scene.write(tmp_path)).ranges
    rows = raw_rows(of)
    assert [row[3] for row in rows] == [*scene.batches[:-1], b""]
    assert [row[4] is None for row in rows] == [True] * (len(rows) - 1) + [False]
    assert [row[5] for row in rows] == list(map(len, scene.batches))
    assert [row for batch in read_split(Split([of]), RAW) for row in to_rows(batch)] == rows


def test_importers_of_zips_are_not_kept(tmp_path: Path) -> None:
    """The module drops Python's cached importers of zip files; Python makes them again when needed."""
    path = tmp_path / "package.zip"
    with zipfile.ZipFile(path, "w") as package:
        package.writestr("in_a_zip.py", "here = True")
        package.writestr("in_it_too.py", "here = True")
    sys.path.append(str(path))
    try:
        assert importlib.import_module("in_a_zip").here
        assert str(path) in sys.path_importer_cache
        assert list(read_split(Split([]), "batches"))
        assert str(path) not in sys.path_importer_cache
        assert importlib.import_module("in_it_too").here
    finally:
        sys.path.remove(str(path))
        gc.unfreeze()
