"""Subscriptions and assignments of classic members, which are bytes to a classic group (Kafka: ConsumerProtocol).

A group of the consumer protocol reads them, because it assigns itself, and writes assignments in the version that its
member speaks.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from coordinator.group.group import TOPICS_READ_MAX
from coordinator.group.topics import Topics
from protocol.consumer import decode_versioned
from protocol.errors import ProtocolError
from protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, encode

_int16 = struct.Struct(">h")


class Unreadable(Exception):
    """Bytes that a group of the consumer protocol can't take over; the text says why, in Kafka's words."""


MALFORMED = "the embedded consumer protocol is malformed"
"""Why not: no consumer wrote the bytes, or they have more topics than a coordinator reads."""
CUSTOM = "an unsupported custom assignor is in use"
"""Why not: an assignment has the data of a custom assignor, which would be lost."""


class Subscription(NamedTuple):
    """A consumer's metadata, read. owned: partitions by topic; version 0 has none."""

    topics: frozenset[str]
    rack: str | None
    owned: list[tuple[str, list[int]]]


def read_subscription(metadata: bytes) -> Subscription:
    """Read a consumer's metadata. Raises Unreadable."""
    # The number of topics stands behind a 16-bit version.
    if int.from_bytes(metadata[2:6]) > TOPICS_READ_MAX:
        raise Unreadable(MALFORMED)
    try:
        _, said = decode_versioned(ConsumerProtocolSubscription, metadata)
    except ProtocolError:
        raise Unreadable(MALFORMED) from None
    owned = [(each.topic, each.partitions) for each in said.owned_partitions]
    return Subscription(frozenset(said.topics), said.rack_id, owned)


def read_assignment(topics: Topics, assignment: bytes) -> Mapping[UUID, frozenset[int]]:
    """Read a leader's assignment. Raises Unreadable. A topic that is not there is left out."""
    if not assignment:
        return {}
    try:
        _, given = decode_versioned(ConsumerProtocolAssignment, assignment)
    except ProtocolError:
        raise Unreadable(MALFORMED) from None
    if given.user_data:
        raise Unreadable(CUSTOM)
    return ids_of(topics, ((each.topic, each.partitions) for each in given.assigned_partitions))


def ids_of(topics: Topics, owned: Iterable[tuple[str, Collection[int]]]) -> dict[UUID, frozenset[int]]:
    """Partitions by the id of their topic; without topics that are not there, or have no partition here."""
    found: dict[UUID, frozenset[int]] = {}
    for name, partitions in owned:
        for topic in topics.find((name,)):
            if partitions:
                found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(partitions)
    return found


def assignment_bytes(topics: Topics, held: Mapping[UUID, Collection[int]], metadata: bytes) -> bytes:
    """An assignment in the version of a consumer's metadata, or in the newest one that is older."""
    version = _int16.unpack_from(metadata)[0] if len(metadata) >= _int16.size else 0
    version = min(max(version, 0), ConsumerProtocolAssignment.VERSIONS[1])
    named = [(topics.by_id(topic_id), partitions) for topic_id, partitions in held.items()]
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic.name, partitions=sorted(partitions))
            for topic, partitions in named
            if topic is not None
        ]
    )
    return _int16.pack(version) + encode(body, version)
