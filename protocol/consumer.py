"""Subscriptions and assignments, which consumers exchange through a coordinator: a version of two bytes, and a message.

A newer version only appends fields. So a version above our newest is read as our newest, as clients do.

A coordinator hands these bytes on as they are. Only clients of protocol type "consumer" agree on their form.

House rule: `decode_versioned` raises ProtocolError for bytes that it can't read; the others return None.
Source: Kafka's ConsumerProtocol.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from protocol.compile import Message
from protocol.errors import ProtocolError
from protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode

AnyVersioned = TypeVar("AnyVersioned", bound=Message)

CONSUMER = "consumer"
"""The protocol type of Kafka's consumers (ConsumerProtocol.PROTOCOL_TYPE), whose assignments have this form."""

NO_PARTITIONS = b"\x00\x00" + bytes(4) + b"\xff\xff\xff\xff"
"""An assignment of version 0 with no topics and no user data. Clients can't read one without any bytes."""

GENERATION_SINCE = 2
"""The first version of a subscription that names the member's generation (KIP-792)."""

RACK_SINCE = 3
"""The first version of a subscription with a rack."""

_version = struct.Struct(">h")


def decode_versioned(cls: type[AnyVersioned], data: bytes) -> tuple[int, AnyVersioned]:
    """The version in front of `data`, and the message behind it. Raises ProtocolError.

    cls: ConsumerProtocolSubscription or ConsumerProtocolAssignment.
    """
    if len(data) < _version.size:
        raise ProtocolError(f"{len(data)} bytes, a version takes {_version.size}")
    version: int = _version.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"version {version}")
    return version, decode(cls, data, min(version, cls.VERSIONS[1]), _version.size)


def decode_assignment(protocol_type: str, data: bytes) -> dict[str, list[int]] | None:
    """Topic -> partition indexes, ascending; {} where nothing is assigned, None where the bytes can't be read."""
    if not data:
        return {}
    if protocol_type != CONSUMER:
        return None
    try:
        _, assignment = decode_versioned(ConsumerProtocolAssignment, data)
    except ProtocolError:
        return None
    partitions: dict[str, list[int]] = {}
    for topic in assignment.assigned_partitions:
        partitions.setdefault(topic.topic, []).extend(topic.partitions)
    return {topic: sorted(partitions[topic]) for topic in sorted(partitions)}


def decode_rack(data: bytes) -> str | None:
    """The rack in the metadata of a consumer (KIP-881); None if there is none, or the bytes can't be read."""
    try:
        version, subscription = decode_versioned(ConsumerProtocolSubscription, data)
    except ProtocolError:
        return None
    return subscription.rack_id if version >= RACK_SINCE else None


def decode_generation(data: bytes) -> int | None:
    """The generation in the metadata of a consumer (KIP-792); None if it names none, or the bytes can't be read."""
    try:
        version, subscription = decode_versioned(ConsumerProtocolSubscription, data)
    except ProtocolError:
        return None
    return subscription.generation_id if version >= GENERATION_SINCE else None


def decode_subscription(protocol_type: str, data: bytes) -> frozenset[str] | None:
    """The topics that a member subscribes to; None where the bytes can't be read, or there are none."""
    if protocol_type != CONSUMER:
        return None
    try:
        _, subscription = decode_versioned(ConsumerProtocolSubscription, data)
    except ProtocolError:
        return None
    return frozenset(subscription.topics)
