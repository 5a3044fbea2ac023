"""A record of `__consumer_offsets` as plain values, whatever its bytes are.

The key's first two bytes say what a record is. Groups and committed offsets are decoded, a group down to what its
members told each other (the consumer protocol, v0-3). Records of the newer group protocols (KIP-848, KIP-932, KIP-1071)
have their name and their group; others are unknown (KIP-915). Field names are Kafka's in snake_case.

Odd bytes are shown as {"hex": ..., "reason": ...} in the place of what they should have been.

House rule: no bytes raise in here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from coordinator.group.group import CONSUMER
from coordinator.group.records import (
    GROUP_KEY_VERSION,
    GROUP_VALUE_VERSIONS,
    NEWER_KINDS,
    OFFSET_KEY_VERSION,
    OFFSET_VALUE_VERSIONS,
)
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
from protocol.record_batch import Record

Fields = dict[str, Any]

OFFSET_KIND = "offset_commit"
GROUP_KIND = "group_metadata"
CONTROL_KIND = "transaction_marker"
UNKNOWN_KIND = "unknown"
UNREADABLE_KIND = "unreadable"

MARKERS = {0: "abort", 1: "commit"}
"""What the key of a transaction's marker says (Kafka: ControlRecordType)."""

_int16 = struct.Struct(">h")
_marker_key = struct.Struct(">hh")
_marker_value = struct.Struct(">hi")


class Decoded(NamedTuple):
    """A record, read.

    kind: one of the constants above. group_id: None where the record has none or it can't be read.
    key, value: their fields; value is None for a tombstone.
    problem: the first thing about key or value that makes no sense to a coordinator, None if all does. What members
    told each other is theirs alone and never a problem.
    """

    kind: str
    key_version: int | None
    group_id: str | None
    key: Fields
    value_version: int | None
    value: Fields | None
    problem: str | None


def decode_record(record: Record) -> Decoded:
    """Read a record that is no transaction's marker."""
    if len(record.key) < _int16.size:
        problem = f"a key of {len(record.key)} bytes"
        return Decoded(UNREADABLE_KIND, None, None, odd(record.key, problem), None, _raw(record.value), problem)
    version: int = _int16.unpack_from(record.key)[0]
    try:
        if 0 <= version <= OFFSET_KEY_VERSION:
            return _offset(record, version)
        if version == GROUP_KEY_VERSION:
            return _group(record, version)
    except ProtocolError as error:
        key = odd(record.key, str(error))
        return Decoded(UNREADABLE_KIND, version, None, key, None, _raw(record.value), f"key: {error}")
    return _newer(record, version)


def value_problem(kind: str, value: bytes) -> str | None:
    """What `decode_record` would say is wrong with the value of a record of this kind, found with less work."""
    if kind == GROUP_KIND:
        return _value(value, GROUP_VALUE_VERSIONS, _read_group)[2]
    if kind == OFFSET_KIND:
        return _value(value, OFFSET_VALUE_VERSIONS, _read_offset)[2]
    return None


def decode_marker(record: Record) -> Decoded:
    """Read a record of a control batch: what became of the transaction of the batch's producer."""
    problem = None
    key: Fields
    version: int | None = None
    if len(record.key) < _marker_key.size:
        problem = f"a marker's key of {len(record.key)} bytes"
        key = odd(record.key, problem)
    else:
        version, number = _marker_key.unpack_from(record.key)
        key = {"marker": MARKERS.get(number, str(number))}
        if number not in MARKERS:
            problem = f"unknown marker {number}"
    value: Fields | None = None
    value_version: int | None = None
    if record.value is None or len(record.value) < _marker_value.size:
        reason = f"a marker's value of {len(record.value or b'')} bytes"
        problem = problem or reason
        value = odd(record.value or b"", reason)
    else:
        value_version, coordinator_epoch = _marker_value.unpack_from(record.value)
        value = {"coordinator_epoch": coordinator_epoch}
    return Decoded(CONTROL_KIND, version, None, key, value_version, value, problem)


def odd(data: bytes, reason: str) -> Fields:
    """Bytes that aren't what they should be."""
    return {"hex": data.hex(), "reason": reason}


def is_odd(fields: object) -> bool:
    """Whether these fields are `odd` bytes."""
    return isinstance(fields, dict) and fields.keys() == {"hex", "reason"}


def _raw(value: bytes | None) -> Fields | None:
    return None if value is None else {"hex": value.hex()}


def _offset(record: Record, version: int) -> Decoded:
    key = decode(OffsetCommitKey, record.key, version, _int16.size)
    fields: Fields = {"group_id": key.group, "topic": key.topic, "partition": key.partition}
    value_version, value, problem = _value(record.value, OFFSET_VALUE_VERSIONS, _offset_value)
    return Decoded(OFFSET_KIND, version, key.group, fields, value_version, value, problem)


