"""What a task of Spark is told, and how it reads.

House rule: importable where a task runs, and small when pickled.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from coordinator.audit.columns import read_tables
from coordinator.audit.logs import Range, read_range
from coordinator.audit.parse import Row
from coordinator.audit.tables import to_arrow

RAW = "raw"
"""A table of whole batches, as their bytes: what a stream carries when all tables are wanted."""


class Split(InputPartition):
    """The ranges of one task, one behind the other."""

    def __init__(self, ranges: list[Range]) -> None:
        self.ranges = ranges


def read_split(split: Split, table: str) -> Iterator[pa.RecordBatch]:
    """The rows of a task, a range at a time; one batch at least. Raises OSError."""
    yield to_arrow(table, [])
    for of in split.ranges:
        parts = [to_arrow(RAW, raw_rows(of))] if table == RAW else (each[table] for each in read_tables(of, [table]))
        yield from (part for part in parts if part.num_rows)


def raw_rows(of: Range) -> list[Row]:
    """The pieces of a range; `reason` is None for a batch, and what is none comes without its bytes. Raises OSError."""
    window, pieces = read_range(of)
    return [
        (
            of.partition,
            of.segment,
            piece.position,
            window.data[piece.position - window.at : piece.end - window.at] if piece.reason is None else b"",
            piece.reason,
            piece.end - piece.position,
        )
        for piece in pieces
    ]
