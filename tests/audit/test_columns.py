"""The tables of a range are the parser's rows."""

from __future__ import annotations

from pathlib import Path

from coordinator.audit.columns import read_tables
from coordinator.audit.logs import plan, read_range
from coordinator.audit.parse import parse
from coordinator.audit.tables import to_rows
from tests.audit.scenes import clean


def test_tables_are_the_rows_of_the_parser(tmp_path: Path) -> None:
    """Every table, in the order of the log."""
    for of in plan(clean().write(tmp_path), range_size=500).ranges:
        tables = {table: to_rows(batch) for table, batch in read_tables(of).items()}
        assert tables == parse(of, *read_range(of))
