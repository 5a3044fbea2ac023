"""Numbers and texts that are read at many positions at once equal those that are read one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.audit.read.vectors import PADDING, VARINT_MAX, Data, Ints, Text


def data_of(content: bytes) -> Data:
    """Return the bytes as a range has them."""
    data = Data(len(content))
    data.view[: len(content)] = content
    return data


def ints(*numbers: int) -> Ints:
    """Return an array of positions."""
    return np.array(numbers, np.int64)


def varint(number: int) -> bytes:
    """Return an unsigned varint of up to 9 bytes."""
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def test_zeros_follow_the_bytes() -> None:
    """Zeros follow the data, so that a read at a valid position plus a member's sizes stays in the array."""
    data = data_of(b"\xff")
    assert bytes(data.view) == b"\xff" + bytes(PADDING)
    assert data.signed(ints(1, PADDING - 7), 8).tolist() == [0, 0]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_signed_numbers_are_big_endian(size: int) -> None:
    """Signed numbers are read as big endian at any position, aligned or not."""
    content = bytes(range(0xF8, 0x100)) + bytes(range(8))
    expected = [int.from_bytes(content[at : at + size], "big", signed=True) for at in range(8)]
    assert data_of(content).signed(np.arange(8), size).tolist() == expected


@given(numbers=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20))
def test_varints_come_back(numbers: list[int]) -> None:
    """Varints come back with the position behind each."""
    parts = [varint(number) for number in numbers]
    starts = [sum(map(len, parts[:index])) for index in range(len(parts))]
    found, ends, long = data_of(b"".join(parts)).varint(ints(*starts))
    assert found.tolist() == numbers
    assert ends.tolist() == [start + len(part) for start, part in zip(starts, parts, strict=True)]
    assert not long.any()


def test_varint_that_is_too_long_is_flagged() -> None:
    """A varint of more than nine bytes is flagged; the reader looks at no tenth byte."""
    content = b"\x80" * VARINT_MAX + b"\x01" + b"\x05"
    number, end, long = data_of(content).varint(ints(0, VARINT_MAX + 1))
    assert long.tolist() == [True, False]
    assert (number[1], end[1]) == (5, VARINT_MAX + 2)


def test_text_keeps_to_its_limit() -> None:
    """A text that is longer than its limit, or null where it can't be, is flagged and ends at the limit."""
    content = b"\x00\x02ab" + b"\xff\xff" + b"\x00\x09c"
    starts, limits = ints(0, 4, 6), ints(4, 6, 9)
    text, ends, bad = data_of(content).text(starts, limits)
    assert bad.tolist() == [False, True, True]
    assert ends.tolist() == [4, 6, 9]
    assert text.size.tolist() == [2, -1, 9]
    _, _, bad = data_of(content).text(starts, limits, nullable=True)
    assert bad.tolist() == [False, False, True]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_array_copies_the_texts(kind: pa.DataType) -> None:
    """The array has the texts, the empty ones and the nulls, without the bytes between them."""
    content = b"--ab---" + "é".encode()
    text = Text(ints(2, 4, 5, 7), ints(2, 0, -1, 2))
    expected = ["ab", "", None, "é"]
    array = data_of(content).array(text, kind)
    array.validate(full=True)
    assert array.to_pylist() == [
        each.encode() if each is not None and kind == pa.binary() else each for each in expected
    ]
    assert data_of(content).array(text.take(ints()), kind).to_pylist() == []


def test_array_refuses_text_that_is_no_utf_8() -> None:
    """Text that isn't UTF-8 is refused; its batch then goes to the parser."""
    text = Text(ints(0), ints(2))
    with pytest.raises(pa.ArrowInvalid):
        data_of(b"\xc3\x28").array(text, pa.string())
    assert data_of(b"\xc3\x28").array(text, pa.binary()).to_pylist() == [b"\xc3\x28"]