def _read_offset(data: bytes, version: int) -> OffsetCommitValue:
    return decode(OffsetCommitValue, data, version, _int16.size)


def _offset_value(data: bytes, version: int) -> Fields:
    read = _read_offset(data, version)
    fields: Fields = {"offset": read.offset}
    if version >= 3:
        fields["leader_epoch"] = read.leader_epoch
    fields |= {"metadata": read.metadata, "commit_timestamp_ms": read.commit_timestamp}
    if version == 1:
        fields["expire_timestamp_ms"] = read.expire_timestamp
    return fields


def _group(record: Record, version: int) -> Decoded:
    group_id = decode(GroupMetadataKey, record.key, version, _int16.size).group
    value_version, value, problem = _value(record.value, GROUP_VALUE_VERSIONS, _group_value)
    return Decoded(GROUP_KIND, version, group_id, {"group_id": group_id}, value_version, value, problem)


def _read_group(data: bytes, version: int) -> GroupMetadataValue:
    return decode(GroupMetadataValue, data, version, _int16.size)


def _group_value(data: bytes, version: int) -> Fields:
    read = _read_group(data, version)
    fields: Fields = {
        "protocol_type": read.protocol_type,
        "generation": read.generation,
        "protocol_name": read.protocol,
        "leader": read.leader,
    }
    if version >= 2:
        fields["current_state_timestamp_ms"] = read.current_state_timestamp
    fields["members"] = [_member(member, version, read.protocol_type) for member in read.members]
    return fields


def _member(member: GroupMetadataValue.MemberMetadata, version: int, protocol_type: str) -> Fields:
    fields: Fields = {"member_id": member.member_id}
    if version >= 3:
        fields["group_instance_id"] = member.group_instance_id
    fields |= {"client_id": member.client_id, "client_host": member.client_host}
    if version >= 1:
        fields["rebalance_timeout_ms"] = member.rebalance_timeout
    fields["session_timeout_ms"] = member.session_timeout
    fields["subscription"] = _told(member.subscription, protocol_type, _subscription)
    fields["assignment"] = _told(member.assignment, protocol_type, _assignment)
    return fields


@lru_cache(maxsize=4096)
def _told(data: bytes, protocol_type: str, read: Callable[[bytes], Fields]) -> Fields | None:
    """What a member told others, in the consumer protocol; None for no bytes at all. Most say what they said before."""
    if not data:
        return None
    if protocol_type != CONSUMER:
        return odd(data, f"protocol type {protocol_type!r}: only its members can read this")
    try:
        return read(data)
    except ProtocolError as error:
        return odd(data, str(error))


def _subscription(data: bytes) -> Fields:
    version, read = decode_told(ConsumerProtocolSubscription, data)
    fields: Fields = {"version": version, "topics": read.topics, "user_data_hex": _hex(read.user_data)}
    if version >= 1:
        fields["owned_partitions"] = _topic_partitions(read.owned_partitions)
    if version >= 2:
        fields["generation_id"] = read.generation_id
    if version >= 3:
        fields["rack_id"] = read.rack_id
    return fields


def _assignment(data: bytes) -> Fields:
    version, read = decode_told(ConsumerProtocolAssignment, data)
    return {
        "version": version,
        "assigned_partitions": _topic_partitions(read.assigned_partitions),
        "user_data_hex": _hex(read.user_data),
    }


def _topic_partitions(entries: Any) -> list[Fields]:
    return [{"topic": entry.topic, "partitions": entry.partitions} for entry in entries]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _value(data: bytes | None, versions: range, read: Any) -> tuple[int | None, Fields | None, str | None]:
    """(version, fields, problem) of a value."""
    if data is None:
        return None, None, None
    if len(data) < _int16.size:
        reason = f"a value of {len(data)} bytes"
        return None, odd(data, reason), reason
    version: int = _int16.unpack_from(data)[0]
    if version not in versions:
        reason = f"unknown value version {version}"
        return version, odd(data, reason), reason
    try:
        return version, read(data, version), None
    except ProtocolError as error:
        return version, odd(data, str(error)), f"value: {error}"


def _newer(record: Record, version: int) -> Decoded:
    """A record that no coordinator of the classic protocol reads; what is known of it is whose it is."""
    kind = NEWER_KINDS.get(version, UNKNOWN_KIND)
    group_id = None
    if kind != UNKNOWN_KIND:
        try:
            # All of their keys begin with the group's id.
            group_id = decode_from(GroupMetadataKey, record.key, GROUP_KEY_VERSION, _int16.size)[0].group
        except ProtocolError:
            group_id = None
    value_version: int | None = None
    if record.value is not None and len(record.value) >= _int16.size:
        value_version = _int16.unpack_from(record.value)[0]
    return Decoded(kind, version, group_id, {"hex": record.key.hex()}, value_version, _raw(record.value), None)
