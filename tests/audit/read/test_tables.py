"""Rows become Arrow tables and come back; a value that fits into no column raises nothing."""

from __future__ import annotations

from coordinator.audit.read.parse import TABLES, new_rows, parse_record
from coordinator.audit.read.tables import PUBLISHED, SCHEMAS, to_arrow, to_rows
from protocol.records.batch import Record
from tests.audit.reference import all_to_arrow
from tests.audit.scenes import GROUP, START_MS, group_key, group_value, static_members


def test_every_table_has_columns() -> None:
    """Every table has columns: the parser's tables, the batches and the findings."""
    assert set(SCHEMAS) == {*TABLES, "raw", "findings"}
    assert set(PUBLISHED) == {*TABLES} - {"records"}


def test_rows_come_back() -> None:
    """Rows that become Arrow come back with all their types."""
    rows = parse_record(0, 7, Record(group_key(GROUP), group_value(static_members(a=1, b=1), 4), START_MS))
    assert {table: to_rows(batch) for table, batch in all_to_arrow(rows).items()} == rows


def test_no_rows_have_columns_too() -> None:
    """A table without rows has its columns."""
    assert {table: batch.schema for table, batch in all_to_arrow(new_rows()).items()} == {
        table: SCHEMAS[table] for table in TABLES
    }


def test_number_beyond_a_column_is_its_largest() -> None:
    """An integer beyond its column's type becomes the largest value of the column."""
    row = (0, 2**80, -(2**80), "group_metadata", GROUP, b"", None, None, 0, 0)
    assert to_rows(to_arrow("records", [row])) == [(0, 2**63 - 1, -(2**63), *row[3:])]
