"""The part of a log that one task of Spark reads, and how the task reads it.

House rule: a task can import this module, and a `Split` is small when pickled.
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
"""A table of whole batches, as their bytes: a stream reads it to make all tables."""


class Split(InputPartition):
    """The ranges of one task, one behind the other."""

    def __init__(self, ranges: list[Range]) -> None:
        self.ranges = ranges


def write_plan(path: Path, ranges: Sequence[Range]) -> Path:
    """Write the ranges of a plan for later readers of that log; returns the file. Raises OSError."""
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
    """Skip Spark's cleaning between two tasks of a process, which takes as long as 20 MB of a log.

    Spark makes each importer of a zip file read its directory anew, the importers of its
    own zip files 17 times. This function drops the importers, and Python makes them again when needed. Spark also
    collects garbage: this function excludes the modules that the first task imported.
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
    if not gc.get_freeze_count():
        gc.freeze()


def raw_rows(of: Range) -> list[Row]:
    """The pieces of a range; `kind` is None for a batch, other pieces come without their bytes. Raises OSError."""
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
