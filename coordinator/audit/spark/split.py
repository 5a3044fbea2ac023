"""What a task of Spark is told, and how it reads.

House rule: importable where a task runs, and small when pickled.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from coordinator.audit.read.columns import read_tables
from coordinator.audit.read.logs import Piece, Range, read_range
from coordinator.audit.read.parse import Row
from coordinator.audit.read.tables import to_arrow

RAW = "raw"
"""A table of whole batches, as their bytes: what a stream carries when all tables are wanted."""


class Split(InputPartition):
    """The ranges of one task, one behind the other."""

    def __init__(self, ranges: list[Range]) -> None:
        self.ranges = ranges


def write_plan(path: Path, ranges: Sequence[Range]) -> Path:
    """Write the ranges of a plan for who reads that log afterwards; returns the file. Raises OSError."""
    path.write_text(json.dumps(ranges), encoding="utf-8")
    return path


def read_plan(path: Path) -> list[Range]:
    """The ranges that `write_plan` was given. Raises OSError."""
    found = []
    for values in json.loads(path.read_text(encoding="utf-8")):
        range_ = Range(*values)
        found.append(range_._replace(gaps=tuple(Piece(*gap) for gap in range_.gaps)))
    return found


def read_split(split: Split, table: str) -> Iterator[pa.RecordBatch]:
    """The rows of a task, a range at a time; one batch at least. Raises OSError."""
    yield to_arrow(table, [])
    for of in split.ranges:
        parts = [to_arrow(RAW, raw_rows(of))] if table == RAW else (each[table] for each in read_tables(of, [table]))
        yield from (part for part in parts if part.num_rows)
    spare_the_next_task()


def spare_the_next_task() -> None:
    """Let go of what Spark does between two tasks of a process, which takes as long as 20 MB of a log.

    It has each importer of a zip file read its directory anew, those of its own 17 times; one that is needed again is
    made again. And it collects garbage: what was imported by the end of the first task is none.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
    if not gc.get_freeze_count():
        gc.freeze()


def raw_rows(of: Range) -> list[Row]:
    """The pieces of a range; `kind` is None for a batch, and what is none comes without its bytes. Raises OSError."""
    window, pieces = read_range(of)
    return [
        (
            of.partition,
            of.segment,
            piece.position,
            window.data[piece.position - window.at : piece.end - window.at] if piece.kind is None else b"",
            piece.reason,
            piece.end - piece.position,
            piece.kind,
        )
        for piece in pieces
    ]
