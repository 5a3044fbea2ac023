"""A growing log becomes parquet with each row once, and its result is that of the whole log, over restarts.

tests/audit/test_following.py tests every look and every kind of crash without Spark.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from coordinator.audit.audit import NothingRead
from coordinator.audit.check.limits import Limits
from coordinator.audit.read.tables import SCHEMAS
from coordinator.audit.show.summary import SUMMARY_FILE, write_summary
from coordinator.audit.spark.follow import follow
from tests.audit.audited import audited
from tests.audit.scenes import Scene, group_on, static_members
from tests.audit.spark.conftest import LEFT_OPEN

pytestmark = [pytest.mark.spark, LEFT_OPEN]

WITHIN_S = 240


def caught_up(session: SparkSession, folder: Path, out: Path) -> None:
    """Let the stream read the log to its end."""
    query = follow(session, folder, out, Limits(), until_caught_up=True)
    assert query.awaitTermination(WITHIN_S)
    assert query.exception() is None


def offsets(out: Path, table: str) -> list[int]:
    """Return the offsets in a table, in order."""
    column = "offset" if "offset" in SCHEMAS[table].names else "base_offset"
    return sorted(pq.read_table(out / "tables" / f"{table}.parquet", columns=[column]).column(0).to_pylist())


def found(out: Path) -> list[tuple[str, int]]:
    """Return check and offset of all findings."""
    table = pq.read_table(out / "findings.parquet", columns=["check", "offset"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_growing_log_becomes_tables(session: SparkSession, tmp_path: Path) -> None:
    """A half written batch waits, a new stream continues, and at the end the result is that of an audit."""
    folder, out, alone = tmp_path / "log", tmp_path / "out", tmp_path / "alone"
    other = Scene(2).group(static_members(a=1), 5, group_on(2)).commit(5, group_on(2))
    scene = Scene().group(static_members(a=1, b=1), 4).transacted(5, producer_id=7).commit(6, partition=1)
    whole = scene.batches[-1]
    scene.batches[-1] = whole[:40]
    scene.write(folder)
    other.write(folder)
    caught_up(session, folder, out)
    assert (offsets(out, "batches"), offsets(out, "members")) == ([0, 0, 1, 1], [0, 0, 0])
    assert found(out) == []
    scene.batches[-1] = whole
    scene.end_transaction(7, committed=True).commit(4).group(static_members(a=1), 3).commit(7).commit(8)
    scene.batches[6] = scene.batches[6][:-1] + b"\7"
    scene.write(folder)
    other.commit(4, group_on(2)).write(folder)
    caught_up(session, folder, out)
    assert offsets(out, "offsets") == [1, 1, 2, 2, 4, 7]
    assert found(out) == [("bad_checksum", 6), ("commit_back", 4), ("commit_back", 2), ("generation_falls", 5)]
    write_summary(alone, audited(folder, alone))
    assert pq.read_table(out / "findings.parquet") == pq.read_table(alone / "findings.parquet")
    assert (out / SUMMARY_FILE).read_text() == (alone / SUMMARY_FILE).read_text()
    (out / "checkpoint" / "audit.sqlite").unlink()
    with pytest.raises(NothingRead, match="another --out"):
        caught_up(session, folder, out)
