"""Follows a log that grows, as a stream into parquet with a checkpoint: its tables and its findings.

One query reads whole batches, and each micro-batch makes all tables of them. The files of a micro-batch are in a folder
named for its number. If Spark repeats the micro-batch, it replaces that folder, so each row is there once. The checks
run in the process of the query, with rows that workers have read (coordinator.audit.following). They keep their state
beside the checkpoint with the number of the micro-batch, so no row reaches them twice.

Each task reads the new rows of one partition and keeps their order.

House rule: a half written batch waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from coordinator.audit.audit import TABLES_FOLDER, NothingRead
from coordinator.audit.check.limits import Limits
from coordinator.audit.following import DIGESTED, Following, Part
from coordinator.audit.read.logs import Piece, Range, look
from coordinator.audit.read.parse import Row, Rows, add_piece, new_rows, parse_batch
from coordinator.audit.read.tables import PUBLISHED, SCHEMAS, to_arrow, to_rows
from coordinator.audit.spark.source import FORMAT, GroupLogSource, ddl
from coordinator.audit.spark.split import RAW

CHECKPOINT_FOLDER = "checkpoint"
STATE_FILE = "audit.sqlite"
SCRATCH_FOLDER = "audit"
INTERVAL = "5 seconds"
DIGEST_TASKS = 8
"""New rows come to this process in so many parts, one after the other; each part is a Spark job."""
DIGEST_DDL = ", ".join(["partition int", *(f"{table} binary" for table in DIGESTED)])


def follow(
    session: SparkSession, path: Path, out: Path, limits: Limits, *, until_caught_up: bool = False
) -> StreamingQuery:
    """Begin to follow the log at `path`, from where the checkpoint below `out` says. Raises NothingRead, or OSError.

    until_caught_up: end at the current end of the log.
    """
    look(path)
    session.dataSource.register(GroupLogSource)
    # Spark asks for the offsets of all partitions in another process, which may run in another folder.
    path, out = path.absolute(), out.absolute()
    stream = session.readStream.format(FORMAT).option("table", RAW).load(str(path))
    checkpoint = out / CHECKPOINT_FOLDER
    state_file = checkpoint / STATE_FILE
    if (checkpoint / "commits").exists() and not state_file.exists():
        raise NothingRead(f"{checkpoint}: it has no {STATE_FILE}, so an earlier Tenure began it: name another --out")
    following = Following(path, state_file, limits)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        for table in PUBLISHED:
            target = out / TABLES_FOLDER / f"{table}.parquet" / f"batch={number}"
            batch.mapInArrow(partial(_rows_of, table), ddl(table)).write.mode("overwrite").parquet(str(target))
        digest = batch.coalesce(DIGEST_TASKS).mapInArrow(_digest, DIGEST_DDL)
        following.take(number, map(_part, digest.toLocalIterator()))
        following.write(out, checkpoint / SCRATCH_FOLDER)
        batch.unpersist()

    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True) if until_caught_up else writer.trigger(processingTime=INTERVAL)
    return writer.start()


def _rows_of(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn rows of RAW into rows of a table."""
    for batch in batches:
        yield to_arrow(table, _parse(to_rows(batch))[table])


def _parse(raw: Iterable[Row]) -> Rows:
    """The rows of all tables."""
    rows = new_rows()
    for partition, segment, position, data, reason, size, kind in raw:
        end = position + size
        of = Range(partition, segment, "", position, end)
        if kind is None:
            parse_batch(rows, of, data, 0, position)
        else:
            add_piece(rows, of, Piece(position, end, reason, kind))
    return rows


def _digest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows for the checks: each has the tables of some batches of one partition, in Arrow's format."""
    for batch in batches:
        for partition, raw in groupby(to_rows(batch), itemgetter(0)):
            rows = _parse(raw)
            tables = {table: [to_arrow(table, rows[table]).serialize().to_pybytes()] for table in DIGESTED}
            yield pa.RecordBatch.from_pydict({"partition": pa.array([partition], pa.int32()), **tables})


def _part(row: Row) -> Part:
    partition, *written = row
    return partition, {
        table: pa.ipc.read_record_batch(pa.py_buffer(bytes(data)), SCHEMAS[table])
        for table, data in zip(DIGESTED, written, strict=True)
    }
