"""Reads a byte range of a log into rows of the tables, one record at a time: the reference for columns.py.

A row of `records` has the bytes of a record that a coordinator loads. The checks on groups take these rows, and Spark
sends them from process to process. `offsets`, `groups`, `members` and `assignments` have the fields of the records of
the classic protocol, and of committed offsets.

All else is a row of `other`: bytes that are no batch, batches with a wrong CRC, unreadable records, and records of
other kinds. Records of groups of the consumer protocol are in `records` and in `other`, and so is the record of a share
or streams group, as it shows whether a group of that name is deleted. A damaged record of such groups is unreadable.

House rule: no bytes raise, and nothing is believed before its CRC was checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.audit.read.batches import (
    BAD_CHECKSUM_KIND,
    MARKER_KIND,
    UNREADABLE_BATCH_KIND,
    read_batch,
    read_marker,
)
from coordinator.audit.read.logs import (
    NO_BATCH_KIND,
    OLD_FORMAT_KIND,
    ROOM_KIND,
    TORN_TAIL_KIND,
    Piece,
    Range,
)
from coordinator.story.records.consumer import CONSUMER_VERSIONS, READ_VERSIONS, read_consumer_value
from coordinator.story.records.values import (
    NEWER_GROUPS,
    OFFSET_KIND,
    RECORD_KINDS,
    UNREADABLE_KIND,
    Key,
    assignments,
    read_group,
    read_key,
    read_offset,
)
from protocol.checksum import Buffer
from protocol.errors import ProtocolError
from protocol.records.batch import Header, Record
from protocol.records.codecs import Codec

NOT_RECORDS = frozenset(
    {UNREADABLE_BATCH_KIND, BAD_CHECKSUM_KIND, NO_BATCH_KIND, TORN_TAIL_KIND, ROOM_KIND, OLD_FORMAT_KIND}
)
"""Kinds in `other` that are no record. All kinds of records but RECORD_KINDS are in `other` too."""

CODEC_NAMES = (*(codec.name.lower() for codec in Codec), "5", "6", "7")

TABLES = ("batches", "records", "offsets", "groups", "members", "assignments", "other")

MEMBER_ROWS = 50_000
"""Rows of members and assignments, about, that are held at a time: at least those of one record."""

Row = tuple[Any, ...]
Rows = dict[str, list[Row]]


def new_rows() -> Rows:
    """Every table without rows."""
    return {table: [] for table in TABLES}


def add_piece(rows: Rows, range_: Range, piece: Piece) -> None:
    """Add the row of a gap."""
    assert piece.kind is not None
    assert piece.reason is not None
    _other(rows, range_, piece.position, piece.kind, size=piece.end - piece.position, reason=piece.reason)


def parse_batch(rows: Rows, range_: Range, data: Buffer, at: int, position: int) -> None:
    """Add the rows of the batch at `at` of `data`; its header makes sense."""
    for part in batch_parts(range_, data, at, position):
        for table, of_table in part.items():
            rows[table] += of_table


def batch_parts(range_: Range, data: Buffer, at: int, position: int) -> Iterator[Rows]:
    """The rows of a batch, some at a time: rows of large groups may take a thousand times the bytes of the batch."""
    rows = new_rows()
    header, batch, kind, reason = read_batch(data, at)
    rows["batches"].append(batch_row(range_, position, header, crc_ok=kind != BAD_CHECKSUM_KIND))
    if batch is None:
        assert kind is not None
        assert reason is not None
        _other(rows, range_, position, kind, header.base_offset, size=header.size, reason=reason)
        yield rows
        return
    producer_id = header.producer_id if header.is_transactional else None
    for offset, record in zip(batch.offsets, batch.records, strict=True):
        if header.is_control:
            _add_marker(rows, range_, position, offset, record)
        else:
            _add(rows, range_, position, offset, record, producer_id)
        if len(rows["members"]) + len(rows["assignments"]) > MEMBER_ROWS:
            yield rows
            rows = new_rows()
    yield rows


def batch_row(range_: Range, position: int, header: Header, *, crc_ok: bool) -> Row:
    """A row of `batches`. If the CRC is wrong, no other field can be trusted."""
    return (
        range_.partition, range_.segment, position, header.size, header.base_offset, header.next_offset - 1,
        header.attributes, CODEC_NAMES[header.attributes & 0x07], header.producer_id, header.partition_leader_epoch,
        header.max_timestamp_ms, header.crc, crc_ok, header.producer_epoch, header.record_count,
    )  # fmt: skip


def parse_record(partition: int, offset: int, record: Record, producer_id: int | None = None) -> Rows:
    """The rows of a single record whose batch isn't known."""
    rows = new_rows()
    _add(rows, Range(partition, -1, "", 0, 0), None, offset, record, producer_id)
    return rows


