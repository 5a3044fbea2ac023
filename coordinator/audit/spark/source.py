"""The data source "kafka_group_log": the tables of a log, one task per byte range, in Arrow.

    spark.dataSource.register(GroupLogSource)
    spark.read.format("kafka_group_log").option("table", "members").load("/path/to/data")

Options: `table`, one of READABLE (`batches` if none is named); `split_size`, the bytes of a task; `plan`, a file with
the ranges of that log as they were planned before (coordinator.audit.spark.split). Without one the planner looks at all
batch headers (coordinator.audit.read.logs), so a task begins where a batch does, and an index that is missing or stale
doesn't matter. As a stream it gives what is new since the last look, in whole batches: coordinator.audit.spark.tail.

Files are opened where a task runs: on a cluster, the folder must be there for every executor.

House rule: a task holds one range of RANGE_SIZE at a time, whatever its split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from coordinator.audit.read.logs import Range, plan
from coordinator.audit.read.parse import TABLES
from coordinator.audit.read.tables import columns_of
from coordinator.audit.spark.split import RAW, Split, read_plan, read_split
from coordinator.audit.spark.tail import TailReader

FORMAT = "kafka_group_log"
SPLIT_SIZE = 128 * 1024 * 1024
"""Bytes of a task: some seconds of work."""
READABLE = (*TABLES, RAW)

_TYPES = {"i32": "int", "i64": "bigint", "str": "string", "bytes": "binary", "bool": "boolean"}


def ddl(table: str) -> str:
    """The columns of a table, as Spark writes them."""
    return ", ".join(
        f"`{name}` {_TYPES[kind]}{'' if nullable else ' not null'}" for name, kind, nullable in columns_of(table)
    )


class GroupLogSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """The columns of the table that the options name."""
        return ddl(self._table())

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  the options say it
        """A reader of the log as it is."""
        plan_file = Path(self.options["plan"]) if "plan" in self.options else None
        return GroupLogReader(self._path(), self._table(), int(self.options.get("split_size", SPLIT_SIZE)), plan_file)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  Spark's name
        """A reader of what is new in the log."""
        return TailReader(self._path(), self._table())

    def _path(self) -> Path:
        if "path" not in self.options:
            raise ValueError("kafka_group_log: the folder of the log is missing: .load(PATH)")
        return Path(self.options["path"])

    def _table(self) -> str:
        table: str = self.options.get("table", TABLES[0])
        if table not in READABLE:
            raise ValueError(f"kafka_group_log: no table {table!r}: {', '.join(READABLE)}")
        return table


class GroupLogReader(DataSourceReader):
    """Reads one table of the log in a folder."""

    def __init__(self, path: Path, table: str, split_size: int, plan_file: Path | None = None) -> None:
        self._path = path
        self._table = table
        self._split_size = split_size
        self._plan_file = plan_file

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each `split_size` of the log: a part of a segment, or several. Raises OSError."""
        ranges = plan(self._path).ranges if self._plan_file is None else read_plan(self._plan_file)
        splits: list[InputPartition] = []
        of: list[Range] = []
        size = 0
        for each in ranges:
            if of and size + each.end - each.start > self._split_size:
                splits.append(Split(of))
                of, size = [], 0
            of.append(each)
            size += each.end - each.start
        return [*splits, Split(of)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        assert isinstance(partition, Split)
        return read_split(partition, self._table)
