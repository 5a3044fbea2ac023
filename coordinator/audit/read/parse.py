"""A byte range of a log as rows of the tables, record by record: the reference for every faster way.

The decoders are those of the coordinator: protocol.record_batch for batches, protocol.messages for keys and values, and
the versions are those of group.records. What members told each other (subscription, assignment) is read for groups of
consumers alone, as only these agree on a form.

A row of `records` is a record that a coordinator of the classic protocol knows, as its bytes: what the checks on groups
are fed with, and what Spark sends from process to process. The other tables are its fields. Everything else is a row in
`other`: bytes that are no batch, batches with a wrong CRC, records that can't be read, and those of other kinds. The
record that a group of a newer protocol has is in both: whether a group of that name is deleted depends on it.

House rule: no bytes raise, and nothing is believed before its CRC was checked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

from coordinator.audit.read.logs import RECORDS_MAX, ROOM, Piece, Range, Window
from coordinator.group.group import CONSUMER
from coordinator.group.records import (
    GROUP_KEY_VERSION,
    GROUP_VALUE_VERSIONS,
    NEWER_KINDS,
    OFFSET_KEY_VERSION,
    OFFSET_VALUE_VERSIONS,
)
from coordinator.log.transactions import COMMIT, marker_type
from protocol.checksum import Buffer
from protocol.consumer import decode_told
from protocol.errors import ProtocolError
from protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    decode_from,
)
from protocol.primitives import decode_uvarint
from protocol.record_batch import Codec, CorruptBatch, Header, Record, check_crc, decode_records, peek_header

OFFSET_KIND = "offset_commit"
GROUP_KIND = "group_metadata"
MARKER_KIND = "transaction_marker"
UNKNOWN_KIND = "unknown"
UNREADABLE_KIND = "unreadable"
UNREADABLE_BATCH_KIND = "unreadable_batch"
BAD_CHECKSUM_KIND = "bad_checksum"
NO_BATCH_KIND = "no_batch"
TORN_TAIL_KIND = "torn_tail"
ROOM_KIND = "room"

NOT_RECORDS = frozenset({UNREADABLE_BATCH_KIND, BAD_CHECKSUM_KIND, NO_BATCH_KIND, TORN_TAIL_KIND, ROOM_KIND})
"""Kinds in `other` that are bytes and no record."""

RECORD_KINDS = frozenset({OFFSET_KIND, GROUP_KIND})
"""Kinds of `records` that aren't in `other` as well."""
NEWER_GROUPS = {
    "consumer_group_metadata": "consumer",
    "share_group_metadata": "share",
    "streams_group_metadata": "streams",
}
"""Kind of the record that a group of a newer protocol has -> its group type, as Kafka says (KIP-848, -932, -1071)."""

CODEC_NAMES = (*(codec.name.lower() for codec in Codec), "5", "6", "7")

TABLES = ("batches", "records", "offsets", "groups", "members", "assignments", "other")
CACHE_SIZE = 20_000
CACHED_SIZE_MAX = 1_000
"""Keys, subscriptions and assignments that are remembered decoded, and bytes of one: they come again and again."""

MEMBERS_MAX = 250_000
PARTITIONS_MAX = 1_000_000
"""Members of a group, and topic partitions that they are assigned, in one record.

Kafka's own bounds are beyond all use: group.max.size is 2^31 - 1 if nobody sets it, and a group is one record, of 1 MB
at most if nobody sets message.max.bytes. A member takes 60 bytes and more there, for a coordinator makes its id with a
UUID, and has a connection to the group's only broker. So no record of a group comes near; but a few compressed bytes,
or those of a fuzzer, hold many millions of members without a name.
"""
MEMBER_ROWS = 50_000
"""Rows of members and assignments that are held at a time, about: those of one record at least."""
_MEMBER_SIZE_MIN = 15
"""Bytes of a member in any version, at least."""
TOLD_SIZE_MAX = 4 * PARTITIONS_MAX
"""Bytes of what one member told that are looked into: a topic partition takes 4."""


class Subscription(NamedTuple):
    """What a consumer says when it joins: the topics that it wants, and those of which it owns partitions (KIP-429)."""

    topics: tuple[str, ...] = ()
    owned_topics: tuple[str, ...] = ()


Row = tuple[Any, ...]
Rows = dict[str, list[Row]]

Read = TypeVar("Read")

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


class Key(NamedTuple):
    """What a record is about; topic and partition of a committed offset.

    kind: of the constants above, or of NEWER_KINDS. reason: why it can't be read, None if it can.
    """

    kind: str
    version: int | None
    group_id: str | None = None
    topic: str | None = None
    topic_partition: int | None = None
    reason: str | None = None


