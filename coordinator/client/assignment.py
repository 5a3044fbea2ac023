"""What a member was assigned, and what it subscribes to, out of the bytes that its leader and it itself wrote.

The coordinator carries these bytes without looking inside; only clients of protocol type "consumer" agree on their
form (Kafka: ConsumerProtocol).

House rule: odd bytes are an answer, never an exception.
"""

from __future__ import annotations

from protocol.consumer import decode_told
from protocol.errors import ProtocolError
from protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

CONSUMER = "consumer"
"""The protocol type whose assignments have this form. (Kafka treats "" alike: a group that only commits offsets.)"""


def decode_assignment(protocol_type: str, data: bytes) -> dict[str, list[int]] | None:
    """Topic -> partition indexes, ascending; {} where nothing is assigned, None where the bytes can't be read."""
    if not data:
        return {}
    if protocol_type != CONSUMER:
        return None
    try:
        _, assignment = decode_told(ConsumerProtocolAssignment, data)
    except ProtocolError:
        return None
    partitions: dict[str, list[int]] = {}
    for topic in assignment.assigned_partitions:
        partitions.setdefault(topic.topic, []).extend(topic.partitions)
    return {topic: sorted(partitions[topic]) for topic in sorted(partitions)}


def decode_subscription(protocol_type: str, data: bytes) -> frozenset[str] | None:
    """The topics that a member subscribes to; None where the bytes can't be read, or there are none."""
    if protocol_type != CONSUMER:
        return None
    try:
        _, subscription = decode_told(ConsumerProtocolSubscription, data)
    except ProtocolError:
        return None
    return frozenset(subscription.topics)
