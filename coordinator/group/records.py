"""State becomes a record here, and a record becomes state; nowhere else.

A group's record carries what its last synced generation needs: protocol type and name, generation, leader, and each
member with its timeouts, its metadata for the selected protocol and its assignment (GroupMetadataValue v3). Each
committed offset has a record of its own (OffsetCommitValue v3, or v1 if the client asked for a retention of its own).

A group's value is a join of its members' bytes. Each member keeps its bytes until something in them changes, and blocks
of members keep theirs joined: a static restart in a group of 1,000 encodes one member and joins about 110 pieces. The
bytes that a member keeps leave out its assignment, because every rebalance changes it.

`replay` reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache

from coordinator.group.any_group import CommittedOffset
from coordinator.group.group import Block, Group, Member
from coordinator.group.state import STABLE
from protocol.errors import ProtocolError
from protocol.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue, decode, writer
from protocol.records.batch import Record
from protocol.records.packing import packed
from protocol.speed import new

GROUP_KEY_VERSION = 2
GROUP_VALUE_VERSION = 3
OFFSET_KEY_VERSION = 1
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
"""The only version with a time of expiry."""

GROUP_VALUE_VERSIONS = range(5)
OFFSET_VALUE_VERSIONS = range(5)

NEWER_KINDS = {
    3: "consumer_group_metadata",
    4: "consumer_group_partition_metadata",
    5: "consumer_group_member_metadata",
    6: "consumer_group_target_assignment_metadata",
    7: "consumer_group_target_assignment_member",
    8: "consumer_group_current_member_assignment",
    9: "share_group_partition_metadata",
    10: "share_group_member_metadata",
    11: "share_group_metadata",
    12: "share_group_target_assignment_metadata",
    13: "share_group_target_assignment_member",
    14: "share_group_current_member_assignment",
    15: "share_group_state_partition_metadata",
    16: "consumer_group_regular_expression",
    17: "streams_group_metadata",
    19: "streams_group_member_metadata",
    20: "streams_group_target_assignment_metadata",
    21: "streams_group_target_assignment_member",
    22: "streams_group_current_member_assignment",
    23: "streams_group_topology",
}
"""Key version -> kind, of records that only the newer group protocols write.

The list covers the releases up to 4.2 (the *Key.json of group-coordinator). 9 ended with 4.0; no release has 18.
"""

BATCH_OVERHEAD = 61
"""Bytes of a batch's header."""
RECORD_OVERHEAD = 20
"""The most bytes that a record takes in a batch beside key and value: lengths, attributes, deltas."""

OVERHEAD = BATCH_OVERHEAD + RECORD_OVERHEAD
"""The most bytes that a batch of one record takes beside key and value."""

KEYS_CACHED_MAX = 4096
"""Keys of groups in a cache, and of committed offsets in another, a few hundred bytes each: the same ones are written
again and again."""

SIZES_CACHED_MAX = 1024
"""Compiled formats in the cache, one for each size of metadata: a client can send any number of sizes."""

NO_TIMESTAMP = -1
"""A state timestamp or an expiry that is not set."""

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
# The versions before keys and values, and empty values for the parts that are joined on later.
GROUP_KEY_START = _int16.pack(GROUP_KEY_VERSION)
GROUP_VALUE_START = _int16.pack(GROUP_VALUE_VERSION)
OFFSET_KEY_START = _int16.pack(OFFSET_KEY_VERSION)
OFFSET_VALUE_START = _int16.pack(OFFSET_VALUE_VERSION)
OFFSET_VALUE_START_WITH_EXPIRY = _int16.pack(OFFSET_VALUE_VERSION_WITH_EXPIRY)
NO_ASSIGNMENT = b""
NO_MEMBERS: tuple[Member, ...] = ()


@lru_cache(KEYS_CACHED_MAX)
def group_key(group_id: str) -> bytes:
    """The key of a group's record."""
    return GROUP_KEY_START + writer(GroupMetadataKey, GROUP_KEY_VERSION)(group_id)


@lru_cache(KEYS_CACHED_MAX)
def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset's record."""
    return OFFSET_KEY_START + writer(OffsetCommitKey, OFFSET_KEY_VERSION)(group_id, topic, partition)


def member_bytes(member: Member, protocol_name: str) -> bytes:
    """A member's part of its group's value, without its last field, the assignment.

    It is cached in `member.encoded`.
    """
    if member.encoded is None:
        first, metadata = member.protocols[0]
        member.encoded = writer(GroupMetadataValue.MemberMetadata, GROUP_VALUE_VERSION)(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            metadata if first == protocol_name else member.metadata(protocol_name),
            NO_ASSIGNMENT,
        )[: -_int32.size]
    return member.encoded


def prepare(group: Group, member: Member) -> None:
    """Encode a member while it waits for its assignment, so that the leader's sync needn't encode all of them."""
    if group.protocol_name is not None:
        member_bytes(member, group.protocol_name)


def block_bytes(block: Block, protocol_name: str) -> bytes:
    """A block's part of its group's value; cached in `block.encoded` if it has several members."""
    parts: list[bytes] = []
    for member in block.members:
        assignment = member.assignment
        parts += (member.encoded or member_bytes(member, protocol_name), _int32.pack(len(assignment)), assignment)
    encoded = b"".join(parts)
    if len(block.members) > 1:  # the bytes of one member are there already
        block.encoded = encoded
    return encoded