def new_rows() -> Rows:
    """No rows, of every table."""
    return {table: [] for table in TABLES}


def parse(range_: Range, window: Window, pieces: list[Piece]) -> Rows:
    """The rows of a range, in the order of the log."""
    rows = new_rows()
    for piece in pieces:
        if piece.reason is None:
            at = window.index(piece.position, piece.end - piece.position)
            parse_batch(rows, range_, window.data, at, piece.position)
        else:
            add_piece(rows, range_, piece)
    return rows


def add_piece(rows: Rows, range_: Range, piece: Piece) -> None:
    """Add the row of bytes that are no batch."""
    assert piece.reason is not None
    at_end = range_.is_tail and piece.end == range_.end
    kind = ROOM_KIND if piece.reason == ROOM else TORN_TAIL_KIND if at_end else NO_BATCH_KIND
    _other(rows, range_, piece.position, kind, size=piece.end - piece.position, reason=piece.reason)


def parse_batch(rows: Rows, range_: Range, data: Buffer, at: int, position: int) -> None:
    """Add the rows of a batch at `at` of `data`, whose header makes sense."""
    for part in batch_parts(range_, data, at, position):
        for table, of_table in part.items():
            rows[table] += of_table


def batch_parts(range_: Range, data: Buffer, at: int, position: int) -> Iterator[Rows]:
    """The rows of a batch, some at a time: many groups of many members take a thousand times its bytes."""
    rows = new_rows()
    header = peek_header(data, at)
    try:
        check_crc(data, at, header)
    except CorruptBatch as error:
        rows["batches"].append(batch_row(range_, position, header, crc_ok=False))
        _other(rows, range_, position, BAD_CHECKSUM_KIND, header.base_offset, size=header.size, reason=error.reason)
        yield rows
        return
    rows["batches"].append(batch_row(range_, position, header, crc_ok=True))
    try:
        if header.record_count > RECORDS_MAX:
            raise CorruptBatch(at, f"{header.record_count} records, {RECORDS_MAX} allowed")
        with memoryview(data) as view:  # so that what is behind the batch isn't looked at, whatever its lengths say
            batch = decode_records(view, at, header)
    except CorruptBatch as error:
        _other(rows, range_, position, UNREADABLE_BATCH_KIND, header.base_offset, size=header.size, reason=error.reason)
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
    """A row of `batches`. What the header says is not to be believed where the CRC is wrong."""
    return (
        range_.partition, range_.segment, position, header.size, header.base_offset, header.next_offset - 1,
        header.attributes, CODEC_NAMES[header.attributes & 0x07], header.producer_id, header.partition_leader_epoch,
        header.max_timestamp_ms, header.crc, crc_ok, header.producer_epoch, header.record_count,
    )  # fmt: skip


