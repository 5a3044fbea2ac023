"""The schema files of the records."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import schemas.records
from protocol.definition import define
from schemas.records import RECORDS

FOLDER = Path(schemas.records.__file__).parent
VERSIONS = {
    "ConsumerProtocolAssignment": (0, 3),
    "ConsumerProtocolSubscription": (0, 3),
    "ConsumerGroupMetadataKey": (3, 3),
    "ConsumerGroupMetadataValue": (0, 0),
    "ConsumerGroupPartitionMetadataKey": (4, 4),
    "ConsumerGroupPartitionMetadataValue": (0, 0),
    "ConsumerGroupMemberMetadataKey": (5, 5),
    "ConsumerGroupMemberMetadataValue": (0, 0),
    "ConsumerGroupTargetAssignmentMetadataKey": (6, 6),
    "ConsumerGroupTargetAssignmentMetadataValue": (0, 0),
    "ConsumerGroupTargetAssignmentMemberKey": (7, 7),
    "ConsumerGroupTargetAssignmentMemberValue": (0, 0),
    "ConsumerGroupCurrentMemberAssignmentKey": (8, 8),
    "ConsumerGroupCurrentMemberAssignmentValue": (0, 0),
    "ConsumerGroupRegularExpressionKey": (16, 16),
    "ConsumerGroupRegularExpressionValue": (0, 0),
    "ShareGroupMetadataValue": (0, 0),
    "ShareGroupMemberMetadataValue": (0, 0),
    "ShareGroupCurrentMemberAssignmentValue": (0, 0),
    "ShareGroupStatePartitionMetadataValue": (0, 0),
    "StreamsGroupMetadataValue": (0, 0),
    "StreamsGroupMemberMetadataValue": (0, 0),
    "StreamsGroupTargetAssignmentMemberValue": (0, 0),
    "StreamsGroupCurrentMemberAssignmentValue": (0, 0),
    "StreamsGroupTopologyValue": (0, 0),
    "GroupMetadataKey": (2, 2),
    "GroupMetadataValue": (0, 4),
    "OffsetCommitKey": (0, 1),
    "OffsetCommitValue": (0, 4),
    "TransactionLogKey": (0, 0),
    "TransactionLogValue": (0, 1),
}
"""The records and versions that can be read. This copy is here on purpose: old logs on disk have these versions."""


def test_each_record_is_where_the_index_says() -> None:
    """The index and the folder have the same records."""
    assert set(RECORDS) == set(VERSIONS)
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", *RECORDS.values()}
    for file in set(RECORDS.values()):
        in_file = import_module(f"schemas.records.{file}").RECORDS
        assert set(in_file) == {record for record, other in RECORDS.items() if other == file}


@pytest.mark.parametrize("record", RECORDS)
def test_record(record: str) -> None:
    """Each record has all versions that Kafka has written, and its table follows the rules of definitions."""
    versions, flexible, table = import_module(f"schemas.records.{RECORDS[record]}").RECORDS[record]
    assert versions == VERSIONS[record]
    define(record, table, versions, flexible)


@pytest.mark.parametrize("record", RECORDS)
def test_changes_tell_what_the_tables_show(record: str) -> None:
    """The remark on a version names each field that the version adds or drops."""
    schema = import_module(f"schemas.records.{RECORDS[record]}")
    (first, last), flexible, table = schema.RECORDS[record]
    fields = [*define(record, table, (first, last), flexible).struct.fields]
    for field in fields:
        fields += field.struct.fields if field.struct is not None else ()
    for version in range(first + 1, last + 1):
        changed = {field.name for field in fields if (version in field.versions) != (version - 1 in field.versions)}
        parents = {field.name: field for field in fields if field.struct is not None}
        inside = {
            nested.name
            for name in changed & set(parents)
            for nested in parents[name].struct.fields  # type: ignore[union-attr]
        }
        named = set(re.findall(r"`(\w+)`", schema.CHANGES.get(record, {}).get(version, "")))
        assert changed - inside <= named, f"{record} v{version}"
