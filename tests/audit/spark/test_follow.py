"""A growing log becomes parquet, each row once, over restarts of the stream."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from coordinator.audit.spark.follow import follow
from coordinator.audit.tables import SCHEMAS
from tests.audit.scenes import Scene, static_members
from tests.audit.spark.conftest import LEFT_OPEN

pytestmark = [pytest.mark.spark, LEFT_OPEN]

WITHIN_S = 240


def caught_up(session: SparkSession, folder: Path, out: Path) -> None:
    """Let the stream read all that is there."""
    query = follow(session, folder, out, until_caught_up=True)
    assert query.awaitTermination(WITHIN_S)
    assert query.exception() is None


def offsets(out: Path, table: str) -> list[int]:
    """The offsets in a table, in order."""
    column = "offset" if "offset" in SCHEMAS[table].names else "base_offset"
    return sorted(pq.read_table(out / "tables" / f"{table}.parquet", columns=[column]).column(0).to_pylist())


def test_growing_log_becomes_tables(session: SparkSession, tmp_path: Path) -> None:
    """Half a batch waits for its other half; damage is a finding; a new stream goes on where the last one was."""
    folder, out = tmp_path / "log", tmp_path / "out"
    scene = Scene().group(static_members(a=1, b=1), 1).commit(5).commit(6)
    whole = scene.batches[-1]
    scene.batches[-1] = whole[:40]
    scene.write(folder)
    caught_up(session, folder, out)
    assert (offsets(out, "batches"), offsets(out, "offsets"), offsets(out, "members")) == ([0, 1], [1], [0, 0])
    scene.batches[-1] = whole
    scene.commit(7).commit(8)
    scene.batches[3] = scene.batches[3][:-1] + b"\7"
    scene.write(folder)
    caught_up(session, folder, out)
    assert (offsets(out, "batches"), offsets(out, "offsets")) == ([0, 1, 2, 3, 4], [1, 2, 4])
    findings = pq.read_table(out / "findings.parquet")
    assert findings.column("check").to_pylist() == ["bad_checksum"]
    assert findings.column("offset").to_pylist() == [3]
