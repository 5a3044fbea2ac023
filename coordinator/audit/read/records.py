"""Reads batches, keys, values and markers, within limits: for the audit, `tenure log verify` and `tenure log dump`.

The decoders are those of the coordinator: protocol.records for batches, protocol.messages for keys and values, and
the versions are those of group.records. Subscriptions and assignments are read in groups of consumers alone, as only
these agree on a form.

Few compressed bytes may unpack to many millions of records, members or partitions. So a count beyond its limit stops
the reading before anything is decoded, and the reason names the limit.

House rule: no bytes raise anything but CorruptBatch and ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import NamedTuple, TypeVar

from coordinator.group.records import (
    GROUP_KEY_VERSION,
    GROUP_VALUE_VERSIONS,
    NEWER_KINDS,
    OFFSET_KEY_VERSION,
    OFFSET_VALUE_VERSIONS,
)
from coordinator.log.segments.transactions import COMMIT, marker_type
from protocol.checksum import Buffer
from protocol.compile import Message
from protocol.consumer import CONSUMER, decode_versioned
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
from protocol.records.batch import CorruptBatch, Header, Record, check_crc, peek_header
from protocol.records.walk import Batch, decode_records

UNREADABLE_BATCH_KIND = "unreadable_batch"
BAD_CHECKSUM_KIND = "bad_checksum"
OFFSET_KIND = "offset_commit"
GROUP_KIND = "group_metadata"
MARKER_KIND = "transaction_marker"
UNKNOWN_KIND = "unknown"
UNREADABLE_KIND = "unreadable"

RECORD_KINDS = frozenset({OFFSET_KIND, GROUP_KIND})
"""Records that a coordinator of the classic protocol loads."""
NEWER_GROUPS = {
    "consumer_group_metadata": "consumer",
    "share_group_metadata": "share",
    "streams_group_metadata": "streams",
}
"""Kind of the record that a group of a newer protocol has -> its group type, as Kafka says (KIP-848, -932, -1071)."""

RECORDS_MAX = 250_000
"""Records of a batch: no message.max.bytes in use has room for more."""
MEMBERS_MAX = 250_000
PARTITIONS_MAX = 1_000_000
"""Members of a group, and topic partitions that they are assigned, in one record.

Kafka's own bounds are beyond all use: group.max.size is 2^31 - 1 if nobody sets it, and a group is one record, of 1 MB
at most if nobody sets message.max.bytes. A member takes 60 bytes and more there, for a coordinator makes its id with a
UUID, and has a connection to the group's only broker. So no record of a group comes near.
"""
TOLD_SIZE_MAX = 4 * PARTITIONS_MAX
"""Bytes of one member's subscription or assignment that are read: a topic partition takes 4."""

CACHE_SIZE = 20_000
CACHED_SIZE_MAX = 1_000
"""Keys, subscriptions and assignments that are remembered decoded, and bytes of one: they come again and again."""

_MEMBER_SIZE_MIN = 15
"""Bytes of a member in any version, at least."""
_PARTITION_SIZE = 4
_MARKER_VALUE_SIZE = 6

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")

Read = TypeVar("Read")
Value = TypeVar("Value", bound=Message)
Assignment = tuple[tuple[str, tuple[int, ...]], ...]
"""Topic and partitions."""


class Key(NamedTuple):
    """The key of a record; topic and partition of a committed offset.

    kind: of the constants above, or of NEWER_KINDS. reason: why it can't be read, None if it can.
    """

    kind: str
    version: int | None
    group_id: str | None = None
    topic: str | None = None
    topic_partition: int | None = None
    reason: str | None = None


class Marker(NamedTuple):
    """The end of a transaction; its key has a version, too (Kafka: ControlRecordType).

    ends: whether the transaction's records count; None if that can't be read, and `reason` says why.
    """

    version: int | None
    ends: bool | None
    reason: str | None = None


class Subscription(NamedTuple):
    """A consumer's wish when it joins: topics, and the topics of which it owns partitions (KIP-429)."""

    topics: tuple[str, ...] = ()
    owned_topics: tuple[str, ...] = ()


class BatchRead(NamedTuple):
    """A batch, read; without its records where these can't be believed: then `kind` and `reason` say why."""

    header: Header
    batch: Batch | None
    kind: str | None = None
    reason: str | None = None


def read_batch(data: Buffer, at: int) -> BatchRead:
    """The batch at `at` of `data`, whose header makes sense and which is all there."""
    header = peek_header(data, at)
    try:
        check_crc(data, at, header)
    except CorruptBatch as error:
        return BatchRead(header, None, BAD_CHECKSUM_KIND, error.reason)
    try:
        return BatchRead(header, unpack(data, at, header))
    except CorruptBatch as error:
        return BatchRead(header, None, UNREADABLE_BATCH_KIND, error.reason)


