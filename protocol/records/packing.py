"""Large values of records, packed for a store that takes requests of a limited size only.

House rule: only a packed value begins with PACKED.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from protocol.errors import ProtocolError
from protocol.records.batch import Record

PACKED_FROM = 512 * 1024
"""A value of so many bytes is packed."""
PACKED = b"z"
"""The first byte of a packed value; all of Kafka's begin with the high byte of a version, 0."""

OVERHEAD = 64
"""Bytes that a record takes in a request to such a store beside key and value."""


def packed(value: bytes) -> bytes:
    """A value as the store gets it: compressed from PACKED_FROM on, to fit more into a request."""
    return value if len(value) < PACKED_FROM else PACKED + zlib.compress(value, 1)


def unpacked(stored: bytes) -> bytes:
    """The value that was stored. Raises ProtocolError if it is packed in another way."""
    if not stored.startswith(PACKED):
        return stored
    try:
        return zlib.decompress(stored[1:])
    except zlib.error as error:
        raise ProtocolError(f"a value that begins with {PACKED!r} can't be unpacked: {error}") from None


def plain_bytes(records: Iterable[Record]) -> int:
    """The bytes that records would take in such a request if none was packed. Packing takes about 10 ms for each MB."""
    return sum(len(record.key or b"") + len(record.value or b"") + OVERHEAD for record in records)


def stored_bytes(records: Iterable[Record]) -> int:
    """The bytes that records take in a request to such a store."""
    return sum(len(record.key or b"") + len(packed(record.value or b"")) + OVERHEAD for record in records)