def parse_record(partition: int, offset: int, record: Record, producer_id: int | None = None) -> Rows:
    """The rows of a single record, where it isn't known which batch it was in."""
    rows = new_rows()
    _add(rows, Range(partition, -1, "", 0, 0, is_tail=False), None, offset, record, producer_id)
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
            reason = f"value: {error}"
        else:
            _add_record(rows, range_, position, offset, record, producer_id, key)
            return
    elif key.kind in NEWER_GROUPS and key.group_id is not None:
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
    """The end of a transaction; its key has a version, too (Kafka: ControlRecordType)."""
    kind, version = MARKER_KIND, None
    try:
        marker = marker_type(record.key)
        version = _int16.unpack_from(record.key)[0]
        reason = {None: "another control record", COMMIT: "commit"}.get(marker, "abort")
    except ValueError as error:
        kind, reason = UNREADABLE_KIND, str(error)
    size = len(record.key) + len(record.value or b"")
    rows["other"].append((
        range_.partition, range_.segment, position, offset, record.timestamp_ms, kind, version, None, size, reason
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
    is_consumer = value.protocol_type == CONSUMER
    assigned = [(read_assignment(member.assignment) if is_consumer else None) or () for member in value.members]
    count = sum(len(partitions) for of_member in assigned for _, partitions in of_member)
    if count > PARTITIONS_MAX:
        raise ProtocolError(f"{count} topic partitions assigned, {PARTITIONS_MAX} allowed")
    state_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
    rows["groups"].append((
        *head, value.protocol_type, value.generation, value.protocol, value.leader, state_ms, len(value.members),
        False, version,
    ))  # fmt: skip
    of_member = (partition, offset, key.group_id, value.generation)
    for member, topics in zip(value.members, assigned, strict=True):
        rebalance_ms = None if version == 0 else member.rebalance_timeout
        rows["members"].append((
            *of_member, member.member_id, member.group_instance_id, member.client_id, member.client_host, rebalance_ms,
            member.session_timeout, member.subscription, member.assignment,
        ))  # fmt: skip
        for topic, partitions in topics:
            rows["assignments"].extend(
                (*of_member, member.member_id, member.group_instance_id, topic, each) for each in partitions
            )


def _remembering(read: Callable[[bytes], Read]) -> Callable[[bytes], Read]:
    """Remember what is read of few bytes: what is remembered has no end in bytes otherwise."""
    remembering = lru_cache(CACHE_SIZE)(read)

    @wraps(read)
    def reading(data: bytes) -> Read:
        return remembering(data) if len(data) <= CACHED_SIZE_MAX else read(data)

    return reading


@_remembering
def read_key(data: bytes) -> Key:
    """What a record's key says."""
    if len(data) < _int16.size:
        return Key(UNREADABLE_KIND, None, reason=f"a key of {len(data)} bytes")
    version: int = _int16.unpack_from(data)[0]
    try:
        if 0 <= version <= OFFSET_KEY_VERSION:
            offset = decode(OffsetCommitKey, data, version, _int16.size)
            return Key(OFFSET_KIND, version, offset.group, offset.topic, offset.partition)
        if version == GROUP_KEY_VERSION:
            return Key(GROUP_KIND, version, decode(GroupMetadataKey, data, version, _int16.size).group)
    except ProtocolError as error:
        return Key(UNREADABLE_KIND, version, reason=f"key: {error}")
    if version not in NEWER_KINDS:
        return Key(UNKNOWN_KIND, version)
    try:
        # All keys of the newer protocols begin with the group's id.
        group_id = decode_from(GroupMetadataKey, data, GROUP_KEY_VERSION, _int16.size)[0].group
    except ProtocolError:
        group_id = None
    return Key(NEWER_KINDS[version], version, group_id)


def read_offset(data: bytes) -> tuple[int, OffsetCommitValue]:
    """Version and fields of a committed offset's value. Raises ProtocolError."""
    version = _version(data, OFFSET_VALUE_VERSIONS)
    return version, decode(OffsetCommitValue, data, version, _int16.size)


def read_group(data: bytes) -> tuple[int, GroupMetadataValue]:
    """Version and fields of a group's value. Raises ProtocolError."""
    version = _version(data, GROUP_VALUE_VERSIONS)
    if len(data) > MEMBERS_MAX * _MEMBER_SIZE_MIN:
        count = _member_count(data, version)
        if count > MEMBERS_MAX:
            raise ProtocolError(f"{count} members, {MEMBERS_MAX} allowed")
    return version, decode(GroupMetadataValue, data, version, _int16.size)


def _member_count(data: bytes, version: int) -> int:
    """How many members a group's value says that it has: none is decoded. 0 where even that can't be read."""
    is_flexible = version >= 4

    def size_at(at: int) -> tuple[int, int]:
        if is_flexible:
            size, at = decode_uvarint(data, at)
            return max(size - 1, 0), at
        return max(_int16.unpack_from(data, at)[0], 0), at + _int16.size

    try:
        size, at = size_at(_int16.size)  # the protocol type
        at += size + 4  # the generation
        for _ in ("protocol", "leader"):
            size, at = size_at(at)
            at += size
        if version >= 2:
            at += 8  # when the group came into its state
        count: int = size_at(at)[0] if is_flexible else _int32.unpack_from(data, at)[0]
    except (ProtocolError, IndexError, struct.error):
        return 0
    return count


def _version(data: bytes, known: range) -> int:
    if len(data) < _int16.size:
        raise ProtocolError(f"{len(data)} bytes, a version takes {_int16.size}")
    version: int = _int16.unpack_from(data)[0]
    if version not in known:
        raise ProtocolError(f"unknown version {version}")
    return version


@_remembering
def read_subscription(data: bytes) -> Subscription | None:
    """What a consumer said; nothing where there are no bytes, None where they can't be read, or are too many."""
    if not data:
        return Subscription()
    if len(data) > TOLD_SIZE_MAX:
        return None
    try:
        told = decode_told(ConsumerProtocolSubscription, data)[1]
    except ProtocolError:
        return None
    return Subscription(tuple(told.topics), tuple(each.topic for each in told.owned_partitions if each.partitions))


@_remembering
def read_assignment(data: bytes) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    """Topic and partitions that a consumer was assigned; () where no bytes are, None as of `read_subscription`."""
    if not data:
        return ()
    if len(data) > TOLD_SIZE_MAX:
        return None
    try:
        read = decode_told(ConsumerProtocolAssignment, data)[1]
    except ProtocolError:
        return None
    return tuple((each.topic, tuple(each.partitions)) for each in read.assigned_partitions)