def group_value(group: Group, since_ms: int | None) -> bytes:
    """The value of a group's record (Kafka: GroupMetadataManager.groupMetadataValue).

    since_ms: when the group entered its state, Unix time in ms.
    """
    head = writer(GroupMetadataValue, GROUP_VALUE_VERSION)(
        group.protocol_type or "",
        group.generation,
        group.protocol_name,
        group.leader,
        NO_TIMESTAMP if since_ms is None else since_ms,
        NO_MEMBERS,
    )
    # The members are the last field: their number, which is 0 here, then one member after the other.
    parts = [GROUP_VALUE_START, head[: -_int32.size], _int32.pack(len(group.members))]
    if group.members:
        name = group.protocol_name
        assert name is not None
        for block in group.blocks:  # without a comprehension, which is a call before Python 3.12
            parts.append(block.encoded or block_bytes(block, name))
    return b"".join(parts)


def group_record(group: Group, since_ms: int | None, wall_ms: int) -> Record:
    """The record of a group, written at `wall_ms`."""
    return new(Record, (group_key(group.group_id), group_value(group, since_ms), wall_ms))


def group_tombstone(group_id: str, wall_ms: int) -> Record:
    """The record that deletes a group."""
    return Record(group_key(group_id), None, wall_ms)


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset, wall_ms: int) -> Record:
    """The record of a committed offset."""
    offset, leader_epoch, metadata, commit_ms, expire_ms = committed
    if expire_ms is None:
        write = writer(OffsetCommitValue, OFFSET_VALUE_VERSION)
        value = OFFSET_VALUE_START + write(offset, leader_epoch, metadata, commit_ms)
    else:
        write = writer(OffsetCommitValue, OFFSET_VALUE_VERSION_WITH_EXPIRY)
        value = OFFSET_VALUE_START_WITH_EXPIRY + write(offset, metadata, commit_ms, expire_ms)
    return Record(offset_key(group_id, topic, partition), value, wall_ms)


def offset_records(
    group_id: str, topic: str, partition: int, leader_epoch: int, metadata: str
) -> Callable[[int, int], Record]:
    """A function that makes records like `offset_record` does, but faster, from an offset and a commit time (Unix, ms).

    It prepares all but these two, which are the first and the last field of the value.
    """
    key = offset_key(group_id, topic, partition)
    middle = writer(OffsetCommitValue, OFFSET_VALUE_VERSION)(0, leader_epoch, metadata, 0)[8:-8]
    pack = _offset_value(len(middle)).pack

    def record(offset: int, wall_ms: int) -> Record:
        return new(Record, (key, pack(OFFSET_VALUE_VERSION, offset, middle, wall_ms), wall_ms))

    return record


@lru_cache(SIZES_CACHED_MAX)
def _offset_value(middle_size: int) -> struct.Struct:
    """The format of a committed offset's value: version, offset, `middle_size` bytes, commit time."""
    return struct.Struct(f">hq{middle_size}sq")


def offset_tombstone(group_id: str, topic: str, partition: int, wall_ms: int) -> Record:
    """The record that deletes a committed offset."""
    return Record(offset_key(group_id, topic, partition), None, wall_ms)


def batch_size(records: Iterable[Record]) -> int:
    """The most bytes that a batch of these records takes."""
    size = BATCH_OVERHEAD
    for key, value, _ in records:
        size += RECORD_OVERHEAD + len(key) + len(value or b"")
    return size


def stored_size(record: Record) -> int:
    """The bytes that a record takes in a store that packs large values."""
    return RECORD_OVERHEAD + len(record.key) + len(packed(record.value or b""))


def decode_group(group_id: str, value: bytes) -> Group:
    """The group in a value (Kafka: GroupMetadataManager.readGroupMessageValue)."""
    if len(value) < _int16.size:
        raise ProtocolError(f"group {group_id!r}: a value of {len(value)} bytes")
    version: int = _int16.unpack_from(value)[0]
    if version not in GROUP_VALUE_VERSIONS:
        raise ProtocolError(f"group {group_id!r}: unknown value version {version}")
    read = decode(GroupMetadataValue, value, version, _int16.size)
    since_ms = None if read.current_state_timestamp == NO_TIMESTAMP else read.current_state_timestamp
    group = Group(group_id, since_ms)
    group.protocol_type = read.protocol_type or None
    group.generation = read.generation
    if read.members:
        if read.protocol is None:
            raise ProtocolError(f"group {group_id!r}: members without a protocol name")
        group.protocol_name = read.protocol
        for entry in read.members:
            if entry.member_id in group.members or entry.group_instance_id in group.static_members:
                raise ProtocolError(f"group {group_id!r}: member {entry.member_id!r} appears twice")
            group.add(
                Member(
                    entry.member_id,
                    entry.group_instance_id,
                    entry.client_id,
                    entry.client_host,
                    entry.session_timeout if version == 0 else entry.rebalance_timeout,
                    entry.session_timeout,
                    [(read.protocol, entry.subscription)],
                    entry.assignment,
                )
            )
        if read.leader is not None:
            group.leader = read.leader
        # This sets the state that the record has; it is no transition.
        group.state = STABLE
    group.subscribed_topics = group.find_subscribed_topics()
    return group


def decode_offset(value: bytes) -> CommittedOffset:
    """The committed offset in a value."""
    if len(value) < _int16.size:
        raise ProtocolError(f"an offset value of {len(value)} bytes")
    version: int = _int16.unpack_from(value)[0]
    if version not in OFFSET_VALUE_VERSIONS:
        raise ProtocolError(f"unknown offset value version {version}")
    read = decode(OffsetCommitValue, value, version, _int16.size)
    expire_ms = None if read.expire_timestamp == NO_TIMESTAMP else read.expire_timestamp
    return CommittedOffset(read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, expire_ms)
