"""A log that grows, as a stream into parquet, with a checkpoint: its tables, and what an audit would find by now.

One query reads whole batches; each micro-batch makes all tables of them. Its files lie in a folder of its number, which
is written anew if it comes again, so that each row is there once whatever happened in between. The checks are fed here,
where the query runs, with rows that workers have read (coordinator.audit.following); they keep what they know beside
the checkpoint, with the micro-batch's number, and are told nothing twice.

Each task reads what is new in one partition, and its rows stay in their order.

House rule: what is half written waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
"""Parts in which what is new comes here, one after the other: each is a job of Spark's."""
DIGEST_DDL = ", ".join(["partition int", *(f"{table} binary" for table in DIGESTED)])


def follow(
    session: SparkSession, path: Path, out: Path, limits: Limits, *, until_caught_up: bool = False
) -> StreamingQuery:
    """Begin to follow the log at `path`, from where the checkpoint below `out` says. Raises NothingRead, or OSError.

    until_caught_up: end when all that is there was read.
    """
    look(path)
    session.dataSource.register(GroupLogSource)
    # The offsets of all partitions are asked for in another process: it must find the folder wherever it runs.
    path, out = path.absolute(), out.absolute()
    stream = session.readStream.format(FORMAT).option("table", RAW).load(str(path))
    checkpoint = out / CHECKPOINT_FOLDER
    state_file = checkpoint / STATE_FILE
    if (checkpoint / "commits").exists() and not state_file.exists():
        raise NothingRead(f"{checkpoint}: it has no {STATE_FILE}, so it was begun by an earlier Tenure: another --out")
    following = Following(path, state_file, limits)

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        for table in PUBLISHED:
            target = out / TABLES_FOLDER / f"{table}.parquet" / f"batch={number}"
            batch.mapInArrow(_Parser(table), ddl(table)).write.mode("overwrite").parquet(str(target))
        digest = batch.coalesce(DIGEST_TASKS).mapInArrow(_digest, DIGEST_DDL)
        following.take(number, map(_part, digest.toLocalIterator()))
        following.write(out, checkpoint / SCRATCH_FOLDER)
        batch.unpersist()

    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True) if until_caught_up else writer.trigger(processingTime=INTERVAL)
    return writer.start()


class _Parser:
    """Makes the rows of a table out of those of RAW."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parse them, one by one."""
        for batch in batches:
            yield to_arrow(self._table, _parse(to_rows(batch))[self._table])


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
    """What the checks are fed with: in each row the tables of some batches of one partition, as Arrow writes them."""
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
