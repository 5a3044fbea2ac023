"""A log that grows, as a stream into parquet: tables and what their rows are findings of, with a checkpoint.

One query reads whole batches; each micro-batch makes all tables of them. Its files lie in a folder of its number, which
is written anew if it comes again, so that each row is there once whatever happened in between. The histories of groups
need all of their records: run the audit over the folder for those.

House rule: what is half written waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from coordinator.audit.audit import TABLES_FOLDER
from coordinator.audit.checks import finding_of
from coordinator.audit.logs import Piece, Range, look
from coordinator.audit.parse import add_piece, new_rows, parse_batch
from coordinator.audit.spark.source import FORMAT, GroupLogSource, ddl
from coordinator.audit.spark.split import RAW
from coordinator.audit.tables import PUBLISHED, to_arrow, to_rows

CHECKPOINT_FOLDER = "checkpoint"
FINDINGS_FOLDER = "findings.parquet"
INTERVAL = "5 seconds"


def follow(session: SparkSession, path: Path, out: Path, *, until_caught_up: bool = False) -> StreamingQuery:
    """Begin to follow the log at `path`, from where the checkpoint below `out` says. Raises OSError.

    until_caught_up: end when all that is there was read.
    """
    look(path)
    session.dataSource.register(GroupLogSource)
    # The offsets of all partitions are asked for in another process: it must find the folder wherever it runs.
    stream = session.readStream.format(FORMAT).option("table", RAW).load(str(path.absolute()))
    out = out.absolute()

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        for table in PUBLISHED:
            target = out / TABLES_FOLDER / f"{table}.parquet" / f"batch={number}"
            batch.mapInArrow(_Parser(table), ddl(table)).write.mode("overwrite").parquet(str(target))
        target = out / FINDINGS_FOLDER / f"batch={number}"
        others = batch.mapInArrow(_Parser("other"), ddl("other"))
        others.mapInArrow(_find, ddl("findings")).write.mode("overwrite").parquet(str(target))
        batch.unpersist()

    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", str(out / CHECKPOINT_FOLDER))
    writer = writer.trigger(availableNow=True) if until_caught_up else writer.trigger(processingTime=INTERVAL)
    return writer.start()


class _Parser:
    """Makes the rows of a table out of those of RAW."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parse them, one by one."""
        for batch in batches:
            rows = new_rows()
            for partition, segment, position, data, reason, size in to_rows(batch):
                end = position + size
                of = Range(partition, segment, "", position, end, is_tail=False)
                if reason is None:
                    parse_batch(rows, of, data, 0, position)
                else:
                    add_piece(rows, of, Piece(position, end, reason))
            yield to_arrow(self._table, rows[self._table])


def _find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = (finding_of(row) for row in to_rows(batch))
        yield to_arrow("findings", [each for each in found if each is not None])
