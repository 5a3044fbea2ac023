"""Each type of the wire: its bytes at both limits, and the values and bytes that the codec refuses.

Each type is the type of the only field of a message, so the tests use the same compiled code as any message.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Sequence
from functools import cache
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from protocol import primitives
from protocol.compile import encode, message_class
from protocol.definition import define
from protocol.errors import ProtocolError
from tests.support.decoded import decode_from

PLAIN, FLEXIBLE = 0, 1
"""The two versions of the messages in this file."""

MALFORMED = [
    (b"gr\xf6\xdfe", "gr\ufffd\ufffde"),
    (b"\0\xff\xfe\1", "\0\ufffd\ufffd\1"),
    (b"\x80\xbf", "\ufffd\ufffd"),
    (b"\xc3(", "\ufffd("),
    (b"\xc0\x80", "\ufffd\ufffd"),
    (b"\xe2\x82", "\ufffd"),
    (b"\xe2\x82x", "\ufffdx"),
    (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
    (b"\xed\xa0\x80", "\ufffd"),
    (b"a\xed\xa0\x80\xed\xbf\xbfz", "a\ufffd\ufffdz"),
    (b"\xed\xa0", "\ufffd"),
    (b"\xed\xa0x", "\ufffdx"),
    (b"\xed\xed\xbf\xbf", "\ufffd\ufffd"),
    (b"\xf0\x9f\x98", "\ufffd"),
    (b"\xf0\x9f\x98\xf0", "\ufffd\ufffd"),
    (b"\xf0\x80\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
    (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
    (b"\xf8\x88\x80\x80\x80", "\ufffd\ufffd\ufffd\ufffd\ufffd"),
    ("\ue000\ufffd\U0001f600".encode() + b"\xff", "\ue000\ufffd\U0001f600\ufffd"),
]
"""Bytes, and the text that `new String(bytes, UTF_8)` of Java 17 makes of them."""


@cache
def one_field(line: str) -> type[Any]:
    """Return the class of a message with one field, `value`."""
    cls: type[Any] = message_class(define("Example", f"value {line}", (PLAIN, FLEXIBLE), flexible=FLEXIBLE))
    return cls


class Contract:
    """The tests of each type: values and their bytes in both directions, and bytes that the codec refuses.

    A subclass names the type. For each of the two forms it has values with their bytes, values outside the type, and
    bytes that are no value. The bytes of the flexible form end before the count of tagged fields.
    """

    type_name: str
    plain: Sequence[tuple[Any, bytes]]
    flexible: Sequence[tuple[Any, bytes]]
    impossible: Sequence[Any]
    broken_plain: Sequence[bytes]
    broken_flexible: Sequence[bytes]

    def pairs(self) -> list[tuple[int, Any, bytes]]:
        """Return version, value and body of all examples."""
        plain = [(PLAIN, value, data) for value, data in self.plain]
        return plain + [(FLEXIBLE, value, data + b"\0") for value, data in self.flexible]

    def test_encodes(self) -> None:
        """The encoder writes exactly these bytes for a value."""
        cls = one_field(self.type_name)
        for version, value, data in self.pairs():
            assert encode(cls(value=value), version) == data, (version, value)

    def test_decodes(self) -> None:
        """The decoder returns the value with its type and the end, at an offset, with other bytes behind."""
        cls = one_field(self.type_name)
        for version, value, data in self.pairs():
            message, end = decode_from(cls, b"??" + data + b"?", version, 2)
            assert (message.value, type(message.value), end) == (value, type(value), 2 + len(data)), (version, value)

    def test_cut_short(self) -> None:
        """The decoder refuses a value that ends too early, wherever it ends."""
        cls = one_field(self.type_name)
        for version, _, data in self.pairs():
            for size in range(len(data)):
                with pytest.raises(ProtocolError):
                    decode_from(cls, data[:size], version)

    def test_impossible_values(self) -> None:
        """The encoder refuses a value outside the type."""
        cls = one_field(self.type_name)
        for version in (PLAIN, FLEXIBLE):
            for value in self.impossible:
                with pytest.raises(AssertionError):
                    encode(cls(value=value), version)

    def test_broken_bytes(self) -> None:
        """The decoder refuses bytes that are no value, and takes no memory for the size that they announce."""
        cls = one_field(self.type_name)
        broken = [(PLAIN, data) for data in self.broken_plain]
        broken += [(FLEXIBLE, data + b"\0") for data in self.broken_flexible]
        for version, data in broken:
            tracemalloc.start()
            try:
                with pytest.raises(ProtocolError):
                    decode_from(cls, data, version)
                assert tracemalloc.get_traced_memory()[1] < 100_000
            finally:
                tracemalloc.stop()


class SameInBothForms(Contract):
    """A type of fixed size has the same bytes in both forms."""

    broken_plain = ()
    broken_flexible = ()

    def pairs(self) -> list[tuple[int, Any, bytes]]:
        """Return version, value and body of all examples."""
        self.flexible = self.plain
        return super().pairs()


class TestBool(SameInBothForms):
    """bool: a byte."""

    type_name = "bool 0+"
    plain = ((False, b"\0"), (True, b"\1"))
    impossible = ()

    def test_any_other_byte_is_true(self) -> None:
        """The decoder reads every byte but zero as true, as Kafka does."""
        assert decode_from(one_field("bool 0+"), b"\x02", PLAIN)[0].value is True


class TestInt8(SameInBothForms):
    """int8: a byte in two's complement."""

    type_name = "int8 0+"
    plain = ((-128, b"\x80"), (-1, b"\xff"), (0, b"\0"), (127, b"\x7f"))
    impossible = (-129, 128, None, "1")


