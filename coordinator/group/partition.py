"""The partition of `__consumer_offsets` that a group lives on.

Kafka: Utils.abs(groupId.hashCode()) % offsets.topic.num.partitions. Java hashes the UTF-16 units of the string, and
Utils.abs maps the smallest int to 0. Elsewhere Kafka masks the sign bit instead; that would put about half of all
groups on another partition.
"""

from __future__ import annotations

INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """Java's String.hashCode: a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `group_id`, 0 <= partition < partition_count."""
    assert partition_count > 0
    value = java_hash(group_id)
    return 0 if value == INT_MIN else abs(value) % partition_count
