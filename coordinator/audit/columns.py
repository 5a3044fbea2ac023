"""A byte range as the tables in Arrow."""

from __future__ import annotations

import pyarrow as pa

from coordinator.audit.logs import Range, read_range
from coordinator.audit.parse import parse
from coordinator.audit.tables import all_to_arrow


def read_tables(of: Range) -> dict[str, pa.RecordBatch]:
    """All tables of a range. Raises OSError."""
    window, pieces = read_range(of)
    return all_to_arrow(parse(of, window, pieces))