class TestInt16(SameInBothForms):
    """int16: two bytes, most significant first."""

    type_name = "int16 0+"
    plain = ((-(2**15), b"\x80\0"), (-1, b"\xff\xff"), (258, b"\1\2"), (2**15 - 1, b"\x7f\xff"))
    impossible = (-(2**15) - 1, 2**15, None, 1.5)


class TestUint16(SameInBothForms):
    """uint16: two bytes without sign."""

    type_name = "uint16 0+"
    plain = ((0, b"\0\0"), (258, b"\1\2"), (2**16 - 1, b"\xff\xff"))
    impossible = (-1, 2**16, None)


class TestInt32(SameInBothForms):
    """int32: four bytes."""

    type_name = "int32 0+"
    plain = ((-(2**31), b"\x80\0\0\0"), (-1, b"\xff" * 4), (16909060, b"\1\2\3\4"), (2**31 - 1, b"\x7f\xff\xff\xff"))
    impossible = (-(2**31) - 1, 2**31, None)


class TestUint32(SameInBothForms):
    """uint32: four bytes without sign."""

    type_name = "uint32 0+"
    plain = ((0, b"\0\0\0\0"), (2**32 - 1, b"\xff" * 4))
    impossible = (-1, 2**32, None)


class TestInt64(SameInBothForms):
    """int64: eight bytes."""

    type_name = "int64 0+"
    plain = ((-(2**63), b"\x80" + b"\0" * 7), (-1, b"\xff" * 8), (2**63 - 1, b"\x7f" + b"\xff" * 7))
    impossible = (-(2**63) - 1, 2**63, None)


class TestFloat64(SameInBothForms):
    """float64: IEEE 754, eight bytes."""

    type_name = "float64 0+"
    plain = ((0.0, b"\0" * 8), (-2.0, b"\xc0" + b"\0" * 7), (float("inf"), b"\x7f\xf0" + b"\0" * 6))
    impossible = (None, "1")


class TestUuid(SameInBothForms):
    """uuid: sixteen bytes."""

    type_name = "uuid 0+"
    plain = (
        (UUID(int=0), b"\0" * 16),
        (UUID(int=2**128 - 1), b"\xff" * 16),
        (UUID(bytes=bytes(range(16))), bytes(range(16))),
    )
    impossible = (None, b"\0" * 16)


