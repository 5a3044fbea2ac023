"""The rows of a range by the parser alone: the reference for the columns."""

from __future__ import annotations

import pyarrow as pa

from coordinator.audit.read.logs import Range, read_range
from coordinator.audit.read.parse import Rows, add_piece, new_rows, parse_batch
from coordinator.audit.read.tables import to_arrow


def parse(range_: Range) -> Rows:
    """Return the rows of a range, in the order of the log."""
    window, pieces = read_range(range_)
    rows = new_rows()
    for piece in pieces:
        if piece.kind is None:
            at = window.index(piece.position, piece.end - piece.position)
            parse_batch(rows, range_, window.data, at, piece.position)
        else:
            add_piece(rows, range_, piece)
    return rows


def all_to_arrow(rows: Rows) -> dict[str, pa.RecordBatch]:
    """Return all tables of some rows."""
    return {table: to_arrow(table, of_table) for table, of_table in rows.items()}
