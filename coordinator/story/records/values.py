"""Reads keys and values of `__consumer_offsets`, within limits: for the inference, the audit and `tenure log`.

The decoders are those of the coordinator: protocol.messages for keys and values, and group.records for the versions.
Subscriptions and assignments are read only in groups of consumers, as other clients use forms of their own.

A few bytes may announce many millions of members or partitions. So each count is compared with its limit before
anything is decoded, and the reason names the limit.

House rule: bytes raise ProtocolError, and nothing else.
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
from coordinator.story.records.consumer import READ_VERSIONS, Value, read_consumer_key, read_value, read_version
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
)
from protocol.primitives import decode_uvarint

OFFSET_KIND = "offset_commit"
GROUP_KIND = "group_metadata"
UNKNOWN_KIND = "unknown"
UNREADABLE_KIND = "unreadable"

RECORD_KINDS = frozenset({OFFSET_KIND, GROUP_KIND})
"""Records that a coordinator of the classic protocol loads."""
NEWER_GROUPS = {
    "consumer_group_metadata": "consumer",
    "share_group_metadata": "share",
    "streams_group_metadata": "streams",
}
"""Kind of the record of a group of a newer protocol -> its group type in Kafka (KIP-848, KIP-932, KIP-1071)."""

MEMBERS_MAX = 250_000
PARTITIONS_MAX = 1_000_000
"""Members of a group, and assigned topic partitions, in one record at most.

No real record comes near. A group is one record, by default of 1 MB at most (message.max.bytes). A member takes at
least 60 bytes of it, as its id contains a UUID. Kafka's own limit, group.max.size, is 2^31 - 1 by default.
"""
MEMBER_DATA_SIZE_MAX = 4 * PARTITIONS_MAX
"""Bytes of one member's subscription or assignment at most: a topic partition takes 4."""

CACHE_SIZE = 20_000
CACHED_SIZE_MAX = 1_000
"""Decoded keys, subscriptions and assignments that are remembered, and bytes of one: most of them come again."""

_MEMBER_SIZE_MIN = 15
"""Bytes of a member in any version, at least."""
_PARTITION_SIZE = 4

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")

Read = TypeVar("Read")
Assignment = tuple[tuple[str, tuple[int, ...]], ...]
"""Topic and partitions."""


class Key(NamedTuple):
    """The key of a record. topic, topic_partition: of a committed offset.

    kind: one of the constants above, or of NEWER_KINDS. reason: why the key can't be read; None if it can.
    name: the member or the regular expression that a record of a group of a newer protocol is about.
    """

    kind: str
    version: int | None
    group_id: str | None = None
    topic: str | None = None
    topic_partition: int | None = None
    reason: str | None = None
    name: str | None = None


class Subscription(NamedTuple):
    """A consumer's subscription: its topics, and the topics of which it owns partitions when it joins (KIP-429)."""

    topics: tuple[str, ...] = ()
    owned_topics: tuple[str, ...] = ()


def remembering(read: Callable[[bytes], Read]) -> Callable[[bytes], Read]:
    """Remember results for up to CACHED_SIZE_MAX bytes, so that the memory for them has a limit."""
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
        if NEWER_KINDS.get(version) in READ_VERSIONS:
            of_group, name = read_consumer_key(data, version)
            return Key(NEWER_KINDS[version], version, of_group, name=name)
    except ProtocolError as error:
        return Key(UNREADABLE_KIND, version, reason=f"key: {error}")
    if version not in NEWER_KINDS:
        return Key(UNKNOWN_KIND, version)
    try:
        # All keys of the newer protocols begin with the group's id.
        group_id = decode(GroupMetadataKey, data, GROUP_KEY_VERSION, _int16.size).group
    except ProtocolError:
        group_id = None
    return Key(NEWER_KINDS[version], version, group_id)


def read_offset(data: bytes) -> tuple[int, OffsetCommitValue]:
    """Version and fields of a committed offset's value. Raises ProtocolError; its text is the whole reason."""
    return read_value(OffsetCommitValue, data, read_version(data, OFFSET_VALUE_VERSIONS))


def read_group(data: bytes) -> tuple[int, GroupMetadataValue]:
    """Version and fields of a group's value. Raises ProtocolError; its text is the whole reason."""
    version = read_version(data, GROUP_VALUE_VERSIONS)
    if len(data) > MEMBERS_MAX * _MEMBER_SIZE_MIN:
        count = _member_count(data, version)
        if count > MEMBERS_MAX:
            raise ProtocolError(f"value: {count} members, {MEMBERS_MAX} allowed")
    read = read_value(GroupMetadataValue, data, version)
    if len(data) > PARTITIONS_MAX * _PARTITION_SIZE:
        count = sum(len(partitions) for of_member in assignments(read[1]) for _, partitions in of_member)
        if count > PARTITIONS_MAX:
            raise ProtocolError(f"value: {count} topic partitions assigned, {PARTITIONS_MAX} allowed")
    return read


def assignments(value: GroupMetadataValue) -> list[Assignment]:
    """The assignment of each member; empty if it can't be read."""
    if value.protocol_type != CONSUMER:
        return [()] * len(value.members)
    return [read_assignment(member.assignment) or () for member in value.members]


def _member_count(data: bytes, version: int) -> int:
    """The number of members in a group's value, without decoding one; 0 if it can't be read."""
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


# -- subscriptions and assignments


def _member_data(cls: type[Value], data: bytes) -> Value | None:
    """A member's subscription or assignment; None if it can't be read, or is too large."""
    if len(data) > MEMBER_DATA_SIZE_MAX:
        return None
    try:
        return decode_versioned(cls, data)[1]
    except ProtocolError:
        return None


@remembering
def read_subscription(data: bytes) -> Subscription | None:
    """Read a consumer's subscription: empty for no bytes, None if they can't be read or are too many."""
    read = _member_data(ConsumerProtocolSubscription, data) if data else ConsumerProtocolSubscription()
    if read is None:
        return None
    return Subscription(tuple(read.topics), tuple(each.topic for each in read.owned_partitions if each.partitions))


@remembering
def read_assignment(data: bytes) -> Assignment | None:
    """Read a consumer's topics and partitions: () for no bytes, None if they can't be read or are too many."""
    read = _member_data(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()
    return None if read is None else tuple((each.topic, tuple(each.partitions)) for each in read.assigned_partitions)