class TestString(Contract):
    """string: UTF-8 of at most 32767 bytes, behind a length of two bytes, or behind length + 1 as a varint."""

    type_name = "string 0+"
    plain = (
        ("", b"\0\0"),
        ("é€", b"\0\5\xc3\xa9\xe2\x82\xac"),
        ("\0", b"\0\1\0"),
        ("x" * 32_767, b"\x7f\xff" + b"x" * 32_767),
    )
    flexible = (
        ("", b"\1"),
        ("é€", b"\6\xc3\xa9\xe2\x82\xac"),
        ("x" * 126, b"\x7f" + b"x" * 126),
        ("x" * 127, b"\x80\1" + b"x" * 127),
        ("x" * 16_383, b"\x80\x80\1" + b"x" * 16_383),
        ("x" * 32_767, b"\x80\x80\2" + b"x" * 32_767),
    )
    impossible = (None, b"bytes", "x" * 32_768, "\ud800")
    broken_plain = (b"\xff\xff", b"\x7f\xff", b"\x2a\xab" + b"\xff" * 10_923)
    broken_flexible = (
        b"\0",
        b"\x05x",
        b"\xac\x55" + b"\xff" * 10_923,
        b"\x81\x80\2" + b"x" * 32_768,
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff\xff\1",
    )

    @pytest.mark.parametrize("version", [PLAIN, FLEXIBLE])
    @pytest.mark.parametrize("type_name", ["string 0+", "[]string 0+"])
    @pytest.mark.parametrize(("content", "text"), MALFORMED)
    def test_malformed_text(self, version: int, type_name: str, content: bytes, text: str) -> None:
        """U+FFFD stands for each sequence that isn't UTF-8, as many as Java makes of it."""
        is_array = type_name.startswith("[]")
        count = (b"\2" if version == FLEXIBLE else b"\0\0\0\1") if is_array else b""
        size = bytes([len(content) + 1]) if version == FLEXIBLE else len(content).to_bytes(2)
        body = count + size + content
        message, end = decode_from(one_field(type_name), body + b"\0", version)
        assert (message.value, end) == ([text] if is_array else text, len(body) + version)

    def test_malformed_text_may_grow_to_the_limit(self) -> None:
        """A text of U+FFFD alone is read up to the length that can be written again."""
        body = (10_922).to_bytes(2) + b"\xff" * 10_922
        assert decode_from(one_field("string 0+"), body, PLAIN)[0].value == "\ufffd" * 10_922

    def test_long_text_may_grow(self) -> None:
        """A field whose reader refuses long texts itself is read even if nothing could write its text again."""
        body = (32_767).to_bytes(2) + b"\xff" * 32_767
        assert decode_from(one_field("string 0+ long"), body, PLAIN)[0].value == "\ufffd" * 32_767


class TestNullableString(Contract):
    """string that may be null: length -1, or 0 in the compact form."""

    type_name = "string 0+ null"
    plain = ((None, b"\xff\xff"), ("", b"\0\0"), ("a", b"\0\1a"))
    flexible = ((None, b"\0"), ("", b"\1"), ("a", b"\2a"))
    impossible = (b"bytes", "x" * 32_768)
    broken_plain = (b"\0\2x",)
    broken_flexible = (b"\3x",)

    def test_any_negative_length_is_null(self) -> None:
        """The decoder reads every negative length as null, as Kafka does."""
        assert decode_from(one_field("string 0+ null"), b"\x80\0", PLAIN)[0].value is None


