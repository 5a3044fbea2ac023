"""The partition of `__consumer_offsets` that a group lives on.

Kafka: Utils.abs(groupId.hashCode()) % offsets.topic.num.partitions. Java hashes the UTF-16 units of the string, and
Utils.abs maps the smallest int to 0. Elsewhere Kafka masks the sign bit instead; that would put about half of all
groups on another partition.
"""

from __future__ import annotations

import struct

from coordinator.group.bounds import INT32_MIN

MASK = 0xFFFFFFFF

SHORT_MAX = 500
"""UTF-16 units of a text whose hash takes one step for each unit."""

COLUMNS = 64
"""Units in a row of a longer text."""

POWERS = [pow(31, COLUMNS - column, MASK + 1) for column in range(COLUMNS + 1)]
"""The factor of a row's hash, for the rows behind it; then the factors of a row's units."""


def java_hash(text: str) -> int:
    """Java's String.hashCode: a signed 32-bit number."""
    value = 0
    if text.isascii() and len(text) <= SHORT_MAX:
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & MASK
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        if len(units) > 2 * SHORT_MAX:
            value = _long_hash(units)
        else:
            for at in range(0, len(units), 2):
                value = (31 * value + (units[at] << 8 | units[at + 1])) & MASK
    return value - 2**32 if value >= 2**31 else value


def _long_hash(units: bytes) -> int:
    """The hash of many UTF-16 units, in a quarter of the time: a client can send a group id of 32 KB.

    The units stand in rows of COLUMNS, with zeros in front. One large integer holds a number of 64 bits for each row.
    So a column is added to the hashes of all rows at once; a row's hash stays below 2**54.
    """
    row_bytes = 2 * COLUMNS
    units = bytes(-len(units) % row_bytes) + units
    rows = len(units) // row_bytes
    hashes = 0
    for column in range(COLUMNS):
        numbers = bytearray(8 * rows)
        numbers[6::8] = units[2 * column :: row_bytes]
        numbers[7::8] = units[2 * column + 1 :: row_bytes]
        hashes += POWERS[column + 1] * int.from_bytes(numbers)
    value = 0
    for row in struct.unpack(f">{rows}Q", hashes.to_bytes(8 * rows)):
        value = (POWERS[0] * value + row) & MASK
    return value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `group_id`, 0 <= partition < partition_count."""
    assert partition_count > 0
    value = java_hash(group_id)
    return 0 if value == INT32_MIN else abs(value) % partition_count
