"""The numbers inside a record: zigzag varints, base 128 with the low bits first.

Zigzag gives numbers near zero few bytes, whatever their sign: 0, -1, 1, -2 are stored as 0, 1, 2, 3. So an odd stored
number is negative. Readers that only compare or look for -1 leave a number as it is stored.

House rule: a loop over many records reads numbers of one byte itself and calls `read_varint` for longer ones.
"""

from __future__ import annotations

from functools import lru_cache

NUMBERS_CACHED_MAX = 4096
"""Numbers whose bytes are remembered: a batch has five for each record."""

NULL_LENGTH = 1
"""The length -1 as it is stored: there is no value, or no key."""

_BITS_MAX = 63


@lru_cache(NUMBERS_CACHED_MAX)
def encode_varint(number: int) -> bytes:
    """The bytes of a number."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def unzigzag(number: int) -> int:
    """The number that is stored as `number`."""
    return (number >> 1) ^ -(number & 1)


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, as it is stored, and the index behind it. Raises as `read_varint` does."""
    first = data[at]
    return (first, at + 1) if first < 0x80 else read_varint(data, at + 1, first)


def read_varint(data: bytes, at: int, first: int) -> tuple[int, int]:
    """The number that starts with the byte `first` and goes on at `at`, as it is stored, and the index behind it.

    Raises ValueError if it takes more than ten bytes, IndexError if `data` ends before it does.
    """
    number = first & 0x7F
    shift = 7
    while shift <= _BITS_MAX:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise ValueError("number too long")
