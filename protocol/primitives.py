"""The parts of the wire format that take more than a `struct` code: variable-length integers, strings, tagged fields.

The generated code (`protocol.source`) handles common cases itself, such as a length below 128, and calls these
functions for the rest. Decoders take the buffer and an offset and return the value with the offset behind it.

If the buffer ends inside a string or bytes, a decoder returns the short value and an offset behind the buffer's end. So
an absurd length allocates nothing, later reads fail with IndexError or struct.error, and `protocol.compile.decode`
checks the last offset. A decoder here checks only errors that this doesn't catch.

House rule: no state, and every loop is bounded by the buffer's length.
Source: Kafka's ByteUtils and generated message classes; KIP-482.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from io import BytesIO

from protocol.errors import ProtocolError

STRING_SIZE_MAX = 0x7FFF
"""Bytes of UTF-8 in a string, in every version (Kafka refuses longer compact strings too)."""

UVARINT_SIZE_MAX = 5
"""Bytes of an unsigned varint: 32 bits, 7 in each."""

TAGS_MAX = 100
"""Tagged fields in one section. No message of Kafka has ten. A client can send others that the schema doesn't know, and
each costs far more memory than its three bytes on the wire.
"""

LONG_SIZE_MAX = 3 * STRING_SIZE_MAX
"""Bytes of UTF-8 in a string that is all U+FFFD, and was STRING_SIZE_MAX bytes long."""

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_MALFORMED = b"\xff"
"""Python takes each byte of a surrogate for a malformed sequence, and Java all of them for one, as this byte is."""

COPIED_BYTES = 1024 * 1024
"""Bytes that a decoder copies in one step: less than a millisecond. 100 MB at once take 100."""

UVARINT = tuple(bytes((value,)) for value in range(128))
"""The varints of one byte, by value."""


def copied(buffer: bytes, start: int, end: int) -> Generator[None, None, bytes]:
    """The bytes from `start` to `end`, copied in steps of COPIED_BYTES; fewer if the buffer ends before."""
    copy = BytesIO()
    with memoryview(buffer) as view:
        for at in range(start, min(end, len(buffer)), COPIED_BYTES):
            copy.write(view[at : min(at + COPIED_BYTES, end)])
            yield
    return copy.getvalue()


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint, least significant seven bits first."""
    assert 0 <= value < 1 << 32, value
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_uvarint(buffer: bytes, offset: int) -> tuple[int, int]:
    """An unsigned varint. Raises ProtocolError if it has more than 32 bits, IndexError if it is cut short."""
    value = 0
    for index in range(UVARINT_SIZE_MAX):
        byte = buffer[offset + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            if value >= 1 << 32:
                break
            return value, offset + index + 1
    raise ProtocolError("a varint of more than 32 bits")


def encode_string_size(size: int) -> bytes:
    """The length of a compact string."""
    assert size <= STRING_SIZE_MAX, f"a string of {size} bytes"
    return encode_uvarint(size + 1)


def decode_string_size(buffer: bytes, offset: int) -> tuple[int, int]:
    """The length, plus one, of a compact string of 127 bytes or more."""
    size, offset = decode_uvarint(buffer, offset)
    if size > STRING_SIZE_MAX + 1:
        raise ProtocolError(f"a string of {size - 1} bytes")
    return size, offset


def decode_text(content: bytes, size_max: int = STRING_SIZE_MAX) -> str:
    """The text of bytes that aren't all UTF-8, as Kafka reads them: U+FFFD stands for each malformed sequence.

    U+FFFD takes three bytes. Raises ProtocolError if the text takes more than `size_max`, because nothing could write
    it again. Source: Kafka's ByteBufferAccessor.readString; Java's String(byte[], Charset).
    """
    text = _SURROGATE.sub(_MALFORMED, content).decode(errors="replace")
    size = len(text.encode())
    if size > size_max:
        raise ProtocolError(f"a string of {size} bytes, once U+FFFD stands for what isn't UTF-8")
    return text


def encode_string(value: str) -> bytes:
    """A string with its length in two bytes."""
    encoded = value.encode()
    assert len(encoded) <= STRING_SIZE_MAX, f"a string of {len(encoded)} bytes"
    return len(encoded).to_bytes(2, "big") + encoded


def encode_compact_string(value: str) -> bytes:
    """A string with its length plus one as a varint."""
    encoded = value.encode()
    return encode_string_size(len(encoded)) + encoded


def encode_tags(fields: dict[int, bytes]) -> bytes:
    """A section of tagged fields, ascending by tag: count, then tag, size and bytes of each."""
    parts = [encode_uvarint(len(fields))]
    for tag in sorted(fields):
        value = fields[tag]
        parts += (encode_uvarint(tag), encode_uvarint(len(value)), value)
    return b"".join(parts)


def decode_tags(buffer: bytes, offset: int) -> tuple[dict[int, bytes], int]:
    """A section of tagged fields, each as its bytes, known or not.

    Raises ProtocolError if there are more than TAGS_MAX, or unless the tags ascend, as KIP-482 demands: so no field is
    there twice, and encoding gives the same bytes again.
    """
    count, offset = decode_uvarint(buffer, offset)
    if count > TAGS_MAX:
        raise ProtocolError(f"{count} tagged fields; {TAGS_MAX} are allowed")
    fields: dict[int, bytes] = {}
    last = -1
    for _ in range(count):
        tag, offset = decode_uvarint(buffer, offset)
        if tag <= last:
            raise ProtocolError(f"tagged field {tag} behind {last}")
        size, offset = decode_uvarint(buffer, offset)
        last = tag
        fields[tag] = buffer[offset : offset + size]
        offset += size
        if offset > len(buffer):
            raise ProtocolError(f"tagged field {tag} of {size} bytes is cut short")
    return fields, offset