def unpack(data: Buffer, at: int, header: Header) -> Batch:
    """The records of the batch at `at` of `data`, whose CRC was checked. Raises CorruptBatch, for too many too."""
    if header.record_count > RECORDS_MAX:
        raise CorruptBatch(at, f"{header.record_count} records, {RECORDS_MAX} allowed")
    with memoryview(data) as view:  # so that what is behind the batch isn't looked at, whatever its lengths say
        return decode_records(view, at, header)


def remembering(read: Callable[[bytes], Read]) -> Callable[[bytes], Read]:
    """Remember what is read of few bytes: what is remembered has no end in bytes otherwise."""
    remembered = lru_cache(CACHE_SIZE)(read)

    @wraps(read)
    def reading(data: bytes) -> Read:
        return remembered(data) if len(data) <= CACHED_SIZE_MAX else read(data)

    return reading


# -- keys and values


@remembering
def read_key(data: bytes) -> Key:
    """Read a record's key."""
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
    """Version and fields of a committed offset's value. Raises ProtocolError, with the whole reason as its text."""
    return _value(OffsetCommitValue, data, _version(data, OFFSET_VALUE_VERSIONS))


def read_group(data: bytes) -> tuple[int, GroupMetadataValue]:
    """Version and fields of a group's value. Raises ProtocolError, as `read_offset`."""
    version = _version(data, GROUP_VALUE_VERSIONS)
    if len(data) > MEMBERS_MAX * _MEMBER_SIZE_MIN:
        count = _member_count(data, version)
        if count > MEMBERS_MAX:
            raise ProtocolError(f"value: {count} members, {MEMBERS_MAX} allowed")
    read = _value(GroupMetadataValue, data, version)
    if len(data) > PARTITIONS_MAX * _PARTITION_SIZE:
        count = sum(len(partitions) for of_member in assignments(read[1]) for _, partitions in of_member)
        if count > PARTITIONS_MAX:
            raise ProtocolError(f"value: {count} topic partitions assigned, {PARTITIONS_MAX} allowed")
    return read


def assignments(value: GroupMetadataValue) -> list[Assignment]:
    """The assignment of each member, empty if it can't be read."""
    if value.protocol_type != CONSUMER:
        return [()] * len(value.members)
    return [read_assignment(member.assignment) or () for member in value.members]


def _version(data: bytes, known: range) -> int:
    if len(data) < _int16.size:
        raise ProtocolError(f"a value of {len(data)} bytes")
    version: int = _int16.unpack_from(data)[0]
    if version not in known:
        raise ProtocolError(f"unknown value version {version}")
    return version


def _value(cls: type[Value], data: bytes, version: int) -> tuple[int, Value]:
    try:
        return version, decode(cls, data, version, _int16.size)
    except ProtocolError as error:
        raise ProtocolError(f"value: {error}") from error


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


def read_marker(record: Record) -> Marker:
    """Read a record of a control batch."""
    try:
        ends = marker_type(record.key)
    except ValueError as error:
        return Marker(None, None, str(error))
    version, number = struct.unpack_from(">hh", record.key)
    if ends is None:
        return Marker(version, None, f"unknown marker {number}")
    size = len(record.value or b"")
    if size < _MARKER_VALUE_SIZE:
        return Marker(version, None, f"a marker's value of {size} bytes")
    return Marker(version, ends == COMMIT)


# -- subscriptions and assignments


@remembering
def read_subscription(data: bytes) -> Subscription | None:
    """A consumer's subscription: an empty one for no bytes, None if they can't be read or are too many."""
    if not data:
        return Subscription()
    if len(data) > TOLD_SIZE_MAX:
        return None
    try:
        told = decode_versioned(ConsumerProtocolSubscription, data)[1]
    except ProtocolError:
        return None
    return Subscription(tuple(told.topics), tuple(each.topic for each in told.owned_partitions if each.partitions))


@remembering
def read_assignment(data: bytes) -> Assignment | None:
    """A consumer's topics with their partitions; () for no bytes, None as in `read_subscription`."""
    if not data:
        return ()
    if len(data) > TOLD_SIZE_MAX:
        return None
    try:
        read = decode_versioned(ConsumerProtocolAssignment, data)[1]
    except ProtocolError:
        return None
    return tuple((each.topic, tuple(each.partitions)) for each in read.assigned_partitions)