def _add(rows: Rows, range_: Range, position: int | None, offset: int, record: Record, producer_id: int | None) -> None:
    key = read_key(record.key)
    reason = key.reason
    if key.kind in RECORD_KINDS:
        try:
            if key.kind == OFFSET_KIND:
                _add_offset(rows, range_.partition, offset, record, key)
            else:
                _add_group(rows, range_.partition, offset, record, key)
        except ProtocolError as error:
            key = key._replace(kind=UNREADABLE_KIND)
            reason = str(error)
        else:
            _add_record(rows, range_, position, offset, record, producer_id, key)
            return
    elif key.kind in READ_VERSIONS and record.value is not None:
        try:
            read_consumer_value(record.value, READ_VERSIONS[key.kind])
        except ProtocolError as error:
            key = key._replace(kind=UNREADABLE_KIND)
            reason = str(error)
    if key.kind in CONSUMER_VERSIONS or key.kind in NEWER_GROUPS:
        _add_record(rows, range_, position, offset, record, producer_id, key)
    size = len(record.key) + len(record.value or b"")
    rows["other"].append((
        range_.partition, range_.segment, position, offset, record.timestamp_ms, key.kind, key.version, key.group_id,
        size, reason,
    ))  # fmt: skip


def _add_record(
    rows: Rows, range_: Range, position: int | None, offset: int, record: Record, producer_id: int | None, key: Key
) -> None:
    rows["records"].append((
        range_.partition, offset, record.timestamp_ms, key.kind, key.group_id, record.key, record.value, producer_id,
        range_.segment, position,
    ))  # fmt: skip


def _other(
    rows: Rows, range_: Range, position: int, kind: str, offset: int | None = None, *, size: int, reason: str
) -> None:
    rows["other"].append((range_.partition, range_.segment, position, offset, None, kind, None, None, size, reason))


def _add_marker(rows: Rows, range_: Range, position: int, offset: int, record: Record) -> None:
    marker = read_marker(record)
    kind = UNREADABLE_KIND if marker.ends is None else MARKER_KIND
    reason = marker.reason or ("commit" if marker.ends else "abort")
    size = len(record.key) + len(record.value or b"")
    rows["other"].append((
        range_.partition, range_.segment, position, offset, record.timestamp_ms, kind, marker.version, None, size,
        reason,
    ))  # fmt: skip


def _add_offset(rows: Rows, partition: int, offset: int, record: Record, key: Key) -> None:
    head = (partition, offset, record.timestamp_ms, key.group_id, key.topic, key.topic_partition)
    if record.value is None:
        rows["offsets"].append((*head, None, None, None, None, None, True, None))
        return
    version, value = read_offset(record.value)
    expire_ms = None if value.expire_timestamp == -1 else value.expire_timestamp
    rows["offsets"].append((
        *head, value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, expire_ms, False, version
    ))  # fmt: skip


def _add_group(rows: Rows, partition: int, offset: int, record: Record, key: Key) -> None:
    head = (partition, offset, record.timestamp_ms, key.group_id)
    if record.value is None:
        rows["groups"].append((*head, None, None, None, None, None, None, True, None))
        return
    version, value = read_group(record.value)
    state_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
    rows["groups"].append((
        *head, value.protocol_type, value.generation, value.protocol, value.leader, state_ms, len(value.members),
        False, version,
    ))  # fmt: skip
    of_member = (partition, offset, key.group_id, value.generation)
    for member, topics in zip(value.members, assignments(value), strict=True):
        rebalance_ms = None if version == 0 else member.rebalance_timeout
        rows["members"].append((
            *of_member, member.member_id, member.group_instance_id, member.client_id, member.client_host, rebalance_ms,
            member.session_timeout, member.subscription, member.assignment,
        ))  # fmt: skip
        for topic, partitions in topics:
            rows["assignments"].extend(
                (*of_member, member.member_id, member.group_instance_id, topic, each) for each in partitions
            )
