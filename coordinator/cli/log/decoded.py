"""A record of `__consumer_offsets` as plain values, whatever its bytes are.

coordinator.story.records reads a record, within its limits. This module gives the fields their names: Kafka's, in
snake_case. It decodes committed offsets and groups: those of the classic protocol, also the subscriptions and
assignments of their members (v0-3), those of the consumer protocol (KIP-848), share groups (KIP-932) and streams groups
(KIP-1071). Of share groups' record 9, which ended with Kafka 4.0, only its kind and its group are known. Any other
record is unknown (KIP-915).

Bytes that can't be decoded are shown as {"hex": ..., "reason": ...}, at most ODD_SIZE_MAX of them.

House rule: no bytes make this module raise.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple
from uuid import UUID

from coordinator.audit.read.batches import MARKER_KIND, read_marker
from coordinator.group.consumer.records import CURRENT
from coordinator.story.records.consumer import (
    READ_VERSIONS,
    SHARE_CURRENT,
    STREAMS_CURRENT,
    name_field,
    read_consumer_value,
)
from coordinator.story.records.values import (
    CACHED_SIZE_MAX,
    GROUP_KIND,
    MEMBER_DATA_SIZE_MAX,
    OFFSET_KIND,
    UNREADABLE_KIND,
    read_group,
    read_key,
    read_offset,
)
from coordinator.transaction.records import decode_id, transactional_id_of
from protocol.compile import Message
from protocol.consumer import CONSUMER, decode_versioned
from protocol.errors import ProtocolError
from protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, GroupMetadataValue
from protocol.records.batch import Record

Fields = dict[str, Any]

ODD_SIZE_MAX = 1_000_000
"""The most odd bytes that are shown: enough for any record while a broker has Kafka's default message.max.bytes."""

MARKERS = {0: "abort", 1: "commit"}
"""The types in the key of a transaction's marker (Kafka: ControlRecordType)."""

