"""The columns of the tables, and rows as Arrow.

The parquet files, the Spark data source and the checks depend on these columns; docs/ask-why/audit-files.md lists them.

House rule: parse.py decides what a row holds; this module gives it its types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from coordinator.audit.read.parse import Row

_TYPES = {"i32": pa.int32(), "i64": pa.int64(), "str": pa.string(), "bytes": pa.binary(), "bool": pa.bool_()}

COLUMNS: dict[str, str] = {
    "batches": "partition:i32 segment:i64 position:i64 length:i64 base_offset:i64 last_offset:i64 attrs:i32 codec:str "
    "producer_id:i64 epoch:i32 max_ts:i64 crc_stored:i64 crc_ok:bool producer_epoch:i32 record_count:i32",
    "records": "partition:i32 offset:i64 ts:i64 kind:str group:str key:bytes value:bytes? producer_id:i64? "
    "segment:i64 position:i64?",
    "offsets": "partition:i32 offset:i64 ts:i64 group:str topic:str topic_partition:i32 committed:i64? "
    "leader_epoch:i32? metadata:str? commit_ts:i64? expire_ts:i64? tombstone:bool value_version:i32?",
    "groups": "partition:i32 offset:i64 ts:i64 group:str protocol_type:str? generation:i32? protocol:str? leader:str? "
    "state_ts:i64? n_members:i32? tombstone:bool value_version:i32?",
    "members": "partition:i32 offset:i64 group:str generation:i32 member_id:str group_instance_id:str? client_id:str "
    "client_host:str rebalance_ms:i32? session_ms:i32 subscription:bytes assignment:bytes",
    "assignments": "partition:i32 offset:i64 group:str generation:i32 member_id:str group_instance_id:str? topic:str "
    "topic_partition:i32",
    "other": "partition:i32 segment:i64 position:i64? offset:i64? ts:i64? kind:str key_version:i32? group:str? "
    "size:i64 reason:str?",
    "raw": "partition:i32 segment:i64 position:i64 data:bytes reason:str? size:i64 kind:str?",
    "findings": "check:str severity:str partition:i32 offset:i64? group:str? generation:i32? detail:str",
}
"""Table -> its columns with their types, in order; `?`: a value may be missing. Columns without `?` are faster to read.

Offsets are those of the metadata log, timestamps are ms."""

PUBLISHED = ("batches", "offsets", "groups", "members", "assignments", "other")
"""The tables that `--out` writes."""


def columns_of(table: str) -> list[tuple[str, str, bool]]:
    """Name and type of each column of a table, and whether values may be missing."""
    pairs = (column.split(":") for column in COLUMNS[table].split())
    return [(name, kind.rstrip("?"), kind.endswith("?")) for name, kind in pairs]


def _schema(table: str) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[kind], nullable) for name, kind, nullable in columns_of(table)])


SCHEMAS: dict[str, pa.Schema] = {table: _schema(table) for table in COLUMNS}


def to_arrow(table: str, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows of a table as a record batch."""
    schema = SCHEMAS[table]
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_LEAST, _MOST = -(2**63), 2**63 - 1


def _array(column: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(column, kind)
    except OverflowError:
        # In damaged bytes the sum of a header's and a record's number may need more than 64 bits.
        return pa.array([None if number is None else min(max(number, _LEAST), _MOST) for number in column], kind)


def to_rows(batch: pa.RecordBatch | pa.Table) -> list[Row]:
    """The rows of a record batch."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
