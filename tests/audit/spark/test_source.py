"""The data source "kafka_group_log": its tables, options and tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

from coordinator.audit.read.logs import plan
from coordinator.audit.read.parse import TABLES
from coordinator.audit.spark.source import FORMAT, READABLE, GroupLogReader, GroupLogSource
from coordinator.audit.spark.split import Split, write_plan
from tests.audit.scenes import Scene, clean, group_on
from tests.audit.spark.conftest import LEFT_OPEN

pytestmark = [pytest.mark.spark, LEFT_OPEN]


def test_table_is_loaded_as_in_the_page(session: SparkSession, tmp_path: Path) -> None:
    """The table loads with the commands of the documentation, as in a notebook."""
    session.dataSource.register(GroupLogSource)
    folder = clean().write(tmp_path)
    members = session.read.format(FORMAT).option("table", "members").load(str(folder))
    seats = members.where("group_instance_id = 'a'").select("generation", "member_id").distinct().collect()
    assert sorted(map(tuple, seats)) == [(1, "a-1"), (1, "a-2"), (1, "a-3"), (2, "a-2")]


def test_nothing_is_spent_on_what_cannot_be(session: SparkSession, tmp_path: Path) -> None:
    """Spark plans no null checks for columns that are never null, and doesn't validate Arrow data again."""
    session.dataSource.register(GroupLogSource)
    members = session.read.format(FORMAT).option("table", "members").load(str(clean().write(tmp_path)))
    assert {each.name for each in members.schema if each.nullable} == {"group_instance_id", "rebalance_ms"}
    checking = session._jvm.org.apache.arrow.memory.BoundsChecking  # type: ignore[union-attr]
    assert checking.BOUNDS_CHECKING_ENABLED is False


def test_wrong_option_is_named(session: SparkSession, tmp_path: Path) -> None:
    """An unknown table is an error that names it."""
    session.dataSource.register(GroupLogSource)
    with pytest.raises(PySparkException, match="no table 'users'"):
        session.read.format(FORMAT).option("table", "users").load(str(tmp_path))


def test_every_table_has_a_schema() -> None:
    """Every table has a schema with the columns of the parquet files."""
    for table in READABLE:
        assert "`partition` int" in GroupLogSource({"table": table, "path": "x"}).schema()


@pytest.mark.parametrize("split_size", [1, 700, 10**9])
def test_tasks_are_the_log(tmp_path: Path, split_size: int) -> None:
    """One task reads each range, in order, and small files share a task."""
    clean().write(tmp_path)
    Scene(2).commit(5, group_on(2)).write(tmp_path)
    splits = GroupLogReader(tmp_path, TABLES[0], split_size).partitions()
    assert [each for split in splits if isinstance(split, Split) for each in split.ranges] == plan(tmp_path).ranges
    assert (len(splits) == 1) == (split_size == 10**9)


def test_plan_that_was_made_is_kept_to(session: SparkSession, tmp_path: Path) -> None:
    """The reader keeps to its plan: it ignores later batches, and a replaced file is an error."""
    session.dataSource.register(GroupLogSource)
    scene = clean()
    folder = scene.write(tmp_path / "log")
    planned = write_plan(tmp_path / "plan.json", plan(folder).ranges)
    Scene(2).commit(5, group_on(2)).write(folder)
    table = session.read.format(FORMAT).option("table", "batches").option("plan", str(planned)).load(str(folder))
    assert table.count() == len(scene.batches)
    path = scene.segment_path(folder)
    path.rename(path.with_suffix(".old"))
    path.write_bytes(path.with_suffix(".old").read_bytes())
    with pytest.raises(PySparkException, match="the log changed while it was read"):
        table.count()


def test_log_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    """A log that can't be read is an error, not an empty table."""
    scene = Scene().commit(5)
    path = scene.segment_path(scene.write(tmp_path))
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="No such file"):
        GroupLogReader(tmp_path, TABLES[0], 1).partitions()