class TestBytes(Contract):
    """bytes: a length of four bytes, or length + 1 as a varint, and the bytes."""

    type_name = "bytes 0+"
    plain = ((b"", b"\0\0\0\0"), (b"\0\xff", b"\0\0\0\2\0\xff"), (b"x" * 40_000, b"\0\0\x9c\x40" + b"x" * 40_000))
    flexible = ((b"", b"\1"), (b"\0\xff", b"\3\0\xff"), (b"x" * 40_000, b"\xc1\xb8\2" + b"x" * 40_000))
    impossible = (None, "text")
    broken_plain = (b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\3ab")
    broken_flexible = (b"\0", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\1", b"\4ab")


class TestNullableBytes(Contract):
    """bytes that may be null."""

    type_name = "bytes 0+ null"
    plain = ((None, b"\xff\xff\xff\xff"), (b"", b"\0\0\0\0"), (b"a", b"\0\0\0\1a"))
    flexible = ((None, b"\0"), (b"", b"\1"), (b"a", b"\2a"))
    impossible = ("text",)
    broken_plain = (b"\x7f\xff\xff\xff",)
    broken_flexible = (b"\xff\xff\xff\xff\x0f",)


class TestRecords(TestNullableBytes):
    """records: bytes that the codec doesn't read."""

    type_name = "records 0+ null"


class TestArrayOfInt32(Contract):
    """Array: a count of four bytes, or count + 1 as a varint, and the elements."""

    type_name = "[]int32 0+"
    plain = (([], b"\0\0\0\0"), ([1, -1], b"\0\0\0\2\0\0\0\1\xff\xff\xff\xff"))
    flexible = (([], b"\1"), ([1, -1], b"\3\0\0\0\1\xff\xff\xff\xff"), ([0] * 127, b"\x80\1" + b"\0" * 508))
    impossible = (None, [None], [2**31], 5)
    broken_plain = (b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\2\0\0\0\1\0\0\0")
    broken_flexible = (b"\0", b"\xff\xff\xff\xff\x0f", b"\3\0\0\0\1")


class TestArrayOfBool(Contract):
    """An array whose elements have one byte."""

    type_name = "[]bool 0+"
    plain = (([], b"\0\0\0\0"), ([True, False], b"\0\0\0\2\1\0"))
    flexible = (([True, False], b"\3\1\0"),)
    impossible = (None,)
    broken_plain = (b"\x7f\xff\xff\xff",)
    broken_flexible = (b"\xff\xff\xff\xff\x0f",)


class TestArrayOfUuid(Contract):
    """An array of uuids."""

    type_name = "[]uuid 0+"
    plain = (([UUID(int=7), UUID(int=0)], b"\0\0\0\2" + b"\0" * 15 + b"\7" + b"\0" * 16),)
    flexible = (([UUID(int=7)], b"\2" + b"\0" * 15 + b"\7"),)
    impossible = ([None], [b"\0" * 16])
    broken_plain = (b"\x7f\xff\xff\xff" + b"\0" * 99,)
    broken_flexible = (b"\xff\xff\xff\xff\x0f" + b"\0" * 99,)


class TestNullableArrayOfString(Contract):
    """An array that may be null, of strings that may not be null."""

    type_name = "[]string 0+ null"
    plain = ((None, b"\xff\xff\xff\xff"), (["", "a"], b"\0\0\0\2\0\0\0\1a"))
    flexible = ((None, b"\0"), (["", "a"], b"\3\1\2a"), (["x" * 127], b"\2\x80\1" + b"x" * 127))
    impossible = ([None], ["x" * 32_768], [b"a"])
    broken_plain = (b"\x7f\xff\xff\xff", b"\0\0\0\1\xff\xff", b"\0\0\0\3\0\0\0\0")
    broken_flexible = (b"\xff\xff\xff\xff\x0f", b"\2\0", b"\3\1")


class TestArrayOfBytes(Contract):
    """An array of bytes."""

    type_name = "[]bytes 0+"
    plain = (([b"", b"a"], b"\0\0\0\2\0\0\0\0\0\0\0\1a"),)
    flexible = (([b"", b"a"], b"\3\1\2a"),)
    impossible = ([None], ["a"])
    broken_plain = (b"\0\0\0\1\xff\xff\xff\xff",)
    broken_flexible = (b"\2\0",)


class TestStruct(Contract):
    """A struct: its fields, and its own tagged fields in the flexible form."""

    type_name = "Pair 0+\n    left int8 0+\n    right string 0+"
    impossible = (None, 5)
    broken_plain = ()
    broken_flexible = ()

    @property
    def plain(self) -> list[tuple[Any, bytes]]:  # type: ignore[override]
        """Values that are a pair, with their bytes."""
        return [(one_field(self.type_name).Pair(left=1, right="a"), b"\1\0\1a")]

    @property
    def flexible(self) -> list[tuple[Any, bytes]]:  # type: ignore[override]
        """The same pair in the flexible form."""
        return [(one_field(self.type_name).Pair(left=1, right="a"), b"\1\2a\0")]


@given(st.integers(0, 2**32 - 1))
def test_varint_round_trip(value: int) -> None:
    """A varint takes one byte per seven bits and comes back, from any offset."""
    encoded = primitives.encode_uvarint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert primitives.decode_uvarint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_varint_bytes(value: int, encoded: bytes) -> None:
    """The low seven bits come first; the high bit of a byte means that another byte follows."""
    assert primitives.encode_uvarint(value) == encoded


@pytest.mark.parametrize("encoded", [b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\xff\0", b"\x80\x80\x80\x80\x80"])
def test_varint_of_more_than_32_bits_is_refused(encoded: bytes) -> None:
    """The decoder refuses a varint of more than 32 bits, because no length has more."""
    with pytest.raises(ProtocolError):
        primitives.decode_uvarint(encoded, 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_varint_out_of_range_is_a_mistake(value: int) -> None:
    """The encoder refuses a number that is negative or has more than 32 bits."""
    with pytest.raises(AssertionError):
        primitives.encode_uvarint(value)


@given(st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=200), max_size=5))
def test_tagged_fields_round_trip(fields: dict[int, bytes]) -> None:
    """Tagged fields come back unchanged, sorted by tag."""
    encoded = primitives.encode_tags(fields)
    decoded, end = primitives.decode_tags(b"??" + encoded + b"?", 2)
    assert (decoded, end) == (fields, 2 + len(encoded))
    assert list(decoded) == sorted(fields)


@pytest.mark.parametrize(
    "encoded",
    [b"\2\1\0\1\0", b"\2\2\0\1\0", b"\1\0\5ab", b"\1\0\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f\0\0"],
    ids=["twice", "descending", "cut short", "absurd size", "absurd count"],
)
def test_broken_tagged_fields_are_refused(encoded: bytes) -> None:
    """The decoder refuses tags that don't ascend (KIP-482), and incomplete tagged fields."""
    with pytest.raises((ProtocolError, IndexError)):
        primitives.decode_tags(encoded, 0)


def test_tagged_fields_have_a_limit() -> None:
    """A section has at most TAGS_MAX fields; one that announces more is refused before any of them is read."""
    most = dict.fromkeys(range(primitives.TAGS_MAX), b"")
    assert primitives.decode_tags(primitives.encode_tags(most), 0)[0] == most
    with pytest.raises(ProtocolError, match="101 tagged fields; 100 are allowed"):
        primitives.decode_tags(primitives.encode_tags({**most, primitives.TAGS_MAX: b""}), 0)


def test_strings_of_arrays_have_the_same_limit() -> None:
    """A string in an array has the same limit as a string in a field."""
    for function in (primitives.encode_string, primitives.encode_compact_string):
        assert function("x" * primitives.STRING_SIZE_MAX).endswith(b"x")
        with pytest.raises(AssertionError):
            function("x" * (primitives.STRING_SIZE_MAX + 1))


def test_fixed_types_have_the_sizes_of_the_protocol() -> None:
    """The formats of `struct` in standard mode have the sizes that Kafka's guide names."""
    assert [struct.calcsize(f">{code}") for code in "?bhHiIqd"] == [1, 1, 2, 2, 4, 4, 8, 8]
