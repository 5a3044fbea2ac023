"""What a member was assigned, out of the bytes that its leader wrote.

The coordinator carries these bytes without looking inside; only clients of protocol type "consumer" agree on their
form (Kafka: ConsumerProtocol). A two-byte version stands in front; a version that is newer than the newest we know is
read as that one, since later versions only append (as Kafka's clients do).

House rule: odd bytes are an answer, never an exception.
"""

from __future__ import annotations

from protocol.errors import ProtocolError
from protocol.messages import ConsumerProtocolAssignment, decode

CONSUMER = "consumer"
"""The protocol type whose assignments have this form. (Kafka treats "" alike: a group that only commits offsets.)"""
VERSION_SIZE = 2
VERSION_MAX = 3


def decode_assignment(protocol_type: str, data: bytes) -> dict[str, list[int]] | None:
    """Topic -> partition indexes, ascending; {} where nothing is assigned, None where the bytes can't be read."""
    if not data:
        return {}
    version = int.from_bytes(data[:VERSION_SIZE], "big", signed=True)
    if protocol_type != CONSUMER or len(data) < VERSION_SIZE:
        return None
    try:
        assignment = decode(ConsumerProtocolAssignment, data, min(version, VERSION_MAX), VERSION_SIZE)
    except ProtocolError:
        return None
    partitions: dict[str, list[int]] = {}
    for topic in assignment.assigned_partitions:
        partitions.setdefault(topic.topic, []).extend(topic.partitions)
    return {topic: sorted(partitions[topic]) for topic in sorted(partitions)}
