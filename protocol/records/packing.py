"""Large values of records, packed for a store that takes requests of a limited size only.

House rule: only a packed value begins with PACKED.
"""

from __future__ import annotations

import zlib

from protocol.errors import ProtocolError

PACKED_FROM = 512 * 1024
"""A value of so many bytes is packed."""
PACKED = b"z"
"""The first byte of a packed value; all of Kafka's begin with the high byte of a version, 0."""


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