MEMBER_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS", 127: "UNKNOWN"}
"""The states of a member of a group of the consumer protocol, or of a share group (Kafka: MemberState)."""
STREAMS_STATES = {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS", 127: "UNKNOWN"}
"""Those of a member of a streams group."""

TRANSACTION_KIND = "transaction"

_int16 = struct.Struct(">h")
_marker_key = struct.Struct(">hh")
_marker_value = struct.Struct(">hi")


class Decoded(NamedTuple):
    """A decoded record.

    kind: as in coordinator.story.records. group_id: None if the record has none or it can't be read.
    key, value: their fields; value is None for a tombstone.
    """

    kind: str
    key_version: int | None
    group_id: str | None
    key: Fields
    value_version: int | None
    value: Fields | None


def decode_record(record: Record) -> Decoded:
    """Decode a record that is not a transaction's marker."""
    key = read_key(record.key)
    if key.kind == OFFSET_KIND:
        fields: Fields = {"group_id": key.group_id, "topic": key.topic, "partition": key.topic_partition}
        version, value = _value(record.value, _offset_value)
    elif key.kind == GROUP_KIND:
        fields = {"group_id": key.group_id}
        version, value = _value(record.value, _group_value)
    elif key.kind in READ_VERSIONS:
        number = READ_VERSIONS[key.kind]
        name = name_field(number)
        fields = {"group_id": key.group_id} if name is None else {"group_id": key.group_id, name: key.name}
        version, value = _value(record.value, partial(_consumer_value, version=number))
    elif key.kind == UNREADABLE_KIND:
        fields = odd(record.key, (key.reason or "").removeprefix("key: "))
        version, value = None, _raw(record.value)
    else:  # no coordinator of ours reads this record; only its group is known
        fields = {"hex": record.key.hex()}
        version, value = _version(record.value), _raw(record.value)
    return Decoded(key.kind, key.version, key.group_id, fields, version, value)


def decode_transactional_id(record: Record) -> Decoded:
    """Decode a record of `__transaction_state`."""
    version = _version(record.key)
    try:
        key: Fields = {"transactional_id": transactional_id_of(record.key)}
    except ProtocolError as error:
        key = odd(record.key, str(error))
    return Decoded(TRANSACTION_KIND, version, None, key, *_value(record.value, _transaction_value))


def _transaction_value(value: bytes) -> Fields:
    known = decode_id("", value)
    partitions = (
        None if known.partitions is None else [f"{topic}-{number}" for topic, number in sorted(known.partitions)]
    )
    return {
        "producer_id": known.producer_id,
        "producer_epoch": known.epoch,
        "transaction_timeout_ms": known.timeout_ms,
        "transaction_status": known.status.label,
        "transaction_partitions": partitions,
        "transaction_last_update_timestamp_ms": known.update_ms,
        "transaction_start_timestamp_ms": known.start_ms,
        "previous_producer_id": known.previous_producer_id,
        "next_producer_id": known.next_producer_id,
        "client_transaction_version": known.client_version,
    }


def decode_marker(record: Record) -> Decoded:
    """Decode a record of a control batch: it says whether the producer's transaction was committed or aborted."""
    marker = read_marker(record)
    if len(record.key) < _marker_key.size:
        key = odd(record.key, marker.reason or "")
    else:
        number = _marker_key.unpack_from(record.key)[1]
        key = {"marker": MARKERS.get(number, str(number))}
    data = record.value or b""
    version: int | None = None
    if len(data) < _marker_value.size:
        value = odd(data, f"a marker's value of {len(data)} bytes")
    else:
        version, coordinator_epoch = _marker_value.unpack_from(data)
        value = {"coordinator_epoch": coordinator_epoch}
    return Decoded(MARKER_KIND, marker.version, None, key, version, value)


def odd(data: bytes, reason: str) -> Fields:
    """The fields for bytes that can't be decoded."""
    if len(data) > ODD_SIZE_MAX:
        reason = f"{reason}; the first {ODD_SIZE_MAX} of {len(data)} bytes"
    return {"hex": data[:ODD_SIZE_MAX].hex(), "reason": reason}


def is_odd(fields: object) -> bool:
    """Whether these fields come from `odd`."""
    return isinstance(fields, dict) and fields.keys() == {"hex", "reason"}


def _raw(value: bytes | None) -> Fields | None:
    if value is None:
        return None
    return {"hex": value.hex()} if len(value) <= ODD_SIZE_MAX else odd(value, "not read")


def _version(value: bytes | None) -> int | None:
    return None if value is None or len(value) < _int16.size else int(_int16.unpack_from(value)[0])


def _value(data: bytes | None, read: Callable[[bytes], Fields]) -> tuple[int | None, Fields | None]:
    """Version and fields of a value."""
    if data is None:
        return None, None
    try:
        return _version(data), read(data)
    except ProtocolError as error:
        return _version(data), odd(data, str(error).removeprefix("value: "))


def _offset_value(data: bytes) -> Fields:
    version, read = read_offset(data)
    fields: Fields = {"offset": read.offset}
    if version >= 3:
        fields["leader_epoch"] = read.leader_epoch
    fields |= {"metadata": read.metadata, "commit_timestamp_ms": read.commit_timestamp}
    if version == 1:
        fields["expire_timestamp_ms"] = read.expire_timestamp
    return fields


def _consumer_value(data: bytes, version: int) -> Fields:
    fields: Fields = _plain(read_consumer_value(data, version)[1])
    states = {CURRENT: MEMBER_STATES, SHARE_CURRENT: MEMBER_STATES, STREAMS_CURRENT: STREAMS_STATES}.get(version)
    if states is not None:
        fields["state"] = states.get(fields["state"], fields["state"])
    return fields


def _plain(value: Any) -> Any:
    """A message as plain values; topic ids as Kafka's tools write them."""
    match value:
        case Message():
            return {name: _plain(getattr(value, name)) for name in type(value).__slots__}
        case list() | tuple():
            return [_plain(each) for each in value]
        case UUID():
            return urlsafe_b64encode(value.bytes).decode().rstrip("=")
        case bytes():
            return _member_data(value, CONSUMER, _subscription)  # of a classic member in such a group
    return value


def _group_value(data: bytes) -> Fields:
    version, read = read_group(data)
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
    fields["subscription"] = _member_data(member.subscription, protocol_type, _subscription)
    fields["assignment"] = _member_data(member.assignment, protocol_type, _assignment)
    return fields


def _member_data(data: bytes, protocol_type: str, read: Callable[[bytes], Fields]) -> Fields | None:
    """A member's subscription or assignment, in the consumer protocol; None if there are no bytes."""
    if not data:
        return None
    if len(data) > MEMBER_DATA_SIZE_MAX:
        return odd(data, f"{len(data)} bytes, {MEMBER_DATA_SIZE_MAX} allowed")
    return (_read_member_data if len(data) <= CACHED_SIZE_MAX else _read_member_data.__wrapped__)(
        data, protocol_type, read
    )


@lru_cache(maxsize=4096)
def _read_member_data(data: bytes, protocol_type: str, read: Callable[[bytes], Fields]) -> Fields:
    """Read a subscription or an assignment. It is cached, because most members repeat the same bytes."""
    if protocol_type != CONSUMER:
        return odd(data, f"protocol type {protocol_type!r}: only its members can read this")
    try:
        return read(data)
    except ProtocolError as error:
        return odd(data, str(error))


def _subscription(data: bytes) -> Fields:
    version, read = decode_versioned(ConsumerProtocolSubscription, data)
    fields: Fields = {"version": version, "topics": read.topics, "user_data_hex": _hex(read.user_data)}
    if version >= 1:
        fields["owned_partitions"] = _topic_partitions(read.owned_partitions)
    if version >= 2:
        fields["generation_id"] = read.generation_id
    if version >= 3:
        fields["rack_id"] = read.rack_id
    return fields


def _assignment(data: bytes) -> Fields:
    version, read = decode_versioned(ConsumerProtocolAssignment, data)
    return {
        "version": version,
        "assigned_partitions": _topic_partitions(read.assigned_partitions),
        "user_data_hex": _hex(read.user_data),
    }


def _topic_partitions(entries: Any) -> list[Fields]:
    return [{"topic": entry.topic, "partitions": entry.partitions} for entry in entries]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
